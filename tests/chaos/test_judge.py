"""What a run is blamed for, and what is only measured: on made-up reports."""

import pytest

from tests.chaos import judge
from tests.chaos.faults import CLEAN, FAULTS, Frozen, for_sink
from tests.chaos.readers import READERS
from tests.chaos.run import Plan
from tests.e2e.checker import Arrival, Entry, Overlap, Overtaken, Repeat, Report
from tests.e2e.recovery import Fault

CLAIM, OTHER = "1:node-1/0/1.7", "4:node-2/3/1.1"
FREEZE = Frozen("node-1", begin=100, end=104)


def arrival(seq=1, time=101.0, claim=CLAIM):
    return Arrival("a", seq, f"id-a{seq}", 0, time, claim)


def overlap(time=105.0, claims=(CLAIM, OTHER)):
    return Overlap("a", arrival(3, time, claims[0]), arrival(2, time - 1, claims[1]))


def overtaken(time=105.0, claims=(CLAIM, OTHER)):
    return Overtaken(arrival(1, time, claims[0]), arrival(2, time - 1, claims[1]))


def test_a_clean_report_is_no_violation():
    assert judge.violations(Report(), [], ["kill"], ordered=True) == {}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("name", judge.ALWAYS)
def test_what_is_never_allowed_is_blamed_for_every_reader_and_after_every_fault(name, ordered):
    report = Report(**{name: [Entry("a", 1, "id-a1")]})
    assert judge.violations(report, [FREEZE], ["freeze"], ordered) == {name: 1}


@pytest.mark.parametrize("ordered, violations", [(True, {"disorder": 1, "overlap": 2}), (False, {})])
def test_order_is_judged_where_the_reader_keeps_it(ordered, violations):
    report = Report(disorder=[overtaken()], overlap=[overlap(), overlap()])
    assert judge.violations(report, [], ["kill"], ordered) == violations


@pytest.mark.parametrize("time, claims, excused", [
    (101, (CLAIM, OTHER), True),
    (104 + judge.WAKING - 1, (OTHER, CLAIM), True),
    (104 + judge.WAKING + 1, (CLAIM, OTHER), False),    # too late to be the freeze's doing
    (99, (CLAIM, OTHER), False),                        # before it
    (105, (OTHER, OTHER), False),                       # two others, while node-1 was frozen
    (105, (None, None), True),                          # nobody signed: time alone decides
])
def test_what_a_freeze_leaves_is_told_apart_by_time_and_node(time, claims, excused):
    report = Report(disorder=[overtaken(time, claims)], overlap=[overlap(time, claims)])
    found = judge.after_freeze(report, [FREEZE])
    assert [len(found["disorder"]), len(found["overlap"])] == [excused, excused]
    assert (judge.violations(report, [FREEZE], ["freeze"], True) == {}) == excused


@pytest.mark.parametrize("kinds, violations", [
    (CLEAN, {"duplicates": 1}), (["leave"], {"duplicates": 1}), (["leave", "kill"], {})])
def test_repeats_are_blamed_where_nothing_broke(kinds, violations):
    report = Report(duplicates=[Repeat(arrival(), 0, 0.1)])
    assert judge.violations(report, [], kinds, ordered=True) == violations


@pytest.mark.parametrize("backlog, details, proves", [
    (0, [""], True), (100, ["", judge.BACKLOG], True), (100, [""], False), (100, [], False)])
def test_a_run_with_a_backlog_proves_something_when_a_fault_meets_it(backlog, details, proves):
    faults = [Fault("kill", 1, 2, 1, detail) for detail in details]
    assert (judge.shortcomings(faults, backlog) == []) == proves


@pytest.mark.parametrize("name", [name for name, reader in READERS.items() if reader.backlog or reader.loses_slot])
def test_only_a_reader_with_a_slot_has_rows_from_before_it_and_can_lose_it(name):
    assert READERS[name].settings["reader"] == "wal"


def test_the_node_is_read_from_a_claim():
    assert judge.node_of("12:node-3/1/2.69") == "node-3"


def test_faults_of_a_broker_need_its_sink():
    assert set(FAULTS) - set(for_sink("postgres")) == {"kafka", "cut-kafka", "delay-kafka"}
    assert for_sink("postgres", ("kill", "kafka")) == ["kill"]
    assert for_sink("kafka") == list(FAULTS)


def test_a_plan_has_the_same_chance_each_time_and_another_than_its_neighbours():
    plan, neighbour = Plan("advisory", "kafka", 15, 10, 1), Plan("advisory", "kafka", 18, 10, 1)
    assert plan.chance().random() == plan.chance().random() != neighbour.chance().random()


def test_a_plan_says_how_it_is_repeated():
    assert Plan("lease", "kafka", 18, 7.5, 3, 2, ("kill", "join")).command == (
        "./dev chaos --reader lease --sink kafka --postgres 18 --seconds 7.5 --seed 3 --nodes 2 --faults kill,join")
