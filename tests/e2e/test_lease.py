"""The reader `lease`: claims as rows, through PgBouncer in transaction mode and without it.

Claims outlive connections and processes. What ends them is their release, their time, or the burial of their node.
"""

import contextlib
import os
import signal
import time

import psycopg
import pytest

from tests.e2e.checker import expect_exactly_once, expect_in_order
from tests.e2e.consume import read_topic
from tests.e2e.ledger import Writers, arrivals
from tests.e2e.relay import kafka_settings, postrider, settings, wait_until, write_config
from tests.e2e.scene import dropped, initialised, new_database, started
from tests.servers import PgBouncer

LEASE = 2
ROWS = 20


@pytest.fixture
def pooler(database):
    """In transaction mode, with fewer server connections than workers."""
    server = started(PgBouncer(database.server, "transaction", {"default_pool_size": 4}))
    yield server
    server.close()


def lease_settings(database, server, topic, pooler=None, lease=f"{LEASE}s", **options):
    content = kafka_settings(database, server, topic, reader="lease", lease=lease, workers=4, **options)
    if pooler:
        content["database"]["url"] = pooler.dsn(database.name)
    return content


def claims(database):
    return database.value("SELECT count(*) FROM postrider.claim")


def write(database, rows, entities=None):
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                     " SELECT 'order', 'e' || n %% %s, 'changed', json_build_object('n', n)"
                     " FROM generate_series(1, %s) AS n", (entities or rows, rows))


@contextlib.contextmanager
def frozen(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# ---- Through PgBouncer ----------------------------------------------------------------------------------------------

def test_three_processes_keep_order_through_a_pooler(database, kafka, topic, pooler, start_relay):
    entities = database.entities(60)
    relays = [start_relay(lease_settings(database, kafka, topic, pooler)) for _ in range(3)]
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        time.sleep(4)
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0, 0]
    assert claims(database) == 0
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_a_backlog_is_drained_in_order_through_a_pooler(database, kafka, topic, pooler, start_relay):
    database.entities(1500)
    database.write_backlog(10)
    relays = [start_relay(lease_settings(database, kafka, topic, pooler)) for _ in range(3)]
    database.wait_until_empty(timeout=60)
    assert [relay.stop() for relay in relays] == [0, 0, 0]
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_nothing_is_left_on_the_pooler_s_server_connections(database, kafka, topic, pooler, start_relay):
    """Settings and statements of the relay would reach other clients of the pool."""
    relay = start_relay(lease_settings(database, kafka, topic, pooler))
    write(database, 100, entities=10)
    database.wait_until_empty()
    look = ("SELECT name, setting FROM pg_settings WHERE name IN ('search_path', 'jit', 'synchronous_commit',"
            " 'enable_seqscan', 'TimeZone', 'lock_timeout', 'statement_timeout') ORDER BY name")
    expected = database.execute(look)
    for _ in range(10):
        with psycopg.connect(pooler.dsn(database.name), autocommit=True, prepare_threshold=None) as client:
            assert client.execute(look).fetchall() == expected
            assert client.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    assert relay.stop() == 0


def test_check_has_nothing_against_the_pooler(database, kafka, topic, pooler, tmp_path):
    config = write_config(tmp_path / "lease.yaml", lease_settings(database, kafka, topic, pooler))
    done = postrider("check", "-c", config)
    assert done.returncode == 0, done.stdout + done.stderr


def test_another_isolation_level_is_refused_behind_a_pooler(database, kafka, topic, pooler, tmp_path):
    """Rows are read with a newer snapshot than claims, or order breaks; behind a pooler the role decides."""
    database.execute(f'ALTER DATABASE "{database.name}" SET default_transaction_isolation = \'repeatable read\'')
    config = write_config(tmp_path / "lease.yaml", lease_settings(database, kafka, topic, pooler))
    done = postrider("run", "-c", config)
    assert done.returncode == 78 and "repeatable read" in done.stderr, done.stderr


def test_a_pooler_that_restarts_costs_no_row_and_no_order(database, kafka, topic, pooler, start_relay):
    entities = database.entities(40)
    relays = [start_relay(lease_settings(database, kafka, topic, pooler)) for _ in range(2)]
    with Writers(database.dsn, entities, threads=3, pause=0.002):
        for _ in range(2):
            time.sleep(1)
            pooler.stop()
            pooler.start()
        time.sleep(1)
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0]
    expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))


# ---- On connections of its own --------------------------------------------------------------------------------------

@pytest.mark.parametrize("pg", [18], indirect=True)
def test_kill_9_and_ended_sessions_lose_nothing_and_keep_order(database, kafka, topic, start_relay):
    entities = database.entities(60)
    content = lease_settings(database, kafka, topic)
    relays = [start_relay(content) for _ in range(3)]
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        time.sleep(1.5)
        relays[0].kill9()
        time.sleep(1)
        database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                         " WHERE application_name LIKE 'postrider%' AND datname = current_database()")
        time.sleep(1)
        relays.append(start_relay(content))
        relays[1].kill9()
        time.sleep(1)
    database.wait_until_empty()
    assert [relay.stop() for relay in relays[2:]] == [0, 0]
    assert database.value("SELECT count(*) FROM postrider.claim WHERE expires_at > clock_timestamp()") == 0
    expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_an_event_store_in_the_same_database_gets_each_row_once(database, start_relay):
    entities = database.entities(30)
    content = settings(database.dsn, {"type": "postgres"}, reader="lease", lease=f"{LEASE}s", poll_interval="1s")
    relays = [start_relay(content) for _ in range(2)]
    with Writers(database.dsn, entities, threads=3, pause=0.002):
        time.sleep(1)
        relays[0].kill9()
        time.sleep(1)
    database.wait_until_empty()
    assert relays[1].stop() == 0
    expect_exactly_once(database.ledger(), database.event_store())


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
def test_a_refused_row_holds_its_entity_and_gives_its_claim_back(database, kafka, make_topic, pooler, start_relay,
                                                                 pooled):
    topic = make_topic(config={"max.message.bytes": "2000"})
    relay = start_relay(lease_settings(database, kafka, topic, pooler if pooled else None))
    refused = database.insert("a", payload='{"large": "%s"}' % os.urandom(3000).hex())
    database.insert("a")
    write(database, ROWS)
    wait_until(lambda: database.pending() == 2, 10, "all others to be published")
    wait_until(lambda: database.value("SELECT count(*) FROM postrider.retry") == 1, 10, "the entity to be held")
    wait_until(lambda: claims(database) == 0, 10, "no claim on it")
    database.execute("UPDATE public.outbox SET payload = '{}' WHERE id = %s", (refused,))
    database.execute("UPDATE postrider.retry SET retry_at = now()")
    database.wait_until_empty()
    assert relay.stop() == 0
    assert [record.value for record in read_topic(kafka, topic) if record.key == b"a"] == [b"{}", b'{"a": 1}']


def test_rows_that_are_moved_while_on_their_way_are_settled_once(database, fragile_kafka, fragile_topic, start_relay):
    relay = start_relay(lease_settings(database, fragile_kafka, fragile_topic, lease="30s"))
    write(database, 1)
    database.wait_until_empty()
    with frozen(fragile_kafka.pid):
        write(database, 30, entities=10)
        wait_until(lambda: claims(database) == 10, 5, "claims")
        database.execute("UPDATE public.outbox SET event_type = 'moved'")
    database.wait_until_empty()
    wait_until(lambda: claims(database) == 0, 5, "the claims to be given back")
    assert relay.stop() == 0
    assert len(read_topic(fragile_kafka, fragile_topic)) == 31


# ---- Taken over -----------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def holder_and_survivor(database, server, topic, start_relay, **options):
    """Two nodes; one holds rows that the broker does not take until the end. Nobody rings, and nobody polls."""
    content = lease_settings(database, server, topic, poll_interval="1h", **options)
    survivor, holder = [start_relay(content | {"node": name}) for name in ("survivor", "holder")]
    write(database, ROWS)
    database.wait_until_empty()
    time.sleep(3.5)     # nobody judges others before he has watched them for three heartbeats
    with frozen(server.pid):
        with frozen(survivor.pid):
            write(database, ROWS)
            wait_until(lambda: claims(database) == ROWS, 5, "all rows in the holder's hands")
        yield survivor, holder


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
def test_a_lease_of_a_killed_process_ends(database, fragile_kafka, fragile_topic, pooler, start_relay, pooled):
    via = pooler if pooled else None
    with holder_and_survivor(database, fragile_kafka, fragile_topic, start_relay, pooler=via) as (survivor, holder):
        holder.kill9()
        begin = time.monotonic()
    database.wait_until_empty()
    assert time.monotonic() - begin < LEASE + 2
    assert survivor.stop() == 0


def test_claims_of_a_buried_node_do_not_last_their_lease(database, fragile_kafka, fragile_topic, start_relay):
    with holder_and_survivor(database, fragile_kafka, fragile_topic, start_relay, lease="5m") as (survivor, holder):
        holder.kill9()
        begin = time.monotonic()
    database.wait_until_empty()
    assert time.monotonic() - begin < 3 + 1 + 2     # three heartbeats, the next one sees it, and a look
    assert survivor.events("node.buried")
    assert survivor.stop() == 0


@pytest.mark.parametrize("pg", [18], indirect=True)
def test_a_frozen_process_settles_nothing_of_what_others_took(database, kafka, topic, start_relay):
    entities = database.entities(30)
    content = lease_settings(database, kafka, topic)
    sleeper, other = start_relay(content), start_relay(content)
    with Writers(database.dsn, entities, threads=2, pause=0.002):
        time.sleep(1)
        with frozen(sleeper.pid):
            time.sleep(LEASE + 1.5)
        time.sleep(1.5)
    database.wait_until_empty()
    assert [sleeper.stop(), other.stop()] == [0, 0]
    expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_the_fence_stops_a_settle_whose_claims_are_gone(database, fragile_kafka, fragile_topic, start_relay):
    """Somebody else has the entity by now, and the rows are his to settle."""
    relay = start_relay(lease_settings(database, fragile_kafka, fragile_topic, lease="30s"))
    write(database, 1)
    database.wait_until_empty()
    with frozen(fragile_kafka.pid):
        write(database, 5)
        wait_until(lambda: claims(database) == 5, 5, "claims")
        database.execute("UPDATE postrider.claim SET token = token + 1, node = 0 WHERE entity = 'e1'")
    relay.wait_for_warning("1 of ", "claims have ended", timeout=10)
    wait_until(lambda: database.pending() == 1, 10, "the others to be settled")
    time.sleep(1)
    assert database.value("SELECT entity_id FROM public.outbox") == "e1"
    database.execute("DELETE FROM postrider.claim")
    database.wait_until_empty()
    assert relay.stop() == 0


# ---- Kept -----------------------------------------------------------------------------------------------------------

def expect_kept(database, store, relays, seconds):
    """Rows wait for a store that somebody has locked, and nobody else gets their entities meanwhile."""
    who = "SELECT entity, token, node, worker FROM postrider.claim ORDER BY entity"
    write(database, 1)
    database.wait_until_empty()
    with store.connect() as blocker, blocker.transaction():
        blocker.execute("LOCK TABLE postrider.event IN ACCESS EXCLUSIVE MODE")
        write(database, ROWS)
        wait_until(lambda: claims(database) == ROWS, 5, "claims")
        before = database.execute(who)
        time.sleep(seconds)
        assert database.execute(who) == before
        assert database.value("SELECT min(expires_at) > now() FROM postrider.claim")
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0]
    assert store.value("SELECT count(*) FROM postrider.event") == ROWS + 1
    assert not [event for relay in relays for event in relay.events("database.lost")]


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
def test_rows_in_flight_keep_their_claims_by_renewal(database, pooler, start_relay, tmp_path, pooled):
    store = initialised(new_database(database.server), tmp_path)
    content = settings(pooler.dsn(database.name) if pooled else database.dsn, {"type": "postgres", "url": store.dsn},
                       reader="lease", lease=f"{LEASE}s", poll_interval="1s")
    expect_kept(database, store, [start_relay(content | {"node": name}) for name in ("one", "two")], 3 * LEASE)
    dropped(store)


def test_claims_are_kept_while_a_settle_fails(database, start_relay):
    """The event store is written in the settling transaction, which fails again and again for longer than a lease."""
    content = settings(database.dsn, {"type": "postgres"}, reader="lease", lease="3s", poll_interval="1s")
    content["database"]["lock_timeout"] = "500ms"
    expect_kept(database, database, [start_relay(content | {"node": name}) for name in ("one", "two")], 7)


# ---- Stopping and settings ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("pg", [18], indirect=True)
def test_clean_stops_leave_no_claim_and_repeat_nothing(database, kafka, topic, pooler, start_relay):
    entities = database.entities(50)
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        for via in (None, pooler, None, pooler):
            relay = start_relay(lease_settings(database, kafka, topic, via, lease="30s"))
            time.sleep(0.7)
            assert relay.stop() == 0
            assert claims(database) == 0
    last = start_relay(lease_settings(database, kafka, topic, lease="30s"))
    database.wait_until_empty()
    assert last.stop() == 0
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_five_minutes_are_a_lease_too(database, kafka, topic, start_relay):
    relay = start_relay(lease_settings(database, kafka, topic, lease="5m"))
    write(database, ROWS)
    database.wait_until_empty()
    assert relay.stop() == 0
