"""The database or the broker goes away, at the start or later: nothing is lost, nothing spins, nothing floods."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.checker import expect_in_order
from tests.e2e.consume import read_topic, wait_for_records
from tests.e2e.ledger import Writers, arrivals
from tests.e2e.relay import kafka_settings, settings
from tests.e2e.sink_state import expect_quiet
from tests.servers.common import free_port

every_fragile_postgres = pytest.mark.parametrize("fragile_pg", [15, 18], indirect=True)


@every_fragile_postgres
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_postgresql_loses_nothing(fragile_database, kafka, topic, start_relay, mode):
    database = fragile_database
    entities = database.entities(40)
    relays = [start_relay(kafka_settings(database, kafka, topic)) for _ in range(2)]
    with Writers(database.dsn, entities, threads=3, pause=0.001, patient=True):
        time.sleep(1.5)
        database.server.stop(mode)
        time.sleep(1)
        database.server.start()
        time.sleep(2.5)
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0]
    expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_while_kafka_is_away_no_row_is_blamed(database, fragile_kafka, fragile_topic, start_relay):
    """An outage is not a failure of rows: no attempt is counted, and everything goes on by itself."""
    relay = start_relay(kafka_settings(database, fragile_kafka, fragile_topic))
    database.insert("a")
    database.wait_until_empty()
    fragile_kafka.stop()
    for number in range(20):
        database.insert(f"entity-{number}")
    expect_quiet(relay)
    assert database.pending() == 20
    assert database.value("SELECT count(*) FROM postrider.retry") == 0
    fragile_kafka.start()
    database.wait_until_empty(timeout=40)
    assert len(read_topic(fragile_kafka, fragile_topic)) >= 21
    assert relay.stop() == 0


def test_while_kafka_is_away_new_rows_cost_little(database, fragile_kafka, fragile_topic, start_relay):
    """Each insert may ring, but looking again and again for rows that cannot leave helps nobody."""
    entities = database.entities(40)
    relay = start_relay(kafka_settings(database, fragile_kafka, fragile_topic))
    with Writers(database.dsn, entities, threads=3, pause=0.002):
        time.sleep(1)
        fragile_kafka.stop()
        time.sleep(1)
        cpu, server_cpu = relay.cpu_seconds(), worker_backends_cpu_seconds(database)
        time.sleep(4)
        cpu, server_cpu = relay.cpu_seconds() - cpu, worker_backends_cpu_seconds(database) - server_cpu
    fragile_kafka.start()
    database.wait_until_empty(timeout=40)
    assert relay.stop() == 0
    expect_in_order(database.ledger(), arrivals(read_topic(fragile_kafka, fragile_topic)))
    assert cpu < 0.2
    assert server_cpu < 0.1


def worker_backends_cpu_seconds(database):
    """What the relay has cost the server so far."""
    pids = database.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'postrider worker'"
                          " AND datname = current_database()")
    ticks = 0
    for (pid,) in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("move", ["UPDATE public.outbox SET event_type = 'moved'", "VACUUM FULL public.outbox"])
def test_rows_that_are_moved_while_on_their_way_are_settled_once(database, fragile_kafka, fragile_topic, start_relay,
                                                                  move):
    """They are deleted by their address, and found by their key when they are no longer there."""
    relay = start_relay(kafka_settings(database, fragile_kafka, fragile_topic))
    database.insert("first")
    database.wait_until_empty()
    os.kill(fragile_kafka.pid, signal.SIGSTOP)
    try:
        for number in range(30):
            database.insert(f"entity-{number % 10}")
        time.sleep(1)
        database.execute(move)
    finally:
        os.kill(fragile_kafka.pid, signal.SIGCONT)
    database.wait_until_empty(timeout=40)
    assert relay.stop() == 0
    assert len(read_topic(fragile_kafka, fragile_topic)) == 31


@pytest.mark.parametrize("seconds", [
    pytest.param(3, id="for a moment"),
    pytest.param(6, id="until its cluster shuts it out"),       # broker.session.timeout.ms is 4000
])
def test_a_broker_that_answers_no_more_is_survived(database, fragile_kafka, fragile_topic, start_relay, seconds):
    """Frozen rather than gone: connections stay open and nothing comes back. A broker that was shut out tells clients for a
    moment that the cluster has no brokers, and librdkafka may forget the way back."""
    entities = database.entities(20)
    relay = start_relay(kafka_settings(database, fragile_kafka, fragile_topic))
    with Writers(database.dsn, entities, threads=2, pause=0.003):
        time.sleep(1)
        os.kill(fragile_kafka.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(fragile_kafka.pid, signal.SIGCONT)
        time.sleep(1)
    database.wait_until_empty(timeout=60)
    assert relay.stop() == 0
    expect_in_order(database.ledger(), arrivals(read_topic(fragile_kafka, fragile_topic)))


def test_terminated_backends_cost_no_row_and_no_order(database, kafka, topic, start_relay):
    entities = database.entities(40)
    relays = [start_relay(kafka_settings(database, kafka, topic)) for _ in range(2)]
    with Writers(database.dsn, entities, threads=3, pause=0.001):
        for _ in range(4):
            time.sleep(1)
            database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                             " WHERE application_name LIKE 'postrider%' AND datname = current_database()")
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0]
    expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_postgresql_down_at_the_start_is_waited_for(fragile_database, kafka, topic, start_relay):
    database = fragile_database
    database.insert("a")
    database.server.stop()
    relay = start_relay(kafka_settings(database, kafka, topic), wait=False)
    relay.wait_for_warning(str(database.server.port), timeout=10)
    expect_quiet(relay)
    assert not relay.events("relay.ready")
    database.server.start()
    relay.wait_for("relay.ready", timeout=20)
    wait_for_records(kafka, topic, 1)
    assert relay.stop() == 0


def test_a_stop_while_waiting_for_postgresql_is_prompt(fragile_database, kafka, topic, start_relay):
    fragile_database.server.stop()
    relay = start_relay(kafka_settings(fragile_database, kafka, topic), wait=False)
    relay.wait_for_warning(str(fragile_database.server.port), timeout=10)
    begin = time.monotonic()
    assert relay.stop() == 0
    assert time.monotonic() - begin < 3


def test_kafka_down_at_the_start_is_waited_for(database, fragile_kafka, fragile_topic, start_relay):
    database.insert("a")
    fragile_kafka.stop()
    relay = start_relay(kafka_settings(database, fragile_kafka, fragile_topic), wait=False)
    relay.wait_for_warning(str(fragile_kafka.port), timeout=10)
    expect_quiet(relay)
    assert database.pending() == 1
    fragile_kafka.start()
    database.wait_until_empty(timeout=40)
    assert len(read_topic(fragile_kafka, fragile_topic)) == 1
    assert relay.stop() == 0


def test_a_wrong_broker_address_is_named_in_the_log_and_costs_nothing(database, start_relay):
    port = free_port()
    database.insert("a")
    content = settings(database.dsn, {"type": "kafka", "brokers": f"127.0.0.1:{port}"}) | {"stop_timeout": "1s"}
    relay = start_relay(content, wait=False)
    relay.wait_for_warning(f"127.0.0.1:{port}", timeout=10)
    expect_quiet(relay)
    assert database.pending() == 1
    assert relay.stop() == 0
