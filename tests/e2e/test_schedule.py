"""Rows with `scheduled_for`: never before their time, soon after it without polling, and no burden before it."""

import json
import re
import statistics
import time
from datetime import datetime, timedelta, timezone

import pytest

from tests.e2e.readers import READERS
from tests.e2e.relay import postrider, settings, wait_until, write_config

LATE = 0.1                          # seconds that a row in an idle system may be late
POLL = 60                           # longer than any test: what leaves before has not been polled for

KINDS = {
    **READERS,
    "shards": {"reader": "shards", "shards": {"count": 4}},
    "shards-id": {"reader": "shards", "shards": {"count": 4, "key": "id"}},
    "dispatcher": {"reader": "dispatcher"},
    "wal": {"reader": "wal"},
}
every_reader = pytest.mark.parametrize("reader", KINDS)
IN_ORDER = [name for name in KINDS if name not in ("skip_locked", "shards-id", "wal")]


# ---- The scene ------------------------------------------------------------------------------------------------------

def store_settings(database, reader, **options):
    """To the event store, which writes down when each event arrived, by the clock of the database."""
    if reader == "wal":
        options["wal"] = {"slot": f"postrider_{database.name}"}
    return settings(database.dsn, {"type": "postgres"},
                    **{"poll_interval": f"{POLL}s", "workers": 2, **KINDS[reader], **options})


@pytest.fixture
def prepared(database, tmp_path):
    def prepare(reader, **options):
        content = store_settings(database, reader, **options)
        done = postrider("init", "-c", write_config(tmp_path / "init.yaml", content))
        assert done.returncode == 0, done.stderr
        return content
    return prepare


@pytest.fixture
def relay(prepared, start_relay):
    """A relay that is idle: it has published one row, and knows that there are no others."""
    def start(database, reader, **options):
        content = prepared(reader, **options)
        started = start_relay(content)
        database.insert("warm", '{"n": "warm"}')
        wait_until(lambda: names(database) == ["warm"], what="the first row")
        time.sleep(0.5)
        return started
    return start


def schedule(database, name, due, entity="a", connection=None, returning="scheduled_for"):
    """A row that is due at an expression of SQL; returns its time."""
    sql = ("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload, scheduled_for)"
           f" VALUES ('order', %s, 'changed', json_build_object('n', %s::text), {due}) RETURNING {returning}")
    if connection:
        return connection.execute(sql, (entity, str(name))).fetchone()[0]
    return database.value(sql, (entity, str(name)))


def arrivals(database):
    """What has arrived, in this order: name, time by the clock of the database."""
    return [(name, at) for name, at in database.execute(
        "SELECT payload->>'n', stored_at FROM postrider.event ORDER BY position")]


def names(database):
    return [name for name, _ in arrivals(database)]


def wait_for(database, *wanted, timeout=20):
    wait_until(lambda: set(wanted) <= set(names(database)), timeout, f"the arrival of {wanted}")
    return dict(arrivals(database))


def seconds(time_span):
    return time_span / timedelta(seconds=1)


# ---- The time -------------------------------------------------------------------------------------------------------

@every_reader
def test_rows_go_at_their_time_and_nobody_polls_for_it(database, relay, reader):
    started = relay(database, reader)
    due = {}
    with database.connect() as connection:
        for number in range(20):
            due[str(number)] = schedule(database, number, f"clock_timestamp() + {500 + 130 * (number * 7 % 20)} * "
                                        "interval '1 ms'", f"e{number % 5}", connection)
    arrived = wait_for(database, *due)
    late = [seconds(arrived[name] - due[name]) for name in due]
    print(f"{reader}: late by {1000 * statistics.median(late):.1f} ms, at most {1000 * max(late):.1f} ms")
    assert min(late) >= 0, "a row went out before its time"
    assert statistics.median(late) < LATE
    assert max(late) < POLL / 10
    assert started.stop() == 0
    assert len(names(database)) == 21


def test_an_idle_relay_asks_no_more_often_because_a_row_is_scheduled(database, relay):
    """Claims are counted in the server: those that look for the row, and one at its time."""
    relay(database, "advisory")
    schedule(database, "later", "clock_timestamp() + interval '3 s'")
    time.sleep(1)
    scans = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_scheduled_for_idx'"
    database.execute("SELECT pg_stat_force_next_flush()")
    before = database.value(scans)
    time.sleep(1.5)
    assert database.value(scans) == before
    wait_for(database, "later")


@every_reader
def test_a_relay_that_starts_late_publishes_what_is_due_and_nothing_else(database, prepared, start_relay, reader):
    content = prepared(reader)
    for number in range(50):
        schedule(database, number, "clock_timestamp() - interval '1 hour'", f"e{number % 7}")
    schedule(database, "later", "clock_timestamp() + interval '1 hour'", "e1")
    schedule(database, "never", "'infinity'", "e2", returning="NULL")
    started = start_relay(content)
    wait_for(database, *map(str, range(50)))
    wait_until(lambda: database.pending() == 2, what="everything else settled")
    assert started.stop() == 0
    assert set(names(database)) == {str(number) for number in range(50)}


@pytest.mark.parametrize("pg", [15, 18], indirect=True)
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_a_time_is_a_moment_whatever_the_zones_of_sessions_are(database, prepared, start_relay, pg, zone):
    """The writer's session in one zone, the relay's role in another by its own default."""
    database.execute(f"ALTER DATABASE \"{database.name}\" SET timezone = '{zone}'")
    started = start_relay(prepared("advisory"))
    begin = datetime.now(timezone.utc)
    with database.connect() as connection:
        connection.execute("SET timezone = 'Pacific/Chatham'")
        local = connection.execute("SELECT (clock_timestamp() + interval '1 s')::timestamp::text").fetchone()[0]
        due = schedule(database, "local", f"'{local}'", connection=connection)
        connection.execute("SET timezone = 'Pacific/Kiritimati'")
        schedule(database, "tomorrow", "clock_timestamp() + interval '1 day'", connection=connection)
        schedule(database, "past", "clock_timestamp() - interval '1 s'", connection=connection)
    assert timedelta(0) < due - begin < timedelta(seconds=3)
    arrived = wait_for(database, "local", "past")
    assert 0 <= seconds(arrived["local"] - due) < LATE
    assert started.stop() == 0
    assert set(names(database)) == {"local", "past"}


# ---- Beside other rows ----------------------------------------------------------------------------------------------

@every_reader
def test_a_scheduled_row_does_not_hold_back_its_entity(database, relay, reader):
    started = relay(database, reader)
    schedule(database, "later", "clock_timestamp() + interval '2 s'")
    for number in range(3):
        database.insert("a", json.dumps({"n": str(number)}))
    wait_for(database, "later")
    assert started.stop() == 0
    assert names(database)[-1] == "later" and sorted(names(database)) == ["0", "1", "2", "later", "warm"]


@pytest.mark.parametrize("reader", IN_ORDER)
def test_rows_that_wait_together_go_in_order(database, prepared, start_relay, reader):
    """After an outage: what was due meanwhile stands where it was written."""
    content = prepared(reader)
    with database.connect() as connection, connection.transaction():
        for entity in ("a", "b", "c"):
            for number in range(30):
                due = "clock_timestamp() - interval '1 min'" if number % 3 == 1 else "NULL"
                schedule(database, f"{entity}{number}", due, entity, connection)
    started = start_relay(content)
    wait_until(lambda: database.pending() == 0, what="an empty outbox")
    assert started.stop() == 0
    for entity in ("a", "b", "c"):
        assert [name for name in names(database) if name[0] == entity] == [f"{entity}{number}" for number in range(30)]


@every_reader
def test_neither_due_rows_nor_the_others_starve(database, prepared, start_relay, reader):
    """Two thousand of each, in small claims: they go out side by side."""
    content = prepared(reader, batch_size=20, batch_max=40)
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload, scheduled_for)"
                     " SELECT 'order', 'e' || n % 500, 'changed', json_build_object('n', n),"
                     "   CASE WHEN n % 2 = 0 THEN clock_timestamp() - n * interval '1 ms' END"
                     " FROM generate_series(1, 4000) AS n")
    started = start_relay(content)
    wait_until(lambda: database.pending() == 0, 60, "an empty outbox")
    assert started.stop() == 0
    arrived = [int(name) for name in names(database)]
    assert sorted(arrived) == list(range(1, 4001))
    for half in (arrived[:2000], arrived[2000:]):
        assert 200 < sum(number % 2 for number in half) < 1800


# ---- Cancel and reschedule ------------------------------------------------------------------------------------------

@every_reader
def test_cancel_and_reschedule_by_ordinary_sql(database, relay, reader):
    started = relay(database, reader)
    for name, due in (("cancelled", "1 s"), ("postponed", "1 s"), ("sooner", "1 hour"), ("at once", "1 hour")):
        schedule(database, name, f"clock_timestamp() + interval '{due}'", name)
    time.sleep(0.3)
    with database.connect() as connection:
        connection.execute("DELETE FROM public.outbox WHERE entity_id = 'cancelled'")
        postponed, = connection.execute("UPDATE public.outbox SET scheduled_for = clock_timestamp() + interval '2.5 s'"
                                        " WHERE entity_id = 'postponed' RETURNING scheduled_for").fetchone()
        sooner, = connection.execute("UPDATE public.outbox SET scheduled_for = clock_timestamp() + interval '1.5 s'"
                                     " WHERE entity_id = 'sooner' RETURNING scheduled_for").fetchone()
        before, = connection.execute("UPDATE public.outbox SET scheduled_for = NULL WHERE entity_id = 'at once'"
                                     " RETURNING clock_timestamp()").fetchone()
    arrived = wait_for(database, "postponed")
    assert started.stop() == 0
    assert list(arrived) == ["warm", "at once", "sooner", "postponed"]
    assert seconds(arrived["at once"] - before) < 1
    assert 0 <= seconds(arrived["sooner"] - sooner) < 1
    assert 0 <= seconds(arrived["postponed"] - postponed) < 1
    assert database.pending() == 0


# ---- Crashes and refusals -------------------------------------------------------------------------------------------

@every_reader
def test_kill_9_loses_no_scheduled_row_and_publishes_none_early(database, relay, make_relay, reader):
    first = relay(database, reader, lease="2s") if reader != "lease" else relay(database, reader)
    due = {}
    with database.connect() as connection:
        for number in range(60):
            due[str(number)] = schedule(database, number, f"clock_timestamp() + {200 + 50 * number} * interval '1 ms'",
                                        f"e{number % 9}", connection)
    time.sleep(1)
    first.kill9()
    content = json.loads(first.config.read_text())
    second = make_relay(content).start()
    arrived = wait_for(database, *due, timeout=40)
    assert all(arrived[name] >= due[name] for name in due)
    wait_until(lambda: database.pending() == 0, what="an empty outbox")
    assert second.stop() == 0


# ---- A million reminders --------------------------------------------------------------------------------------------

def blocks_of(database, work):
    """Blocks of the table and its indexes that the server touched while `work` was done."""
    sql = ("SELECT sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit) FROM pg_statio_user_tables"
           " WHERE relname = 'outbox'")

    def read():
        time.sleep(1.2)     # sessions tell the collector about once a second
        return int(database.value(sql))

    before = read()
    work()
    return read() - before


@every_reader
def test_the_cost_of_claims_does_not_grow_with_rows_that_are_scheduled_for_later(database, relay, reader):
    started = relay(database, reader)
    database.execute("ALTER TABLE public.outbox SET (autovacuum_enabled = off)")     # its blocks would be counted too

    def publish_some():
        for number in range(10):
            name = f"{time.monotonic_ns()}"
            schedule(database, name, "NULL" if number % 2 else "clock_timestamp()", "busy")
            wait_for(database, name)

    without = blocks_of(database, publish_some)
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload, scheduled_for)"
                     " SELECT 'order', CASE WHEN n % 2 = 0 THEN 'busy' ELSE 'e' || n END, 'changed', '{}',"
                     "   clock_timestamp() + interval '1 year' FROM generate_series(1, 200000) AS n")
    time.sleep(1)
    publish_some()      # each worker passes the new rows once, when it looks for where the others begin
    publish_some()
    beside_many = blocks_of(database, publish_some)
    assert started.stop() == 0
    assert beside_many < 2 * without + 500, f"{without} blocks without, {beside_many} beside 200,000 scheduled rows"


# ---- Init and check -------------------------------------------------------------------------------------------------

def check_output(database, tmp_path, **options):
    content = settings(database.dsn, {"type": "stdout"}, **options)
    return postrider("check", "-c", write_config(tmp_path / "check.yaml", content)).stdout


def test_check_says_what_a_table_with_scheduled_rows_lacks(database, tmp_path):
    assert "scheduled_for" not in check_output(database, tmp_path)
    database.execute("DROP INDEX public.outbox_scheduled_for_idx, public.outbox_entity_id_scheduled_for_idx,"
                     " public.outbox_entity_id_id_idx; CREATE INDEX ON public.outbox (entity_id, id);"
                     " DROP TRIGGER postrider_ring_schedule ON public.outbox;"
                     " DROP TRIGGER postrider_keep_time ON public.outbox;"
                     " ALTER TABLE public.outbox ALTER scheduled_for SET DEFAULT now()")
    said = check_output(database, tmp_path)
    fixes = [line.strip() for line in said.splitlines() if "CREATE INDEX CONCURRENTLY" in line]
    assert len(fixes) == 3, said
    assert "postrider_ring_schedule is missing" in said and "postrider_keep_time is missing" in said
    assert "has a default" in said
    with database.connect() as connection:
        for fix in fixes:
            connection.execute(fix[fix.index("CREATE"):])
        connection.execute("ALTER TABLE public.outbox ALTER scheduled_for DROP DEFAULT")
    done = postrider("init", "-c", tmp_path / "check.yaml")
    assert "created the trigger postrider_ring_schedule" in done.stdout
    assert "scheduled_for" not in check_output(database, tmp_path)
    assert "no index on (id) where scheduled_for is null" in check_output(database, tmp_path, reader="dispatcher")
    assert "created an index" in postrider("init", "-c", tmp_path / "check.yaml").stdout
    assert "scheduled_for" not in check_output(database, tmp_path, reader="dispatcher")


@every_reader
def test_after_init_check_has_nothing_to_say(database, prepared, tmp_path, reader):
    prepared(reader)
    said = postrider("check", "-c", tmp_path / "init.yaml").stdout
    assert not re.search("^(warn|fail)", said, re.M), said


def test_an_older_table_gets_the_column_by_alter_and_the_rest_by_init(database, tmp_path, prepared, start_relay):
    database.execute("DROP TABLE public.outbox CASCADE;"
                     " CREATE TABLE public.outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, entity_type text, entity_id text NOT NULL, event_type text, payload json);"
                     " CREATE INDEX ON public.outbox (entity_id, id)")
    content = prepared("advisory")
    assert "nothing to do" in postrider("init", "-c", tmp_path / "init.yaml").stdout
    database.execute("ALTER TABLE public.outbox ADD scheduled_for timestamptz")
    said = postrider("init", "-c", tmp_path / "init.yaml").stdout
    assert said.count("created an index") == 2 and "postrider_ring_schedule" in said
    started = start_relay(content)
    due = schedule(database, "x", "clock_timestamp() + interval '1 s'")
    assert 0 <= seconds(wait_for(database, "x")["x"] - due) < 1
    assert started.stop() == 0


@pytest.mark.parametrize("kind, mend", [("timestamp", "AT TIME ZONE 'UTC'"), ("text", "::timestamptz")])
def test_another_type_is_refused_with_what_mends_it(database, tmp_path, make_relay, kind, mend):
    database.execute("ALTER TABLE public.outbox DROP scheduled_for CASCADE;"
                     f" ALTER TABLE public.outbox ADD scheduled_for {kind}")
    content = settings(database.dsn, {"type": "stdout"})
    done = postrider("run", "-c", write_config(tmp_path / "run.yaml", content))
    assert done.returncode == 78, done.stderr
    assert "must be timestamptz: ALTER TABLE public.outbox ALTER COLUMN" in done.stderr and mend in done.stderr
    content["outboxes"]["orders"]["columns"] = {"scheduled_for": ""}
    assert make_relay(content).start().stop() == 0


def test_the_recommended_table_can_be_without_scheduled_rows(empty_database, tmp_path, make_relay):
    content = settings(empty_database.dsn, {"type": "postgres"}, columns={"scheduled_for": ""})
    config = write_config(tmp_path / "plain.yaml", content)
    assert postrider("init", "-c", config).returncode == 0
    assert not empty_database.value("SELECT postrider.has_column('public.outbox', 'scheduled_for')")
    assert empty_database.value("SELECT postrider.has_index('public.outbox', '{entity_id,id}', NULL)")
    assert not re.search("^(warn|fail)", postrider("check", "-c", config).stdout, re.M)


def test_wal_keeps_to_schedules_only_where_published_rows_go(database, tmp_path, product):
    """Of rows that stay, nobody could tell which are still to come."""
    content = settings(database.dsn, {"type": "stdout"}, reader="wal",
                       published="keep", wal={"slot": f"postrider_{database.name}"})
    config = write_config(tmp_path / "keep.yaml", content)
    for command in ("init", "check"):
        done = postrider(command, "-c", config)
        said = done.stdout + done.stderr
        assert done.returncode != 0 and "which of its rows are still to come" in said, said
        assert "published: delete" in said


def test_wal_publishes_due_rows_behind_what_a_sink_refuses(database, prepared, start_relay, tmp_path):
    """Entity a is held back for a row of the log; its scheduled row waits behind that one, and others do not wait."""
    content = prepared("wal", failure={"first_delay": "2s", "max_delay": "2s", "jitter": 0})
    database.execute("CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                     " IF NEW.payload->>'n' = 'bad' AND (SELECT count(*) FROM public.forgiven) = 0 THEN"
                     " RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'no'; END IF; RETURN NEW; END $$;"
                     " CREATE TABLE public.forgiven (); CREATE TRIGGER refuse BEFORE INSERT ON postrider.event"
                     " FOR EACH ROW EXECUTE FUNCTION public.refuse()")
    started = start_relay(content)
    database.insert("a", '{"n": "bad"}')
    schedule(database, "due", "clock_timestamp() + interval '0.5 s'", "a")
    schedule(database, "other", "clock_timestamp() + interval '0.5 s'", "b")
    wait_for(database, "other")
    database.insert("a", '{"n": "last"}')
    time.sleep(0.5)
    assert names(database) == ["other"]
    database.execute("INSERT INTO public.forgiven DEFAULT VALUES")
    wait_for(database, "bad", "due", "last")
    wait_until(lambda: database.pending() == 0, what="an empty outbox")
    assert database.value("SELECT count(*) FROM postrider.parked") == 0
    assert started.stop() == 0
    assert names(database) == ["other", "bad", "due", "last"]


def test_status_tells_what_is_scheduled_apart_from_what_waits(database, tmp_path, product):
    config = write_config(tmp_path / "status.yaml", settings(database.dsn, {"type": "stdout"}))
    schedule(database, "later", "clock_timestamp() + interval '2 h'")
    schedule(database, "never", "'infinity'", returning="NULL")
    schedule(database, "due", "clock_timestamp() - interval '1 h'")
    database.insert("a")
    outbox = json.loads(postrider("status", "-c", config, "--json").stdout)["outboxes"][0]
    assert (outbox["pending"], outbox["scheduled"]) == (2, 2)
    assert 7100_000 < outbox["next_due_ms"] <= 7200_000
    assert "orders: 2 scheduled for later, the next in" in postrider("status", "-c", config).stdout
