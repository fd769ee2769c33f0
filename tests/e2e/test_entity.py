"""`entity`: what holds one back, letting it go, and putting it aside."""

import time

import pytest

from tests.e2e.relay import wait_until
from tests.e2e.steering import ORDERED


class Stall:
    """While it lasts the event store stores nothing, and what workers have claimed stays in flight."""

    def __init__(self, database):
        self.connection = database.connect(autocommit=False)

    def __enter__(self):
        self.connection.execute("LOCK TABLE postrider.event IN EXCLUSIVE MODE")
        return self

    def __exit__(self, *_):
        self.connection.rollback()
        self.connection.close()


def waits_for_lock(database):
    return database.value("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'postrider.event'::regclass")


# ---- park -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("reader", ORDERED)
def test_a_parked_entity_waits_on_all_nodes_and_goes_on_in_order(database, stage, reader):
    s = stage(reader)
    nodes = [s.node(), s.node()]
    s.insert("held", 1)
    s.wait_for("held", [1])
    assert "is parked" in s.done("entity", "park", "held", "--reason", "a customer asked")
    time.sleep(0.2)
    for n in range(2, 7):
        s.insert("held", n)
        s.insert("free", n)
    s.wait_for("free", [2, 3, 4, 5, 6])
    time.sleep(1)
    assert s.arrived("held") == [1]
    shown = s.json("entity", "show", "held")
    assert shown["state"] == "parked" and "a customer asked" in shown["held"]["error"] and shown["rows"] == 5
    assert "is tried again at once" in s.done("entity", "unblock", "held")
    s.insert("held", 7)
    s.wait_for("held", [1, 2, 3, 4, 5, 6, 7], timeout=5)
    s.insert("held", 8)
    s.wait_for("held", [1, 2, 3, 4, 5, 6, 7, 8], timeout=5)
    database.wait_until_empty()
    wait_until(lambda: s.entry("held") is None, 5, "no entry left")
    assert [node.stop() for node in nodes] == [0, 0]


@pytest.mark.parametrize("reader", ORDERED)
def test_rows_on_their_way_finish_and_a_refused_one_does_not_end_the_park(database, stage, reader):
    s = stage(reader, workers=1)
    s.refuse(2)
    s.node()
    with Stall(database):
        s.insert_together("held", (1, 2, 3))
        wait_until(lambda: waits_for_lock(database), what="rows in flight")
        s.done("entity", "park", "held")
        time.sleep(0.3)
        for n in (4, 5):
            s.insert("held", n)
        time.sleep(0.3)
    s.insert("free", 1)
    s.wait_for("free", [1])
    time.sleep(2.5)
    assert s.arrived("held") == [1]
    assert s.json("entity", "show", "held")["state"] == "parked"
    s.refuse()
    s.done("entity", "unblock", "held")
    s.wait_for("held", [1, 2, 3, 4, 5])
    database.wait_until_empty()


@pytest.mark.parametrize("reader", ["advisory", "shards", "wal"])
def test_a_park_outlives_the_nodes(database, stage, reader):
    s = stage(reader)
    s.done("entity", "park", "held")
    node = s.node()
    s.insert("held", 1)
    s.insert("free", 1)
    s.wait_for("free", [1])
    assert node.stop() == 0
    node = s.node()
    s.insert("held", 2)
    s.insert("free", 2)
    s.wait_for("free", [1, 2])
    assert s.arrived("held") == []
    s.done("entity", "unblock", "held")
    s.wait_for("held", [1, 2])
    assert node.stop() == 0


@pytest.mark.parametrize("reader", ORDERED)
def test_parking_what_has_nothing_and_letting_it_go_leaves_nothing_behind(database, stage, reader):
    s = stage(reader)
    s.node()
    s.done("entity", "park", "held")
    time.sleep(0.2)
    s.done("entity", "unblock", "held")
    s.insert("held", 1)
    s.wait_for("held", [1])
    wait_until(lambda: s.entry("held") is None, 5, "no entry left")


def test_an_outbox_without_order_has_no_entities_to_park(stage):
    done = stage("skip_locked").run("entity", "park", "held")
    assert done.returncode == 1 and "keeps no order" in done.stderr and "postrider pause" in done.stderr


# ---- unblock --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("reader", [name for name in ORDERED if name != "wal"])
def test_a_blocked_entity_is_tried_again_at_once(database, stage, reader):
    """Long before any node would look by itself."""
    s = stage(reader)
    first = s.insert("held", 1)
    s.block("held", first)
    s.insert("held", 2)
    s.node()
    s.insert("free", 1)
    s.wait_for("free", [1])
    time.sleep(1)
    assert s.arrived("held") == []
    shown = s.json("entity", "show", "held")
    assert (shown["state"], shown["held"]["row"], shown["held"]["attempts"]) == ("blocked", str(first), 11)
    s.done("entity", "unblock", "held")
    s.wait_for("held", [1, 2], timeout=5)
    wait_until(lambda: s.entry("held") is None, 5, "no entry left")


def test_attempts_are_counted_anew(database, stage):
    s = stage()
    s.refuse(1)
    row = s.insert("held", 1)
    s.block("held", row)
    s.node()
    s.done("entity", "unblock", "held")
    wait_until(lambda: s.entry("held")[1] in (1, 2) and not s.entry("held")[2], what="the first of new attempts")


def test_with_wal_a_refused_entity_is_tried_again_at_once(database, stage):
    s = stage("wal")
    s.refuse(1)
    s.node()
    s.insert("held", 1)
    s.insert("held", 2)
    wait_until(lambda: s.entry("held"), what="a refusal")
    s.refuse()
    database.execute("UPDATE postrider.retry SET retry_at = now() + interval '100 years', blocked_at = now()")
    s.done("entity", "unblock", "free")         # somebody looks, and sees that it is blocked
    time.sleep(2.5)
    assert s.arrived("held") == []
    s.done("entity", "unblock", "held")
    s.wait_for("held", [1, 2], timeout=5)


def test_the_row_of_an_outbox_without_order_is_let_go_by_its_id(database, stage):
    s = stage("skip_locked")
    row = s.insert("held", 1)
    s.block(str(row), row)
    s.insert("held", 2)
    s.node()
    s.wait_for("held", [2])
    s.done("entity", "unblock", str(row))
    s.wait_for("held", [2, 1])


# ---- show -----------------------------------------------------------------------------------------------------------

HOLDERS = {
    "advisory": "lock", "lease": "lease", "skip_locked-ordered": "lock", "shards": "shard", "dispatcher": "leader",
    "wal": "leader",
}


@pytest.mark.parametrize("reader", HOLDERS)
def test_who_has_an_entity_is_shown(database, stage, reader):
    s = stage(reader)
    s.node()
    with Stall(database):
        s.insert("busy", 1)
        wait_until(lambda: waits_for_lock(database), what="rows in flight")

        def holder():
            holders = s.json("entity", "show", "busy")["holders"]
            return holders and holders[0]["node"] and holders

        (found,) = wait_until(holder, 5, "a holder whose node is known")
    assert (found["by"], found["node"], found["name"]) == (HOLDERS[reader], 1, "somewhere")
    assert reader in ("dispatcher", "wal") or found["worker"] in (0, 1)
    assert "held by" in s.done("entity", "show", "busy")


def test_an_entity_that_nobody_knows(stage):
    shown = stage().json("entity", "show", "nobody")
    assert (shown["state"], shown["rows"], shown["holders"], shown["held"]) == ("free", 0, [], None)


@pytest.mark.parametrize("arguments, told", [
    ([], "say what to do with which entity"),
    (["show"], "say what to do with which entity"),
    (["burn", "a"], "entity cannot burn"),
    (["show", "a", "--reason", "b"], "--reason goes with park only"),
    (["show", "a", "b"], "entity does not take b"),
    (["show", "a", "--outbox", "nothing"], "no outbox nothing"),
])
def test_wrong_command_lines(stage, arguments, told):
    done = stage().run("entity", *arguments)
    assert done.returncode == 2 and told in done.stderr, done.stderr
