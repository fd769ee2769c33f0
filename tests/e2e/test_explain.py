"""`explain`: why a row, or an entity, is not out yet."""

import json
import time

import pytest

from tests.e2e.relay import wait_until, write_config
from tests.e2e.test_entity import Stall, waits_for_lock


def explained(s, row, condition):
    """Waits until the explanation is as it should be: what nodes say of themselves is as old as their last beat."""
    return wait_until(lambda: (lambda told: condition(told) and told)(s.json("explain", str(row))), 5, "that reason")


def state(s, *arguments):
    return s.json("explain", *map(str, arguments))["state"]


def test_no_node(stage):
    s = stage()
    row = s.insert("a", 1)
    assert "no node relays outbox orders: start one with `postrider run`" in s.done("explain", str(row))
    assert state(s, "a") == "no_node"


def test_published_or_never_there(database, stage):
    s = stage()
    s.node()
    row = s.insert("a", 1)
    database.wait_until_empty()
    for arguments in ([row], ["--id", row], ["12345"], ["nobody"], ["--id", "nobody"]):
        told = s.json("explain", *map(str, arguments))
        assert told["state"] == "not_there" and "its transaction has not committed" in told["because"]
    assert state(s, "--entity", "a") == "nothing_waits"


def test_in_the_archive(database, stage):
    s = stage()
    row = s.insert("a", 1)
    database.execute("CREATE TABLE public.outbox_archive AS SELECT * FROM public.outbox")
    database.execute("DELETE FROM public.outbox")
    told = s.json("explain", str(row))
    assert told["state"] == "published" and "public.outbox_archive" in told["because"]


def test_a_dead_letter(stage):
    s = stage()
    row = s.insert("a", 1)
    letter = s.bury(row)
    told = s.json("explain", str(row))
    assert told["state"] == "dead" and told["facts"]["dead_letter"] == str(letter)
    assert "the store does not like it" in told["because"] and f"postrider dead retry {letter}" in told["because"]
    assert s.json("explain", "--entity", "a")["facts"]["dead_letters_of_the_entity"] == "1"


def test_refused_and_waiting_behind_a_refused_row(database, stage):
    s = stage()
    s.refuse(1)
    first, second = s.insert("a", 1), s.insert("a", 2)
    s.node()
    wait_until(lambda: s.entry("a") and s.entry("a")[1] >= 2, what="two refusals")
    wait_until(lambda: state(s, first) == "held_back", what="a row that waits")
    told = s.json("explain", str(first))
    assert f"row {first} was refused" in told["because"] and "is tried again at 20" in told["because"]
    assert "taste" in told["because"], "the error"
    told = explained(s, second, lambda t: t["state"] == "held_back")
    assert f"row {second} waits behind row {first}" in told["because"]
    assert told["facts"]["rows_of_the_entity_before_it"] == "1"
    assert "entity a waits behind row" in explained(s, "a", lambda t: t["state"] == "held_back")["because"]


def test_blocked(stage):
    s = stage()
    first, second = s.insert("a", 1), s.insert("a", 2)
    s.block("a", first)
    s.node()
    told = s.json("explain", str(second))
    assert told["state"] == "blocked" and f"waits behind row {first}" in told["because"]
    assert "is not tried any more since 20" in told["because"] and "the store does not like it" in told["because"]


def test_parked_paused_and_both(stage):
    s = stage()
    s.node()
    s.done("pause", "orders")
    row = s.insert("a", 1)
    told = s.json("explain", str(row))
    assert told["state"] == "paused" and "postrider resume orders" in told["because"] and told["also"] == []
    s.done("entity", "park", "a", "--reason", "be careful")
    told = s.json("explain", str(row))
    assert told["state"] == "parked" and "be careful" in told["because"] and "@" in told["because"]
    assert [other["state"] for other in told["also"]] == ["paused"]
    text = s.done("explain", str(row)).splitlines()
    assert text[0].startswith("entity a was put aside") and text[1].startswith("also: outbox orders is paused since 20")


@pytest.mark.parametrize("reader", ["advisory", "lease", "skip_locked-ordered"])
def test_in_flight(database, stage, reader):
    s = stage(reader)
    s.node()
    with Stall(database):
        row = s.insert("a", 1)
        wait_until(lambda: waits_for_lock(database), what="rows in flight")
        told = explained(s, row, lambda t: "of node 1" in t["because"])
    assert told["state"] == "in_flight"
    assert "entity a is being published by worker" in told["because"] and "(somewhere)" in told["because"]


@pytest.mark.parametrize("reader, fact", [("shards", "its_shard_belongs_to"), ("dispatcher", "the_outbox_is_read_by"),
                                          ("wal", "the_outbox_is_read_by")])
def test_its_turn(database, stage, reader, fact):
    s = stage(reader)
    s.node()
    with Stall(database):
        row = s.insert("a", 1)
        wait_until(lambda: waits_for_lock(database), what="rows in flight")
        told = explained(s, row, lambda t: "node 1" in t["facts"].get(fact, ""))
    assert told["state"] == "waiting"


def test_a_lock_of_somebody_else(database, stage):
    """Whoever takes the same advisory lock is named, though he is no node."""
    s = stage()
    row = s.insert("a", 1)
    s.node()
    database.wait_until_empty()
    with database.connect() as connection:
        connection.execute("SET application_name = 'a stranger'")
        connection.execute("SELECT pg_advisory_lock(hashtextextended('b', 'public.outbox'::regclass::oid::bigint))")
        row = s.insert("b", 1)
        told = s.json("explain", str(row))
        assert told["state"] == "in_flight" and "a stranger" in told["because"], told


def test_silent_nodes_and_workers_without_a_connection(database, stage):
    s = stage()
    node = s.node()
    node.kill9()
    row = s.insert("a", 1)
    assert state(s, row) == "nodes_silent"
    database.execute("UPDATE postrider.node SET heartbeat_at = now() + interval '1 hour', backend_pid = NULL, state ="
                     " jsonb_set(jsonb_set(state, '{outboxes,0,workers}', '[]'), '{outboxes,0,workers}',"
                     "   '[{\"number\": 0, \"connected\": false, \"error\": \"too many clients\"}]')")
    told = s.json("explain", str(row))
    assert told["state"] == "no_worker" and "too many clients" in told["because"]


def test_a_sink_that_is_away(database, stage):
    s = stage()
    s.node().kill9()
    row = s.insert("a", 1)
    database.execute("UPDATE postrider.node SET heartbeat_at = now() + interval '1 hour', backend_pid = NULL,"
                     " state = jsonb_set(state, '{outboxes,0,sinks}',"
                     "   '[{\"name\": \"kafka\", \"open_since\": \"2026-01-01T00:00:00Z\", \"reason\": \"no broker\"},"
                     "     {\"name\": \"other\", \"open_since\": null, \"reason\": null}]')")
    told = s.json("explain", str(row))
    assert told["state"] == "sink_away"
    assert "sink kafka is away since 2026-01-01T00:00:00Z" in told["because"] and "no broker" in told["because"]
    assert "other" not in json.dumps(told)


def test_a_row_without_an_entity(database, stage):
    s = stage()
    database.execute("ALTER TABLE public.outbox ALTER entity_id DROP NOT NULL")
    s.node()
    row = s.insert(None, 1)
    assert state(s, row) == "no_entity"


def test_an_event_that_was_put_aside(database, stage):
    s = stage("wal")
    s.refuse(1)
    s.node()
    row = s.insert("a", 1)
    later = s.insert("a", 2)
    wait_until(lambda: database.value("SELECT count(*) FROM postrider.parked") == 2, what="both put aside")
    wait_until(lambda: state(s, row) == "held_back", what="a row that waits")
    told = explained(s, later, lambda t: t["state"] == "held_back")
    assert f"row {later} waits behind row {row}" in told["because"] and told["facts"]["events_put_aside"] == "2"


def test_a_slot_that_nobody_reads(database, stage):
    s = stage("wal")
    node = s.node()
    assert node.stop() == 0
    row = s.insert("a", 1)
    told = s.json("explain", str(row))
    assert told["state"] == "no_node" and [other["state"] for other in told["also"]] == ["slot_idle"]


def test_a_name_that_is_both(database, stage):
    s = stage()
    row = s.insert("1", 1)
    assert row == 1
    assert "row" in s.json("explain", "1")
    assert "entity" in s.json("explain", "--entity", "1") and "row" in s.json("explain", "--id", "1")


def test_it_is_quick_on_a_large_table(database, stage):
    s = stage()
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type)"
                     " SELECT 'order', 'e' || i % 10, 'x' FROM generate_series(1, 400000) i")
    began = time.monotonic()
    told = s.json("explain", "399999")
    assert time.monotonic() - began < 5
    assert told["facts"]["rows_in_the_outbox"] == "at least 100000"


def test_several_outboxes_want_a_name(database, stage):
    s = stage()
    database.execute("CREATE TABLE public.other (LIKE public.outbox INCLUDING ALL)")
    s.content["outboxes"]["other"] = {**s.content["outboxes"]["orders"], "table": "public.other"}
    write_config(s.config, s.content)
    s.done("init", "--existing", "public.other")
    row = database.insert("a", table="public.other")
    done = s.run("explain", str(row))
    assert done.returncode == 2 and "say which one with --outbox" in done.stderr
    assert s.json("explain", str(row), "--outbox", "other")["state"] == "no_node"


@pytest.mark.parametrize("arguments, told", [
    ([], "say what to explain"),
    (["1", "--id", "2"], "say what to explain"),
    (["1", "2"], "explain does not take 2"),
    (["1", "--outbox", "nothing"], "no outbox nothing"),
])
def test_wrong_command_lines(stage, arguments, told):
    done = stage().run("explain", *arguments)
    assert done.returncode == 2 and told in done.stderr, done.stderr
