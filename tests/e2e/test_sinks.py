"""The event store, standard output, and several sinks for one outbox."""

import json
import os
import signal
import time

import pytest

from tests.e2e.checker import expect_exactly_once, expect_in_order
from tests.e2e.consume import read_topic
from tests.e2e.ledger import Writers, arrivals
from tests.e2e.relay import postrider, settings, wait_until, write_config
from tests.e2e.scene import dropped, initialised, new_database


@pytest.mark.parametrize("pg", [15, 18], indirect=True)
def test_an_event_store_in_the_same_database_is_exactly_once_under_kill_9(database, start_relay):
    """Append and delete share one transaction: versions are contiguous, and no event is there twice."""
    entities = database.entities(40)
    content = settings(database.dsn, {"type": "postgres"}, poll_interval="1s")
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        survivor = start_relay(content)
        for _ in range(5):
            victim = start_relay(content)
            time.sleep(0.6)
            victim.kill9()
    database.wait_until_empty()
    assert survivor.stop() == 0
    expect_exactly_once(database.ledger(), database.event_store())


def test_an_event_store_in_the_same_database_survives_its_restart_exactly_once(fragile_database, start_relay):
    database = fragile_database
    entities = database.entities(40)
    relay = start_relay(settings(database.dsn, {"type": "postgres"}, poll_interval="1s"))
    with Writers(database.dsn, entities, threads=4, pause=0.001, patient=True):
        time.sleep(1)
        database.server.restart("immediate")
        time.sleep(2)
    database.wait_until_empty()
    assert relay.stop() == 0
    expect_exactly_once(database.ledger(), database.event_store())


def test_an_event_store_in_another_database_keeps_order_and_ignores_repeats(database, tmp_path, start_relay):
    """Not one transaction any more, so a crash repeats; the store's unique message id lets no repeat in."""
    store = initialised(new_database(database.server), tmp_path)
    entities = database.entities(40)
    content = settings(database.dsn, {"type": "postgres", "url": store.dsn}, poll_interval="1s")
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        survivor = start_relay(content)
        for _ in range(4):
            victim = start_relay(content)
            time.sleep(0.6)
            victim.kill9()
    database.wait_until_empty()
    assert survivor.stop() == 0
    expect_exactly_once(database.ledger(), store.event_store())
    dropped(store)


def test_a_connection_to_an_event_store_that_falls_silent_is_replaced(database, tmp_path, start_relay):
    """A server process that is stopped stands for every peer that takes what is sent and never answers."""
    store = initialised(new_database(database.server), tmp_path)
    start_relay(settings(database.dsn, {"type": "postgres", "url": store.dsn, "statement_timeout": "1s"}, workers=1))
    database.insert("silent")
    database.wait_until_empty()
    pid = store.value("SELECT pid FROM pg_stat_activity"
                      " WHERE datname = current_database() AND application_name LIKE 'postrider%'")
    os.kill(pid, signal.SIGSTOP)
    try:
        database.insert("silent")
        database.wait_until_empty(15)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert store.value("SELECT count(*) FROM postrider.event") == 2
    dropped(store)


def test_a_row_is_settled_when_all_sinks_have_it(database, kafka, topic, start_relay):
    entities = database.entities(30)
    relay = start_relay(settings(
        database.dsn, {"type": "postgres"}, {"type": "kafka", "brokers": kafka.bootstrap}, {"type": "stdout"},
        poll_interval="1s", route={"topic": topic}))
    with Writers(database.dsn, entities, threads=3, pause=0.002):
        time.sleep(3)
    database.wait_until_empty()
    assert relay.stop() == 0
    committed = database.ledger()
    expect_exactly_once(committed, arrivals(read_topic(kafka, topic)))
    expect_exactly_once(committed, database.event_store())
    lines = [json.loads(line) for line in relay.out_file.read_text().splitlines()]
    assert sorted(line["id"] for line in lines) == sorted(entry.message_id for entry in committed)


def test_a_sink_that_is_away_holds_back_the_row_but_not_its_place(
        database, fragile_kafka, fragile_topic, start_relay):
    """Kafka second, the event store last and riding: while Kafka is away nothing is settled, and then all is."""
    entities = database.entities(20)
    relay = start_relay(settings(
        database.dsn, {"type": "kafka", "brokers": fragile_kafka.bootstrap}, {"type": "postgres"},
        poll_interval="1s", route={"topic": fragile_topic}))
    with Writers(database.dsn, entities, threads=2, pause=0.005):
        time.sleep(1)
        fragile_kafka.stop()
        time.sleep(1)
        stored = database.value("SELECT count(*) FROM postrider.event")
        time.sleep(1)
        assert database.value("SELECT count(*) FROM postrider.event") == stored
        fragile_kafka.start()
    database.wait_until_empty(timeout=60)
    assert relay.stop() == 0
    expect_exactly_once(database.ledger(), database.event_store())
    expect_in_order(database.ledger(), arrivals(read_topic(fragile_kafka, fragile_topic)))


def test_a_bad_row_for_the_event_store_holds_only_its_entity(database, tmp_path, start_relay):
    """The store's payload is jsonb, the outbox's is text: one row is not JSON."""
    database.execute("ALTER TABLE public.outbox ALTER payload TYPE text")
    relay = start_relay(settings(database.dsn, {"type": "postgres"}, poll_interval="1s"))
    poison = database.insert("held", "this is not JSON")
    database.insert("held", '{"n": 2}')
    for number in range(50):
        database.insert(f"free-{number % 10}")
    relay.wait_for("row.refused", id=str(poison))
    wait_until(lambda: database.pending() == 2, what="all but the held entity gone")
    assert database.value("SELECT count(*) FROM postrider.event") == 50
    database.execute("UPDATE public.outbox SET payload = '{}' WHERE id = %s", (poison,))
    database.wait_until_empty(timeout=40)
    versions = database.execute("SELECT version FROM postrider.event WHERE entity_id = 'held' ORDER BY position")
    assert versions == [(1,), (2,)]
    assert relay.stop() == 0


# ---- Standard output and files --------------------------------------------------------------------------------------

def test_standard_output_gets_one_json_line_for_each_row(database, start_relay):
    relay = start_relay(settings(database.dsn, {"type": "stdout"}, route={"topic": "orders.{entity_type}"}))
    database.insert("a", '{"text": "tab\\t, quote \\" and ü"}', headers='{"tenant": "acme"}')
    database.insert("a", None)
    database.wait_until_empty()
    assert relay.stop() == 0
    first, second = [json.loads(line) for line in relay.out_file.read_text().splitlines()]
    assert first["topic"] == "orders.order"
    assert first["key"] == "a"
    assert first["headers"]["tenant"] == "acme"
    assert first["headers"]["id"] == first["id"]
    assert first["payload"] == {"text": 'tab\t, quote " and ü'}
    assert second["payload"] is None


def test_a_file_is_reopened_after_rotation(database, tmp_path, start_relay):
    path, rotated = tmp_path / "events.jsonl", tmp_path / "events.jsonl.1"
    relay = start_relay(settings(database.dsn, {"type": "stdout", "path": str(path)}))
    for name in "abc":
        database.insert(name)
    database.wait_until_empty()
    path.rename(rotated)
    time.sleep(1.5)
    for name in "def":
        database.insert(name)
    database.wait_until_empty()
    assert relay.stop() == 0
    assert sorted(json.loads(line)["key"] for line in rotated.read_text().splitlines()) == ["a", "b", "c"]
    assert sorted(json.loads(line)["key"] for line in path.read_text().splitlines()) == ["d", "e", "f"]


def test_a_full_disk_is_an_outage_not_a_failure_of_rows(database, start_relay):
    content = settings(database.dsn, {"type": "stdout", "path": "/dev/full"}, poll_interval="1s")
    relay = start_relay(content | {"stop_timeout": "1s"})
    database.insert("a")
    relay.wait_for_warning("/dev/full")
    time.sleep(2)
    assert database.pending() == 1
    assert database.value("SELECT count(*) FROM postrider.retry") == 0
    assert relay.stop() == 0


# ---- Several outboxes in one process --------------------------------------------------------------------------------

def test_several_outboxes_in_one_process(database, tmp_path, kafka, make_topic, start_relay):
    """Each has its own table, route and sinks; one that holds a poison row does not disturb the other."""
    orders, bills = make_topic(), make_topic()
    database.execute("CREATE TABLE public.bills (LIKE public.outbox INCLUDING ALL)")
    sink = {"type": "kafka", "brokers": kafka.bootstrap}
    content = settings(database.dsn, sink, route={"topic": orders})
    content["outboxes"]["bills"] = {
        "table": "public.bills", "workers": 2, "sinks": [sink, {"type": "stdout"}], "route": {"topic": bills}}
    assert postrider("init", "-c", write_config(tmp_path / "both.yaml", content)).returncode == 0
    relay = start_relay(content)
    for number in range(50):
        database.insert(f"order-{number % 5}")
        database.insert(f"bill-{number % 5}", table="public.bills")
    database.insert("held", headers="[]", table="public.bills")
    database.wait_until_empty()
    wait_until(lambda: database.pending("public.bills") == 1)
    assert relay.stop() == 0
    assert {record.key[:5] for record in read_topic(kafka, orders)} == {b"order"}
    assert {record.key[:5] for record in read_topic(kafka, bills)} == {b"bill-"}
    assert len(relay.out_file.read_text().splitlines()) == 50
