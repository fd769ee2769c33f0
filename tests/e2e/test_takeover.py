"""A node dies or freezes while it holds rows, and nothing else happens: another one publishes them within a bound.

No row is written meanwhile and nobody polls, so only what the survivor's heart notices can make its workers look.
"""

import contextlib
import os
import signal
import time
from typing import NamedTuple

import pytest

from tests.e2e.consume import read_topic
from tests.e2e.relay import kafka_settings, wait_until

ROWS = 20


class Case(NamedTuple):
    reader: str
    options: dict           # of the outbox
    killed: float           # seconds from kill -9 to the last row's settling
    idle_session_timeout: int
    frozen: float           # seconds from SIGSTOP to it


CASES = [
    Case("advisory", {}, killed=2, idle_session_timeout=4, frozen=4 + 2),
    # Long before a lease of 30 s: a dead node is buried after three heartbeats, and its claims with it.
    Case("lease", {}, killed=3 + 1 + 2, idle_session_timeout=4, frozen=4 + 1 + 2),
    Case("skip_locked", {}, killed=2, idle_session_timeout=4, frozen=4 + 2),
]
every_case = pytest.mark.parametrize("case", CASES, ids=[case.reader for case in CASES])
every_postgres = pytest.mark.parametrize("pg", [15, 18], indirect=True)


def case_settings(database, server, topic, case, node):
    content = kafka_settings(database, server, topic, reader=case.reader, poll_interval="1h", **case.options)
    content["database"]["idle_session_timeout"] = f"{case.idle_session_timeout}s"
    return content | {"node": node}


def write(database, rows):
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type)"
                     f" SELECT 'order', 'e' || n, 'changed' FROM generate_series(1, {rows}) AS n")


def in_flight(database, node):
    return database.value(
        "SELECT COALESCE(sum((w ->> 'rows')::int), 0) FROM postrider.node n,"
        " jsonb_path_query(n.state, '$.outboxes[*].workers[*]') AS w WHERE n.name = %s", (node,))


@contextlib.contextmanager
def frozen(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def holder_and_survivor(database, kafka, topic, start_relay, case):
    """Two nodes that have published before. One of them holds rows which the broker does not take until the end."""
    relays = [start_relay(case_settings(database, kafka, topic, case, name)) for name in ("survivor", "holder")]
    write(database, ROWS)
    database.wait_until_empty()
    with frozen(kafka.pid):
        let_the_holder_take_all(database, *relays)
        wait_until_idle(database, "survivor")
        assert in_flight(database, "survivor") == 0
        yield relays


def let_the_holder_take_all(database, survivor, _):
    with frozen(survivor.pid):
        write(database, ROWS)
        wait_until(lambda: in_flight(database, "holder") == ROWS, 5, "all rows in the holder's hands")


def wait_until_idle(database, node, seconds=2.5, patience=8):
    """Its workers have heard of the rows, found them taken, and look no more; or, with some readers, now and then."""
    def claims():
        return database.value("SELECT jsonb_path_query_array(state, '$.outboxes[*].workers[*].claims')"
                              " FROM postrider.node WHERE name = %s", (node,))

    seen, since = claims(), time.monotonic()
    deadline = since + patience
    while time.monotonic() < min(since + seconds, deadline):
        time.sleep(0.2)
        now = claims()
        if now != seen:
            seen, since = now, time.monotonic()


def seconds_until_empty(database, begin, bound):
    database.wait_until_empty(timeout=bound + 10)
    return time.monotonic() - begin


def expect_everything_arrived(kafka, topic):
    ids = {record.header("id") for record in read_topic(kafka, topic)}
    assert len(ids) == 2 * ROWS


@every_postgres
@every_case
def test_rows_of_a_killed_node_are_taken_over(database, fragile_kafka, fragile_topic, start_relay, case):
    with holder_and_survivor(database, fragile_kafka, fragile_topic, start_relay, case) as (survivor, holder):
        holder.kill9()
        begin = time.monotonic()
    assert seconds_until_empty(database, begin, case.killed) < case.killed
    assert survivor.stop() == 0
    expect_everything_arrived(fragile_kafka, fragile_topic)


@every_case
def test_rows_of_a_frozen_node_are_taken_over(database, fragile_kafka, fragile_topic, start_relay, case):
    with holder_and_survivor(database, fragile_kafka, fragile_topic, start_relay, case) as (survivor, holder):
        holder.freeze()
        begin = time.monotonic()
    assert seconds_until_empty(database, begin, case.frozen) < case.frozen
    holder.thaw()
    assert [holder.stop(), survivor.stop()] == [0, 0]
    expect_everything_arrived(fragile_kafka, fragile_topic)


@every_case
def test_rows_that_a_stopping_node_had_to_abandon_are_taken_over(database, fragile_kafka, fragile_topic, start_relay,
                                                                 case):
    """Its stop_timeout ends before the broker answers: it signs off, and the others look at once."""
    relays = [start_relay(case_settings(database, fragile_kafka, fragile_topic, case, name) | {"stop_timeout": "1s"})
              for name in ("survivor", "holder")]
    write(database, ROWS)
    database.wait_until_empty()
    with frozen(fragile_kafka.pid):
        let_the_holder_take_all(database, *relays)
        wait_until_idle(database, "survivor")
        assert relays[1].stop() == 0
        begin = time.monotonic()
    assert seconds_until_empty(database, begin, case.killed) < case.killed
    assert relays[0].stop() == 0
    expect_everything_arrived(fragile_kafka, fragile_topic)
