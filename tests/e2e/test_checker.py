"""The checker on made-up histories: it must see each kind of violation, and none in a clean history."""

import pytest

from tests.e2e.checker import Arrival, Entry, check


def entry(name):
    """'a2' is the second event of entity a."""
    return Entry(name[0], int(name[1:]), f"id-{name}")


def arrival(name):
    """'a2', or 'a2@5' for partition 5."""
    event, _, place = name.partition("@")
    return Arrival(*entry(event), place or None)


def history(committed, arrived):
    return check([entry(name) for name in committed.split()], [arrival(name) for name in arrived.split()])


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


def test_an_event_under_the_wrong_entity_is_a_phantom():
    report = check([entry("a1")], [Arrival("b", 1, "id-a1")])
    assert report.violations() == ["phantom"]


def test_an_event_with_another_number_is_a_phantom():
    report = check([entry("a1"), entry("a2")], [arrival("a1"), Arrival("a", 7, "id-a2")])
    assert report.violations() == ["phantom"]


def test_the_report_names_the_first_of_each_kind():
    text = str(history("a1 a2 b1", "a2 a1 a1"))
    assert "lost 1 (first: Entry(entity='b', seq=1" in text
    assert "disorder 1 (first: Arrival(entity='a', seq=1" in text
    assert "duplicates 1" in text


def test_violations_can_be_allowed():
    report = history("a1 a2", "a1 a2 a2")
    assert report.violations(ignore=("duplicates",)) == []


def test_a_clean_report_says_so():
    assert str(history("a1", "a1")) == "clean"
