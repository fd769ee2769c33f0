"""`postrider replay`: what was published comes once more, marked, in order, and nothing else is disturbed."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest

from tests.e2e.consume import read_topic, wait_for_records
from tests.e2e.relay import BINARY, clean_environment, kafka_settings, postrider, settings, write_config
from tests.e2e.scene import started
from tests.servers import PgBouncer

every_postgres = pytest.mark.parametrize("pg", [15, 18], indirect=True)

HEADER, CLOUD_HEADER = "postrider-replay", "ce_postriderreplay"
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")

# As `published: archive` makes it: the outbox's columns and the time, a partition for each day.
ARCHIVE = """
CREATE TABLE public.outbox_archive (
    id bigint, message_id uuid, entity_type text, entity_id text, event_type text, payload json,
    headers jsonb, topic text, traceparent text, created_at timestamptz, published_at timestamptz NOT NULL
) PARTITION BY RANGE (published_at);
CREATE TABLE public.outbox_archive_1 PARTITION OF public.outbox_archive
    FOR VALUES FROM ('2026-01-01') TO ('2026-01-02');
CREATE TABLE public.outbox_archive_2 PARTITION OF public.outbox_archive
    FOR VALUES FROM ('2026-01-02') TO ('2026-01-03');
CREATE TABLE public.outbox_archive_rest PARTITION OF public.outbox_archive DEFAULT;
CREATE INDEX ON public.outbox_archive (id);
CREATE INDEX ON public.outbox_archive (entity_id, id);
"""
MARKS = "ALTER TABLE public.outbox ADD COLUMN IF NOT EXISTS published_at timestamptz"

# Entities by turns, one row a second from the beginning of a day on.
FILL = """
INSERT INTO {table} (id, message_id, entity_type, entity_id, event_type, payload, created_at, published_at)
OVERRIDING SYSTEM VALUE
SELECT n, gen_random_uuid(), 'order', 'order-' || n %% %(entities)s,
    CASE WHEN n %% 5 = 0 THEN 'closed' ELSE 'changed' END, json_build_object('n', n), t.t - interval '1 h', t.t
FROM generate_series(1, %(rows)s) AS n, LATERAL (SELECT timestamptz '2026-01-01 00:00Z' + n * interval '1 s') AS t(t)
"""


class Scene:
    """An outbox with a history, and `replay` on it."""

    def __init__(self, database, folder, content, table="public.outbox_archive"):
        self.database, self.content, self.table = database, content, table
        self.config = write_config(folder / "replay.yaml", content)

    def fill(self, rows=200, entities=10):
        self.database.execute(FILL.format(table=self.table), {"rows": rows, "entities": entities})
        return self

    def run(self, *flags, yes=True, **options):
        return postrider("replay", "-c", self.config, *flags, *(["--yes"] if yes else []), **options)

    def report(self, *flags, code=0, **options):
        done = self.run("--json", *flags, **options)
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def start(self, *flags):
        return subprocess.Popen([BINARY, "replay", "-c", self.config, "--yes", "--json", *flags], text=True, cwd="/",
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())

    def all_of_it(self):
        """A picture of the history, to be compared."""
        return self.database.execute(f"SELECT o::text, o.tableoid, o.ctid, o.xmin FROM {self.table} o ORDER BY id")


def archive_scene(database, folder, content):
    database.execute(ARCHIVE)
    return Scene(database, folder, content)


def marked_scene(database, folder, content):
    database.execute(MARKS)
    return Scene(database, folder, content, "public.outbox")


@pytest.fixture
def file_scene(database, tmp_path):
    """A history in an archive, and lines in a file for what is published: its ids by `published`."""
    path = tmp_path / "published.jsonl"
    made = archive_scene(database, tmp_path, settings(database.dsn, {"type": "stdout", "path": str(path)}))
    made.lines = lambda: [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def published(*flags, **options):
        before = len(made.lines())
        made.report(*flags, **options)
        return [line["payload"]["n"] for line in made.lines()[before:]]

    made.published = published
    return made


def numbers(records):
    return [json.loads(record.value)["n"] for record in records]


def by_entity(records):
    found = {}
    for record in records:
        found.setdefault(record.key, []).append(json.loads(record.value)["n"])
    return found


def without_repeats(values):
    return list(dict.fromkeys(values))


def expect_ordered(records, rows, entities):
    """Every row is there, an entity's in order from wherever a repetition began, the last time to the end."""
    assert sorted(set(numbers(records))) == list(range(1, rows + 1))
    for seen in by_entity(records).values():
        assert without_repeats(seen) == sorted(set(seen)), seen
        for before, after in zip(seen, seen[1:]):
            assert after <= before or after == before + entities, f"{after} behind {before}"
        assert seen[-1] == max(seen)


# ---- Both sources, both sinks ---------------------------------------------------------------------------------------

@every_postgres
@pytest.mark.parametrize("make", [archive_scene, marked_scene], ids=["archive", "table"])
def test_history_comes_again_in_order_and_says_that_it_does(database, kafka, topic, tmp_path, make):
    scene = make(database, tmp_path, kafka_settings(database, kafka, topic)).fill()
    before = scene.all_of_it()
    report = scene.report("--all")
    records = read_topic(kafka, topic)
    assert report["published"] == report["rows"] == 200 and report["rows_exact"] and report["complete"]
    assert report["table"] == scene.table and report["source"] == ("table" if make is marked_scene else "archive")
    assert report["refused"] == [] and report["go_on"] is None
    assert sorted(numbers(records)) == list(range(1, 201))
    assert all(seen == sorted(seen) for seen in by_entity(records).values()) and len(by_entity(records)) == 10
    assert {record.header(HEADER).decode() for record in records} == {report["time"]}
    assert RFC_3339.fullmatch(report["time"])
    ids = dict(database.execute(f"SELECT message_id::text, id FROM {scene.table}"))
    assert all(ids[record.header("id").decode()] == json.loads(record.value)["n"] for record in records)
    assert scene.all_of_it() == before, "history was changed"


def test_rows_that_wait_are_no_history(database, kafka, topic, tmp_path):
    scene = marked_scene(database, tmp_path, kafka_settings(database, kafka, topic)).fill(20)
    database.execute("UPDATE public.outbox SET published_at = NULL WHERE id > 15")
    assert scene.report("--all")["published"] == 15
    assert sorted(numbers(read_topic(kafka, topic))) == list(range(1, 16))
    assert database.value("SELECT count(*) FROM public.outbox WHERE published_at IS NULL") == 5


def test_live_messages_have_no_such_header_and_cloud_events_their_own(database, kafka, topic, tmp_path, start_relay):
    content = kafka_settings(database, kafka, topic, route={"topic": topic, "envelope": "cloudevents"})
    scene = archive_scene(database, tmp_path, content).fill(3)
    relay = start_relay(content)
    database.insert("live", '{"n": 0}')
    wait_for_records(kafka, topic, 1)
    scene.report("--all")
    assert relay.stop() == 0
    for record in wait_for_records(kafka, topic, 4):
        names = [name for name, _ in record.headers]
        assert HEADER not in names and "ce_id" in names
        assert (CLOUD_HEADER in names) == (record.key != b"live")


def test_the_archive_goes_first_where_there_are_both_and_a_flag_chooses(file_scene):
    file_scene.fill(3)
    database = file_scene.database
    database.execute(MARKS)
    database.insert("marked", '{"n": 77}', published_at="2026-01-01")
    assert file_scene.published("--all") == [1, 2, 3]
    assert file_scene.published("--all", "--from", "archive") == [1, 2, 3]
    assert file_scene.published("--all", "--from", "table") == [77]


@pytest.mark.parametrize("kept", [True, False], ids=["store has them", "store lost them"])
@every_postgres
def test_an_event_store_in_the_same_database_has_each_event_once(database, tmp_path, start_relay, kept):
    content = settings(database.dsn, {"type": "postgres"}, poll_interval="1s")
    scene = archive_scene(database, tmp_path, content).fill()
    stored = ("SELECT entity_id, version, (payload->>'n')::int, headers ? 'postrider-replay'"
              " FROM postrider.event ORDER BY 3")
    scene.report("--all")
    first = database.execute(stored)
    assert [row[2] for row in first] == list(range(1, 201)) and all(row[3] for row in first)
    for entity in {row[0] for row in first}:
        assert [row[1] for row in first if row[0] == entity] == list(range(1, 21))
    if kept:
        database.execute("UPDATE postrider.event SET headers = headers - 'postrider-replay'")
    else:
        database.execute("TRUNCATE postrider.event")
    assert scene.report("--all")["published"] == 200
    assert database.execute(stored) == [(*row[:3], not kept) for row in first]


# ---- What is chosen -------------------------------------------------------------------------------------------------

def test_each_filter_chooses_what_it_says(file_scene):
    file_scene.fill(50, entities=5)
    published = file_scene.published
    assert published("--since", "2026-01-01T00:00:40Z") == list(range(40, 51))
    assert published("--until", "2026-01-01 00:00:10+00") == list(range(1, 10))
    assert published("--since", "2026-01-01T00:00:10Z", "--until", "2026-01-01T00:00:12Z") == [10, 11]
    assert published("--entity", "order-3") == list(range(3, 51, 5))
    assert published("--entity", "order-3", "--entity", "order-4") == [n for n in range(51) if n % 5 in (3, 4)]
    assert published("--type", "closed") == list(range(5, 51, 5))
    assert len(published("--type", "closed", "--type", "changed")) == 50
    assert published("--ids", "5-7") == [5, 6, 7]
    assert published("--ids", "48-") == [48, 49, 50]
    assert published("--ids", "-2") == [1, 2]
    assert published("--ids", "9") == [9]
    assert published("--ids", "5..6") == [5, 6]
    assert published("--start", "49") == [49, 50]
    assert published("--ids", "5-20", "--entity", "order-1", "--type", "changed", "--limit", "2") == [6, 11]
    assert published("--ids", "900-") == []
    assert published("--all", "--limit", "3") == [1, 2, 3]
    assert published("--all", "--limit", "3", "--ids", "4-") == [4, 5, 6]


def test_what_is_published_later_than_the_replay_began_is_not_part_of_it(file_scene):
    file_scene.fill(5)
    file_scene.database.execute("UPDATE public.outbox_archive SET published_at = now() + interval '1 h' WHERE id = 4")
    assert file_scene.published("--all") == [1, 2, 3, 5]
    assert file_scene.published("--until", "2100-01-01") == [1, 2, 3, 5]


def test_a_page_may_be_cut_by_its_bytes(file_scene):
    file_scene.fill(60)
    database = file_scene.database
    database.execute("ALTER TABLE public.outbox_archive ALTER payload SET STORAGE EXTERNAL")
    database.execute("UPDATE public.outbox_archive SET payload = json_build_object('n', id, 'x', repeat('x', 300000))"
                     " WHERE id % 3 = 0")
    database.execute("UPDATE public.outbox_archive SET payload = NULL WHERE id % 3 = 1")
    report = file_scene.report("--all", "--set", "outboxes.orders.in_flight_bytes=1MiB")
    assert report["published"] == 60
    assert [(line["payload"] or {}).get("n") for line in file_scene.lines()] == [
        None if n % 3 == 1 else n for n in range(1, 61)]


@every_postgres
def test_any_order_column_will_do_and_equal_values_are_not_lost(database, tmp_path):
    """Ids that say nothing of the order, and an order in which many rows stand at the same place."""
    path = tmp_path / "published.jsonl"
    database.execute("CREATE TABLE public.o (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), entity_id text NOT NULL,"
                     " payload json, at timestamptz NOT NULL, published_at timestamptz)")
    database.execute("INSERT INTO public.o (entity_id, payload, at, published_at)"
                     " SELECT 'e-' || n % 4, json_build_object('n', n),"
                     " timestamptz '2026-01-01' + n / 40 * interval '1 s', '2026-01-01' FROM generate_series(1, 400) n")
    content = settings(database.dsn, {"type": "stdout", "path": str(path)}, table="public.o", order_by="at",
                       batch_size=7, batch_max=7, route={"topic": "t"},
                       columns={"message_id": "", "entity_type": "", "event_type": ""})
    scene = Scene(database, tmp_path, content, "public.o")
    report = scene.report("--all", "--limit", "150")
    seen = [json.loads(line) for line in path.read_text().splitlines()]
    assert report["go_on"][:2] == ["--start", "2026-01-01 00:00:03+00"] and not report["complete"]
    assert len(seen) == len({line["id"] for line in seen}) == 150
    places = [line["payload"]["n"] // 40 for line in seen]
    assert places == sorted(places)
    scene.report("--all", *report["go_on"])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted({line["payload"]["n"] for line in lines}) == list(range(1, 401))
    first, last = lines[0]["id"], lines[1]["id"]
    assert scene.report("--ids", first)["published"] == 1
    assert scene.report("--ids", f"{min(first, last)}..{max(first, last)}")["published"] >= 2


def test_another_topic_also_for_rows_that_name_their_own(database, kafka, make_topic, tmp_path):
    usual, own, other = make_topic(), make_topic(), make_topic()
    scene = archive_scene(database, tmp_path, kafka_settings(database, kafka, usual)).fill(10)
    database.execute("UPDATE public.outbox_archive SET topic = %s WHERE id <= 4", (own,))
    scene.report("--all")
    assert (len(read_topic(kafka, own)), len(read_topic(kafka, usual))) == (4, 6)
    scene.report("--all", "--topic", other)
    assert len(read_topic(kafka, other)) == 10
    assert (len(read_topic(kafka, own)), len(read_topic(kafka, usual))) == (4, 6)


# ---- Asking ---------------------------------------------------------------------------------------------------------

def test_a_dry_run_sends_nothing(file_scene):
    file_scene.fill(50)
    report = file_scene.report("--ids", "1-30", "--dry-run")
    assert report["rows"] == 30 and report["rows_exact"] and report["indexed"] and "published" not in report
    done = file_scene.run("--ids", "1-30", "--dry-run", yes=False)
    assert done.returncode == 0 and "rows       30\n" in done.stderr and "slow" not in done.stderr
    assert file_scene.lines() == []


def test_it_says_when_no_index_helps(file_scene):
    file_scene.fill(50)
    file_scene.database.execute("DROP INDEX public.outbox_archive_id_idx")
    file_scene.database.execute("DROP INDEX public.outbox_archive_entity_id_id_idx")
    assert not file_scene.report("--all", "--dry-run")["indexed"]
    done = file_scene.run("--all", "--dry-run")
    assert 'CREATE INDEX ON public.outbox_archive ("id");' in done.stderr


def test_more_rows_than_anybody_counts_are_estimated(file_scene):
    file_scene.fill(150_000)
    file_scene.database.execute("ANALYZE public.outbox_archive")
    report = file_scene.report("--all", "--dry-run")
    assert not report["rows_exact"] and 100_000 < report["rows"] < 200_000
    assert re.search(r"rows       about 1\d\d,\d\d\d\n", file_scene.run("--all", "--dry-run").stderr)


@pytest.mark.parametrize("flags, code, text", [
    ([], 2, "say what to replay"),
    (["--all", "--rate", "0"], 2, "--rate takes"),
    (["--all", "--from", "there"], 2, "--from takes"),
    (["--ids", "-"], 2, "--ids takes"),
    (["--all", "--outbox", "none"], 2, "no such outbox"),
    (["--ids", "a-b"], 78, "invalid input syntax"),
    (["--since", "yesterdayish"], 78, "--since"),
    (["--all", "--topic", "{nothing}"], 78, "nothing"),
    (["--all", "--from", "table"], 78, "has no column published_at"),
])
def test_what_cannot_be_meant_is_refused(file_scene, flags, code, text):
    file_scene.fill(3)
    done = file_scene.run(*flags)
    assert done.returncode == code and text in done.stderr, done.stderr
    assert file_scene.lines() == [] and done.stdout == ""


def test_without_a_history_it_says_what_to_set(database, tmp_path):
    scene = Scene(database, tmp_path, settings(database.dsn, {"type": "stdout"}))
    done = scene.run("--all")
    assert done.returncode == 78
    assert "outbox orders has nothing to replay" in done.stderr and "outboxes.orders.published" in done.stderr


def test_nobody_to_ask_means_no(file_scene):
    file_scene.fill(3)
    done = file_scene.run("--all", yes=False)
    assert done.returncode == 2 and "--yes" in done.stderr and file_scene.lines() == []


@contextlib.contextmanager
def on_a_terminal(*arguments):
    """The command with a terminal for its input and its messages; `say` answers, `heard` is all that it wrote there."""
    master, slave = pty.openpty()
    process = subprocess.Popen([str(part) for part in (BINARY, *arguments)], stdin=slave, stderr=slave, text=True,
                               stdout=subprocess.PIPE, env=clean_environment(), cwd="/")
    os.close(slave)
    process.heard = ""

    def listen(until, timeout=20):
        deadline = time.monotonic() + timeout
        while not until():
            assert time.monotonic() < deadline, process.heard
            if select.select([master], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):      # the other end is closed
                    process.heard += os.read(master, 65536).decode()
        return process.heard

    process.listen = listen
    process.say = lambda text: os.write(master, text.encode())
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)


@pytest.mark.parametrize("answer, count", [("n\n", 0), ("\n", 0), ("y\n", 300)])
def test_on_a_terminal_it_asks_and_shows_how_far_it_is(file_scene, answer, count):
    file_scene.fill(300)
    with on_a_terminal("replay", "-c", file_scene.config, "--all", "--rate", "300") as process:
        process.listen(lambda: "[y/N]" in process.heard)
        assert file_scene.lines() == []
        process.say(answer)
        process.listen(lambda: process.poll() is not None)
        assert (process.returncode == 0) == (count > 0)
        assert len(file_scene.lines()) == count
        assert bool(re.search(r"of 300 rows, \d+ a second, .* left", process.heard)) == (count > 0)
        assert ("300 rows published again" in process.stdout.read()) == (count > 0)


# ---- At what pace, and how far --------------------------------------------------------------------------------------

@pytest.mark.parametrize("rate, rows", [(5, 10), (200, 400), (5000, 10_000)])
def test_the_rate_is_kept(file_scene, rate, rows):
    file_scene.fill(rows)
    began = time.monotonic()
    report = file_scene.report("--all", "--rate", str(rate))
    assert report["published"] == rows
    assert rows / rate <= time.monotonic() - began and report["duration_ms"] >= 1000 * rows / rate


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_replay_goes_on_without_gap_and_without_repetition(database, kafka, topic, tmp_path, number):
    scene = archive_scene(database, tmp_path, kafka_settings(database, kafka, topic)).fill(1000)
    process = scene.start("--ids", "1-900", "--rate", "300")
    wait_for_records(kafka, topic, 100)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 1, err
    report = json.loads(out)
    done = numbers(read_topic(kafka, topic))
    assert 100 <= len(done) == report["published"] < 900 and not report["complete"]
    assert sorted(done) == list(range(1, len(done) + 1))
    assert report["go_on"] == ["--ids", f"{len(done) + 1}-900", "--until", report["until"]]
    again = scene.report(*report["go_on"])
    assert again["published"] == 900 - len(done) and again["complete"]
    records = read_topic(kafka, topic)
    assert sorted(numbers(records)) == list(range(1, 901))
    assert all(seen == sorted(seen) for seen in by_entity(records).values())


def test_a_second_signal_does_not_wait_and_still_says_where(database, fragile_kafka, fragile_topic, tmp_path):
    scene = archive_scene(database, tmp_path, kafka_settings(database, fragile_kafka, fragile_topic)).fill(600)
    process = scene.start("--all", "--rate", "300")
    wait_for_records(fragile_kafka, fragile_topic, 100)
    os.kill(fragile_kafka.pid, signal.SIGSTOP)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None, "it did not wait for what is on its way"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    os.kill(fragile_kafka.pid, signal.SIGCONT)
    assert process.returncode == 1, err
    report = json.loads(out)
    next_id = int(report["go_on"][1].rstrip("-"))
    arrived = set(numbers(read_topic(fragile_kafka, fragile_topic)))
    assert set(range(1, next_id)) <= arrived and next_id > 1
    scene.report(*report["go_on"])
    assert set(numbers(read_topic(fragile_kafka, fragile_topic))) == set(range(1, 601))


# ---- When something is away or wrong --------------------------------------------------------------------------------

def test_a_broker_that_restarts_is_waited_for(database, fragile_kafka, fragile_topic, tmp_path):
    content = kafka_settings(database, fragile_kafka, fragile_topic)
    scene = archive_scene(database, tmp_path, content).fill(3000)
    process = scene.start("--all", "--rate", "1000")
    wait_for_records(fragile_kafka, fragile_topic, 300)
    fragile_kafka.stop()
    time.sleep(1)
    assert process.poll() is None
    fragile_kafka.start()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["published"] == 3000
    expect_ordered(read_topic(fragile_kafka, fragile_topic), 3000, 10)


def test_a_database_that_restarts_is_waited_for(fragile_database, fragile_kafka, fragile_topic, tmp_path):
    """While many rows are on their way: the broker does not answer just then."""
    database = fragile_database
    content = kafka_settings(database, fragile_kafka, fragile_topic)
    scene = archive_scene(database, tmp_path, content).fill(6000)
    process = scene.start("--all", "--rate", "2000")
    wait_for_records(fragile_kafka, fragile_topic, 500)
    os.kill(fragile_kafka.pid, signal.SIGSTOP)
    time.sleep(0.5)
    database.server.restart("immediate")
    os.kill(fragile_kafka.pid, signal.SIGCONT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["complete"]
    expect_ordered(read_topic(fragile_kafka, fragile_topic), 6000, 10)


def test_what_had_arrived_is_not_sent_again_after_a_lost_connection(fragile_database, kafka, topic, tmp_path):
    """One row is on its way for seconds, to a topic that is not there, and its entity waits for it; the others do not come
    twice because of it."""
    database = fragile_database
    scene = archive_scene(database, tmp_path, kafka_settings(database, kafka, topic)).fill()
    database.execute("UPDATE public.outbox_archive SET topic = 'no-such-topic' WHERE id = 5")
    process = scene.start("--all")
    wait_for_records(kafka, topic, 180)
    time.sleep(0.5)
    assert process.poll() is None
    database.server.restart("immediate")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    report = json.loads(out)
    assert [row["id"] for row in report["refused"]] == ["5"] and report["complete"]
    seen = by_entity(read_topic(kafka, topic))
    assert b"order-5" not in seen
    assert all(rows == sorted(rows) and len(rows) == 20 for rows in seen.values()) and len(seen) == 9


@pytest.mark.parametrize("then", ["block", "dead_letter", "stop"])
def test_a_refused_row_is_told_and_its_entity_left_out(database, kafka, make_topic, tmp_path, then):
    """Whatever the outbox does with rows that are refused: nothing is done to history."""
    topic = make_topic(config={"max.message.bytes": "20000"})
    content = kafka_settings(database, kafka, topic, batch_size=10, batch_max=20, settle="row",
                             failure={"then": then, "dead_letter_topic": topic, "max_retries": 3})
    scene = archive_scene(database, tmp_path, content).fill()
    database.execute("UPDATE public.outbox_archive SET payload = json_build_object('n', id, 'x', repeat('x', 30000))"
                     " WHERE id = 43")
    database.execute("UPDATE public.outbox_archive SET headers = '[1]' WHERE id = 94")
    report = scene.report("--all", code=1)
    assert report["complete"] and report["go_on"] is None
    assert {(row["id"], row["entity"]) for row in report["refused"]} == {("43", "order-3"), ("94", "order-4")}
    assert "xxxx" not in json.dumps(report)
    seen = by_entity(read_topic(kafka, topic))
    assert seen.pop(b"order-3") == [3, 13, 23, 33] and seen.pop(b"order-4") == list(range(4, 94, 10))
    assert all(len(rows) == 20 and rows == sorted(rows) for rows in seen.values()) and len(seen) == 8
    assert report["published"] == 160 + 4 + 9
    assert database.value("SELECT count(*) FROM postrider.retry") == 0
    assert database.value("SELECT count(*) FROM postrider.dead_letter") == 0
    done = scene.run("--entity", "order-4")
    assert done.returncode == 1 and 'row "94" of entity "order-4": headers of row 94' in done.stdout


def test_when_too_many_are_refused_it_is_not_about_rows_any_more(file_scene):
    file_scene.fill(5000, entities=2000)
    file_scene.database.execute("UPDATE public.outbox_archive SET headers = '[1]' WHERE id > 100")
    report = file_scene.report("--all", code=1)
    assert len(report["refused"]) == 1000 and not report["complete"]
    assert report["error"].startswith("1000 rows were refused, the last one because: headers of row")
    assert report["published"] == len(file_scene.lines()) == 100
    assert report["go_on"][0] == "--ids" and 1000 < int(report["go_on"][1].rstrip("-")) <= 1101


def test_a_topic_that_is_not_there_is_told(database, kafka, topic, tmp_path):
    scene = archive_scene(database, tmp_path, kafka_settings(database, kafka, topic)).fill(20)
    database.execute("UPDATE public.outbox_archive SET topic = 'no-such-topic' WHERE id = 5")
    report = scene.report("--all", code=1, timeout=60)
    assert [(row["id"], row["entity"]) for row in report["refused"]] == [("5", "order-5")]
    assert report["published"] == 18 and report["complete"]


def test_a_relay_beside_it_is_not_disturbed(database, kafka, topic, tmp_path, start_relay):
    """Each live row arrives once, without the header, in order, while history of the same entities is sent."""
    content = kafka_settings(database, kafka, topic)
    scene = archive_scene(database, tmp_path, content).fill(2000)
    relay = start_relay(content)
    process = scene.start("--all", "--rate", "1000")
    for number in range(5001, 5101):
        database.insert(f"order-{number % 10}", json.dumps({"n": number}))
    database.wait_until_empty()
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert json.loads(out)["published"] == 2000
    assert relay.running and not relay.warnings()
    nodes = json.loads(postrider("status", "-c", scene.config, "--json").stdout)["nodes"]
    assert len(nodes) == 1
    assert relay.stop() == 0
    records = read_topic(kafka, topic)
    live = [record for record in records if HEADER not in dict(record.headers)]
    assert sorted(numbers(live)) == list(range(5001, 5101))
    assert all(seen == sorted(seen) for seen in by_entity(live).values())
    assert sorted(numbers(record for record in records if record not in live)) == list(range(1, 2001))


def test_a_role_that_may_only_read_is_enough(file_scene):
    file_scene.fill(10)
    database = file_scene.database
    database.execute("CREATE ROLE replay_reader LOGIN")
    try:
        database.execute("GRANT SELECT ON public.outbox_archive TO replay_reader")
        dsn = database.server.dsn(database.name, "replay_reader")
        assert file_scene.published("--all", "--set", f"database.url={dsn}") == list(range(1, 11))
    finally:
        database.execute("DROP OWNED BY replay_reader")
        database.execute("DROP ROLE replay_reader")


def test_a_pooler_may_be_in_between(file_scene):
    with contextlib.closing(started(PgBouncer(file_scene.database.server))) as pooler:
        file_scene.fill(500)
        dsn = pooler.dsn(file_scene.database.name)
        assert file_scene.published("--all", "--set", f"database.url={dsn}") == list(range(1, 501))


@every_postgres
@pytest.mark.parametrize("published", ["archive", "mark"])
def test_what_a_relay_has_kept_is_replayed(empty_database, kafka, topic, start_relay, tmp_path, published):
    """Tables as `init` makes them, and a history as the relay writes it."""
    content = kafka_settings(empty_database, kafka, topic, published=published, reader="advisory")
    done = postrider("init", "-c", write_config(tmp_path / "init.yaml", content))
    assert done.returncode == 0, done.stderr
    relay = start_relay(content)
    for n in range(1, 101):
        empty_database.insert(f"order-{n % 10}", json.dumps({"n": n}))
    wait_for_records(kafka, topic, 100)
    assert relay.stop() == 0
    table = "public.outbox_archive" if published == "archive" else "public.outbox"
    report = Scene(empty_database, tmp_path, content, table).report("--all")
    assert report["published"] == 100 and report["complete"]
    records = read_topic(kafka, topic)
    assert len(records) == 200 and sum(any(name == HEADER for name, _ in record.headers) for record in records) == 100
    live = [record for record in records if all(name != HEADER for name, _ in record.headers)]
    again = [record for record in records if any(name == HEADER for name, _ in record.headers)]
    assert by_entity(live) == by_entity(again)
