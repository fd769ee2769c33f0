"""Stopping: drained, without a duplicate, within a deadline; at once when asked twice."""

import os
import signal
import time

import pytest

from tests.e2e.checker import expect_exactly_once
from tests.e2e.consume import read_topic
from tests.e2e.ledger import Writers, arrivals
from tests.e2e.relay import kafka_settings, wait_until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_clean_stop_under_load_repeats_nothing(database, kafka, topic, start_relay, number):
    entities = database.entities(50)
    content = kafka_settings(database, kafka, topic)
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        for _ in range(4):
            relay = start_relay(content)
            time.sleep(0.7)
            begin = time.monotonic()
            assert relay.stop(number) == 0
            assert time.monotonic() - begin < 5
            assert relay.events("relay.stopped")
    last = start_relay(content)
    database.wait_until_empty()
    assert last.stop() == 0
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_a_rolling_restart_repeats_nothing(database, kafka, topic, start_relay):
    entities = database.entities(50)
    content = kafka_settings(database, kafka, topic)
    relays = [start_relay(content) for _ in range(3)]
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        for place in range(3):
            time.sleep(0.5)
            assert relays[place].stop() == 0
            relays[place] = start_relay(content)
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0, 0]
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


def stuck(database, server, topic, start_relay, **process):
    """A relay that has rows in flight at a broker that does not answer."""
    relay = start_relay(kafka_settings(database, server, topic) | process)
    database.insert("a")
    database.wait_until_empty()
    os.kill(server.pid, signal.SIGSTOP)
    database.insert("b")
    time.sleep(0.5)
    return relay


def test_a_stop_that_cannot_drain_ends_at_its_deadline_and_loses_nothing(
        database, fragile_kafka, fragile_topic, start_relay):
    relay = stuck(database, fragile_kafka, fragile_topic, start_relay, stop_timeout="2s")
    begin = time.monotonic()
    relay.stop()
    assert 1.5 < time.monotonic() - begin < 5
    assert database.pending() == 1
    os.kill(fragile_kafka.pid, signal.SIGCONT)
    again = start_relay(kafka_settings(database, fragile_kafka, fragile_topic))
    database.wait_until_empty()
    assert again.stop() == 0
    assert {record.key for record in read_topic(fragile_kafka, fragile_topic)} == {b"a", b"b"}


def test_a_second_signal_ends_at_once(database, fragile_kafka, fragile_topic, start_relay):
    relay = stuck(database, fragile_kafka, fragile_topic, start_relay, stop_timeout="30s")
    relay.send(signal.SIGTERM)
    time.sleep(1)
    assert relay.running
    begin = time.monotonic()
    relay.send(signal.SIGTERM)
    assert relay.wait(10) != 0
    assert time.monotonic() - begin < 2
    assert database.pending() == 1


def test_an_idle_relay_stops_at_once(database, kafka, topic, start_relay):
    relay = start_relay(kafka_settings(database, kafka, topic))
    time.sleep(1)
    begin = time.monotonic()
    assert relay.stop() == 0
    assert time.monotonic() - begin < 1


def test_sessions_and_locks_are_gone_after_a_stop(database, kafka, topic, start_relay):
    relay = start_relay(kafka_settings(database, kafka, topic))
    database.insert("a")
    database.wait_until_empty()
    assert relay.stop() == 0
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'postrider%'" \
               " AND datname = current_database()"
    wait_until(lambda: database.value(sessions) == 0, 5, "the end of its sessions")
    assert database.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database ="
                          " (SELECT oid FROM pg_database WHERE datname = current_database())") == 0
