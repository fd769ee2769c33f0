"""The reader `skip_locked`: rows locked by an open transaction, without order and with it."""

import json
import os
import signal
import time
from contextlib import closing, contextmanager

import pytest

from tests.e2e.checker import expect_complete, expect_exactly_once, expect_in_order
from tests.e2e.consume import read_topic
from tests.e2e.ledger import Writers, arrivals, event_store, write_one_freely
from tests.e2e.readers import READERS
from tests.e2e.relay import kafka_settings, settings, wait_until
from tests.e2e.scene import started
from tests.servers import PgBouncer

MODES = {"unordered": READERS["skip_locked"], "ordered": READERS["skip_locked-ordered"]}
every_mode = pytest.mark.parametrize("mode", MODES)


def mode_settings(database, server, topic, mode, **options):
    return kafka_settings(database, server, topic, **MODES[mode], **options)


def expect_once(mode, ledger, log):
    """Nothing lost and nothing twice; in order, where that was asked for."""
    return (expect_exactly_once if mode == "ordered" else expect_complete)(ledger, log)


def insert_numbers(database, first, last):
    """One row for each number, of ten entities in turn."""
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                     " SELECT 'order', 'e' || n %% 10, 'changed', json_build_object('n', n)"
                     " FROM generate_series(%s::int, %s) AS n", (first, last))


def numbers_of(server, topic):
    return sorted(int(json.loads(record.value)["n"]) for record in read_topic(server, topic))


@contextmanager
def locked(database, where):
    """Somebody else's transaction that keeps rows to itself."""
    with database.connect() as connection, connection.transaction():
        connection.execute(f"SELECT FROM public.outbox WHERE {where} FOR UPDATE")
        yield


def lost_races(database):
    """Sets that were not stored because another worker was faster leave gaps: numbers are taken and not given back."""
    return database.value("SELECT coalesce(max(position), 0) - count(*) FROM postrider.event")


# ---- Sharing rows ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("pg, mode", [(15, "unordered"), (18, "ordered")], indirect=["pg"])
def test_three_processes_publish_each_row_once_while_rows_are_written(database, kafka, topic, start_relay, mode):
    entities = database.entities(60)
    relays = [start_relay(mode_settings(database, kafka, topic, mode)) for _ in range(3)]
    with Writers(database.dsn, entities, threads=6, pause=0.001, late=0.02):
        time.sleep(4)
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0, 0]
    expect_once(mode, database.ledger(), arrivals(read_topic(kafka, topic)))


@pytest.mark.parametrize("pg, mode", [(18, "unordered"), (15, "ordered")], indirect=["pg"])
def test_three_processes_drain_a_backlog_without_a_repeat(database, kafka, topic, start_relay, mode):
    database.entities(3000)
    database.write_backlog(10)
    relays = [start_relay(mode_settings(database, kafka, topic, mode)) for _ in range(3)]
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0, 0]
    expect_once(mode, database.ledger(), arrivals(read_topic(kafka, topic)))


@every_mode
def test_rows_that_commit_late_are_published_once(database, kafka, topic, start_relay, mode):
    """Writers that lock nothing: rows with lower ids commit after higher ones were published. No claim of an entity
    begins before the last one has ended, where that was asked for."""
    entities = database.entities(5)
    route = {"topic": topic, "headers": {"relay": "{postrider_relay}"}} if mode == "ordered" else {"topic": topic}
    relays = [start_relay(mode_settings(database, kafka, topic, mode, route=route) | {"node": node})
              for node in ("one", "two")]
    with Writers(database.dsn, entities, threads=12, pause=0.001, late=0.1, write=write_one_freely):
        time.sleep(3)
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0]
    expect_complete(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_a_row_that_commits_late_does_not_wait_for_the_end_of_a_backlog(database, kafka, topic, start_relay):
    """Claims go on where the last one ended; now and then one begins at the lowest row all the same."""
    with database.connect() as connection:
        with connection.transaction():
            connection.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                               " VALUES ('order', 'late', 'changed', '{}')")
            insert_numbers(database, 1, 30_000)
            slow = {"workers": 1, "batch_size": 1, "batch_max": 2}
            relay = start_relay(mode_settings(database, kafka, topic, "unordered", **slow))
            wait_until(lambda: database.pending() < 29_000, what="a relay at work")
        wait_until(lambda: database.value("SELECT count(*) FROM public.outbox WHERE entity_id = 'late'") == 0, 5,
                   "the late row gone")
    assert database.pending() > 0
    assert relay.stop() == 0


@every_mode
def test_rows_one_by_one(database, kafka, topic, start_relay, mode):
    database.entities(20)
    database.write_backlog(10)
    relay = start_relay(mode_settings(database, kafka, topic, mode, batch_size=1, batch_max=1))
    database.wait_until_empty()
    assert relay.stop() == 0
    expect_once(mode, database.ledger(), arrivals(read_topic(kafka, topic)))


def test_an_entity_larger_than_a_claim_stays_in_order(database, kafka, topic, start_relay):
    database.entities(3)
    database.write_backlog(1000)
    limits = {"entity_max_rows": 7, "batch_size": 10, "batch_max": 40}
    relays = [start_relay(mode_settings(database, kafka, topic, "ordered", **limits)) for _ in range(2)]
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0]
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


@every_mode
def test_large_rows_are_claimed_a_few_at_a_time(database, kafka, topic, start_relay, mode):
    """20 MB of payload, of which a worker may have 2 MiB in flight."""
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                     " SELECT 'order', 'e' || n % 7, 'changed', json_build_object('n', n, 'text', (SELECT"
                     "   string_agg(md5((n * 10000 + m)::text), '') FROM generate_series(1, 6000) AS m))"
                     " FROM generate_series(1, 100) AS n")
    relay = start_relay(mode_settings(database, kafka, topic, mode))
    database.wait_until_empty(timeout=60)
    peak = relay.peak_rss_mb()
    assert relay.stop() == 0
    assert numbers_of(kafka, topic) == list(range(1, 101))
    assert peak < 60, f"{peak:.0f} MB"


def test_rows_without_an_entity_are_published_where_there_is_no_order(database, kafka, topic, start_relay):
    database.execute("ALTER TABLE public.outbox ALTER COLUMN entity_id DROP NOT NULL")
    relay = start_relay(mode_settings(database, kafka, topic, "unordered"))
    database.insert(None)
    database.insert("a")
    database.wait_until_empty()
    assert relay.stop() == 0
    assert {record.key for record in read_topic(kafka, topic)} == {None, b"a"}


# ---- Others who lock rows -------------------------------------------------------------------------------------------

def test_rows_that_somebody_else_has_locked_wait_alone(database, kafka, topic, start_relay):
    insert_numbers(database, 1, 100)
    with locked(database, "(payload->>'n')::int % 10 = 3"):
        relay = start_relay(mode_settings(database, kafka, topic, "unordered"))
        wait_until(lambda: database.pending() == 10, what="all rows gone that nobody has locked")
        time.sleep(0.5)
        assert numbers_of(kafka, topic) == [n for n in range(1, 101) if n % 10 != 3]
    database.wait_until_empty()
    assert relay.stop() == 0
    assert numbers_of(kafka, topic) == list(range(1, 101))


@pytest.mark.parametrize("pg, which, strength", [(15, 1, "UPDATE"), (18, 10, "UPDATE"), (15, 10, "SHARE"),
                                                 (18, 5, "KEY SHARE")], indirect=["pg"])
def test_an_entity_waits_while_somebody_else_has_one_of_its_rows(database, kafka, topic, start_relay, which, strength):
    """Also when two have it together, which shows in the row as the number of a group and not of a transaction."""
    database.entities(4)
    database.write_backlog(10)
    row = f"entity_id = 'order-2' AND (payload->>'seq')::int = {which}"
    with database.connect() as one, database.connect() as two, one.transaction(), two.transaction():
        one.execute(f"SELECT FROM public.outbox WHERE {row} FOR {strength}")
        two.execute(f"SELECT FROM public.outbox WHERE {row} FOR {strength} SKIP LOCKED")
        relay = start_relay(mode_settings(database, kafka, topic, "ordered"))
        wait_until(lambda: database.pending() == 10, what="the other entities gone")
        time.sleep(0.5)
        assert {record.key for record in read_topic(kafka, topic)} == {b"order-0", b"order-1", b"order-3"}
    database.wait_until_empty()
    assert relay.stop() == 0
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_another_poller_of_the_same_table_takes_part(database, kafka, topic, start_relay):
    """A loop such as people write it, beside the relay: between them each row goes out once."""
    entities = database.entities(40)
    taken = []
    relay = start_relay(mode_settings(database, kafka, topic, "ordered"))
    with Writers(database.dsn, entities, threads=4, pause=0.001), database.connect() as connection:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            with connection.transaction():
                rows = connection.execute("SELECT id, message_id::text FROM public.outbox ORDER BY id LIMIT 20"
                                          " FOR UPDATE SKIP LOCKED").fetchall()
                time.sleep(0.005)
                connection.execute("DELETE FROM public.outbox WHERE id = ANY (%s)", ([row[0] for row in rows],))
            taken += [row[1] for row in rows]
    database.wait_until_empty()
    assert relay.stop() == 0
    published = [arrival.message_id for arrival in arrivals(read_topic(kafka, topic))]
    assert taken and published
    assert sorted(taken + published) == sorted(entry.message_id for entry in database.ledger())


# ---- Refused rows ---------------------------------------------------------------------------------------------------

def test_a_refused_row_waits_alone_where_there_is_no_order(database, kafka, make_topic, start_relay):
    """The others of its batch and of its entity are settled; its attempts are counted; deleted, it is forgotten."""
    topic = make_topic(config={"max.message.bytes": "20000"})
    insert_numbers(database, 1, 50)
    poison = database.insert("e1", json.dumps({"n": 0, "text": "x" * 30_000}))
    insert_numbers(database, 51, 100)
    relay = start_relay(mode_settings(database, kafka, topic, "unordered"))
    wait_until(lambda: database.pending() == 1, what="all but the refused row gone")
    assert numbers_of(kafka, topic) == list(range(1, 101))
    assert database.execute("SELECT entity, row_id FROM postrider.retry") == [(str(poison), str(poison))]
    wait_until(lambda: database.value("SELECT attempts FROM postrider.retry") >= 2, 40, "a second attempt")
    database.execute("DELETE FROM public.outbox WHERE id = %s", (poison,))
    wait_until(lambda: database.value("SELECT count(*) FROM postrider.retry") == 0, 10, "nothing on the list")
    assert relay.stop() == 0
    assert numbers_of(kafka, topic) == list(range(1, 101))


def test_a_refused_row_goes_when_it_is_mended(database, kafka, topic, start_relay):
    relay = start_relay(mode_settings(database, kafka, topic, "unordered"))
    poison = database.insert("a", headers='["not", "an", "object"]')
    relay.wait_for("row.refused", id=str(poison))
    wait_until(lambda: database.value("SELECT count(*) FROM postrider.retry") == 1, what="the row on the list")
    database.execute("UPDATE public.outbox SET headers = NULL WHERE id = %s", (poison,))
    database.wait_until_empty(timeout=40)
    assert database.value("SELECT count(*) FROM postrider.retry") == 0
    assert relay.stop() == 0
    assert [record.key for record in read_topic(kafka, topic)] == [b"a"]


def test_a_refused_row_holds_its_entity_where_there_is_order(database, kafka, make_topic, start_relay):
    topic = make_topic(config={"max.message.bytes": "20000"})
    database.insert("held", '{"n": 1}')
    poison = database.insert("held", json.dumps({"n": 2, "text": "x" * 30_000}))
    database.insert("held", '{"n": 3}')
    insert_numbers(database, 4, 103)
    relay = start_relay(mode_settings(database, kafka, topic, "ordered"))
    relay.wait_for("row.refused", id=str(poison))
    wait_until(lambda: database.pending() == 2, what="all but the held entity gone")
    assert numbers_of(kafka, topic) == [1, *range(4, 104)]
    database.execute("DELETE FROM public.outbox WHERE id = %s", (poison,))
    database.wait_until_empty(timeout=40)
    assert numbers_of(kafka, topic) == [1, *range(3, 104)]
    wait_until(lambda: database.value("SELECT count(*) FROM postrider.retry") == 0, 10, "no entity on the list")
    assert relay.stop() == 0


# ---- The open transaction -------------------------------------------------------------------------------------------

WORKERS = "FROM pg_stat_activity WHERE application_name = 'postrider worker' AND datname = current_database()"
OPEN = f"SELECT count(*) {WORKERS} AND xact_start IS NOT NULL"
SINCE = f"SELECT min(xact_start) {WORKERS}"


@every_mode
def test_no_transaction_is_open_when_there_is_nothing_to_do(database, kafka, topic, start_relay, mode):
    relay = start_relay(mode_settings(database, kafka, topic, mode))
    database.insert("a")
    database.wait_until_empty()
    wait_until(lambda: database.value(OPEN) == 0, 5, "no open transaction")
    for _ in range(20):
        time.sleep(0.1)
        assert database.value(f"SELECT count(*) {WORKERS} AND state LIKE 'idle in transaction%%'"
                              " AND state_change < now() - interval '50 ms'") == 0
    assert relay.stop() == 0


@every_mode
def test_a_living_process_keeps_its_rows_past_the_idle_timeout(database, fragile_kafka, fragile_topic, start_relay,
                                                               mode):
    """The broker does not answer for longer than the server would wait for a frozen process. Frozen then, it knows by
    itself when it wakes that it has lost them."""
    content = mode_settings(database, fragile_kafka, fragile_topic, mode)
    content["database"]["idle_session_timeout"] = "2s"
    relay = start_relay(content)
    database.insert("first")
    database.wait_until_empty()
    os.kill(fragile_kafka.pid, signal.SIGSTOP)
    try:
        database.insert("a")
        wait_until(lambda: database.value(OPEN) == 1, 5, "an open transaction")
        began = database.value(SINCE)
        time.sleep(5)
        assert database.value(SINCE) == began
        assert not relay.events("database.lost")
        relay.freeze()
        wait_until(lambda: database.value(OPEN) == 0, 5, "the end of the transaction")
        relay.thaw()
        relay.wait_for_warning("database.lost", "the claims ran out")
    finally:
        os.kill(fragile_kafka.pid, signal.SIGCONT)
    database.wait_until_empty()
    assert relay.stop() == 0
    assert {record.key for record in read_topic(fragile_kafka, fragile_topic)} == {b"first", b"a"}


@every_mode
def test_a_frozen_process_is_taken_over_and_does_no_harm_when_it_wakes(database, kafka, topic, start_relay, mode):
    entities = database.entities(30)
    content = mode_settings(database, kafka, topic, mode)
    content["database"]["idle_session_timeout"] = "2s"
    frozen, other = start_relay(content), start_relay(content)
    with Writers(database.dsn, entities, threads=2, pause=0.002):
        time.sleep(1)
        frozen.freeze()
        time.sleep(3)
    database.wait_until_empty(timeout=15)
    frozen.thaw()
    with Writers(database.dsn, entities, threads=2, pause=0.002):
        time.sleep(1)
    database.wait_until_empty()
    assert [frozen.stop(), other.stop()] == [0, 0]
    log = arrivals(read_topic(kafka, topic))
    if mode == "ordered":
        expect_in_order(database.ledger(), log)
    else:
        assert {arrival.message_id for arrival in log} == {entry.message_id for entry in database.ledger()}


@every_mode
def test_kill_9_and_ended_sessions_lose_nothing(database, kafka, topic, start_relay, mode):
    entities = database.entities(60)
    content = mode_settings(database, kafka, topic, mode)
    relays = [start_relay(content) for _ in range(3)]
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        for victim in relays[:2]:
            time.sleep(1)
            victim.kill9()
            database.execute(f"SELECT pg_terminate_backend(pid) {WORKERS}")
        time.sleep(1)
    database.wait_until_empty()
    assert relays[2].stop() == 0
    log = arrivals(read_topic(kafka, topic))
    if mode == "ordered":
        expect_in_order(database.ledger(), log)
    else:
        assert {arrival.message_id for arrival in log} == {entry.message_id for entry in database.ledger()}


@every_mode
def test_clean_stops_under_load_repeat_nothing(database, kafka, topic, start_relay, mode):
    entities = database.entities(50)
    content = mode_settings(database, kafka, topic, mode)
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        for _ in range(4):
            relay = start_relay(content)
            time.sleep(0.5)
            assert relay.stop() == 0
    last = start_relay(content)
    database.wait_until_empty()
    assert last.stop() == 0
    expect_once(mode, database.ledger(), arrivals(read_topic(kafka, topic)))


@every_mode
def test_a_beat_in_the_middle_of_a_batch_gives_no_row_of_it_away(database, start_relay, tmp_path, mode):
    """Half of a batch is stored, the other half waits for a lock, and the session shows that it is alive: it keeps all."""
    total, others = 1000, tmp_path / "others"
    insert_numbers(database, 1, total)
    content = settings(database.dsn, {"type": "postgres"}, workers=1, batch_size=total, batch_max=total, **MODES[mode])
    content["database"]["idle_session_timeout"] = "1s"
    with database.connect() as connection, connection.transaction(force_rollback=True):
        connection.execute("INSERT INTO postrider.event (entity_id, version, message_id)"
                           " SELECT 'somebody', 1, message_id FROM public.outbox ORDER BY id DESC LIMIT 1")
        slow = start_relay(content)
        wait_until(lambda: database.value("SELECT count(*) FROM postrider.event") == total // 2, what="half of it stored")
        other = start_relay(settings(database.dsn, {"type": "stdout", "path": str(others)}, **MODES[mode]))
        time.sleep(1.5)
        assert database.pending() == total
    database.wait_until_empty()
    assert database.value("SELECT count(*) FROM postrider.event") == total
    assert [slow.stop(), other.stop()] == [0, 0]
    assert others.read_text() == ""


@every_mode
def test_an_event_store_in_the_same_database_does_not_ride(database, start_relay, mode):
    """It has a connection of its own: a row that it refused would otherwise undo the whole batch again and again."""
    database.entities(40)
    database.write_backlog(10)
    relay = start_relay(settings(database.dsn, {"type": "postgres"}, **MODES[mode]))
    database.wait_until_empty()
    assert relay.stop() == 0
    with database.connect() as connection:
        expect_once(mode, database.ledger(), event_store(connection, ordered=mode == "ordered"))


def test_without_order_workers_that_store_one_entity_at_once_refuse_no_row(database, start_relay):
    """Both want the same version, and only one can have it. That is not the row's fault: it takes the next one."""
    entities = database.entities(2)
    with Writers(database.dsn, entities, threads=4, pause=0.0005):
        relays = [start_relay(settings(database.dsn, {"type": "postgres"}, workers=4, batch_size=5, **MODES["unordered"]))
                  for _ in range(2)]
        wait_until(lambda: lost_races(database) > 0, what="a lost race")
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0]
    assert not any(relay.events("row.refused") for relay in relays)
    with database.connect() as connection:
        expect_complete(database.ledger(), event_store(connection, ordered=False))


def test_without_order_many_workers_drain_a_backlog_into_the_event_store(database, start_relay):
    """Every set meets entities of other workers' sets: whoever loses must neither wait long nor begin anew for ever."""
    database.entities(300)
    database.write_backlog(40)
    relays = [start_relay(settings(database.dsn, {"type": "postgres"}, **MODES["unordered"])) for _ in range(3)]
    database.wait_until_empty(timeout=60)
    assert lost_races(database) > 0
    assert [relay.stop() for relay in relays] == [0, 0, 0]
    with database.connect() as connection:
        expect_complete(database.ledger(), event_store(connection, ordered=False))


# ---- What it needs --------------------------------------------------------------------------------------------------

@every_mode
def test_a_pooler_in_transaction_mode_may_stand_before_the_database(database, kafka, topic, start_relay, mode):
    entities = database.entities(50)
    with closing(started(PgBouncer(database.server, "transaction"))) as pooler:
        content = mode_settings(database, kafka, topic, mode)
        content["database"]["url"] = pooler.dsn(database.name)
        relays = [start_relay(content) for _ in range(2)]
        with Writers(database.dsn, entities, threads=4, pause=0.001):
            time.sleep(2)
        database.wait_until_empty()
        assert [relay.stop() for relay in relays] == [0, 0]
    expect_once(mode, database.ledger(), arrivals(read_topic(kafka, topic)))


def test_a_role_that_may_not_lock_rows_is_told_what_it_lacks(database, kafka, topic, start_relay):
    database.execute("REVOKE UPDATE ON public.outbox FROM PUBLIC")
    database.execute("CREATE ROLE relay_without_update LOGIN")
    try:
        database.execute("SELECT postrider.grant_relay('public.outbox', 'relay_without_update')")
        content = mode_settings(database, kafka, topic, "unordered")
        content["database"]["url"] = database.dsn.replace("postgres@", "relay_without_update@")
        relay = start_relay(content, wait=False)
        relay.wait_for_warning("GRANT UPDATE", "ON public.outbox TO relay_without_update")
        database.insert("a")
        database.execute("GRANT UPDATE (id) ON public.outbox TO relay_without_update")
        database.wait_until_empty()
        assert relay.stop() == 0
    finally:
        database.execute("DROP OWNED BY relay_without_update; DROP ROLE relay_without_update")
