"""The reader `wal`: what it delivers, how often, and in which order."""

import base64
import json
import random
import time
from collections import Counter

import pytest

from tests.e2e.checker import check, expect_exactly_once, expect_in_order
from tests.e2e.consume import read_topic, wait_for_records
from tests.e2e.ledger import Writers, arrivals
from tests.e2e.relay import kafka_settings, postrider, settings, wait_until, write_config
from tests.e2e.scene import Database, dropped, initialised, new_database

every_postgres = pytest.mark.parametrize("pg", [15, 18], indirect=True)
SMALL = {"workers": 2, "batch_size": 50, "batch_max": 50}
IN_FLIGHT = 2 * 2 * 50              # rows that a relay holds at most with these: what one kill may repeat


# ---- The scene ------------------------------------------------------------------------------------------------------

def slot_of(database, outbox="orders"):
    """Slots belong to the whole server, and a test only to its database."""
    return f"postrider_{database.name}_{outbox}"


def wal_options(database, outbox="orders", **wal):
    return {"reader": "wal", "wal": {"slot": slot_of(database, outbox), **wal}}


def wal_settings(database, kafka, topic, wal=None, **options):
    return kafka_settings(database, kafka, topic, **{**wal_options(database, **(wal or {})), **options})


def small_settings(database, kafka, topic, **options):
    """With few rows in flight, so that the bound on repeats is sharp."""
    return wal_settings(database, kafka, topic, **{**SMALL, **options})


@pytest.fixture
def prepare(product, tmp_path):
    """Runs `init` with these settings: from here on the slot keeps what is written."""
    def init(content, *flags):
        done = postrider("init", "-c", write_config(tmp_path / "prepare.yaml", content), *flags)
        assert done.returncode == 0, done.stderr
        return content
    return init


@pytest.fixture
def tail(prepare, start_relay):
    """Prepares and starts a relay."""
    return lambda content: start_relay(prepare(content))


def backlog(database):
    return database.value("SELECT count(*) FROM postrider.wal_backlog")


def wait_until_confirmed(database):
    """Waits until the slots have passed what was committed before: nothing of it is left in any relay."""
    with database.connect() as connection:
        (end,) = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
        wait_until(lambda: connection.execute(
            "SELECT bool_and(confirmed_flush_lsn >= %s::pg_lsn) FROM pg_replication_slots"
            " WHERE database = current_database()", (end,)).fetchone()[0], 30, "everything confirmed")


@pytest.fixture
def stopped(kafka):
    """Stops a relay when so many records have arrived, and returns all that are in the topic at the end."""
    def wait_and_stop(relay, topic, records):
        wait_for_records(kafka, topic, records)
        assert relay.stop() == 0
        return read_topic(kafka, topic)
    return wait_and_stop


def values_of(records, key):
    return [json.loads(record.value) for record in records if record.key == key]


# ---- Rows from before the slot, then the log ------------------------------------------------------------------------

@every_postgres
def test_rows_from_before_the_slot_come_first_and_order_holds_across_the_border(
        database, kafka, topic, prepare, start_relay):
    entities = database.entities(40)
    database.write_backlog(50)
    content = wal_settings(database, kafka, topic)
    with Writers(database.dsn, entities, threads=4, pause=0.001, late=0.02):
        time.sleep(0.3)
        prepare(content)
        before = {row[0] for row in database.execute(
            "SELECT o.message_id::text FROM postrider.wal_backlog b JOIN public.outbox o ON o.id = b.id::bigint")}
        time.sleep(0.3)
        relay = start_relay(content)
        time.sleep(1)
    database.wait_until_empty()
    assert relay.stop() == 0
    records = read_topic(kafka, topic)
    assert 2000 <= len(before) < len(records)
    for partition in range(6):
        from_log = [record.header("id").decode() not in before for record in records if record.partition == partition]
        assert from_log == sorted(from_log), "a row from the log before one that was there earlier"
    expect_exactly_once(database.ledger(), arrivals(records))
    assert backlog(database) == 0


def test_kill_9_in_the_middle_of_the_rows_from_before_the_slot(database, kafka, topic, prepare, start_relay):
    database.entities(300)
    database.write_backlog(50)
    content = prepare(small_settings(database, kafka, topic))
    for left in (13_000, 10_000, 7000):
        relay = start_relay(content)
        wait_until(lambda: backlog(database) < left, what=f"fewer than {left} rows left", pause=0.001)
        relay.kill9()
        assert backlog(database) > 0
    relay = start_relay(content)
    database.insert("order-0", '{"seq": 51}')
    database.wait_until_empty()
    assert relay.stop() == 0
    log = [arrival for arrival in arrivals(read_topic(kafka, topic)) if arrival.seq <= 50]
    assert len(expect_in_order(database.ledger(), log).duplicates) <= 3 * IN_FLIGHT


def test_rows_from_before_the_slot_that_somebody_deletes_do_not_hurt(database, kafka, topic, prepare, start_relay):
    """More of them in a row than are read at once."""
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                     " SELECT 'order', 'e-' || n % 7, 'changed', json_build_object('n', n)"
                     " FROM generate_series(1, 79) AS n ORDER BY n")
    content = prepare(small_settings(database, kafka, topic, batch_size=10, batch_max=10))
    database.execute("DELETE FROM public.outbox WHERE id <= 35 OR id BETWEEN 41 AND 44 OR id > 70")
    relay = start_relay(content)
    database.insert("e-0", '{"n": 80}')
    database.wait_until_empty()
    assert relay.stop() == 0
    published = sorted(json.loads(record.value)["n"] for record in read_topic(kafka, topic))
    assert published == [*range(36, 41), *range(45, 71), 80]
    assert backlog(database) == 0


# ---- Crashes and stops ----------------------------------------------------------------------------------------------

@every_postgres
def test_kill_9_at_random_moments_loses_nothing_and_repeats_what_was_in_flight(
        database, kafka, topic, tail, start_relay):
    entities = database.entities(60)
    content = small_settings(database, kafka, topic)
    relay = tail(content)
    with Writers(database.dsn, entities, threads=4, pause=0.0005):
        for _ in range(6):
            time.sleep(random.uniform(0.1, 0.6))
            relay.kill9()
            relay = start_relay(content)
    database.wait_until_empty()
    assert relay.stop() == 0
    report = expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))
    assert len(report.duplicates) <= 6 * IN_FLIGHT


def copy_backlog(database, rows):
    """As write_backlog, by COPY: all rows come in few records of the log."""
    with database.connect() as connection, connection.transaction():
        names = [row[0] for row in connection.execute("SELECT id FROM public.entity ORDER BY id")]
        columns = "entity_type, entity_id, event_type, payload"
        with connection.cursor().copy(f"COPY public.outbox ({columns}) FROM STDIN") as copy:
            for seq in range(1, rows + 1):
                copy.write("".join(f'order\t{name}\tchanged\t{{"seq": {seq}}}\n' for name in names))
        connection.execute("INSERT INTO public.ledger SELECT entity_id, (payload->>'seq')::bigint, message_id"
                           " FROM public.outbox")


def mixed_backlog(database, rows):
    """As write_backlog, with a logical message for every second event of each entity."""
    with database.connect() as connection, connection.transaction():
        for seq in range(1, rows + 1):
            if seq % 2:
                connection.execute("""
                    WITH events AS (
                        INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)
                        SELECT 'order', id, 'changed', json_build_object('seq', %s::int) FROM public.entity
                        RETURNING entity_id, message_id)
                    INSERT INTO public.ledger SELECT entity_id, %s, message_id FROM events""", (seq, seq))
            else:
                connection.execute("""
                    WITH events AS (
                        INSERT INTO public.ledger SELECT id, %s, gen_random_uuid() FROM public.entity RETURNING *)
                    SELECT pg_logical_emit_message(true, 'postrider', json_build_object(
                        'entity_id', entity, 'message_id', message_id, 'payload', json_build_object('seq', seq))::text)
                    FROM events""", (seq,))


@pytest.mark.parametrize("write, rows", [(Database.write_backlog, 500), (copy_backlog, 500), (mixed_backlog, 150)],
                         ids=["INSERT", "COPY", "rows and messages"])
def test_kill_9_inside_a_transaction_of_100000_rows_repeats_only_what_was_in_flight(
        database, kafka, topic, prepare, start_relay, write, rows):
    """All its events share one place in the log, so the place alone does not say where to go on."""
    database.entities(200)
    content = prepare(small_settings(database, kafka, topic))
    write(database, rows)
    settled = 0
    for _ in range(3):
        relay = start_relay(content)
        wait_until(lambda: database.value("SELECT transaction_rows FROM postrider.wal") > settled + 5000,
                   what="a part of the transaction settled", pause=0.005)
        relay.kill9()
        settled = database.value("SELECT transaction_rows FROM postrider.wal WHERE transaction IS NOT NULL")
        assert 0 < settled < 200 * rows
    relay = start_relay(wal_settings(database, kafka, topic))
    wait_until(lambda: database.value("SELECT transaction IS NULL FROM postrider.wal"), 60, "all of it settled")
    database.wait_until_empty()
    assert relay.stop() == 0
    report = expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))
    assert len(report.duplicates) <= 3 * IN_FLIGHT


def test_a_worker_whose_sink_waits_does_not_make_a_crash_repeat_what_the_others_published(
        database, tmp_path, prepare, start_relay):
    """Far more is settled behind a row that is not than is ever in flight, and yet it is known after a crash."""
    store = initialised(new_database(database.server), tmp_path)
    options = wal_options(database) | SMALL
    content = prepare(settings(database.dsn, {"type": "stdout"}, {"type": "postgres", "url": store.dsn}, **options))
    stuck = database.insert("stuck")
    with store.connect(autocommit=False) as blocker:
        # Who appends the same message waits for the end of this transaction.
        blocker.execute("INSERT INTO postrider.event (entity_id, version, message_id) VALUES ('other', 1, %s)",
                        (database.value("SELECT message_id::text FROM public.outbox"),))
        relay = start_relay(content)
        candidates = {database.insert(f"e-{number}"): f"e-{number}" for number in range(8)}

        def published():
            left = {row[0] for row in database.execute("SELECT id FROM public.outbox")}
            return [entity for row, entity in candidates.items() if row not in left]

        free = wait_until(published, what="a row of the other worker published")[0]
        database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                         " SELECT 'order', %s, 'changed', '{}' FROM generate_series(1, 3000)", (free,))
        wait_until(lambda: database.pending() < 50, what="all of them published")
        assert database.value("SELECT count(*) FROM public.outbox WHERE id = %s", (stuck,)) == 1
        relay.kill9()
        blocker.rollback()
    relay.start()
    database.wait_until_empty()
    assert relay.stop() == 0
    lines = Counter(json.loads(line)["id"] for line in relay.out_file.read_text().splitlines())
    assert len(lines) == 3009
    assert sum(lines.values()) - len(lines) <= IN_FLIGHT
    dropped(store)


@every_postgres
def test_a_clean_stop_under_load_repeats_nothing(database, kafka, topic, prepare, start_relay):
    entities = database.entities(50)
    content = prepare(wal_settings(database, kafka, topic))
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        for _ in range(4):
            relay = start_relay(content)
            time.sleep(0.5)
            begin = time.monotonic()
            assert relay.stop() == 0
            assert time.monotonic() - begin < 5
    relay = start_relay(content)
    database.wait_until_empty()
    assert relay.stop() == 0
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


@pytest.mark.parametrize("prepared", ["before", "after"])
def test_a_stop_in_the_middle_of_one_transaction_or_the_backlog_repeats_nothing(
        database, kafka, topic, prepare, start_relay, prepared):
    database.entities(300)
    content = small_settings(database, kafka, topic)
    if prepared == "before":
        prepare(content)
    database.write_backlog(100)
    prepare(content)
    for _ in range(5):
        relay = start_relay(content)
        time.sleep(0.05)
        assert relay.stop() == 0
    assert database.pending() > 0
    relay = start_relay(wal_settings(database, kafka, topic))
    database.wait_until_empty()
    assert relay.stop() == 0
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_memory_stays_bounded_while_a_transaction_of_300000_rows_streams_through(
        database, kafka, make_topic, prepare, start_relay):
    topic = make_topic(config={"retention.bytes": "1000000"})
    content = prepare(wal_settings(database, kafka, topic))
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                     " SELECT 'order', 'e' || n % 1000, 'changed', json_build_object('n', repeat(md5(n::text), 32))"
                     " FROM generate_series(1, 300000) AS n")
    relay = start_relay(content)
    database.wait_until_empty(60)
    peak = relay.peak_rss_mb()
    assert relay.stop() == 0
    assert relay.events("relay.stopped")[0]["published"] == 300_000
    assert peak < 60, f"{peak} MB"


# ---- What becomes of rows -------------------------------------------------------------------------------------------

@every_postgres
def test_rows_may_stay_and_are_published_once_over_restarts(database, kafka, topic, tail, start_relay, stopped):
    entities = database.entities(30)
    database.write_backlog(5)
    content = wal_settings(database, kafka, topic, published="keep", columns={"scheduled_for": ""})
    relay = tail(content)
    with Writers(database.dsn, entities, threads=2, pause=0.002):
        for _ in range(3):
            time.sleep(0.4)
            assert relay.stop() == 0
            relay = start_relay(content)
    committed = database.ledger()
    assert database.pending() == len(committed)
    expect_exactly_once(committed, arrivals(stopped(relay, topic, len(committed))))


@pytest.mark.parametrize("published", ["delete", "keep"])
def test_a_row_that_its_own_transaction_deletes_is_published(database, kafka, topic, tail, stopped, published):
    relay = tail(wal_settings(database, kafka, topic, published=published, columns={"scheduled_for": ""}))
    with database.connect() as connection:
        for number in range(50):
            with connection.transaction():
                (row,) = connection.execute(
                    "INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                    " VALUES ('order', %s, 'changed', %s) RETURNING id", (f"e-{number % 5}", str(number))).fetchone()
                connection.execute("DELETE FROM public.outbox WHERE id = %s", (row,))
    records = stopped(relay, topic, 50)
    assert len(records) == 50
    for entity in range(5):
        assert values_of(records, f"e-{entity}".encode()) == list(range(entity, 50, 5))
    assert database.pending() == 0


def test_what_is_rolled_back_is_not_published(database, kafka, topic, tail, stopped):
    relay = tail(wal_settings(database, kafka, topic))
    with database.connect() as connection:
        for end in ("ROLLBACK", "COMMIT"):
            connection.execute("BEGIN")
            connection.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                               " VALUES ('order', 'a', 'changed', %s)", (json.dumps(end),))
            connection.execute("SAVEPOINT s")
            connection.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                               " VALUES ('order', 'a', 'changed', '\"savepoint\"')")
            connection.execute("SELECT pg_logical_emit_message(true, 'postrider', %s)",
                               ('{"entity_id": "a", "payload": 1}',))
            connection.execute("ROLLBACK TO s")
            connection.execute(end)
    emit(database, {"entity_id": "a", "payload": "last"})
    assert [record.value for record in stopped(relay, topic, 2)] == [b'"COMMIT"', b'"last"']


# ---- Logical messages: an outbox without a table --------------------------------------------------------------------

def emit(database, content, transactional=True, prefix="postrider"):
    """Writes a logical message, as text or as bytes; returns its place in the log."""
    content = content if isinstance(content, (str, bytes)) else json.dumps(content)
    kind = "bytea" if isinstance(content, bytes) else "text"
    return database.value(f"SELECT pg_logical_emit_message(%s, %s, %s::{kind})::text", (transactional, prefix, content))


@every_postgres
def test_a_logical_message_is_an_event(database, kafka, topic, make_topic, tail, stopped):
    other = make_topic()
    relay = tail(wal_settings(database, kafka, topic))
    odd = '{ "b" :  1.50 ,\n\t"a":[ ],  "b": "\\u00e9ü" }'
    first = emit(database, f'{{"entity_id": "a", "payload": {odd}}}')
    emit(database, {"entity_id": 17, "entity_type": "order", "event_type": "placed", "message_id": "m-1",
                    "topic": other, "headers": {"tenant": "acme", "none": None}, "traceparent": "00-0af-b7a-01",
                    "payload": "text", "created_at": "2026-11-15T09:45:27.25Z", "outbox": "orders"})
    emit(database, json.dumps({"entity_id": "a", "payload_base64": base64.b64encode(bytes(range(256))).decode()}))
    emit(database, '{"entity_id": "a", "payload": null}'.encode())
    records = stopped(relay, topic, 3)
    assert [(record.key, record.value) for record in records] == [
        (b"a", odd.encode()), (b"a", bytes(range(256))), (b"a", b"null")]
    assert records[0].header("id") == first.encode()
    (record,) = read_topic(kafka, other)
    assert (record.key, record.value) == (b"17", b'"text"')
    assert dict(record.headers) == {
        "id": b"m-1", "event_type": b"placed", "entity_type": b"order", "created_at": b"2026-11-15T09:45:27.25Z",
        "traceparent": b"00-0af-b7a-01", "tenant": b"acme", "none": None}


def test_messages_and_rows_of_one_transaction_keep_their_order(database, kafka, topic, tail, stopped):
    relay = tail(wal_settings(database, kafka, topic))
    with database.connect() as connection, connection.transaction():
        for number in range(300):
            entity = f"e-{number % 3}"
            if number % 2:
                connection.execute("SELECT pg_logical_emit_message(true, 'postrider', %s)",
                                   (json.dumps({"entity_id": entity, "payload": number}),))
            else:
                connection.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                                   " VALUES ('order', %s, 'changed', %s)", (entity, str(number)))
    records = stopped(relay, topic, 300)
    assert len(records) == 300 and database.pending() == 0
    for entity in range(3):
        assert values_of(records, f"e-{entity}".encode()) == list(range(entity, 300, 3))


def test_a_message_outside_of_its_transaction_is_ignored_with_a_warning(database, kafka, topic, tail, stopped):
    relay = tail(wal_settings(database, kafka, topic))
    for number in range(10):
        emit(database, {"entity_id": "a", "payload": number}, transactional=False)
    emit(database, {"entity_id": "a", "payload": 10}, prefix="other")
    emit(database, {"entity_id": "a", "payload": 11})
    assert [record.value for record in stopped(relay, topic, 1)] == [b"11"]
    assert len(relay.warnings("message.ignored")) == 1


BAD_MESSAGES = {
    "no JSON": "entity",
    "empty": "",
    "half": '{"entity_id": "a"',
    "no object": "[1]",
    "no entity": '{"payload": 1}',
    "no payload": '{"entity_id": "a"}',
    "unknown member": '{"entity_id": "a", "payload": 1, "body": 2}',
    "member twice": '{"entity_id": "a", "payload": 1, "entity_id": "b"}',
    "more behind it": '{"entity_id": "a", "payload": 1} {}',
    "no UTF-8": b'{"entity_id": "a", "payload": "\xff"}',
    "a zero byte": b'{"entity_id": "a\\u0000", "payload": "1"}',
    "nested deeply": '{"entity_id": "a", "payload": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "headers as text": '{"entity_id": "a", "payload": 1, "headers": "x"}',
}


def test_a_message_that_makes_no_event_is_put_aside_and_the_rest_goes_on(
        database, kafka, topic, tail, start_relay, stopped):
    content = wal_settings(database, kafka, topic)
    relay = tail(content)
    emit(database, {"entity_id": "a", "payload": 1})
    places = [emit(database, message) for message in BAD_MESSAGES.values()]
    with database.connect() as connection, connection.transaction():
        for message in ('{"entity_id": "a", "payload": 2}', "bad", '{"entity_id": "a", "payload": 3}'):
            connection.execute("SELECT pg_logical_emit_message(true, 'postrider', %s)", (message,))
    database.insert("b")
    database.wait_until_empty()
    wait_until_confirmed(database)
    assert relay.stop() == 0
    refused = len(BAD_MESSAGES) + 1
    assert len(relay.events("message.refused")) == refused
    assert "entity_id" not in "".join(str(event.get("content")) for event in relay.events("message.refused"))

    relay = start_relay(content)
    emit(database, {"entity_id": "a", "payload": 4})
    records = stopped(relay, topic, 5)
    assert values_of(records, b"a") == [1, 2, 3, 4] and len(records) == 5
    parked = database.execute("SELECT row_id, is_message FROM postrider.parked ORDER BY n")
    assert [row[0] for row in parked[:-1]] == places and all(row[1] for row in parked) and len(parked) == refused
    assert database.value("SELECT count(*) FROM postrider.retry") == refused
    stored = [bytes(row[0]) for row in database.execute(
        "SELECT fields[array_position(names, 'payload')] FROM postrider.parked ORDER BY n")]
    assert stored == [m if isinstance(m, bytes) else m.encode() for m in [*BAD_MESSAGES.values(), "bad"]]


def test_messages_can_be_turned_off(database, kafka, topic, tail, stopped):
    relay = tail(wal_settings(database, kafka, topic, wal={"messages": False}))
    emit(database, {"entity_id": "a", "payload": 1})
    emit(database, "bad")
    database.insert("b", "2")
    database.wait_until_empty()
    assert [record.value for record in stopped(relay, topic, 1)] == [b"2"]
    assert database.value("SELECT count(*) FROM postrider.parked") == 0


def test_messages_may_be_turned_off_in_the_middle_of_a_transaction(database, kafka, topic, prepare, start_relay):
    """How many of its events are settled means something else then. Rows may be repeated, and none may be lost."""
    database.entities(200)
    content = prepare(small_settings(database, kafka, topic))
    mixed_backlog(database, 50)
    relay = start_relay(content)
    wait_until(lambda: database.value("SELECT transaction_rows FROM postrider.wal") > 2000, pause=0.005)
    relay.kill9()
    assert database.pending() > 0
    content["outboxes"]["orders"]["wal"]["messages"] = False
    relay = start_relay(content)
    database.wait_until_empty()
    assert relay.stop() == 0
    log = [arrival for arrival in arrivals(read_topic(kafka, topic)) if arrival.seq % 2]
    report = check([entry for entry in database.ledger() if entry.seq % 2], log)
    assert not report.violations(ignore=("duplicates", "gaps")), str(report)    # every second one is a message


def test_a_message_for_another_outbox_is_passed_over(database, kafka, topic, tail, start_relay, stopped):
    content = wal_settings(database, kafka, topic, wal={"heartbeat": "300ms"})
    relay = tail(content)
    foreign = {"outbox": "invoices", "entity_id": "a", "payload": 1}
    emit(database, foreign)
    wait_until_confirmed(database)
    with database.connect() as connection, connection.transaction():
        for number in range(10):
            connection.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                               " VALUES ('order', 'a', 'changed', %s)", (str(number),))
            connection.execute("SELECT pg_logical_emit_message(true, 'postrider', %s)", (json.dumps(foreign),))
    database.wait_until_empty()
    assert relay.stop() == 0
    relay = start_relay(content)
    emit(database, {"outbox": "orders", "entity_id": "a", "payload": 10})
    assert [json.loads(record.value) for record in stopped(relay, topic, 11)] == list(range(11))
    assert database.value("SELECT count(*) FROM postrider.parked") == 0


# ---- Tables ---------------------------------------------------------------------------------------------------------

def partitions(database):
    database.execute(
        "CREATE TABLE public.parts (id uuid NOT NULL DEFAULT gen_random_uuid(), n bigint NOT NULL,"
        " entity_id text NOT NULL, payload json) PARTITION BY RANGE (n);"
        "CREATE TABLE public.part_0 PARTITION OF public.parts FOR VALUES FROM (0) TO (1000);"
        "CREATE INDEX ON public.parts (id); CREATE INDEX ON public.parts (entity_id, n)")


@pytest.mark.parametrize("pg, published", [(15, "delete"), (18, "keep")], indirect=["pg"])
def test_partitions_come_and_go_while_a_partitioned_table_is_published(
        empty_database, kafka, topic, tail, stopped, published):
    database = empty_database
    partitions(database)
    insert = ("INSERT INTO public.{} (n, entity_id, payload) SELECT n, 'e-' || n %% 10, to_json(n)"
              " FROM generate_series(%s::int, %s::int) AS n ORDER BY n")
    database.execute(insert.format("parts"), (0, 99))
    relay = tail(wal_settings(database, kafka, topic, published=published, table="public.parts", order_by="n"))
    database.execute(insert.format("parts"), (100, 999))
    database.execute("CREATE TABLE public.part_1 (x text, payload json, entity_id text NOT NULL, n bigint NOT NULL,"
                     " id uuid NOT NULL DEFAULT gen_random_uuid())")    # another order, and one column is dropped again
    database.execute("ALTER TABLE public.part_1 DROP x")
    database.execute("ALTER TABLE public.parts ATTACH PARTITION public.part_1 FOR VALUES FROM (1000) TO (2000)")
    database.execute(insert.format("parts"), (1000, 1499))
    database.execute(insert.format("part_1"), (1500, 1999))
    database.execute("ALTER TABLE public.parts DETACH PARTITION public.part_0")
    database.execute("DROP TABLE public.part_0")
    database.execute("CREATE TABLE public.part_2 PARTITION OF public.parts FOR VALUES FROM (2000) TO (3000)")
    database.execute(insert.format("parts"), (2000, 2499))
    database.execute("ALTER TABLE public.parts DETACH PARTITION public.part_1")
    database.execute(insert.format("part_1"), (1990, 1999))     # it is none of ours any more
    records = stopped(relay, topic, 2500)
    assert len(records) == 2500
    for entity in range(10):
        assert values_of(records, f"e-{entity}".encode()) == list(range(entity, 2500, 10))
    assert database.value("SELECT count(*) FROM public.parts") == (500 if published == "keep" else 0)


@every_postgres
def test_columns_come_and_go_while_rows_are_published(database, kafka, topic, tail):
    entities = database.entities(20)
    database.execute("ALTER TABLE public.outbox ADD first text, ADD second int NOT NULL DEFAULT 7")
    relay = tail(wal_settings(database, kafka, topic, route={"topic": topic, "headers": {"second": "{second}"}}))
    with Writers(database.dsn, entities, threads=3, pause=0.002):
        for change in ("DROP first", "ADD third jsonb", "ADD fourth text DEFAULT 'x'", "DROP third"):
            time.sleep(0.2)
            database.execute(f"ALTER TABLE public.outbox {change}")
        time.sleep(0.2)
    database.wait_until_empty()
    assert relay.stop() == 0
    records = read_topic(kafka, topic)
    assert {record.header("second") for record in records} == {b"7"}
    expect_exactly_once(database.ledger(), arrivals(records))


# Columns beside the usual ones, with values that not every session prints alike, or that casts print otherwise.
TYPES = {
    "boolean": ["true", "false"],
    "numeric": ["1.50", "NaN", "-123456789012345678901234567890.000000001"],
    "float8": ["0.1", "1e300", "-Infinity"],
    "float4": ["0.3", "16777217"],
    "bigint": ["-9223372036854775808"],
    "timestamptz": ["2026-11-15 09:45:27.25+09", "infinity", "0044-03-15 12:00:00+00 BC", "12026-01-01 00:00+00"],
    "timestamp": ["2026-11-15 09:45:27.25", "2026-01-02", "-infinity"],
    "date": ["2026-02-01", "0044-03-15 BC"],
    "time": ["09:45:27.000100"],
    "timetz": ["09:45:27+09"],
    "interval": ["1 year -2 days +3:04:05.6", "-1 month"],
    "bytea": ["\\x00ff5c27", ""],
    "character(10)": ["ab", " a "],
    "varchar(5)": ["ab ", ""],
    "name": ["Some Name"],
    '"char"': ["x"],
    "uuid": ["7F1C0B9E-5F0E-4E0E-8F0E-7F1C0B9E5F0E"],
    "inet": ["10.0.0.1", "10.0.0.1/8", "::1"],
    "cidr": ["10.0.0.0/8"],
    "macaddr": ["08:00:2b:01:02:03"],
    "bit(5)": ["10101"],
    "varbit": ["101"],
    "jsonb": ['{"b": 1.50, "a": "é"}', "null"],
    "json": ['{ "b" :1.50}'],
    "text[]": ['{a,"b c",NULL}', "{}"],
    "boolean[]": ["{t,f}"],
    "timestamptz[]": ['{"2026-11-15 09:45:27+09"}'],
    "tstzrange": ['[2026-11-15 09:45:27+09,)'],
    "money": ["12.50"],
    "point": ["(1.5,2)"],
    "xml": ["<a b='c'/>"],
    "tsvector": ["a:1 b:2"],
    "oid": ["17"],
    "pg_lsn": ["0/16B3748"],
    "public.mood": ["happy"],
    "public.flag": ["true"],
    "public.code": ["ab"],
    "public.address": ["10.0.0.1"],
    "public.pair": ["(true,2026-11-15 09:45:27+09)"],
}
SETTINGS = {
    "of the database": "ALTER DATABASE \"{}\" SET {}",
    "of the role": "ALTER ROLE postgres IN DATABASE \"{}\" SET {}",
}
STRANGE = ["bytea_output = 'escape'", "DateStyle = 'SQL, DMY'", "TimeZone = 'Asia/Tokyo'", "search_path = ''",
           "IntervalStyle = 'sql_standard'", "extra_float_digits = '-5'", "quote_all_identifiers = 'on'",
           "client_encoding = 'LATIN1'"]


def many_types(database, payload, created_at):
    database.execute(
        "CREATE TYPE public.mood AS ENUM ('happy', 'sad'); CREATE DOMAIN public.flag AS boolean;"
        "CREATE DOMAIN public.code AS character(5); CREATE DOMAIN public.address AS inet;"
        "CREATE DOMAIN public.bytes AS bytea; CREATE DOMAIN public.instant AS timestamptz;"
        "CREATE TYPE public.pair AS (a boolean, b timestamptz)")
    columns = "".join(f", c{number} {kind}" for number, kind in enumerate(TYPES))
    database.execute(
        f"CREATE TABLE public.many (id uuid PRIMARY KEY, n int, entity_id text NOT NULL, payload {payload},"
        f" created_at {created_at} NOT NULL{columns}); CREATE INDEX ON public.many (entity_id, n)")


def insert_many_types(database, payloads, first):
    """One row for each payload; the other columns take their values in turn, and once all are NULL."""
    values = list(TYPES.values())
    times = TYPES["timestamptz"]
    columns = "".join(f", c{number}" for number in range(len(values)))
    with database.connect() as connection:
        for n, payload in enumerate([*payloads, None], start=first):
            row = [None if payload is None else value[n % len(value)] for value in values]
            marks = "".join(f", %s::{kind}" for kind in TYPES)
            connection.execute(
                f"INSERT INTO public.many (id, n, entity_id, payload, created_at{columns})"
                f" VALUES (gen_random_uuid(), %s, %s, %s, %s{marks})",
                [n, f"e-{n % 3}", payload, times[n % len(times)], *row])


PAYLOADS = {
    "bytea": [bytes(range(256)), b"", b"\\x00", b"\\", "é".encode("latin-1")],
    "public.bytes": [bytes(range(256)), b""],
    "jsonb": ['{"b": 1.50,   "a": "é\\u0001"}', "null", "[]"],
    "json": ['{ "b" :  1.50 ,\n\t"a":[ ],  "b": "\\u00e9ü" }', "null"],
    "text": ["", " ", "é\n\\x00", "\\"],
}
COMBINATIONS = [("bytea", "timestamptz", "of the database"), ("public.bytes", "public.instant", "of the role"),
                ("jsonb", "timestamp", "of the role"), ("json", "timestamptz", "as the server has them"),
                ("text", "timestamp", "of the database")]


@pytest.mark.parametrize("pg", [18], indirect=True)
@pytest.mark.parametrize("payload, created_at, setting", COMBINATIONS, ids=[each[0] for each in COMBINATIONS])
def test_every_type_is_published_as_other_readers_do(
        empty_database, kafka, make_topic, prepare, start_relay, payload, created_at, setting):
    """Whatever the settings of sessions are. The first rows are from before the slot, the others from the log."""
    database = empty_database
    many_types(database, payload, created_at)
    if setting in SETTINGS:
        database.execute("; ".join(SETTINGS[setting].format(database.name, strange) for strange in STRANGE))
    headers = {f"h{number}": f"{{c{number}}}" for number in range(len(TYPES))}
    published = {}
    for reader in ("wal", "advisory"):
        topic = make_topic()
        route = {"topic": topic, "headers": headers}
        content = wal_settings(database, kafka, topic, published="keep", table="public.many", order_by="n",
                               route=route, workers=1)
        if reader == "wal":
            insert_many_types(database, PAYLOADS[payload], 0)
            prepare(content)
            insert_many_types(database, PAYLOADS[payload], 100)
        else:
            content["outboxes"]["orders"] |= {"reader": "advisory", "published": "delete"}
        relay = start_relay(content)
        wait_for_records(kafka, topic, 2 * len(PAYLOADS[payload]) + 2)
        assert relay.stop() == 0
        published[reader] = sorted((record.header("id"), record.key, record.value, record.headers)
                                   for record in read_topic(kafka, topic))
    assert [row[:3] for row in published["wal"]] == [row[:3] for row in published["advisory"]]
    names = {f"h{number}": kind for number, kind in enumerate(TYPES)}
    different = {(names.get(name, name), value, other[1])
                 for ours, theirs in zip(published["wal"], published["advisory"])
                 for (name, value), other in zip(ours[3], theirs[3]) if (name, value) != other}
    assert not different
    assert len(published["wal"]) == 2 * len(PAYLOADS[payload]) + 2


def test_settings_of_the_writer_do_not_change_what_is_published(database, kafka, topic, tail):
    relay = tail(wal_settings(database, kafka, topic))
    created_at = "2026-11-15 09:45:27.250000+00"
    for zone, style in (("UTC", "ISO, MDY"), ("Asia/Tokyo", "SQL, DMY"), ("America/New_York", "German")):
        with database.connect() as connection:
            connection.execute(f"SET TimeZone = '{zone}'; SET DateStyle = '{style}'; SET bytea_output = 'escape'")
            connection.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload, created_at)"
                               " VALUES ('order', 'a', 'changed', '{}', timestamptz '2026-11-15T09:45:27.25Z')")
    assert database.value("SELECT count(*) FROM public.outbox WHERE created_at <> %s", (created_at,)) == 0
    database.wait_until_empty()
    assert relay.stop() == 0
    assert [record.header("created_at") for record in read_topic(kafka, topic)] == [b"2026-11-15T09:45:27.25Z"] * 3


@every_postgres
def test_large_payloads_and_none_at_all(database, kafka, make_topic, prepare, start_relay):
    topic = make_topic(config={"max.message.bytes": "8000000"})
    database.execute("ALTER TABLE public.outbox ALTER payload TYPE bytea USING NULL, ALTER payload DROP NOT NULL")
    large = [random.Random(seed).randbytes(5_000_000) for seed in range(2)] + [b"x" * 5_000_000]
    content = wal_settings(database, kafka, topic)
    content["outboxes"]["orders"]["sinks"][0]["properties"] = {"message.max.bytes": "8000000"}
    database.insert("a", large[0])
    prepare(content)
    relay = start_relay(content)
    for payload in (large[1], None, b"", large[2]):
        database.insert("a", payload)
    database.wait_until_empty()
    assert relay.stop() == 0
    assert [record.value for record in read_topic(kafka, topic)] == [large[0], large[1], None, b"", large[2]]


def test_rows_without_an_entity_are_published_without_a_key(database, kafka, topic, prepare, start_relay):
    """Also when one of them is refused: then those that follow wait for it, and nothing else does."""
    database.execute("ALTER TABLE public.outbox ALTER entity_id DROP NOT NULL")
    database.insert(None, "1")
    content = prepare(wal_settings(database, kafka, topic))
    relay = start_relay(content)
    database.insert(None, "2")
    database.insert("a", "3")
    database.wait_until_empty()
    poison = database.insert(None, "4", headers='["not", "an", "object"]')
    database.insert("a", "5")
    relay.wait_for("row.refused", id=str(poison))
    wait_until(lambda: database.pending() == 1, what="the other row published")
    assert relay.stop() == 0
    records = read_topic(kafka, topic)
    assert sorted((record.key or b"", record.value) for record in records) == [
        (b"", b"1"), (b"", b"2"), (b"a", b"3"), (b"a", b"5")]
    assert [record.key for record in records].count(None) == 2


# ---- Several outboxes -----------------------------------------------------------------------------------------------

def test_several_outboxes_of_one_database_in_one_process(database, kafka, make_topic, prepare, start_relay):
    topics = {"orders": make_topic(), "invoices": make_topic(), "mails": make_topic()}
    content = wal_settings(database, kafka, topics["orders"])
    sink = content["outboxes"]["orders"]["sinks"]
    for outbox in ("invoices", "mails"):
        content["outboxes"][outbox] = {
            "table": f"public.{outbox}", "sinks": sink, "route": {"topic": topics[outbox]}, "workers": 2,
            **wal_options(database, outbox)}
        database.execute(f"CREATE TABLE public.{outbox} (LIKE public.outbox INCLUDING ALL)")
    prepare(content)
    relay = start_relay(content)
    tables = {"orders": "outbox", "invoices": "invoices", "mails": "mails"}
    with database.connect() as connection:
        for number in range(200):
            with connection.transaction():
                for outbox, table in tables.items():
                    connection.execute(f"INSERT INTO public.{table} (entity_type, entity_id, event_type, payload)"
                                       " VALUES ('order', 'a', 'changed', %s)", (json.dumps([outbox, number]),))
    for outbox in tables:
        emit(database, {"outbox": outbox, "entity_id": "a", "payload": [outbox, 200]})
    emit(database, {"entity_id": "a", "payload": "everybody's"})
    for table in tables.values():
        database.wait_until_empty(table=f"public.{table}")
    for topic in topics.values():
        wait_for_records(kafka, topic, 202)
    assert relay.stop() == 0
    for outbox, topic in topics.items():
        assert values_of(read_topic(kafka, topic), b"a") == [
            *([outbox, number] for number in range(201)), "everybody's"]
