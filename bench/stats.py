"""The few statistics that the report shows."""

import math
import statistics


def summary(values):
    """The middle and how far the rounds lie apart."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratio(ours, theirs):
    """The summary of quotients round by round: what slows the machine for a while slows both."""
    return summary([mine / other for mine, other in zip(ours, theirs, strict=True)])


def percentile(values, percent):
    """The smallest value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
