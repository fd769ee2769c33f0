"""The reader `wal` in operation: who is active, what becomes of the slot, and events that a sink refuses."""

import contextlib
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.e2e.checker import expect_exactly_once, expect_in_order
from tests.e2e.consume import read_topic
from tests.e2e.ledger import Writers, arrivals, write_burst, write_one
from tests.e2e.relay import clean_environment, postrider, settings, wait_until, write_config
from tests.e2e.scene import dropped, initialised, missing, new_database
from tests.servers import Postgres

every_postgres = pytest.mark.parametrize("pg", [15, 18], indirect=True)
on_18 = pytest.mark.parametrize("pg", [18], indirect=True)
REFUSED = 78                    # the exit code that keeps a service manager from trying again
TAKEOVER = 2                    # seconds in which a standby publishes after a kill …
SLACK = 2                       # … and what a busy machine may add
BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}


def slot_of(database):
    """Slots belong to the whole server, and a test only to its database."""
    return f"postrider_{database.name}"


def wal_settings(database, *sinks, wal=None, **options):
    return settings(database.dsn, *sinks, reader="wal", wal={"slot": slot_of(database), **(wal or {})}, **options)


def to_kafka(database, server, topic, **options):
    return wal_settings(database, {"type": "kafka", "brokers": server.bootstrap}, route={"topic": topic}, **options)


def to_nobody(database, **options):
    """A sink that takes nothing, and a relay that does not wait for it when it stops."""
    return wal_settings(database, {"type": "stdout", "path": "/dev/full"}, **options) | {"stop_timeout": "1s"}


def to_store(database, **options):
    return wal_settings(database, {"type": "postgres"}, **options)


@pytest.fixture
def init(product, tmp_path):
    """Runs `init` with these settings, which must work; returns what it says."""
    def succeed(content, *flags):
        done = postrider("init", "-c", write_config(tmp_path / "wal.yaml", content), *flags)
        assert done.returncode == 0, done.stderr
        return done.stdout
    return succeed


def let_go(database):
    """A database cannot be removed while one of its slots is in use: that is so until the server misses the reader."""
    wait_until(lambda: database.value("SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s AND active",
                                      (slot_of(database),)) == 0, what="a slot that nobody reads")


@pytest.fixture
def tailed(database):
    """A database whose log a test tails."""
    yield database
    let_go(database)


@pytest.fixture
def fragile_tailed(fragile_database):
    """The same on the server that a test may restart."""
    yield fragile_database
    let_go(fragile_database)


@pytest.fixture
def small_tailed(product, servers, tmp_path):
    """On a server that keeps little log for slots: makes a database there."""
    made = []

    def make(version):
        options = {"max_slot_wal_keep_size": "1MB"}
        server = servers.get(("special", version, *sorted(options.items())),
                             lambda: Postgres(version, {"fsync": "off", **options}))
        made.append(initialised(new_database(server), tmp_path))
        return made[-1]

    yield make
    for database in made:
        let_go(database)
        dropped(database)


# ---- What is seen of a slot -----------------------------------------------------------------------------------------

def slot(database, column):
    """One column of the slot's row, None when there is no such slot."""
    rows = database.execute(f"SELECT {column} FROM pg_replication_slots WHERE slot_name = %s", (slot_of(database),))
    return rows[0][0] if rows else None


def retained_mb(database):
    return float(slot(database, "pg_current_wal_lsn() - restart_lsn")) / 2**20


def written_up_to(database):
    return database.value("SELECT pg_current_wal_insert_lsn()::text")


def wait_until_confirmed(database, lsn, timeout=15):
    wait_until(lambda: slot(database, f"confirmed_flush_lsn >= '{lsn}'"), timeout, f"a slot confirmed up to {lsn}")


def write_log(database, megabytes):
    """Fills segments of the log, 16 MB each, with little more than nothing."""
    with database.connect() as connection:
        for _ in range(-(-megabytes // 16)):
            connection.execute("SELECT pg_logical_emit_message(false, 'test', 'x')")
            connection.execute("SELECT pg_switch_wal()")


def expect_refused(relay, database, *fragments):
    """The process has ended for good, and its log says why, with which slot, and what to do."""
    assert relay.wait() == REFUSED
    told = relay.warnings(*fragments, slot_of(database), "postrider init --recreate-slot")
    assert told and told[-1]["level"] == "error", relay.log_text()[-2000:]


def begin_anew(database, content, init, start_relay):
    """Consent, and a relay that publishes what is in the table."""
    assert "created the replication slot" in init(content, "--recreate-slot")
    relay = start_relay(content)
    database.wait_until_empty()
    return relay


# ---- Nodes ----------------------------------------------------------------------------------------------------------

def conditions(config):
    """Of each node, what `status` says of its workers."""
    shown = postrider("status", "-c", config, "--json")
    assert shown.returncode == 0, shown.stderr
    return {node["name"]: {worker.get("condition") for outbox in node["outboxes"] for worker in outbox["workers"]}
            for node in json.loads(shown.stdout)["nodes"]}


def seconds_until_published(committed, arrived, since):
    """From `since` to the first arrival of a row that was committed later: nobody who died before has sent it."""
    later = {entry.message_id for entry in committed if entry.time > since}
    return min(arrival.time for arrival in arrived if arrival.message_id in later) - since


def next_active(relays):
    return wait_until(lambda: [relay for relay in relays if relay.running and relay.events("wal.active")],
                      what="an active node")[0]


@every_postgres
def test_others_stand_by_and_one_takes_over_after_a_kill(tailed, kafka, make_topic, init, start_relay):
    topic = make_topic(config=BROKER_TIME)
    content = to_kafka(tailed, kafka, topic, workers=2)
    init(content)
    entities = tailed.entities(40)
    relays = [start_relay(content | {"node": name}) for name in ("first", "second", "third")]
    wait_until(lambda: conditions(relays[0].config) == {"first": {None}, "second": {"standby"}, "third": {"standby"}},
               what="one active node and two that stand by")
    assert len(re.findall(r" orders +[01] +standby ", postrider("status", "-c", relays[0].config).stdout)) == 4
    victim, killed = relays[0], []
    with Writers(tailed.dsn, entities, threads=3, pause=0.004):
        for _ in range(2):
            time.sleep(0.7)
            killed.append(time.time())
            victim.kill9()
            victim = next_active(relays)
        time.sleep(0.5)
    tailed.wait_until_empty()
    assert victim.stop() == 0
    committed, arrived = tailed.ledger(), arrivals(read_topic(kafka, topic))
    expect_in_order(committed, arrived)
    took = [seconds_until_published(committed, arrived, since) for since in killed]
    assert max(took) < TAKEOVER + SLACK, took


def test_a_frozen_node_is_replaced_and_does_no_harm_when_it_wakes(tailed, kafka, make_topic, init, start_relay):
    topic, timeout = make_topic(config=BROKER_TIME), 2
    content = to_kafka(tailed, kafka, topic, wal={"sender_timeout": f"{timeout}s"}, workers=2)
    init(content)
    entities = tailed.entities(30)
    sleeper, other = start_relay(content), start_relay(content)
    with Writers(tailed.dsn, entities, threads=3, pause=0.004):
        time.sleep(0.7)
        sleeper.freeze()
        frozen = time.time()
        other.wait_for("wal.active", timeout=timeout + 10)
        time.sleep(0.5)
        sleeper.thaw()
        sleeper.wait_for("wal.standby")
        time.sleep(0.5)
    tailed.wait_until_empty()
    assert [sleeper.stop(), other.stop()] == [0, 0]
    committed, arrived = tailed.ledger(), arrivals(read_topic(kafka, topic))
    expect_in_order(committed, arrived)
    assert seconds_until_published(committed, arrived, frozen) < timeout + TAKEOVER + SLACK


def test_restarting_every_node_in_turn_repeats_nothing(tailed, kafka, topic, init, start_relay):
    content = to_kafka(tailed, kafka, topic, workers=2)
    init(content)
    entities = tailed.entities(40)
    relays = [start_relay(content) for _ in range(2)]
    with Writers(tailed.dsn, entities, threads=3, pause=0.004):
        for number in range(4):
            time.sleep(0.4)
            assert relays[number].stop() == 0
            relays.append(start_relay(content))
        time.sleep(0.4)
    tailed.wait_until_empty()
    assert [relay.stop() for relay in relays[4:]] == [0, 0]
    expect_exactly_once(tailed.ledger(), arrivals(read_topic(kafka, topic)))


# ---- Connections ----------------------------------------------------------------------------------------------------

# Who is told to end: by what its row in pg_stat_activity says.
CONNECTIONS = {
    "the log's": "pid = (SELECT active_pid FROM pg_replication_slots WHERE slot_name = %(slot)s)",
    "the leader's": "backend_type = 'client backend' AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')",
    "all": "application_name LIKE 'postrider%%'",
}
BATCH, WORKERS, BLOWS = 50, 2, 3


@pytest.mark.parametrize("pg, which", [(15, "the log's"), (18, "the leader's"), (18, "all")], indirect=["pg"])
def test_a_broken_connection_loses_nothing(tailed, kafka, topic, init, start_relay, which):
    content = to_kafka(tailed, kafka, topic, workers=WORKERS, batch_size=BATCH, batch_max=BATCH)
    init(content)
    entities = tailed.entities(40)
    relay = start_relay(content)
    with Writers(tailed.dsn, entities, threads=3, pause=0.003):
        for _ in range(BLOWS):
            time.sleep(0.5)
            wait_until(lambda: tailed.value(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()"
                f" AND {CONNECTIONS[which]}", {"slot": slot_of(tailed)}) > 0, what="a connection to break")
    tailed.wait_until_empty()
    assert relay.stop() == 0
    report = expect_in_order(tailed.ledger(), arrivals(read_topic(kafka, topic)))
    assert len(report.duplicates) <= BLOWS * WORKERS * 2 * BATCH


@pytest.mark.parametrize("fragile_pg, mode", [(15, "fast"), (18, "immediate")], indirect=["fragile_pg"])
def test_a_restart_of_postgresql_loses_nothing(fragile_tailed, kafka, topic, init, start_relay, mode):
    content = to_kafka(fragile_tailed, kafka, topic)
    init(content)
    entities = fragile_tailed.entities(40)
    relays = [start_relay(content) for _ in range(2)]
    with Writers(fragile_tailed.dsn, entities, threads=3, pause=0.004, patient=True):
        time.sleep(1)
        fragile_tailed.server.restart(mode)
        time.sleep(1)
    fragile_tailed.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0]
    expect_in_order(fragile_tailed.ledger(), arrivals(read_topic(kafka, topic)))


# ---- A slot that is gone --------------------------------------------------------------------------------------------

@on_18
def test_a_slot_that_vanished_while_nobody_read_is_not_made_again(tailed, kafka, topic, init, start_relay):
    content = to_kafka(tailed, kafka, topic)
    init(content)
    tailed.entities(5)
    relay = start_relay(content)
    tailed.write_backlog(3)
    tailed.wait_until_empty()
    assert relay.stop() == 0
    let_go(tailed)
    tailed.execute("SELECT pg_drop_replication_slot(%s)", (slot_of(tailed),))
    with tailed.connect() as connection:
        write_burst(connection, "order-1", 20)
    for _ in range(2):
        expect_refused(start_relay(content, wait=False), tailed, "is gone")
    assert slot(tailed, "slot_name") is None and tailed.pending() == 20
    relay = begin_anew(tailed, content, init, start_relay)
    assert slot(tailed, "failover"), "a slot that a failover loses"
    with tailed.connect() as connection:
        write_burst(connection, "order-1", 20)
    tailed.wait_until_empty()
    assert relay.stop() == 0
    expect_exactly_once(tailed.ledger(), arrivals(read_topic(kafka, topic)))


def drop_while_in_use(database):
    """Faster than its reader comes back, if need be in several tries."""
    with database.connect() as connection:
        def dropped_now():
            with contextlib.suppress(psycopg.errors.ObjectInUse):
                connection.execute("SELECT pg_terminate_backend(active_pid, 1000) FROM pg_replication_slots"
                                   " WHERE slot_name = %s AND active", (slot_of(database),))
                return connection.execute("SELECT pg_drop_replication_slot(%s)", (slot_of(database),))

        wait_until(dropped_now, what="a slot dropped before its reader is back")


def test_a_slot_that_vanishes_while_it_is_read_ends_all_nodes(tailed, kafka, topic, init, start_relay):
    content = to_kafka(tailed, kafka, topic)
    init(content)
    entities = tailed.entities(10)
    relays = [start_relay(content) for _ in range(2)]
    with Writers(tailed.dsn, entities, threads=2, pause=0.01):
        time.sleep(0.5)
        drop_while_in_use(tailed)
        for relay in relays:
            expect_refused(relay, tailed)
    assert slot(tailed, "slot_name") is None
    relay = begin_anew(tailed, content, init, start_relay)
    assert relay.stop() == 0
    expect_in_order(tailed.ledger(), arrivals(read_topic(kafka, topic)))


@pytest.mark.parametrize("version", [15, 18])
def test_a_slot_that_the_server_gave_up_is_not_made_again(small_tailed, init, start_relay, version):
    database = small_tailed(version)
    content = to_store(database)
    init(content)
    database.entities(5)
    relay = start_relay(content)
    database.write_backlog(3)
    database.wait_until_empty()
    assert relay.stop() == 0
    with database.connect() as connection:
        write_burst(connection, "order-1", 20)
    write_log(database, 64)
    database.execute("CHECKPOINT")
    assert slot(database, "wal_status") == "lost"
    expect_refused(start_relay(content, wait=False), database, "given up")
    assert slot(database, "wal_status") == "lost" and database.pending() == 20
    assert begin_anew(database, content, init, start_relay).stop() == 0
    expect_exactly_once(database.ledger(), database.event_store())


def test_a_slot_that_the_server_gives_up_while_it_is_read_ends_the_process(small_tailed, init, start_relay):
    database = small_tailed(15)
    init(to_nobody(database))
    database.entities(5)
    relay = start_relay(to_nobody(database))
    with database.connect() as connection:
        write_burst(connection, "order-1", 20)
    write_log(database, 64)
    database.execute("CHECKPOINT")
    expect_refused(relay, database)
    assert slot(database, "wal_status") == "lost" and database.pending() == 20
    assert begin_anew(database, to_store(database), init, start_relay).stop() == 0
    expect_exactly_once(database.ledger(), database.event_store())


# ---- A slot that is not what it was ---------------------------------------------------------------------------------

# What is done to our memory of the server, which stands for a server that is another one, and what is said of it.
OTHER_SERVERS = {
    "another server": ("system_identifier = '1'", "server 1"),
    "a primary from before a failover": ("timeline = 9", "timeline 9"),
    "a database from an older copy": ("confirmed = 'FFFF/0'", "FFFF/0"),
    "a slot that has moved on": ("confirmed = '0/1'", "somebody else has read from it"),
}


@pytest.mark.parametrize("name", OTHER_SERVERS)
def test_a_server_that_is_not_the_one_read_before_is_refused(tailed, init, start_relay, name):
    change, told = OTHER_SERVERS[name]
    content = to_store(tailed)
    init(content)
    tailed.execute(f"UPDATE postrider.wal SET {change}")
    tailed.insert("order-1")
    relay = start_relay(content, wait=False)
    assert relay.wait() == REFUSED
    assert relay.warnings(told, "postrider init --recreate-slot"), relay.log_text()
    assert tailed.value("SELECT count(*) FROM postrider.event") == 0
    assert begin_anew(tailed, content, init, start_relay).stop() == 0
    assert tailed.value("SELECT count(*) FROM postrider.event") == 1


@contextlib.contextmanager
def stranger(database):
    """Somebody else who reads from the slot. Killed at the end, so that he confirms nothing."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_recvlogical"))
    binary = shutil.which("pg_recvlogical") or (found and found[-1])
    if not binary:
        missing("pg_recvlogical is not installed")
    process = subprocess.Popen(
        [binary, "-d", database.dsn, "--slot", slot_of(database), "--start", "-f", "-", "-s", "0", "-F", "0",
         "-o", "proto_version=1", "-o", "publication_names=postrider_orders"],
        stdout=subprocess.DEVNULL, env=clean_environment())
    try:
        wait_until(lambda: slot(database, "active"), what="a stranger at the slot")
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_slot_in_use_by_a_stranger_is_waited_for(tailed, init, start_relay):
    content = to_store(tailed)
    init(content)
    tailed.entities(5)
    with stranger(tailed) as process:
        relay = start_relay(content, wait=False)
        said = relay.wait_for("wal.waiting")
        assert slot_of(tailed) in json.dumps(said) and "pg_recvlogical" in json.dumps(said)
        tailed.write_backlog(3)
        time.sleep(1)
        assert relay.running and tailed.pending() == 15
        assert len(relay.events("wal.waiting")) == 1
        process.kill()
        tailed.wait_until_empty()
    assert relay.stop() == 0
    expect_exactly_once(tailed.ledger(), tailed.event_store())


# ---- How much log the server keeps ----------------------------------------------------------------------------------

@contextlib.contextmanager
def store_away(database):
    """Nothing can be written to the event store meanwhile."""
    with database.connect(autocommit=False) as blocker:
        blocker.execute("LOCK TABLE postrider.event IN ACCESS EXCLUSIVE MODE")
        yield


def test_more_log_than_the_budget_is_warned_of(tailed, init, start_relay):
    content = to_store(tailed, wal={"budget": "16MiB", "heartbeat": "200ms"})
    init(content)
    tailed.entities(5)
    relay = start_relay(content)
    with store_away(tailed):
        tailed.write_backlog(3)
        write_log(tailed, 48)
        warned = relay.wait_for("wal.over_budget", level="warn", slot=slot_of(tailed))
        assert warned["retained_bytes"] > warned["budget_bytes"] == 16 * 2**20
        time.sleep(1)
    tailed.wait_until_empty()
    assert relay.stop() == 0
    assert len(relay.events("wal.over_budget")) == 1
    expect_exactly_once(tailed.ledger(), tailed.event_store())


def test_a_stop_waits_no_longer_than_it_may_for_a_store_that_is_locked(tailed, init, start_relay):
    content = to_store(tailed) | {"stop_timeout": "1s"}
    init(content)
    tailed.entities(5)
    relay = start_relay(content)
    with store_away(tailed):
        tailed.write_backlog(3)
        time.sleep(1)
        began = time.monotonic()
        assert relay.stop() == 0
        assert time.monotonic() - began < 2
    last = start_relay(content)
    tailed.wait_until_empty()
    assert last.stop() == 0
    expect_exactly_once(tailed.ledger(), tailed.event_store())


def test_more_log_than_the_budget_ends_the_process_where_that_is_wanted(tailed, init, start_relay):
    content = to_nobody(tailed, wal={"budget": "16MiB", "heartbeat": "200ms", "over_budget": "stop"})
    init(content)
    tailed.entities(5)
    relay = start_relay(content)
    tailed.write_backlog(3)
    write_log(tailed, 48)
    assert relay.wait() == REFUSED
    assert relay.warnings(slot_of(tailed), "wal.budget", "pg_drop_replication_slot"), relay.log_text()
    assert slot(tailed, "wal_status") is not None and tailed.pending() == 15
    relay = start_relay(to_store(tailed))
    tailed.wait_until_empty()
    assert relay.stop() == 0
    expect_exactly_once(tailed.ledger(), tailed.event_store())


def test_more_log_than_the_budget_makes_all_nodes_poll_where_that_is_wanted(tailed, init, start_relay):
    """The slot goes, what is in the table is published in order all the same, and consent brings the slot back."""
    content = to_store(tailed, wal={"budget": "16MiB", "heartbeat": "200ms", "over_budget": "drop_and_poll"})
    init(content)
    entities = tailed.entities(5)
    relays = [start_relay(content) for _ in range(2)]
    with store_away(tailed):
        tailed.write_backlog(3)
        write_log(tailed, 48)
        wait_until(lambda: slot(tailed, "slot_name") is None, what="a slot that is gone")
        assert "dropped when it kept more log" in postrider("check", "-c", relays[0].config).stdout
    with Writers(tailed.dsn, entities, threads=2, pause=0.002):
        time.sleep(1)
    tailed.wait_until_empty()
    assert len([relay for relay in relays if relay.events("wal.fell_back")]) == 1
    assert [relay.stop() for relay in relays] == [0, 0]
    with tailed.connect() as connection:
        write_burst(connection, "order-1", 20)
    relay = start_relay(content)
    tailed.wait_until_empty()
    assert relay.stop() == 0 and slot(tailed, "slot_name") is None
    with tailed.connect() as connection:
        write_burst(connection, "order-1", 20)
    relay = begin_anew(tailed, content, init, start_relay)
    assert slot(tailed, "active") and relay.stop() == 0
    expect_exactly_once(tailed.ledger(), tailed.event_store())


@every_postgres
def test_an_idle_outbox_keeps_no_log_while_another_database_is_busy(tailed, init, start_relay, pg):
    content = to_store(tailed, wal={"heartbeat": "200ms"})
    init(content)
    tailed.insert("order-1")
    relay = start_relay(content)
    tailed.wait_until_empty()
    busy = new_database(pg)
    busy.execute("CREATE TABLE public.filler (text text)")
    try:
        for _ in range(2):
            busy.execute("INSERT INTO public.filler SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
            write_log(busy, 16)
            wait_until_confirmed(tailed, written_up_to(busy), timeout=5)
            busy.execute("CHECKPOINT")      # it writes down what is running, and up to there a slot may forget
        wait_until(lambda: retained_mb(tailed) < 16, what="a slot that forgets")
    finally:
        dropped(busy)
    # What was confirmed without an event in it does not look like somebody else's doing.
    assert relay.stop() == 0
    relay = start_relay(content)
    tailed.insert("order-1")
    tailed.wait_until_empty()
    assert relay.stop() == 0
    assert tailed.value("SELECT count(*) FROM postrider.event") == 2


# ---- Events that a sink refuses -------------------------------------------------------------------------------------

LIMIT, TOO_LARGE = 20_000, 30_000


@pytest.fixture
def narrow_topic(make_topic):
    return make_topic(config={"max.message.bytes": str(LIMIT)})


def set_limit(kafka, topic, size):
    """What the topic takes at most in one message."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[
        ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)])
    admin = AdminClient({"bootstrap.servers": kafka.admin_bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def widen(kafka, topic):
    """Takes away what messages are refused for."""
    set_limit(kafka, topic, 1_000_000)


def write_poison(connection, entity, size=TOO_LARGE):
    """One event that the topic does not take; returns its id."""
    with connection.transaction():
        (seq,) = connection.execute(
            "UPDATE public.entity SET seq = seq + 1 WHERE id = %s RETURNING seq", (entity,)).fetchone()
        number, message_id = connection.execute(
            "INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
            " VALUES ('order', %s, 'changed', %s) RETURNING id, message_id",
            (entity, json.dumps({"seq": seq, "text": "x" * size}))).fetchone()
        connection.execute("INSERT INTO public.ledger VALUES (%s, %s, %s)", (entity, seq, message_id))
    return number


def greet(database, connection, entities):
    """One event of each, after which the relay knows the topic."""
    for entity in entities:
        write_one(connection, entity)
    database.wait_until_empty()


def parked(database, entity):
    """Ids of its rows, in the order in which they will be published."""
    return [row[0] for row in database.execute(
        "SELECT row_id::bigint FROM postrider.parked WHERE entity = %s ORDER BY n", (entity,))]


def rows_of(database, entity):
    return [row[0] for row in database.execute(
        "SELECT id FROM public.outbox WHERE entity_id = %s ORDER BY id", (entity,))]


def wait_until_parked(database, *entities):
    """They, and nobody else, still have rows, and all of those are parked."""
    wait_until(lambda: database.value("SELECT count(*) FROM public.outbox WHERE entity_id <> ALL (%s)",
                                      (list(entities),)) == 0, what="everything else published")
    for entity in entities:
        wait_until(lambda: parked(database, entity) == rows_of(database, entity), what=f"{entity} parked")


def expect_nothing_parked(database):
    database.wait_until_empty(timeout=40)
    for table in ("parked", "retry", "wal_backlog"):
        wait_until(lambda: database.value(f"SELECT count(*) FROM postrider.{table}") == 0, what=f"no postrider.{table}")


@on_18
def test_a_refused_event_is_parked_with_those_behind_it(tailed, kafka, narrow_topic, init, start_relay):
    content = to_kafka(tailed, kafka, narrow_topic, workers=2)
    init(content)
    entities = tailed.entities(10)
    relay = start_relay(content)
    with tailed.connect() as connection:
        greet(tailed, connection, entities)
        poison = write_poison(connection, "order-3")
        behind = written_up_to(tailed)
        for entity in entities * 5:
            write_one(connection, entity)
        relay.wait_for("row.refused", id=str(poison))
        wait_until_parked(tailed, "order-3")
        assert len(parked(tailed, "order-3")) == 6 and parked(tailed, "order-3")[0] == poison
        wait_until_confirmed(tailed, behind)
        for entity in entities * 5:
            write_one(connection, entity)
        wait_until_parked(tailed, "order-3")
        assert len(parked(tailed, "order-3")) == 11
        widen(kafka, narrow_topic)
        write_one(connection, "order-3")
    expect_nothing_parked(tailed)
    assert relay.stop() == 0
    expect_exactly_once(tailed.ledger(), arrivals(read_topic(kafka, narrow_topic)))
    assert "xxxx" not in relay.log_text(), "a payload in the log"


def test_what_is_parked_survives_a_kill(tailed, kafka, narrow_topic, init, start_relay):
    content = to_kafka(tailed, kafka, narrow_topic, workers=2)
    init(content)
    entities = tailed.entities(10)
    relay = start_relay(content)
    with tailed.connect() as connection:
        greet(tailed, connection, entities)
        poison = write_poison(connection, "order-3")
        for entity in entities * 3:
            write_one(connection, entity)
        wait_until_parked(tailed, "order-3")
        relay.kill9()
        attempts = tailed.value("SELECT attempts FROM postrider.retry")
        for entity in entities * 3:
            write_one(connection, entity)
        relay = start_relay(content)
        assert relay.wait_for("row.refused", id=str(poison))["attempts"] == attempts + 1
        for entity in entities * 3:
            write_one(connection, entity)
        wait_until_parked(tailed, "order-3")
        assert len(parked(tailed, "order-3")) == 10
        widen(kafka, narrow_topic)
    expect_nothing_parked(tailed)
    assert relay.stop() == 0
    expect_exactly_once(tailed.ledger(), arrivals(read_topic(kafka, narrow_topic)))


def test_kills_while_entities_are_parked_and_come_back_keep_order(tailed, kafka, narrow_topic, init, start_relay):
    content = to_kafka(tailed, kafka, narrow_topic, workers=WORKERS, batch_size=BATCH, batch_max=BATCH)
    init(content)
    entities = tailed.entities(20)
    relay, kills = start_relay(content), 0

    def kill_often(times):
        nonlocal relay, kills
        for _ in range(times):
            time.sleep(0.3)
            relay.kill9()
            relay = start_relay(content)
            kills += 1

    with tailed.connect() as connection:
        greet(tailed, connection, entities)
    with Writers(tailed.dsn, entities, threads=3, pause=0.004), tailed.connect() as connection:
        for entity in entities[:8]:
            write_poison(connection, entity)
        kill_often(3)
        widen(kafka, narrow_topic)
        kill_often(4)
    expect_nothing_parked(tailed)
    assert relay.stop() == 0
    report = expect_in_order(tailed.ledger(), arrivals(read_topic(kafka, narrow_topic)))
    assert len(report.duplicates) <= kills * WORKERS * 2 * BATCH


def test_parked_entities_come_back_in_order_while_they_are_written_to(tailed, kafka, narrow_topic, init, start_relay):
    content = to_kafka(tailed, kafka, narrow_topic, batch_size=50, batch_max=50)
    init(content)
    entities = tailed.entities(30)
    relay = start_relay(content)
    with tailed.connect() as connection:
        greet(tailed, connection, entities)
    with Writers(tailed.dsn, entities, threads=3, pause=0.004), tailed.connect() as connection:
        for entity in entities[:12]:
            write_poison(connection, entity)
        wait_until(lambda: tailed.value("SELECT count(DISTINCT entity) FROM postrider.parked") == 12, what="12 parked")
        widen(kafka, narrow_topic)
        wait_until(lambda: tailed.value("SELECT count(*) FROM postrider.parked") == 0, 30, "nobody parked")
        time.sleep(0.5)
    expect_nothing_parked(tailed)
    assert relay.stop() == 0
    expect_exactly_once(tailed.ledger(), arrivals(read_topic(kafka, narrow_topic)))


def test_an_event_from_before_the_slot_can_be_refused(tailed, kafka, narrow_topic, init, start_relay):
    entities = tailed.entities(10)
    with tailed.connect() as connection:
        for entity in entities * 2:
            write_one(connection, entity)
        poison = write_poison(connection, "order-3")
        for entity in entities * 2:
            write_one(connection, entity)
        content = to_kafka(tailed, kafka, narrow_topic, workers=2)
        assert "listed 41 rows" in init(content)
        for entity in entities * 2:
            write_one(connection, entity)
        relay = start_relay(content)
        relay.wait_for("row.refused", id=str(poison))
        wait_until_parked(tailed, "order-3")
        assert len(parked(tailed, "order-3")) == 5
        assert tailed.value("SELECT count(*) FROM postrider.wal_backlog") == 0
        wait_until_confirmed(tailed, written_up_to(tailed))
        relay.kill9()
        relay = start_relay(content)
        write_one(connection, "order-3")
        widen(kafka, narrow_topic)
    expect_nothing_parked(tailed)
    assert relay.stop() == 0
    expect_exactly_once(tailed.ledger(), arrivals(read_topic(kafka, narrow_topic)))


def test_attempts_are_counted_for_each_event_that_is_refused(tailed, kafka, narrow_topic, init, start_relay):
    """Two of one entity, of which the first one passes before the second."""
    def held():
        return tailed.execute("SELECT entity, row_id::bigint, attempts FROM postrider.retry")

    content = to_kafka(tailed, kafka, narrow_topic, workers=2)
    init(content)
    entities = tailed.entities(2)
    relay = start_relay(content)
    with tailed.connect() as connection:
        greet(tailed, connection, entities)
        first = write_poison(connection, "order-0")
        write_one(connection, "order-0")
        second = write_poison(connection, "order-0", 2 * TOO_LARGE)
        write_one(connection, "order-0")
    wait_until(lambda: held() and held()[0][:2] == ("order-0", first) and held()[0][2] >= 2, what="two attempts")
    assert [event["attempts"] for event in relay.events("row.refused", id=str(first))][:2] == [1, 2]
    set_limit(kafka, narrow_topic, TOO_LARGE + 10_000)
    wait_until(lambda: held() and held()[0][1] == second, 30, "the second one held")
    assert len(parked(tailed, "order-0")) == 2
    assert [event["attempts"] for event in relay.events("row.refused", id=str(second))][0] == 1
    widen(kafka, narrow_topic)
    expect_nothing_parked(tailed)
    assert relay.stop() == 0
    expect_exactly_once(tailed.ledger(), arrivals(read_topic(kafka, narrow_topic)))
