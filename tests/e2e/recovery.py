"""How long a fault is felt: from the times of commits and of first arrivals. Pure functions, like the checker's.

Writers write all the time, so a row that comes late tells that somebody who should have published it did not. A fault
is over when the last row that it made late has arrived.
"""

from statistics import median
from typing import NamedTuple

LATE = 1.0      # seconds from commit to arrival after which a row counts as late


class Fault(NamedTuple):
    """What was done, from `begin` to `end`. Recovery is counted from `since`: the blow, or the end of an outage."""

    kind: str
    begin: float
    end: float
    since: float
    detail: str = ""


def recoveries(ledger, log, faults, late=LATE):
    """For each fault, in their order, how many seconds after `since` rows still came late; 0.0 when nobody noticed.

    A late row belongs to the last fault that began before the moment when it should have arrived. When the next fault
    strikes meanwhile, counting ends there: what comes later may be the other's doing.
    """
    first = {}
    for arrival in log:
        if arrival.time is not None:
            first[arrival.message_id] = min(arrival.time, first.get(arrival.message_id, arrival.time))
    delays = sorted((entry.time, first[entry.message_id]) for entry in ledger
                    if entry.time is not None and first.get(entry.message_id, entry.time) - entry.time > late)
    result = []
    for index, fault in enumerate(faults):
        until = faults[index + 1].begin if index + 1 < len(faults) else float("inf")
        felt = [arrived for committed, arrived in delays if fault.begin <= committed + late < until]
        result.append(max([0.0] + [min(arrived, until) - fault.since for arrived in felt]))
    return result


def summary(felt):
    """From pairs of fault and recovery: kind → (how many, median, longest)."""
    kinds = {}
    for fault, recovery in felt:
        kinds.setdefault(fault.kind, []).append(recovery)
    return {kind: (len(times), median(times), max(times)) for kind, times in sorted(kinds.items())}
