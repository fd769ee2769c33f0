"""Queues without a broker: the sink `queue`, and the SQL functions by which consumers take messages out."""

import contextlib
import json
import random
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.e2e import queue_consumer
from tests.e2e.checker import Arrival, check
from tests.e2e.ledger import Writers
from tests.e2e.relay import ROOT, clean_environment, postrider, settings, wait_until, write_config
from tests.e2e.scene import missing, started
from tests.servers import PgBouncer, ServerMissing
from tests.servers.golang import fetch_example

every_postgres = pytest.mark.parametrize("pg", [15, 18], indirect=True)
QUEUE = "jobs"


class Queue:
    """A queue of the database, seen by one consumer."""

    def __init__(self, database, **options):
        self.database = database
        self.connection = database.connect(autocommit=True)
        given = "".join(f", {name} => %({name})s" for name in options)
        self.ask(f"SELECT postrider.create_queue(%(queue)s{given})", {"queue": QUEUE, **options})

    def ask(self, sql, parameters=None):
        return self.connection.execute(sql, parameters).fetchone()[0]

    def send(self, *messages):
        """Messages as "key/number", all in one statement, as the sink does."""
        self.connection.execute("""
            INSERT INTO postrider.queue_message (queue, lane, message_id, key, payload)
            SELECT q.name, postrider.lane_of(q.ordered, split_part(m, '/', 1), m), m, split_part(m, '/', 1), '{}'
            FROM postrider.queue q, unnest(%s::text[]) WITH ORDINALITY u(m, place) WHERE q.name = %s ORDER BY place
            """, (list(messages), QUEUE))

    def receive(self, most=10, visibility=None):
        """Receipts by message."""
        return dict(self.connection.execute(
            "SELECT message_id, receipt FROM postrider.receive(%s, %s, %s)", (QUEUE, most, visibility)).fetchall())

    def ack(self, receipt):
        return self.ask("SELECT postrider.ack(%s, %s)", (QUEUE, receipt))

    def nack(self, receipt, delay="0", reason=None):
        return self.ask("SELECT postrider.nack(%s, %s, %s, %s)", (QUEUE, receipt, delay, reason))

    def extend(self, receipt, visibility):
        return self.ask("SELECT postrider.extend(%s, %s, %s)", (QUEUE, receipt, visibility))

    def overview(self):
        return self.connection.execute(
            "SELECT messages, in_flight, dead FROM postrider.queue_overview WHERE queue = %s", (QUEUE,)).fetchone()


@pytest.fixture
def queue(database):
    made = []

    def make(**options):
        made.append(Queue(database, **options))
        return made[-1]

    yield make
    for one in made:
        one.connection.close()


@pytest.fixture
def crew(database):
    """Consumers as processes, which end with the test."""
    database.execute(queue_consumer.TABLES)
    processes = []

    def hire(count=1, *mood, dsn=None):
        for _ in range(count):
            processes.append(subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.queue_consumer", dsn or database.dsn, QUEUE, *mood], cwd=ROOT))
        return processes

    yield hire
    for process in processes:
        process.kill()
        process.wait()


def relay_settings(database, **options):
    return settings(database.dsn, {"type": "queue"}, route={"topic": QUEUE}, poll_interval="1s", **options)


def processed(database):
    rows = database.execute("SELECT key, payload, message_id FROM public.processed ORDER BY n")
    return [Arrival(key, json.loads(payload)["seq"], number) for key, payload, number in rows]


def wait_until_processed(database, count, timeout):
    wait_until(lambda: database.value("SELECT count(DISTINCT message_id) FROM public.processed") >= count, timeout,
               f"{count} messages processed", pause=0.2)


# ---- Many consumers ---------------------------------------------------------------------------------------------------

@pytest.mark.timeout(300)
@every_postgres
def test_of_20000_messages_none_is_lost_though_consumers_are_killed(database, start_relay, queue, crew):
    """Eight at a time, each in a process of its own; in the order of each key, and no key with two of them at once."""
    queue(visibility="2 s", max_receives=1000)
    database.entities(500)
    database.write_backlog(40)
    relay = start_relay(relay_settings(database))
    consumers = crew(8)
    for _ in range(10):
        time.sleep(0.4)
        victim = random.choice([consumer for consumer in consumers if consumer.poll() is None])
        victim.kill()
        victim.wait()
        crew(1)
    wait_until_processed(database, 20000, 120)
    database.wait_until_empty()
    assert relay.stop() == 0
    report = check(database.ledger(), processed(database))
    assert not report.violations(ignore=("duplicates",)), str(report)
    assert len(report.duplicates) <= 10 * 20, "more came again than killed consumers can have had"
    assert database.execute("SELECT * FROM public.intruder") == []
    wait_until(lambda: database.execute("SELECT messages, dead FROM postrider.queue_overview") == [(0, 0)])
    assert database.value("SELECT count(*) FROM postrider.queue_lane") == 0


def send_for_a_while(database, seconds, sender):
    """Messages of few keys, so that lanes come and go all the time; returns how many."""
    sent = 0
    deadline = time.monotonic() + seconds
    with database.connect(autocommit=True) as connection:
        while time.monotonic() < deadline:
            keys = [f"key-{random.randrange(6)}" for _ in range(random.randint(1, 3))]
            connection.execute("""
                INSERT INTO postrider.queue_message (queue, lane, message_id, key, payload)
                SELECT %s, k, %s || '/' || place, k, '{}' FROM unnest(%s::text[]) WITH ORDINALITY u(k, place)
                """, (QUEUE, f"{sender}/{sent}", keys))
            sent += len(keys)
            time.sleep(random.random() / 100)
    return sent


@every_postgres
def test_lanes_that_come_and_go_lose_nothing_and_never_have_two_consumers(database, queue, crew):
    """Messages arrive just while the last one of their key is acknowledged, in transactions short and long, some of which
    are rolled back."""
    queue(visibility="1 s", max_receives=1000000)
    crew(5, "moody")
    crew(3)
    with ThreadPoolExecutor(3) as pool:
        sent = sum(pool.map(lambda sender: send_for_a_while(database, 8, sender), range(3)))
    wait_until_processed(database, sent, 60)
    wait_until(lambda: database.execute("SELECT messages, in_flight, dead FROM postrider.queue_overview") == [(0, 0, 0)], 30)
    assert database.execute("SELECT * FROM public.intruder") == []
    wait_until(lambda: database.value("SELECT count(*) FROM postrider.queue_lane") == 0, 30, "no lane left")


def test_rows_become_messages_exactly_once_though_relays_are_killed(database, start_relay, queue, crew):
    """In the outbox's own database: consumers acknowledge meanwhile, so that nothing remembers what was there."""
    queue()
    entities = database.entities(40)
    crew(2)
    relay = start_relay(relay_settings(database))
    with Writers(database.dsn, entities, threads=3, pause=0.002):
        for _ in range(5):
            time.sleep(0.6)
            relay.kill9()
            relay = start_relay(relay_settings(database))
    database.wait_until_empty(30)
    ledger = database.ledger()
    wait_until_processed(database, len(ledger), 30)
    assert relay.stop() == 0
    report = check(ledger, processed(database))
    assert not report.violations(), str(report)


def test_consumers_work_through_a_pooler_in_transaction_mode(database, queue, crew):
    one = queue()
    pooler = started(PgBouncer(database.server, "transaction", {"default_pool_size": 2}))
    try:
        one.send(*[f"k{number % 50}/{number}" for number in range(1000)])
        consumers = crew(3, "moody", dsn=pooler.dsn(database.name))
        # A pooler hands out sessions by turns, so that the consumers' own advisory locks mean nothing here.
        wait_until_processed(database, 1000, 60)
        wait_until(lambda: one.overview() == (0, 0, 0), 60)
        assert all(consumer.poll() is None for consumer in consumers)
    finally:
        pooler.close()


# ---- One message ------------------------------------------------------------------------------------------------------

@every_postgres
def test_a_message_has_everything_of_its_row(database, start_relay, queue):
    relay = start_relay(relay_settings(database))
    database.insert("a", '{"n": 1}', headers='{"tenant": "acme"}')
    database.wait_until_empty()
    assert relay.stop() == 0
    with database.connect(row_factory=psycopg.rows.dict_row) as connection:
        message, = connection.execute("SELECT * FROM postrider.receive(%s)", (QUEUE,)).fetchall()
    assert message["headers"].items() >= {"tenant": "acme"}.items()
    assert {name: message[name] for name in ("key", "entity_type", "entity_id", "event_type", "payload", "receive_count")} == {
        "key": "a", "entity_type": "order", "entity_id": "a", "event_type": "changed", "payload": b'{"n": 1}',
        "receive_count": 1}
    assert message["created_at"] <= message["sent_at"] and message["message_id"] and message["receipt"]


def test_what_is_not_acknowledged_in_time_comes_again_and_its_old_receipt_is_worth_nothing(queue):
    one = queue(visibility="300 ms")
    one.send("a/1", "b/1")
    first = one.receive()
    assert sorted(first) == ["a/1", "b/1"] and one.receive() == {}
    assert one.extend(first["b/1"], "10 s")
    time.sleep(0.4)
    second = one.receive()
    assert sorted(second) == ["a/1"] and second["a/1"] != first["a/1"]
    assert [one.ack(first["a/1"]), one.nack(first["a/1"]), one.extend(first["a/1"], "1 h")] == [False] * 3
    assert one.overview() == (2, 2, 0)
    assert one.ack(second["a/1"]) and one.ack(first["b/1"])
    assert not one.ack(second["a/1"]) and not one.ack("nonsense") and not one.ack("1:1")
    assert one.overview() == (0, 0, 0)


def test_a_receipt_that_is_late_is_good_while_nobody_else_has_the_message(queue):
    one = queue(visibility="100 ms")
    one.send("a/1")
    receipt = one.receive()["a/1"]
    time.sleep(0.2)
    assert one.ack(receipt) and one.overview() == (0, 0, 0)


def test_receipts_are_acknowledged_and_given_back_several_at_a_time(queue):
    one = queue()
    one.send("a/1", "b/1", "c/1")
    got = one.receive()
    assert one.ask("SELECT postrider.ack(%s, %s::text[])", (QUEUE, [got["a/1"], "9:none", got["b/1"]])) == [True, False, True]
    assert one.ask("SELECT postrider.nack(%s, %s::text[])", (QUEUE, [got["c/1"], got["a/1"]])) == [True, False]
    assert list(one.receive()) == ["c/1"]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_message_that_is_given_back_comes_after_its_delay(queue, ordered):
    one = queue(ordered=ordered)
    one.send("a/1", "a/2", "b/1")
    got = one.receive()
    assert sorted(got) == (["a/1", "b/1"] if ordered else ["a/1", "a/2", "b/1"])
    assert one.nack(got["a/1"], "400 ms", "not now")
    if ordered:
        assert one.receive() == {}, "what is behind a message that waits waits too"
    time.sleep(0.5)
    again = one.receive()
    assert list(again) == ["a/1"]
    assert one.ack(again["a/1"])
    assert list(one.receive()) == (["a/2"] if ordered else [])


def test_keys_take_turns_and_each_has_one_message_in_flight(queue):
    one = queue()
    one.send(*[f"hot/{number}" for number in range(1, 101)], "b/1", "b/2", "c/1")
    got = one.receive()
    assert list(got) == ["hot/1", "b/1", "c/1"]
    for receipt in got.values():
        assert one.ack(receipt)
    assert list(one.receive()) == ["hot/2", "b/2"]


@every_postgres
def test_a_message_that_fails_too_often_becomes_a_dead_letter_and_can_be_put_back(queue):
    one = queue(max_receives=2, visibility="100 ms")
    one.send("a/1", "a/2", "b/1")
    for _ in range(2):
        got = one.receive()
        assert one.nack(got["a/1"], reason="cannot do it")
        time.sleep(0.2)
    assert list(one.receive()) == ["a/2"], "the next one of its key; the time of b/1 has run out twice"
    assert one.overview() == (1, 1, 2)
    dead = one.connection.execute(
        "SELECT message_id, receive_count, reason FROM postrider.queue_dead ORDER BY message_id").fetchall()
    assert dead == [("a/1", 2, "cannot do it"), ("b/1", 2, "its time to be acknowledged ran out")]
    assert one.ask("SELECT postrider.redrive_queue(%s, 1)", (QUEUE,)) == 1
    assert one.ask("SELECT postrider.redrive_queue(%s)", (QUEUE,)) == 1
    time.sleep(0.2)
    assert sorted(one.receive()) == ["a/2", "b/1"], "a/1 is behind it now"


def test_dead_letters_go_when_their_retention_is_over(queue):
    one = queue(max_receives=1, dead_retention="300 ms")
    for number in (1, 2):
        one.send(f"a/{number}")
        assert one.nack(one.receive()[f"a/{number}"])
        assert one.overview() == (0, 0, 1), "the one before has gone"
        time.sleep(0.4)


def test_a_message_id_is_in_a_queue_once_until_it_is_acknowledged(database, queue):
    one = queue()
    one.send("a/1")
    with pytest.raises(psycopg.errors.UniqueViolation):
        one.send("a/1")
    assert one.ack(one.receive()["a/1"])
    one.send("a/1")
    assert list(one.receive()) == ["a/1"]


# ---- Consumers with transactions of their own ---------------------------------------------------------------------------

CALLS = {"ack": "ack(%(queue)s, %(receipt)s)", "nack": "nack(%(queue)s, %(receipt)s, '0')",
         "extend": "extend(%(queue)s, %(receipt)s, '1 min')"}


@pytest.mark.parametrize("calls", [[], ["ack"], ["extend", "ack"], ["nack"]], ids=lambda calls: "+".join(calls) or "none")
@pytest.mark.parametrize("received", ["before", "within"])
def test_the_relay_never_waits_for_a_consumer(database, start_relay, queue, received, calls):
    """A consumer has done something to a message in a transaction that stays open. Rows of the same key are settled all the
    same."""
    one = queue()
    one.send("a/0")
    relay = start_relay(relay_settings(database))
    database.insert("warm")     # the sink has looked at the tables
    database.wait_until_empty()
    with database.connect(autocommit=received == "before") as consumer:
        receipts = dict(consumer.execute("SELECT key, receipt FROM postrider.receive(%s)", (QUEUE,)).fetchall())
        consumer.execute("BEGIN" if received == "before" else "SELECT")
        for call in calls:
            told = consumer.execute(f"SELECT postrider.{CALLS[call]}", {"queue": QUEUE, "receipt": receipts["a"]}).fetchone()
            assert told[0]
        if calls == ["nack"]:
            consumer.execute("SELECT * FROM postrider.receive(%s)", (QUEUE,))
        database.insert("a")
        database.wait_until_empty(2)
        consumer.execute("COMMIT")
    assert relay.stop() == 0
    if "ack" in calls:
        wait_until(lambda: len(one.receive()) == 1, what="the next one of the key")


def test_what_is_acknowledged_in_a_transaction_that_fails_comes_again_first(queue, database):
    one = queue(visibility="600 ms")
    one.send("a/1")
    receipt = one.receive()["a/1"]
    with database.connect(autocommit=False) as consumer:
        assert consumer.execute("SELECT postrider.ack(%s, %s)", (QUEUE, receipt)).fetchone()[0]
        one.send("a/2")
        assert one.receive() == {}
        consumer.rollback()
    assert one.receive() == {}, "it is in flight again"
    time.sleep(0.7)
    got = one.receive()
    assert list(got) == ["a/1"]
    assert one.ack(got["a/1"])
    wait_until(lambda: list(one.receive()) == ["a/2"])


def test_a_message_that_comes_while_the_last_one_of_its_key_is_acknowledged_is_not_forgotten(queue, database):
    """It is not committed yet when the consumer looks whether there is another one."""
    one = queue()
    one.send("a/1")
    receipt = one.receive()["a/1"]
    with database.connect(autocommit=False) as sender:
        sender.execute("INSERT INTO postrider.queue_message (queue, lane, message_id, key) VALUES (%s, 'a', 'a/2', 'a')", (QUEUE,))
        assert one.ack(receipt)
        assert one.receive() == {}
    wait_until(lambda: list(one.receive()) == ["a/2"])


def test_a_message_that_comes_just_before_a_lane_is_removed_is_not_forgotten(queue, database):
    """Between looking for messages and locking the row of the lane; here that takes a while."""
    one = queue()
    one.send("a/1")
    receipt = one.receive()["a/1"]
    lock = database.value("SELECT pg_get_functiondef('postrider.queue_lock(bigint)'::regprocedure)")
    database.execute(lock.replace("BEGIN\n", "BEGIN\nPERFORM pg_sleep(1);\n", 1))
    with ThreadPoolExecutor(1) as pool, database.connect(autocommit=True) as consumer:
        acked = pool.submit(lambda: consumer.execute("SELECT postrider.ack(%s, %s)", (QUEUE, receipt)).fetchone()[0])
        time.sleep(0.5)
        assert not acked.done()
        one.send("a/2")
        assert acked.result()
    wait_until(lambda: list(one.receive()) == ["a/2"])


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_acknowledging_under_another_isolation_level_loses_nothing(queue, database, level):
    """Its snapshot is too old to see what has come meanwhile."""
    one = queue()
    one.send("a/1")
    receipt = one.receive()["a/1"]
    with database.connect(autocommit=False) as consumer:
        consumer.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        consumer.execute("SELECT count(*) FROM postrider.queue")
        one.send("a/2")
        assert consumer.execute("SELECT postrider.ack(%s, %s)", (QUEUE, receipt)).fetchone()[0]
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="isolation level"), consumer.transaction():
            consumer.execute("SELECT * FROM postrider.receive(%s)", (QUEUE,))
    assert list(one.receive()) == ["a/2"]


# ---- Around it --------------------------------------------------------------------------------------------------------

@every_postgres
def test_a_consumer_needs_no_right_but_to_call_functions(database, queue):
    one = queue()
    one.send("a/1", "b/1")
    database.execute("DROP ROLE IF EXISTS queue_consumer")
    database.execute("CREATE ROLE queue_consumer LOGIN")
    try:
        with psycopg.connect(database.dsn, user="queue_consumer", autocommit=True) as consumer:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                consumer.execute("SELECT * FROM postrider.receive(%s)", (QUEUE,))
            database.execute("SELECT postrider.grant_consumer('queue_consumer')")
            got = consumer.execute("SELECT receipt FROM postrider.receive(%s)", (QUEUE,)).fetchall()
            assert consumer.execute("SELECT postrider.ack(%s, %s)", (QUEUE, got[0][0])).fetchone()[0]
            assert consumer.execute("SELECT postrider.extend(%s, %s, '1 min')", (QUEUE, got[1][0])).fetchone()[0]
            assert consumer.execute("SELECT postrider.nack(%s, %s)", (QUEUE, got[1][0])).fetchone()[0]
            for forbidden in ("SELECT * FROM postrider.queue_message", "DELETE FROM postrider.queue_lane",
                              "SELECT postrider.purge_queue('jobs')", "SELECT postrider.create_queue('mine')",
                              "SELECT postrider.queue_close(1)", "SELECT postrider.grant_consumer('queue_consumer')",
                              "INSERT INTO postrider.queue_message (queue, lane, message_id) VALUES ('jobs', '', '')"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    consumer.execute(forbidden)
    finally:
        database.execute("DROP OWNED BY queue_consumer; DROP ROLE queue_consumer")


def test_a_relay_has_the_rights_that_init_grants(empty_database, tmp_path, start_relay):
    empty_database.execute("DROP ROLE IF EXISTS queue_relay")
    empty_database.execute("CREATE ROLE queue_relay LOGIN")
    content = relay_settings(empty_database)
    try:
        done = postrider("init", "-c", write_config(tmp_path / "init.yaml", content), "--role", "queue_relay")
        assert done.returncode == 0, done.stderr
        content["database"]["url"] = content["database"]["url"].replace("postgres@", "queue_relay@")
        checked = postrider("check", "-c", write_config(tmp_path / "check.yaml", content))
        assert "queue jobs: is made, with order per key, with its first message" in checked.stdout, checked.stdout
        relay = start_relay(content)
        empty_database.insert("a")
        empty_database.wait_until_empty()
        assert relay.stop() == 0
        assert "queue jobs: is there, with order per key" in postrider("check", "-c", tmp_path / "check.yaml").stdout
        empty_database.execute("REVOKE INSERT ON postrider.queue_message FROM queue_relay")
        checked = postrider("check", "-c", tmp_path / "check.yaml")
        assert "may not put messages into queues" in checked.stdout and "GRANT SELECT, INSERT" in checked.stdout
    finally:
        empty_database.execute("DROP OWNED BY queue_relay; DROP ROLE queue_relay")


def test_those_who_listen_are_told_once_for_each_set(queue, database):
    one = queue()
    with database.connect(autocommit=True) as listener:
        listener.execute("LISTEN postrider_queue")
        one.send("a/1", "b/1", "c/1")
        one.ack(one.receive()["a/1"])
        told = list(listener.notifies(timeout=1))
    assert [note.payload for note in told] == [QUEUE]


def test_a_queue_that_is_not_there_is_said_to_be_so(database):
    for call in ("receive('none')", "ack('none', 'x')", "nack('none', 'x')", "extend('none', 'x', '1 s')",
                 "alter_queue('none')", "purge_queue('none')", "drop_queue('none')", "redrive_queue('none')"):
        with pytest.raises(psycopg.errors.UndefinedObject, match='queue "none" does not exist') as error:
            database.execute(f"SELECT postrider.{call}")
        assert "create_queue" in error.value.diag.message_hint
    for call in ("receive('jobs', 0)", "receive('jobs', 1001)", "receive('jobs', 1, '0')"):
        with contextlib.closing(Queue(database).connection), pytest.raises(psycopg.errors.InvalidParameterValue):
            database.execute(f"SELECT postrider.{call}")


def test_queues_are_changed_emptied_and_dropped(queue):
    one = queue(ordered=True, max_receives=1)
    one.send("a/1", "a/2", "b/1")
    with pytest.raises(psycopg.errors.ObjectInUse):
        one.ask("SELECT postrider.alter_queue(%s, ordered => false)", (QUEUE,))
    got = one.receive()
    assert one.nack(got["b/1"])
    assert one.ask("SELECT postrider.purge_queue(%s)", (QUEUE,)) == 2
    assert one.overview() == (0, 0, 1) and not one.ack(got["a/1"])
    one.ask("SELECT postrider.alter_queue(%s, ordered => false, visibility => '1 min')", (QUEUE,))
    one.send("a/1", "a/2")
    assert sorted(one.receive()) == ["a/1", "a/2"]
    one.ask("SELECT postrider.drop_queue(%s)", (QUEUE,))
    assert one.overview() is None
    assert one.ask("SELECT (SELECT count(*) FROM postrider.queue_message) + (SELECT count(*) FROM postrider.queue_lane)"
                   " + (SELECT count(*) FROM postrider.queue_dead)") == 0


def test_a_topic_that_can_be_no_queue_is_refused_by_name(database, start_relay):
    relay = start_relay(settings(database.dsn, {"type": "queue"}, route={"topic": "{entity_id}"}))
    number = database.insert("x" * 256)
    database.insert("fine")
    relay.wait_for("row.refused", id=str(number), kind="rejected")
    wait_until(lambda: database.pending() == 1)
    assert database.execute("SELECT name FROM postrider.queue") == [("fine",)]


# ---- docs/queue.md ------------------------------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "queue.md").read_text()
EXAMPLES = ROOT / "examples" / "queue"


def go_consumer():
    try:
        return [fetch_example("queue")]
    except ServerMissing as error:
        missing(f"the consumer in Go: {error}")


COMMANDS = {"python": lambda: [sys.executable, EXAMPLES / "python" / "consumer.py"], "go": go_consumer}
SOURCES = {"python": EXAMPLES / "python" / "consumer.py", "go": EXAMPLES / "go" / "main.go"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("language", COMMANDS)
def test_the_consumers_that_the_page_shows_do_each_work_once_though_they_are_killed(database, queue, language, start_relay):
    assert f"```{language}\n{SOURCES[language].read_text()}```" in PAGE
    command = [str(part) for part in COMMANDS[language]()]
    queue(visibility="1 s", max_receives=1000)
    database.execute("CREATE TABLE invoice (n bigint GENERATED ALWAYS AS IDENTITY, order_id text, message_id text, body jsonb)")
    database.entities(40)
    database.write_backlog(10)
    relay = start_relay(relay_settings(database))
    consumers = []
    try:
        for _ in range(4):
            consumers += [subprocess.Popen(command, env=clean_environment({"DATABASE_URL": database.dsn, "QUEUE": QUEUE}))
                          for _ in range(2)]
            time.sleep(0.4)
            consumers[-1].kill()
        wait_until(lambda: database.value("SELECT count(*) FROM invoice") >= 400, 60, "all work done")
    finally:
        for consumer in consumers:
            consumer.kill()
            consumer.wait()
    assert relay.stop() == 0
    work = database.execute("SELECT order_id, (body->>'seq')::int, message_id FROM invoice ORDER BY n")
    report = check(database.ledger(), [Arrival(*row) for row in work])
    assert not report.violations(), str(report)


def test_the_sql_of_the_page_runs(database):
    """Block by block, as the page has it; receipts are made up there."""
    blocks = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.M | re.S)
    assert len(blocks) >= 3
    database.execute("DROP ROLE IF EXISTS billing")
    database.execute("CREATE ROLE billing LOGIN")
    try:
        with database.connect(autocommit=True) as connection:
            for block in blocks:
                connection.execute(block)
    finally:
        database.execute("DROP OWNED BY billing; DROP ROLE billing")
