"""The checker on made-up histories: it must see each kind of violation, and none in a clean history."""

import pytest

from tests.e2e.checker import Arrival, Entry, Remains, check
from tests.e2e.recovery import Fault, recoveries, summary


def entry(name):
    """'a2' is the second event of entity a; 'a2=7.5' was committed at that time."""
    event, _, time = name.partition("=")
    return Entry(event[0], int(event[1:]), f"id-{event}", float(time) if time else None)


def arrival(name):
    """'a2', or 'a2@5' for partition 5, 'a2/x' under claim x, 'a2=7.5' at that time; all of them in this order."""
    name, _, time = name.partition("=")
    name, _, claim = name.partition("/")
    event, _, place = name.partition("@")
    return Arrival(*entry(event)[:3], place or None, float(time) if time else None, claim or None)


def history(committed, arrived, outbox="", held="", dead="", poison=""):
    def ids(names):
        return (f"id-{name}" for name in names.split())
    remains = Remains(frozenset(ids(outbox)), tuple(held.split()), tuple(ids(dead)), frozenset(ids(poison)))
    return check([entry(name) for name in committed.split()], [arrival(name) for name in arrived.split()], remains)


@pytest.mark.parametrize("committed, arrived, violations", [
    ("", "", []),
    ("a1 a2 b1 a3", "a1 b1 a2 a3", []),
    ("a3 b1 a1 a2", "a1 a2 a3 b1", []),                                 # a ledger has no order of its own
    ("a1 a2 b1", "a1 a2", ["lost"]),
    ("a1 a2 a3", "a1 a3", ["lost", "gaps"]),
    ("a1", "a1 a2", ["phantom"]),
    ("a1 a2", "a2 a1", ["disorder", "gaps"]),
    ("a1 a2 a3", "a1 a3 a2", ["disorder", "gaps"]),
    ("a1 a2", "a1 a2 a2", ["duplicates"]),
    ("a1 a2 a3", "a1 a2 a1 a2 a3", ["duplicates"]),                     # what a crash may do: not a disorder
    ("a1 a2 a3", "a1 a2 a3 a1 a2 a3", ["duplicates"]),
    ("a1 a2 a3", "a1 a3 a2 a3", ["disorder", "gaps", "duplicates"]),    # a repeat does not mend the first time
    ("a1 a2 b1 b2", "a1@0 b1@1 a2@0 b2@1", []),
    ("a1 a2", "a1@0 a2@1", ["scattered"]),
])
def test_each_history_is_judged_right(committed, arrived, violations):
    assert history(committed, arrived).violations() == violations


@pytest.mark.parametrize("arrived, dead, poison, violations", [
    ("a1 a3", "a2", "a2", ["gaps"]),                                    # it is missing, and known to be
    ("a1 a3", "", "a2", ["lost", "gaps"]),
    ("a1 a2 a3", "a2", "a2", []),                                       # a letter that was published before
    ("a1 a2", "a3", "", ["buried"]),                                    # nobody had refused it
    ("a1 a3", "a2 a2", "a2", ["gaps", "buried"]),
])
def test_dead_letters_are_no_loss_if_they_had_to_be(arrived, dead, poison, violations):
    assert history("a1 a2 a3", arrived, dead=dead, poison=poison).violations() == violations


@pytest.mark.parametrize("arrived, violations", [
    ("a1/x a2/x a3/x a4/x", []),
    ("a1/x a2/y a3/z a4/z", []),
    ("a1/x a2/x a3/y b1/x a4/y b2/x", []),                              # claims of different entities do not meet
    ("a1/x a2/y a3/x a4/y", ["overlap"]),
    ("a1/x a2/y a3/y a4/x", ["overlap"]),
    ("a1 a2/y a3 a4/y", []),                                            # nothing is known of records without a claim
    ("a1/x a2/x a1/y a2/y a3/y a4/y", ["duplicates"]),                  # a take-over that repeats
    ("a1/x a2/y a1/x a3/y a4/y", ["echoes", "duplicates"]),             # what one still had on its way comes late
    ("a1/x a1/y a2/x a2/y a3/y a4/y", ["echoes", "duplicates"]),
    ("a1/x a1/y a2/y a3/x a3/y a4/y", ["overlap", "duplicates"]),       # first arrivals from both, in turn
])
def test_two_claims_on_one_entity_are_seen(arrived, violations):
    assert history("a1 a2 a3 a4 b1 b2", arrived).violations(ignore=("lost",)) == violations


def test_an_overlap_is_reported_once_for_two_claims_and_names_both():
    report = history("a1 a2 a3 a4 a5 a6", "a1/x a2/y a3/x a4/y a5/x a6/y")
    (overlap,) = report.overlap
    assert (overlap.entity, overlap.claims) == ("a", {"x", "y"})
    assert (overlap.inner.seq, overlap.outer.seq) == (2, 3)


def test_of_three_claims_each_pair_that_overlaps_is_reported():
    report = history("a1 a2 a3 a4 a5", "a1/x a2/y a3/z a4/y a5/x")
    assert [overlap.claims for overlap in report.overlap] == [{"x", "y"}, {"x", "z"}, {"y", "z"}]


@pytest.mark.parametrize("arrived, outbox, held, violations", [
    ("a1 a2", "", "", []),
    ("a1", "", "", ["lost"]),
    ("a1", "a2", "", ["waiting"]),                  # not lost: the next relay will find it
    ("a1", "a2", "a", ["waiting", "held"]),
    ("a1 a2", "a2", "", ["unsettled"]),
])
def test_what_the_database_still_has_is_told_from_what_is_lost(arrived, outbox, held, violations):
    assert history("a1 a2", arrived, outbox, held).violations() == violations


def test_a_repeat_has_a_distance_in_records_of_its_entity_and_in_seconds():
    report = history("a1 a2 b1", "a1=10 b1=10 a2=10.5 a1=11.5 b1=12 a1=13")
    assert [(repeat.arrival.entity, repeat.records, repeat.seconds) for repeat in report.duplicates] == [
        ("a", 1, 1.5), ("a", 2, 3.0), ("b", 0, 2.0)]


def test_without_times_a_repeat_has_no_seconds():
    assert history("a1", "a1 a1").duplicates[0].seconds is None


def test_an_event_under_the_wrong_entity_is_a_phantom():
    report = check([entry("a1")], [Arrival("b", 1, "id-a1")])
    assert report.violations() == ["phantom"]


def test_an_event_with_another_number_is_a_phantom():
    report = check([entry("a1"), entry("a2")], [arrival("a1"), Arrival("a", 7, "id-a2")])
    assert report.violations() == ["phantom"]


def test_an_event_that_is_overtaken_is_named_with_the_one_that_overtook_it():
    (overtaken,) = history("a1 a2 a3", "a1 a3 a2").disorder
    assert (overtaken.arrival.seq, overtaken.by.seq) == (2, 3)


def test_the_report_names_the_first_of_each_kind():
    text = str(history("a1 a2 b1", "a2 a1 a1"))
    assert "lost 1 (first: Entry(entity='b', seq=1" in text
    assert "disorder 1 (first: Overtaken(arrival=Arrival(entity='a', seq=1" in text
    assert "duplicates 1" in text


def test_violations_can_be_allowed():
    report = history("a1 a2", "a1 a2 a2")
    assert report.violations(ignore=("duplicates",)) == []


def test_a_clean_report_says_so():
    assert str(history("a1", "a1")) == "clean"


# ---- Recovery -------------------------------------------------------------------------------------------------------

def felt(committed, arrived, *faults):
    return recoveries([entry(name) for name in committed.split()], [arrival(name) for name in arrived.split()], faults)


OUTAGE = Fault("cut", begin=10, end=11, since=11)
KILL = Fault("kill", begin=20, end=22, since=20)


@pytest.mark.parametrize("committed, arrived, seconds", [
    ("a1=9 a2=10.2", "a1=9.1 a2=10.3", 0.0),                        # nothing came late
    ("a1=9 a2=10.2", "a1=9.1 a2=12.5", 1.5),
    ("a1=9.9 a2=10.2", "a1=13 a2=12", 2.0),                         # committed before, hit on its way
    ("a1=9.6 a2=9.9", "a1=10.8 a2=10.95", 0.0),                     # late, but here before the outage ended
    ("a1=10.2 a2=14", "a1=12 a2=14.1 a1=30", 1.0),                  # a repeat is no recovery
    ("a1=10.2 a2=14", "a2=14.1", 0.0),                              # what never came is the checker's
])
def test_a_fault_is_over_when_the_last_late_row_has_arrived(committed, arrived, seconds):
    assert felt(committed, arrived, OUTAGE) == [pytest.approx(seconds)]


def test_a_late_row_belongs_to_the_fault_that_it_should_have_arrived_under():
    assert felt("a1=10.2 a2=21", "a1=12 a2=24", OUTAGE, KILL) == [pytest.approx(1.0), pytest.approx(4.0)]


def test_recovery_ends_where_the_next_fault_strikes():
    assert felt("a1=10.2", "a1=25", OUTAGE, KILL) == [pytest.approx(9.0), pytest.approx(0.0)]


def test_the_summary_has_count_median_and_maximum_of_each_kind():
    assert summary([(OUTAGE, 1.0), (KILL, 5.0), (OUTAGE, 3.0)]) == {"cut": (2, 2.0, 3.0), "kill": (1, 5.0, 5.0)}
