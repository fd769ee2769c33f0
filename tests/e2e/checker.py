"""Compares what was committed with what arrived. Pure functions: no server, no clock.

The ledger says what the application committed: each entity numbers its events 1, 2, 3 … in commit order. The log says
what a consumer saw, in the consumer's order. Delivery is at least once, so order is judged by the first occurrence of
each event; whether repeats are allowed depends on what the test did, so they are reported apart.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field, fields
from typing import NamedTuple


class Entry(NamedTuple):
    """One committed event."""

    entity: str
    seq: int
    message_id: str


class Arrival(NamedTuple):
    """One event as a consumer saw it. `place` is the partition; None where there are none."""

    entity: str
    seq: int
    message_id: str
    place: object = None


@dataclass
class Report:
    """Every kind of violation with its events; all empty is a clean history."""

    lost: list = field(default_factory=list)        # committed, never arrived
    phantom: list = field(default_factory=list)     # arrived, never committed (or as something else)
    disorder: list = field(default_factory=list)    # first arrived after a later event of its entity
    gaps: list = field(default_factory=list)        # first arrived before its predecessor did, if that ever came
    duplicates: list = field(default_factory=list)  # arrived again
    scattered: list = field(default_factory=list)   # entities in more than one partition

    def violations(self, ignore=()):
        """The names of what is violated, without those the test allows."""
        return [f.name for f in fields(self) if f.name not in ignore and getattr(self, f.name)]

    def __str__(self):
        return ", ".join(
            f"{f.name} {len(getattr(self, f.name))} (first: {getattr(self, f.name)[0]})"
            for f in fields(self) if getattr(self, f.name)) or "clean"


def check(ledger, log):
    """Compares a ledger (entries in any order) with a log (arrivals in the order seen)."""
    report = Report()
    committed = {entry.message_id: entry for entry in ledger}
    times = Counter()
    places = defaultdict(set)
    seen = defaultdict(set)         # entity → sequence numbers that arrived
    highest = defaultdict(int)      # entity → greatest of them

    for arrival in log:
        entry = Entry(*arrival[:3])
        places[arrival.entity].add(arrival.place)
        times[entry.message_id] += 1
        if committed.get(entry.message_id) != entry:
            report.phantom.append(arrival)
            continue
        if times[entry.message_id] > 1:
            report.duplicates.append(arrival)
            continue
        if entry.seq < highest[entry.entity]:
            report.disorder.append(arrival)
        if entry.seq > 1 and entry.seq - 1 not in seen[entry.entity]:
            report.gaps.append(arrival)
        seen[entry.entity].add(entry.seq)
        highest[entry.entity] = max(highest[entry.entity], entry.seq)

    report.lost = [entry for entry in ledger if entry.message_id not in times]
    report.scattered = [entity for entity, used in places.items() if len(used) > 1]
    return report


def expect_in_order(ledger, log):
    """Nothing lost, nothing made up, order per entity; repeats are allowed. Returns the report."""
    report = check(ledger, log)
    assert not report.violations(ignore=("duplicates",)), str(report)
    return report


def expect_exactly_once(ledger, log):
    """In order and without a single repeat."""
    report = check(ledger, log)
    assert not report.violations(), str(report)
    return report


def expect_complete(ledger, log):
    """Nothing lost, made up or repeated, where writers gave the entity no order to keep."""
    report = check(ledger, log)
    assert not report.violations(ignore=("disorder", "gaps")), str(report)
    return report
