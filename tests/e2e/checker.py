"""Compares what was committed with what arrived. Pure functions: no server, no clock.

Three sources. The ledger says what the application committed: each entity numbers its events 1, 2, 3 … in commit
order. The log says what a consumer saw, in the consumer's order. The remains say what is still in the database at the
end. Delivery is at least once, so order is judged by the first occurrence of each event; whether repeats are allowed
depends on what the test did, so they are reported apart.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field, fields
from typing import NamedTuple, Optional


class Entry(NamedTuple):
    """One committed event; `time` in seconds, where it is known."""

    entity: str
    seq: int
    message_id: str
    time: Optional[float] = None


class Arrival(NamedTuple):
    """One event as a consumer saw it.

    `place` is the partition; None where there are none. `time` is the broker's, in seconds. `claim` names the claim
    under which a worker read the row: equal for two rows only if the same worker had the entity all the time between.
    """

    entity: str
    seq: int
    message_id: str
    place: object = None
    time: Optional[float] = None
    claim: Optional[str] = None


class Remains(NamedTuple):
    """What the database still has when the relays should have finished."""

    outbox: frozenset = frozenset()     # message ids of rows that are still in the table
    held: tuple = ()                    # entities that are held back
    dead: tuple = ()                    # message ids of dead letters, as often as there are some
    poison: frozenset = frozenset()     # message ids that no sink takes


class Overtaken(NamedTuple):
    """An event that first arrived after a later one of its entity."""

    arrival: Arrival
    by: Arrival


class Repeat(NamedTuple):
    """An event that arrived again: how many records of its entity lie between, and how many seconds."""

    arrival: Arrival
    records: int
    seconds: Optional[float]


class Overlap(NamedTuple):
    """Records of `outer` stand before and after `inner`, so two claims had one entity at once."""

    entity: str
    outer: Arrival      # the record of the one claim behind …
    inner: Arrival      # … the first record of the other

    @property
    def claims(self):
        return frozenset((self.outer.claim, self.inner.claim))


@dataclass
class Report:
    """Every kind of violation with its events; all empty is a clean history."""

    lost: list = field(default_factory=list)        # committed, never arrived, and not in the outbox any more
    waiting: list = field(default_factory=list)     # committed, not arrived, still in the outbox
    phantom: list = field(default_factory=list)     # arrived, never committed (or as something else)
    disorder: list = field(default_factory=list)    # first arrived after a later event of its entity
    gaps: list = field(default_factory=list)        # first arrived before its predecessor did, if that ever came
    overlap: list = field(default_factory=list)     # two claims on one entity at once, seen in first occurrences
    echoes: list = field(default_factory=list)      # the same, seen only because of repeats
    duplicates: list = field(default_factory=list)  # arrived again
    unsettled: list = field(default_factory=list)   # arrived, and still in the outbox
    held: list = field(default_factory=list)        # entities that are held back at the end
    buried: list = field(default_factory=list)      # dead letters that are no poison, or are there twice
    scattered: list = field(default_factory=list)   # entities in more than one partition

    def violations(self, ignore=()):
        """The names of what is violated, without those the test allows."""
        return [f.name for f in fields(self) if f.name not in ignore and getattr(self, f.name)]

    def counts(self):
        return {f.name: len(getattr(self, f.name)) for f in fields(self)}

    def __str__(self):
        return ", ".join(
            f"{f.name} {len(getattr(self, f.name))} (first: {getattr(self, f.name)[0]})"
            for f in fields(self) if getattr(self, f.name)) or "clean"


def check(ledger, log, remains=Remains()):
    """Compares a ledger (entries in any order) with a log (arrivals in the order seen)."""
    report = Report(held=list(remains.held))
    committed = {entry.message_id: entry for entry in ledger}
    arrived = set()
    of_entity = defaultdict(list)
    for arrival in log:
        of_entity[arrival.entity].append(arrival)
        arrived.add(arrival.message_id)

    for entity, arrivals in of_entity.items():
        real = [arrival for arrival in arrivals if _is_committed(committed, arrival)]
        report.phantom += [arrival for arrival in arrivals if not _is_committed(committed, arrival)]
        firsts, repeats = _first_occurrences(real)
        report.duplicates += repeats
        _check_order(report, firsts)
        overlap = overlaps(firsts)
        pairs = {found.claims for found in overlap}
        report.overlap += overlap
        report.echoes += [found for found in overlaps(real) if found.claims not in pairs]
        if len({arrival.place for arrival in arrivals}) > 1:
            report.scattered.append(entity)

    dead = Counter(remains.dead)
    report.buried = [message_id for message_id, count in dead.items() if count > 1 or message_id not in remains.poison]
    missing = [entry for entry in ledger if entry.message_id not in arrived and entry.message_id not in dead]
    report.lost = [entry for entry in missing if entry.message_id not in remains.outbox]
    report.waiting = [entry for entry in missing if entry.message_id in remains.outbox]
    report.unsettled = [entry for entry in ledger if entry.message_id in arrived and entry.message_id in remains.outbox]
    return report


def _is_committed(committed, arrival):
    entry = committed.get(arrival.message_id)
    return entry is not None and entry[:3] == arrival[:3]


def _first_occurrences(arrivals):
    """Of one entity's arrivals, those that come for the first time, and the repeats with their distance."""
    where, firsts, repeats = {}, [], []
    for index, arrival in enumerate(arrivals):
        if arrival.message_id in where:
            first = where[arrival.message_id]
            repeats.append(Repeat(arrival, index - first - 1, _seconds_between(arrivals[first], arrival)))
        else:
            where[arrival.message_id] = index
            firsts.append(arrival)
    return firsts, repeats


def _seconds_between(first, second):
    return None if first.time is None or second.time is None else second.time - first.time


def _check_order(report, firsts):
    """Looks at the first occurrences of one entity."""
    seen, latest = set(), None
    for arrival in firsts:
        if latest and arrival.seq < latest.seq:
            report.disorder.append(Overtaken(arrival, latest))
        else:
            latest = arrival
        if arrival.seq > 1 and arrival.seq - 1 not in seen:
            report.gaps.append(arrival)
        seen.add(arrival.seq)


def overlaps(arrivals):
    """Each pair of claims on one entity of which one has records both before and after a record of the other.

    Of two claims the one that begins first is behind the other's first record again, or they do not overlap.
    """
    first, last = {}, {}
    for index, arrival in enumerate(arrivals):
        if arrival.claim is not None:
            first.setdefault(arrival.claim, index)
            last[arrival.claim] = index
    found, open_claims = [], []
    for claim, begin in first.items():      # in the order in which they begin
        open_claims = [other for other in open_claims if last[other] > begin]
        for other in open_claims:
            behind = next(a for a in arrivals[begin:] if a.claim == other)
            found.append(Overlap(arrivals[begin].entity, behind, arrivals[begin]))
        open_claims.append(claim)
    return found


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
