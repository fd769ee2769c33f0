"""What becomes of published rows (`published`), and the janitor that looks after what is left of them."""

import time

import pytest

from tests.e2e.checker import expect_complete, expect_exactly_once, expect_in_order
from tests.e2e.consume import read_topic
from tests.e2e.ledger import Writers, arrivals
from tests.e2e.readers import READERS
from tests.e2e.relay import kafka_settings, postrider, settings, wait_until, write_config

every_postgres = pytest.mark.parametrize("pg", [15, 18], indirect=True)

ALL_READERS = {
    **READERS,
    "shards": {"reader": "shards", "lease": "3s"},
    "dispatcher": {"reader": "dispatcher"},
    "wal": {"reader": "wal"},
}
MODES = {
    "mark": {"published": "mark"},
    "archive": {"published": "archive"},
    "partitions": {"published": "partitions", "partitions": {"rows": 300}},
}
PARTITIONS = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'public.outbox'::regclass"
UNPUBLISHED = "SELECT count(*) FROM public.outbox WHERE published_at IS NULL"


class Scene:
    """A fresh database that `postrider init` has prepared, and a relay's role with no more rights than it was given."""

    def __init__(self, database, folder):
        self.database = database
        self.folder = folder
        self.role = f"relay_{database.name}"
        database.execute(f"CREATE ROLE {self.role} LOGIN")

    def init(self, content, *flags):
        return postrider("init", "-c", write_config(self.folder / "init.yaml", content), "--role", self.role, *flags)

    def prepare(self, content):
        """Runs init, and returns the settings for the relay's own role."""
        content = {**content, "log": {"level": "debug", "format": "json"}}
        done = self.init(content)
        assert done.returncode == 0, done.stderr
        return {**content, "database": {"url": self.database.server.dsn(self.database.name, self.role)}}

    def check(self, content):
        return postrider("check", "-c", write_config(self.folder / "check.yaml", content))

    def all_published(self, timeout=40):
        with self.database.connect() as connection:
            marked = connection.execute("SELECT count(*) FROM pg_attribute WHERE attrelid = 'public.outbox'::regclass"
                                        " AND attname = 'published_at'").fetchone()[0]
            test = UNPUBLISHED if marked else "SELECT count(*) FROM public.outbox"
            wait_until(lambda: connection.execute(test).fetchone()[0] == 0, timeout, "everything to be published")


@pytest.fixture
def scene(product, empty_database, tmp_path):
    scene = Scene(empty_database, tmp_path)
    yield scene
    empty_database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                           " WHERE active AND database = current_database()")
    empty_database.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                           " WHERE database = current_database()")
    empty_database.execute(f"DROP OWNED BY {scene.role}")
    empty_database.execute(f"DROP ROLE {scene.role}")


@pytest.fixture
def janitor_did(start_relay):
    """What the janitors of these relays say that they did."""
    return lambda *relays: [event["what"] for relay in relays for event in relay.events("janitor.done")]


# ---- Every way with every reader ------------------------------------------------------------------------------------

@every_postgres
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reader", ALL_READERS)
def test_everything_is_published_once_and_kept_as_asked(reader, mode, scene, kafka, topic, start_relay, janitor_did):
    database = scene.database
    content = scene.prepare(kafka_settings(database, kafka, topic, **ALL_READERS[reader], **MODES[mode]))
    entities = database.entities(40)
    database.write_backlog(10)
    relay = start_relay(content)
    with Writers(database.dsn, entities, threads=3, pause=0.002):
        time.sleep(1.5)
    scene.all_published()
    if mode == "partitions":
        wait_until(lambda: database.value(PARTITIONS) <= 6, 20, "old partitions to be dropped")
        assert any("emptied" in line for line in janitor_did(relay))
    assert relay.stop() == 0
    committed = database.ledger()
    (expect_complete if reader == "skip_locked" else expect_exactly_once)(
        committed, arrivals(read_topic(kafka, topic)))
    kept = {"mark": "public.outbox", "archive": "public.outbox_archive"}.get(mode)
    if kept:
        assert database.value(f"SELECT count(DISTINCT o.message_id) FROM {kept} o JOIN public.ledger l USING (message_id)"
                              " WHERE o.published_at <= now()") == len(committed) == database.value(
                                  f"SELECT count(*) FROM {kept}")
    assert not relay.warnings()


@every_postgres
@pytest.mark.parametrize("mode", MODES)
def test_a_second_init_does_nothing_and_check_is_content(mode, scene):
    content = scene.prepare(settings(scene.database.dsn, {"type": "stdout"}, **MODES[mode]))
    owner = {**content, "database": {"url": scene.database.dsn}}
    assert scene.init(owner).stdout == "nothing to do: everything is in place\n"
    checked = scene.check(content)
    assert checked.returncode == 0 and "0 to look at, 0 failed" in checked.stdout, checked.stdout


# ---- Nothing that is not published is ever removed ------------------------------------------------------------------

@every_postgres
def test_retention_removes_marked_rows_past_their_time_and_no_others(scene, start_relay):
    """Rows of an entity that is held back are as old as the marked ones, and stay."""
    database = scene.database
    content = scene.prepare(settings(database.dsn, {"type": "stdout"}, published="mark", retention="1h"))
    database.execute("""
        INSERT INTO public.outbox (entity_type, entity_id, event_type, created_at, published_at)
        SELECT 'order', 'e-' || n, 'changed', now() - interval '2 days',
               CASE WHEN n <= 2500 THEN now() - interval '61 minutes' WHEN n <= 2600 THEN now() - interval '59 minutes' END
        FROM generate_series(1, 2700) AS n""")
    database.execute("INSERT INTO postrider.retry (outbox, entity, row_id, attempts, kind, error, retry_at)"
                     " SELECT 1, entity_id, id, 1, 'rejected', 'test', now() + interval '1 day' FROM public.outbox"
                     " WHERE published_at IS NULL")
    relay = start_relay(content)
    wait_until(lambda: database.pending() == 200, 20, "old rows to be removed")
    time.sleep(2)
    assert database.execute("SELECT count(*), count(published_at) FROM public.outbox") == [(200, 100)]
    assert relay.stop() == 0


@every_postgres
def test_an_archive_loses_whole_days_and_rows_of_days_without_a_partition(scene, start_relay):
    database = scene.database
    content = scene.prepare(settings(database.dsn, {"type": "stdout"}, published="archive", retention="48h"))
    database.execute("""
        INSERT INTO public.outbox_archive (id, entity_id, published_at)
        SELECT n, 'e', now() - n * interval '1 hour' FROM generate_series(0, 99) AS n""")
    database.execute("""
        CREATE TABLE public.old (LIKE public.outbox_archive);
        INSERT INTO public.old (id, published_at) SELECT n, now() - interval '10 days' FROM generate_series(1, 50) AS n;
        ALTER TABLE public.outbox_archive ATTACH PARTITION public.old
            FOR VALUES FROM (date_trunc('day', now() - interval '10 days')) TO (date_trunc('day', now() - interval '9 days'));
        INSERT INTO postrider.partition (name, outbox, ends_at)
        VALUES ('public.old', 1, date_trunc('day', now() - interval '9 days'))""")
    database.insert("never", topic="", entity_type="")
    database.execute("INSERT INTO postrider.retry (outbox, entity, row_id, attempts, kind, error, retry_at)"
                     " SELECT 1, entity_id, id, 1, 'rejected', 'test', now() + interval '1 day' FROM public.outbox")
    relay = start_relay(content)
    wait_until(lambda: database.value("SELECT count(*) FROM public.outbox_archive WHERE published_at < now()"
                                      " - interval '48 hours 10 seconds'") == 0, 30, "history to be removed")
    assert database.value("SELECT to_regclass('public.old')") is None
    assert 47 <= database.value("SELECT count(*) FROM public.outbox_archive") <= 49
    assert database.pending() == 1
    assert relay.stop() == 0


@every_postgres
def test_a_row_that_is_not_published_keeps_its_partition(scene, start_relay, janitor_did):
    database = scene.database
    content = scene.prepare(settings(database.dsn, {"type": "stdout"}, published="partitions", partitions={"rows": 100}))
    kept = database.insert("blocked")
    database.execute("INSERT INTO postrider.retry (outbox, entity, row_id, attempts, kind, error, retry_at)"
                     " VALUES (1, 'blocked', %s, 1, 'rejected', 'test', now() + interval '1 day')", (kept,))
    relay = start_relay(content)
    for _ in range(10):
        database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type)"
                         " SELECT 'order', 'e-' || n, 'changed' FROM generate_series(1, 100) AS n")
        time.sleep(0.3)
    wait_until(lambda: sum("dropped" in line for line in janitor_did(relay)) >= 5, 20, "partitions to be dropped")
    wait_until(lambda: database.pending() == 1)
    time.sleep(2)
    assert database.execute("SELECT id, tableoid::regclass::text FROM public.outbox") == [(kept, "outbox_p0")]
    database.execute("DELETE FROM postrider.retry")
    wait_until(lambda: database.value("SELECT to_regclass('public.outbox_p0')") is None, 20, "it to be dropped after all")
    assert relay.stop() == 0 and '"entity_id"' not in relay.log_text()


@every_postgres
def test_a_number_that_was_drawn_long_ago_is_published_all_the_same(scene, kafka, topic, start_relay):
    """Its partition is gone; or it is emptied, and the row comes before it is dropped."""
    database = scene.database
    content = scene.prepare(kafka_settings(database, kafka, topic, published="partitions", partitions={"rows": 100}))
    sequence = database.value("SELECT pg_get_serial_sequence('public.outbox', 'id')")
    early = [database.value(f"SELECT nextval('{sequence}')") for _ in range(3)]
    database.execute(f"SELECT setval('{sequence}', 450)")
    relay = start_relay(content)
    wait_until(lambda: database.value("SELECT to_regclass('public.outbox_p0')") is None, 20, "the partition to be dropped")
    insert = ("INSERT INTO public.outbox (id, entity_type, entity_id, event_type, payload) OVERRIDING SYSTEM VALUE"
              " VALUES (%s, 'order', 'late', 'changed', '{\"seq\": 1}')")
    with database.connect() as connection:
        for number in early:
            connection.execute(insert, (number,))
    database.wait_until_empty()
    assert len(read_topic(kafka, topic)) == 3
    relay.stop()
    # Emptied, but not dropped: somebody reads the table.
    with database.connect() as reader:
        with reader.transaction():
            reader.execute("SELECT FROM ONLY public.outbox")
            part = database.value("SELECT name FROM postrider.partition WHERE begins IS NOT NULL ORDER BY ends LIMIT 1")
            first = database.value("SELECT begins FROM postrider.partition WHERE name = %s", (part,))
            database.execute(f"SELECT setval('{sequence}', 2000)")
            database.execute("SELECT postrider.empty_partition(1)")
            assert database.value("SELECT emptied_at IS NOT NULL FROM postrider.partition WHERE name = %s", (part,))
            assert database.execute("SELECT postrider.drop_partitions(1)") == []
            database.execute(insert, (first,))
    assert database.execute("SELECT postrider.drop_partitions(1)") == []
    assert database.execute("SELECT tableoid::regclass::text FROM public.outbox") == [(part.split(".")[1],)]
    relay = start_relay(content)
    database.wait_until_empty()
    wait_until(lambda: database.value("SELECT to_regclass(%s)", (part,)) is None, 20, "it to be dropped in the end")
    relay.stop()
    assert len(read_topic(kafka, topic)) == 4


def test_no_insert_fails_where_there_is_no_partition(scene, kafka, topic, start_relay):
    """The relay was away for long; when it is back, new partitions begin behind what is drawn."""
    database = scene.database
    content = scene.prepare(kafka_settings(database, kafka, topic, published="partitions", partitions={"rows": 100}))
    entities = database.entities(100)
    database.write_backlog(20)
    assert database.value("SELECT count(*) FROM public.outbox_rest") == 2000 - 499
    relay = start_relay(content)
    scene.all_published()
    wait_until(lambda: database.value("SELECT min(begins) > 2000 FROM postrider.partition"), 20, "new partitions")
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        time.sleep(3)
    database.wait_until_empty()
    assert relay.stop() == 0
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_partitions_grow_while_a_backlog_keeps_them(scene):
    database = scene.database
    scene.prepare(settings(database.dsn, {"type": "stdout"}, published="partitions", partitions={"rows": 100}))
    insert = ("INSERT INTO public.outbox (entity_type, entity_id, event_type)"
              " SELECT 'order', 'e', 'changed' FROM generate_series(1, 100)")
    for _ in range(300):
        database.execute(insert)
        while database.execute("SELECT postrider.add_partition(1, 100, 4)"):
            pass
    assert database.value(PARTITIONS) < 25
    assert database.value("SELECT count(*) FROM public.outbox_rest") == 0
    assert database.value("SELECT count(*) FROM public.outbox") == 30_000


# ---- Janitors -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("reader", ["advisory", "dispatcher"])
def test_nothing_is_lost_when_nodes_are_killed_while_partitions_come_and_go(
        reader, scene, kafka, topic, start_relay, janitor_did):
    database = scene.database
    content = scene.prepare(kafka_settings(database, kafka, topic, **ALL_READERS[reader], published="partitions",
                                           partitions={"rows": 200}))
    entities = database.entities(50)
    relays = [start_relay({**content, "node": f"node-{number}"}) for number in range(2)]
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        for number in range(6):
            time.sleep(0.8)
            relays[number].kill9()
            relays.append(start_relay({**content, "node": f"node-{number + 2}"}))
    database.wait_until_empty(60)
    assert [relay.stop() for relay in relays[6:]] == [0, 0]
    did = janitor_did(*relays)
    assert sum("dropped" in line for line in did) >= 3
    expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_two_nodes_share_the_work_and_never_do_it_twice(scene, start_relay, janitor_did):
    """When one is killed, the other goes on at once."""
    database = scene.database
    content = scene.prepare(settings(database.dsn, {"type": "stdout"}, published="partitions", partitions={"rows": 100}))
    relays = [start_relay({**content, "node": f"node-{number}"}) for number in range(2)]

    def write():
        database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type)"
                         " SELECT 'order', 'e-' || n, 'changed' FROM generate_series(1, 100) AS n")
        time.sleep(0.2)

    for _ in range(15):
        write()
    relays[0].kill9()
    before = len(janitor_did(relays[1]))
    for _ in range(15):
        write()
    wait_until(lambda: len(janitor_did(relays[1])) > before + 4, 20, "the other janitor to go on")
    did = janitor_did(*relays)
    assert len(did) == len(set(did)), sorted(did)
    assert not relays[1].warnings("janitor")
    with database.connect() as holder:
        with holder.transaction():
            holder.execute("SELECT pg_advisory_xact_lock(hashtextextended('postrider.keep', 1))")
            before = len(janitor_did(relays[1]))
            for _ in range(5):
                write()
            time.sleep(1.5)
            assert len(janitor_did(relays[1])) <= before + 1
    assert relays[1].stop() == 0


@every_postgres
def test_writers_never_wait_long_behind_a_janitor(scene, start_relay, janitor_did):
    """A transaction that has written keeps partitions from being dropped; others must not wait behind the attempt."""
    database = scene.database
    content = scene.prepare(settings(database.dsn, {"type": "stdout"}, published="partitions", partitions={"rows": 100}))
    slowest = 0.0
    insert = ("INSERT INTO public.outbox (entity_type, entity_id, event_type)"
              " SELECT 'order', 'e-' || n, 'changed' FROM generate_series(1, 20) AS n")
    with database.connect() as holder, database.connect() as writer:
        holder.execute("BEGIN")
        holder.execute(insert)
        relay = start_relay(content)
        until = time.monotonic() + 6
        while time.monotonic() < until:
            began = time.monotonic()
            writer.execute(insert)
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.02)
        did = janitor_did(relay)
        # Emptying goes on meanwhile: that is what keeps the table lean.
        assert any("emptied" in line for line in did) and not any("dropped" in line for line in did)
        assert slowest < 0.5, slowest
        holder.execute("COMMIT")
    wait_until(lambda: any("dropped" in line for line in janitor_did(relay)), 30, "partitions to be dropped")
    assert relay.stop() == 0


@every_postgres
def test_an_old_snapshot_leaves_no_dead_rows_behind_in_partitions(scene, kafka, topic, start_relay):
    database = scene.database
    content = scene.prepare(kafka_settings(database, kafka, topic, published="partitions", partitions={"rows": 500}))
    with database.connect() as holder:
        with holder.transaction():
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT pg_current_xact_id()")
            relay = start_relay(content)
            for _ in range(40):
                database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type)"
                                 " SELECT 'order', 'e-' || n, 'changed' FROM generate_series(1, 100) AS n")
                time.sleep(0.05)
            database.wait_until_empty()
            pages = ("SELECT sum(pg_relation_size(inhrelid)) / 8192 FROM pg_inherits"
                     " WHERE inhparent = 'public.outbox'::regclass")
            wait_until(lambda: database.value(pages) < 20, 20, "dead rows to be gone")
    assert relay.stop() == 0


# ---- Claims while nothing can be vacuumed ---------------------------------------------------------------------------

@every_postgres
@pytest.mark.parametrize("reader", ["advisory", "lease", "skip_locked-ordered"])
def test_claims_pass_over_no_dead_rows(reader, scene, kafka, topic, start_relay):
    """Deleted rows of ten thousand entities stay in the index, and what a claim reads must not grow with them."""
    database = scene.database
    content = scene.prepare(kafka_settings(database, kafka, topic, **{**ALL_READERS[reader], "workers": 2,
                                                                      "poll_interval": "30s"}))
    with database.connect() as holder:
        with holder.transaction():
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT pg_current_xact_id()")
            relay = start_relay(content)
            database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type)"
                             " SELECT 'order', 'e-' || n, 'changed' FROM generate_series(1, 20000) AS n")
            database.wait_until_empty()
            for number in range(20):    # the floor moves up
                database.insert(f"f-{number}")
                time.sleep(0.05)
            database.wait_until_empty()
            read = ("SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'outbox'"
                    " AND indexrelname LIKE '%entity_id%'")
            time.sleep(1.5)
            before = database.value(read)
            for number in range(40):
                database.insert(f"g-{number}")
                time.sleep(0.03)
            database.wait_until_empty()
            time.sleep(1.5)
            assert database.value(read) - before < 20_000 * 3
    assert relay.stop() == 0


@every_postgres
@pytest.mark.parametrize("reader", ["advisory", "lease", "skip_locked-ordered"])
def test_a_row_that_commits_late_is_found_at_once(reader, scene, kafka, topic, start_relay):
    """Its number is lower than all that was published meanwhile; the floor of claims must not be above it."""
    database = scene.database
    content = scene.prepare(kafka_settings(database, kafka, topic, **{**ALL_READERS[reader], "poll_interval": "30s"}))
    database.insert("first")
    relay = start_relay(content)
    with database.connect() as slow:
        slow.execute("BEGIN")
        slow.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type) VALUES ('order', 'slow', 'changed')")
        for number in range(40):
            database.insert(f"e-{number}")
            time.sleep(0.05)
        database.wait_until_empty()
        slow.execute("COMMIT")
    database.wait_until_empty(5)
    assert relay.stop() == 0


# ---- Tables that exist ----------------------------------------------------------------------------------------------

@every_postgres
def test_a_table_with_rows_is_put_into_partitions(scene, kafka, topic, start_relay):
    database = scene.database
    plain = kafka_settings(database, kafka, topic)
    scene.prepare(plain)
    database.execute("CREATE ROLE writer_x; GRANT INSERT, SELECT (id) ON public.outbox TO writer_x")
    try:
        entities = database.entities(30)
        database.write_backlog(5)
        content = scene.prepare({**plain, "outboxes": {"orders": {
            **plain["outboxes"]["orders"], "published": "partitions", "partitions": {"rows": 100}}}})
        assert database.value("SELECT relkind::text FROM pg_class WHERE oid = 'public.outbox'::regclass") == "p"
        assert database.value("SELECT has_table_privilege('writer_x', 'public.outbox', 'INSERT')"
                              " AND has_column_privilege('writer_x', 'public.outbox', 'id', 'SELECT')")
        relay = start_relay(content)
        with Writers(database.dsn, entities, threads=3, pause=0.002):
            time.sleep(1.5)
        database.wait_until_empty()
        assert relay.stop() == 0
        expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))
    finally:
        database.execute("DROP OWNED BY writer_x; DROP ROLE writer_x")


@pytest.mark.parametrize("change, told", [
    ("ALTER TABLE public.outbox ADD UNIQUE (message_id)", "unique index public.outbox_message_id_key"),
    ("CREATE VIEW public.v AS SELECT id FROM public.outbox", "public.v"),
    ("CREATE PUBLICATION p_test FOR TABLE public.outbox", "publication p_test"),
])
def test_what_keeps_a_table_from_partitions_is_named(change, told, scene):
    database = scene.database
    content = settings(database.dsn, {"type": "stdout"})
    scene.prepare(content)
    database.execute(change)
    done = scene.init(settings(database.dsn, {"type": "stdout"}, published="partitions"))
    assert done.returncode == 1 and told in done.stderr and "cannot be put into partitions" in done.stderr, done.stderr
    assert database.value("SELECT relkind::text FROM pg_class WHERE oid = 'public.outbox'::regclass") == "r"


def test_a_table_of_the_user_gets_no_column(scene):
    database = scene.database
    database.execute("CREATE TABLE public.mine (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, entity_id text NOT NULL,"
                     " payload json)")
    content = settings(database.dsn, {"type": "stdout"}, table="public.mine", columns={"id": "id"}, published="mark")
    done = scene.init(content)
    assert done.returncode == 1 and "ALTER TABLE public.mine ADD COLUMN published_at timestamptz;" in done.stderr
    relay = postrider("check", "-c", write_config(scene.folder / "c.yaml", content))
    assert "no column published_at" in relay.stdout
    database.execute("ALTER TABLE public.mine ADD COLUMN published_at timestamptz")
    assert scene.init(content).returncode == 0


def test_marked_rows_are_not_published_again_by_another_way(scene, start_relay, make_relay):
    database = scene.database
    marking = scene.prepare(settings(database.dsn, {"type": "stdout"}, published="mark"))
    relay = start_relay(marking)
    database.insert("order-1")
    scene.all_published()
    assert relay.stop() == 0
    deleting = {**marking, "outboxes": {"orders": {**marking["outboxes"]["orders"], "published": "delete"}}}
    relay = make_relay(deleting).start(wait=False)
    assert relay.wait() == 78 and "published again" in relay.log_text()
    owner = {**deleting, "database": {"url": database.dsn}}
    refused = scene.init(owner)
    assert refused.returncode == 1 and "DELETE FROM public.outbox WHERE published_at IS NOT NULL;" in refused.stderr
    assert "published again" in scene.check(deleting).stdout
    database.execute("DELETE FROM public.outbox WHERE published_at IS NOT NULL")
    assert "no longer kept" in scene.init(owner).stdout
    assert start_relay(deleting).stop() == 0


def test_keep_is_for_the_log_only(scene):
    done = postrider("check", "-c", write_config(
        scene.folder / "keep.yaml",
        "outboxes:\n  orders:\n    table: public.outbox\n    published: keep\n    sinks: [{type: stdout}]\n"))
    assert done.returncode == 78 and "keep.yaml:4:16: " in done.stderr and "reader wal" in done.stderr, done.stderr


# ---- What check sees ------------------------------------------------------------------------------------------------

@every_postgres
def test_check_tells_of_long_transactions_and_dead_rows(scene):
    database = scene.database
    content = settings(database.dsn, {"type": "stdout"})
    scene.prepare(content)
    database.execute("ALTER TABLE public.outbox SET (autovacuum_enabled = off)")
    with database.connect(application_name="report") as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT pg_current_xact_id()")
        database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type)"
                         " SELECT 'order', 'e', 'changed' FROM generate_series(1, 20000)")
        database.execute("DELETE FROM public.outbox")
        wait_until(lambda: "dead rows" in scene.check(content).stdout, 20, "statistics")
        told = scene.check(content).stdout
        assert "VACUUM public.outbox;" in told and "autovacuum is off" in told, told
        assert "report" not in told
        impatient = settings(database.dsn, {"type": "stdout"}, poll_interval="10ms")
        wait_until(lambda: "report" in scene.check(impatient).stdout, 10, "the transaction to be called long")
        assert f"pg_terminate_backend({holder.info.backend_pid})" in scene.check(impatient).stdout
        holder.execute("COMMIT")


@every_postgres
def test_verify_believes_an_archive(scene, kafka, topic, start_relay):
    database = scene.database
    content = scene.prepare(kafka_settings(database, kafka, topic, published="archive"))
    database.entities(20)
    database.write_backlog(5)
    relay = start_relay(content)
    database.wait_until_empty()
    assert relay.stop() == 0

    def verify():
        return postrider("verify", "-c", write_config(scene.folder / "verify.yaml", content), "--against",
                         "public.outbox_archive")

    assert verify().returncode == 0, verify().stdout + verify().stderr
    database.execute("INSERT INTO public.outbox_archive (id, message_id, entity_type, entity_id, event_type, payload,"
                     " created_at, published_at) SELECT id + 1000000, gen_random_uuid(), entity_type, entity_id, event_type,"
                     " payload, created_at, published_at FROM public.outbox_archive LIMIT 1")
    assert verify().returncode == 1 and "lost" in verify().stdout
