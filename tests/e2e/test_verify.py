"""`postrider verify`: what an archive of the outbox says against what is in the topics."""

import json
import os
import subprocess
import uuid

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.e2e.consume import read_topic
from tests.e2e.relay import BINARY, clean_environment, kafka_settings, postrider, settings, write_config
from tests.e2e.scene import new_topic
from tests.servers.common import free_port

every_postgres = pytest.mark.parametrize("pg", [15, 18], indirect=True)

ENTITIES, ROWS = 10, 30

ARCHIVE_ON_DELETE = """
CREATE TABLE public.outbox_archive (LIKE public.outbox);
CREATE FUNCTION public.archive_outbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.outbox_archive SELECT (OLD).*;
    RETURN OLD;
END $$;
CREATE TRIGGER archive BEFORE DELETE ON public.outbox FOR EACH ROW EXECUTE FUNCTION public.archive_outbox();
"""

CLEAN = ("lost", "unknown", "out_of_order", "scattered", "misplaced", "unroutable", "duplicates")


class Scene:
    """An outbox, its archive and its topic, and `verify` on them."""

    def __init__(self, database, kafka, topic, folder, **options):
        self.database, self.kafka, self.topic, self.folder = database, kafka, topic, folder
        self.content = kafka_settings(database, kafka, topic, **options)

    def run(self, *flags, against="public.outbox_archive", **options):
        config = write_config(self.folder / "verify.yaml", self.content)
        return postrider("verify", "-c", config, "--against", against, *flags, **options)

    def report(self, *flags, code=None, **options):
        """The JSON report; its exit code agrees with what it says."""
        done = self.run("--json", *flags, **options)
        assert done.returncode in (0, 1), done.stderr
        report = json.loads(done.stdout)
        assert done.returncode == (0 if report["clean"] else 1) and done.stderr == ""
        if code is not None:
            assert done.returncode == code, done.stdout
        return report

    def produce(self, key, headers, topic=None, partition=-1):
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        producer.produce(topic or self.topic, b"{}", key=key, headers=headers, partition=partition)
        assert producer.flush(20) == 0

    def repeat(self, record):
        self.produce(record.key, record.headers, partition=record.partition)


def counts(report):
    return {name: report[name]["count"] for name in CLEAN if report[name]["count"]}


def fill(database, entities=ENTITIES, rows=ROWS):
    """Rows of entities by turns."""
    database.execute(
        "INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
        " SELECT 'order', 'order-' || e, 'changed', json_build_object('seq', n)"
        " FROM generate_series(1, %s) AS n, generate_series(1, %s) AS e ORDER BY n, e", (rows, entities))


@pytest.fixture
def scene(database, kafka, topic, tmp_path, start_relay):
    """Some hundred rows that went through a relay and were archived on their way out."""
    database.execute(ARCHIVE_ON_DELETE)
    fill(database)
    made = Scene(database, kafka, topic, tmp_path)
    relay = start_relay(made.content)
    database.wait_until_empty()
    assert relay.stop() == 0
    return made


# ---- What there is to find ------------------------------------------------------------------------------------------

@every_postgres
def test_a_clean_history_is_clean(scene):
    report = scene.report(code=0)
    assert report["rows"] == report["records"] == ENTITIES * ROWS
    assert report["pending"] == 0 and counts(report) == {}
    assert report["topics"] == [{"topic": scene.topic, "partitions": 6, "records": ENTITIES * ROWS, "deleted": 0}]
    assert report["table"] == "public.outbox_archive" and report["outbox"] == "orders"
    done = scene.run()
    assert done.returncode == 0 and done.stdout.endswith("clean\n") and "FAIL" not in done.stdout
    assert done.stderr == ""      # no progress where nobody watches


def test_a_foreign_record_is_unknown(scene):
    scene.produce(b"order-1", {"id": b"made-up\x1b[31m\x00\xff"})
    scene.produce(b"order-1", None)
    report = scene.report(code=1)
    assert counts(report) == {"unknown": 2}
    assert [case["id"] for case in report["unknown"]["first"]] in (
        ["made-up\x1b[31m\x00\ufffd", None], [None, "made-up\x1b[31m\x00\ufffd"])
    done = scene.run()
    assert done.returncode == 1 and "\x1b" not in done.stdout
    assert r'"made-up\u001b[31m' in done.stdout and "(none)" in done.stdout and "NOT clean" in done.stdout


def test_a_repeated_record_is_a_duplicate_and_allowed(scene):
    record = read_topic(scene.kafka, scene.topic)[7]
    scene.repeat(record)
    scene.repeat(record)
    report = scene.report(code=0)
    assert counts(report) == {"duplicates": 2}
    first = report["duplicates"]["first"][0]
    assert first["id"] == record.header("id").decode() and first["entity"] == record.key.decode()
    assert first["partition"] == record.partition
    done = scene.run()
    assert done.returncode == 0 and "allowed" in done.stdout


@every_postgres
def test_a_row_without_a_record_is_lost(scene):
    missing = [str(uuid.uuid4()) for _ in range(8)]
    for message_id in missing:
        scene.database.insert("order-3", table="public.outbox_archive", id=10**6 + missing.index(message_id),
                              message_id=message_id, created_at="2026-01-01")
    report = scene.report(code=1)
    assert counts(report) == {"lost": 8}
    assert [case["id"] for case in report["lost"]["first"]] == missing[:5]
    assert len(scene.report("--show", "100")["lost"]["first"]) == 8
    assert scene.report("--show", "0")["lost"] == {"count": 8, "violation": True, "first": []}
    done = scene.run()
    assert done.returncode == 1 and missing[0] in done.stdout and "the first 5 of 8" in done.stdout


def test_a_row_whose_archive_entry_is_gone_is_unknown(scene):
    gone = scene.database.value("DELETE FROM public.outbox_archive WHERE id ="
                                " (SELECT max(id) FROM public.outbox_archive) RETURNING message_id::text")
    report = scene.report(code=1)
    assert counts(report) == {"unknown": 1} and report["unknown"]["first"][0]["id"] == gone


@every_postgres
def test_rows_that_overtook_are_out_of_order(scene):
    """As if the relay had published in another order: two rows of an entity change places in the archive."""
    (early, first), (late, second) = scene.database.execute(
        "SELECT id, message_id::text FROM public.outbox_archive WHERE entity_id = 'order-2' ORDER BY id LIMIT 2")
    scene.database.execute("UPDATE public.outbox_archive SET id = -1 WHERE id = %s", (late,))
    report = scene.report(code=1)
    assert counts(report) == {"out_of_order": 1}
    case = report["out_of_order"]["first"][0]
    assert (case["id"], case["behind"], case["entity"]) == (second, first, "order-2")
    assert "behind" in scene.run().stdout
    assert counts(scene.report("--unordered", code=0)) == {"out_of_order": 1}


def test_an_entity_in_two_partitions_is_scattered(scene):
    record = read_topic(scene.kafka, scene.topic)[0]
    scene.produce(record.key, record.headers, partition=(record.partition + 1) % 6)
    report = scene.report(code=1)
    assert counts(report) == {"scattered": 1, "duplicates": 1}
    assert report["scattered"]["first"][0]["entity"] == record.key.decode()


def test_without_a_key_entities_scatter_and_it_may_be_allowed(database, kafka, topic, tmp_path, start_relay):
    database.execute(ARCHIVE_ON_DELETE)
    fill(database)
    scene = Scene(database, kafka, topic, tmp_path, route={"topic": topic, "key": ""})
    scene.content["outboxes"]["orders"]["sinks"][0]["properties"] = {
        "sticky.partitioning.linger.ms": "0", "partitioner": "random"}
    relay = start_relay(scene.content)
    database.wait_until_empty()
    assert relay.stop() == 0
    assert scene.report(code=1)["scattered"]["count"] > 0
    assert scene.report("--unordered", code=0)["lost"]["count"] == 0


# ---- Rows that are not published yet --------------------------------------------------------------------------------

def test_rows_that_are_still_in_the_outbox_may_be_missing(scene):
    scene.database.insert("order-1")
    scene.database.execute("INSERT INTO public.outbox_archive SELECT * FROM public.outbox")
    report = scene.report(code=0)
    assert report["pending"] == 1 and counts(report) == {}
    assert "1 not published yet" in scene.run().stdout


def test_the_outbox_itself_loses_nothing_that_is_pending(scene):
    scene.database.insert("order-1")
    report = scene.report(against="public.outbox", code=1)
    assert report["pending"] == 1 and report["lost"]["count"] == 0
    assert report["unknown"]["count"] == ENTITIES * ROWS
    assert "--marked" in scene.run(against="public.outbox").stdout


@pytest.mark.parametrize("column, value, flag", [
    ("published_at timestamptz", "now()", "published_at"),
    ("published boolean NOT NULL DEFAULT false", "true", "published"),
    ("status text NOT NULL DEFAULT 'new'", "'sent'", "status=sent")])
def test_a_marked_outbox(scene, column, value, flag):
    """Rows that stay where they are: marked ones must be in the topic, others may be missing."""
    scene.database.execute(f"CREATE TABLE public.kept (LIKE public.outbox, {column})")
    name = column.split()[0]
    columns = ", ".join(row[0] for row in scene.database.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'public.outbox'::regclass AND attnum > 0"))
    scene.database.execute(
        f"INSERT INTO public.kept ({columns}, {name}) SELECT {columns}, {value} FROM public.outbox_archive")
    common = {"table": "public.kept", "created_at": "2026-01-01"}
    scene.database.insert("order-1", id=10**6, message_id=str(uuid.uuid4()), **common)
    report = scene.report("--marked", flag, against="public.kept", code=0)
    assert report["pending"] == 1 and counts(report) == {}
    scene.database.execute(f"UPDATE public.kept SET {name} = {value}")
    assert counts(scene.report("--marked", flag, against="public.kept", code=1)) == {"lost": 1}


# ---- Parts of a table -----------------------------------------------------------------------------------------------

@every_postgres
def test_rows_can_be_chosen_by_time(scene):
    scene.database.insert("order-1", table="public.outbox_archive", id=10**6, message_id=str(uuid.uuid4()),
                          created_at="2020-01-01")
    assert counts(scene.report(code=1)) == {"lost": 1}
    report = scene.report("--since", "1h", code=0)
    assert report["rows"] == ENTITIES * ROWS == report["records"]
    report = scene.report("--until", "2020-02-01T00:00:00Z", code=1)
    assert report["rows"] == 1 and report["lost"]["count"] == 1
    assert report["unknown"] | {"first": 0} == {"count": ENTITIES * ROWS, "violation": False, "first": 0}
    nothing = scene.run("--until", "1990-01-01")
    assert nothing.returncode == 0 and "no row to look for" in nothing.stdout


def test_rows_may_go_to_several_topics(database, kafka, make_topic, tmp_path, start_relay):
    first, second = make_topic(), make_topic(partitions=2)
    database.execute(ARCHIVE_ON_DELETE)
    for number in range(20):
        database.insert("a", topic=second if number % 4 == 0 else None)
    scene = Scene(database, kafka, first, tmp_path)
    relay = start_relay(scene.content)
    database.wait_until_empty()
    assert relay.stop() == 0
    report = scene.report(code=0)
    assert {(topic["topic"], topic["partitions"], topic["records"]) for topic in report["topics"]} == {
        (first, 6, 15), (second, 2, 5)}
    assert scene.report("--topic", second, code=0)["rows"] == 5
    wrong = read_topic(kafka, second)[0]
    scene.produce(wrong.key, wrong.headers, topic=first)
    assert counts(scene.report(code=1)) == {"misplaced": 1}
    assert counts(scene.report("--topic", first, code=1)) == {"unknown": 1}
    done = scene.run("--topic", "orders-typo")
    assert done.returncode == 78 and "orders-typo" in done.stderr and done.stdout == ""


def test_what_retention_deleted_is_told(scene):
    admin = AdminClient({"bootstrap.servers": scene.kafka.admin_bootstrap})
    victim = read_topic(scene.kafka, scene.topic)[0].partition
    for future in admin.delete_records([TopicPartition(scene.topic, victim, 3)]).values():
        future.result(20)
    report = scene.report(code=1)
    assert counts(report) == {"lost": 3} and report["topics"][0]["deleted"] == 3
    assert "--since" in scene.run().stdout


def test_a_topic_of_a_row_that_does_not_exist_is_told(scene):
    scene.database.insert("order-1", table="public.outbox_archive", id=10**6, message_id=str(uuid.uuid4()),
                          created_at="2026-01-01", topic="no such topic\x1b")
    report = scene.report(code=1)
    assert counts(report) == {"lost": 1} and report["records"] == ENTITIES * ROWS
    done = scene.run()
    assert "does not exist" in done.stdout and "\x1b" not in done.stdout + done.stderr


# ---- Envelopes and tables -------------------------------------------------------------------------------------------

def test_cloudevents_are_known_by_their_id(database, kafka, topic, tmp_path, start_relay):
    database.execute(ARCHIVE_ON_DELETE)
    fill(database, 3, 10)
    scene = Scene(database, kafka, topic, tmp_path, route={"topic": topic, "envelope": "cloudevents"})
    relay = start_relay(scene.content)
    database.wait_until_empty()
    assert relay.stop() == 0
    assert counts(scene.report(code=0)) == {}


def test_the_id_may_come_from_a_template_or_from_the_row(database, kafka, topic, tmp_path, start_relay):
    database.execute(ARCHIVE_ON_DELETE)
    database.insert("a")
    database.insert("a", headers='{"id": "mine"}')
    by_row = Scene(database, kafka, topic, tmp_path)
    relay = start_relay(by_row.content)
    database.wait_until_empty()
    assert relay.stop() == 0
    assert {record.header("id") for record in read_topic(kafka, topic)} > {b"mine"}
    assert counts(by_row.report(code=0)) == {}
    other = new_topic(kafka)
    by_template = Scene(database, kafka, other, tmp_path, route={"topic": other, "headers": {"id": "{entity_id}/{id}"}})
    database.execute("TRUNCATE public.outbox_archive")
    fill(database, 2, 3)
    relay = start_relay(by_template.content)
    database.wait_until_empty()
    assert relay.stop() == 0
    assert counts(by_template.report(code=0)) == {}


def test_debezium_tables_views_and_archives_without_a_payload(empty_database, kafka, make_topic, tmp_path, start_relay):
    database, topic = empty_database, make_topic()
    database.execute("CREATE TABLE public.outboxevent (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), n bigserial,"
                     " aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb)")
    scene = Scene(database, kafka, topic, tmp_path, table="public.outboxevent", preset="debezium", order_by="n")
    config = write_config(tmp_path / "init.yaml", scene.content)
    done = postrider("init", "-c", config, "--existing", "public.outboxevent")
    assert done.returncode == 0, done.stderr
    database.execute("INSERT INTO public.outboxevent (aggregatetype, aggregateid, type, payload)"
                     " SELECT 'order', 'o' || i % 5, 'changed', '{}' FROM generate_series(1, 100) AS i")
    database.execute("CREATE TABLE public.kept AS"
                     " SELECT id, n, aggregatetype, aggregateid, type FROM public.outboxevent")
    database.execute("CREATE VIEW public.\"Both Halves\" AS SELECT * FROM public.kept WHERE n <= 50"
                     " UNION ALL SELECT * FROM public.kept WHERE n > 50")
    relay = start_relay(scene.content)
    database.wait_until_empty(table="public.outboxevent")
    assert relay.stop() == 0
    assert counts(scene.report(against="public.kept", code=0)) == {}
    report = scene.report(against='public."Both Halves"', code=0)
    assert report["rows"] == 100 and report["table"] == 'public."Both Halves"'
    done = scene.run("--since", "1h", against="public.kept")
    assert done.returncode == 78 and "created_at" in done.stderr


def test_rows_with_equal_order_have_none_and_equal_ids_are_told(scene):
    scene.database.execute("UPDATE public.outbox_archive SET created_at = '2026-01-01'")
    scene.content["outboxes"]["orders"]["order_by"] = "created_at"
    assert counts(scene.report(code=0)) == {}
    scene.database.execute("INSERT INTO public.outbox_archive SELECT * FROM public.outbox_archive LIMIT 2")
    report = scene.report(code=0)
    assert report["same_id"] == 2 and counts(report) == {}
    assert "2 rows have the id of another row" in scene.run().stdout


def test_a_row_that_cannot_be_a_message_is_told(scene):
    scene.database.insert("order-1", table="public.outbox_archive", id=10**6, message_id=str(uuid.uuid4()),
                          created_at="2026-01-01", headers="[1]")
    report = scene.report(code=1)
    assert counts(report) == {"unroutable": 1}
    assert report["unroutable"]["first"] == [{"id": "1000000"}]


def test_help_tells_how(product):
    done = postrider("help", "verify")
    assert done.returncode == 0 and "--against" in done.stdout and "--marked" in done.stdout
    assert "verify" in postrider("help").stdout


def test_progress_is_shown_on_a_terminal(scene):
    terminal, stderr = os.openpty()
    config = write_config(scene.folder / "verify.yaml", scene.content)
    done = subprocess.run([BINARY, "verify", "-c", config, "--against", "public.outbox_archive"], text=True, timeout=30,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, env=clean_environment())
    os.close(stderr)
    shown = os.read(terminal, 10000).decode()
    os.close(terminal)
    assert done.returncode == 0 and "reading" not in done.stdout
    assert "reading rows" in shown and shown.endswith("\r\033[K")


# ---- Security and failures ------------------------------------------------------------------------------------------

def test_it_reads_with_the_sink_s_tls_and_password(database, kafka_sasl, tmp_path, start_relay):
    secret, topic = tmp_path / "password", new_topic(kafka_sasl)
    secret.write_text(kafka_sasl.password)
    database.execute(ARCHIVE_ON_DELETE)
    fill(database, 2, 5)
    scene = Scene(database, kafka_sasl, topic, tmp_path)
    sink = scene.content["outboxes"]["orders"]["sinks"][0]
    sink |= {"tls": "on", "tls_ca_file": str(kafka_sasl.ca_file), "sasl_mechanism": "SCRAM-SHA-512",
             "sasl_username": kafka_sasl.username, "sasl_password_file": str(secret)}
    relay = start_relay(scene.content)
    database.wait_until_empty()
    assert relay.stop() == 0
    assert counts(scene.report(code=0)) == {}
    sink["tls_ca_file"] = str(kafka_sasl.other_ca_file)
    done = scene.run(timeout=60)
    assert done.returncode == 1 and "tls_ca_file" in done.stderr
    assert kafka_sasl.password not in done.stdout + done.stderr


def test_nothing_is_written(scene):
    """A role that may read the tables and nothing else will do, and the broker knows of no group."""
    role = f"auditor_{scene.database.name}"
    scene.database.execute(f"CREATE ROLE {role} LOGIN")
    scene.content["database"]["url"] = scene.database.dsn.replace("postgres@", f"{role}@")
    refused = scene.run()
    assert refused.returncode == 78 and "GRANT SELECT ON public.outbox_archive" in refused.stderr
    scene.database.execute(f"GRANT SELECT ON public.outbox, public.outbox_archive TO {role}")
    admin = AdminClient({"bootstrap.servers": scene.kafka.admin_bootstrap})
    groups = {group.group_id for group in admin.list_consumer_groups().result(20).valid}
    assert counts(scene.report(code=0)) == {}
    assert {group.group_id for group in admin.list_consumer_groups().result(20).valid} == groups
    scene.database.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.parametrize("flags, fragment", [
    ((), "--against"), (("--against", "a.b", "--show", "some"), "--show"),
    (("--against", "a.b", "--marked", "=x"), "--marked"),
    (("--against", "a.b", "--outbox", "other"), "other"), (("--against", "a.b", "--sink", "other"), "other"),
    (("--against", "a.b", "--agains"), "--against")])
def test_a_wrong_command_line_ends_with_2(tmp_path, product, flags, fragment):
    content = settings("postgresql:///x", {"type": "kafka", "brokers": "127.0.0.1:1"})
    done = postrider("verify", "-c", write_config(tmp_path / "v.yaml", content), *flags)
    assert done.returncode == 2 and fragment in done.stderr and done.stdout == ""


def test_what_is_missing_is_named(scene):
    for flags, against, fragment in (
            ((), "public.nowhere", "public.nowhere"),
            ((), "nowhere", "schema.table"),
            (("--marked", "sent_at"), "public.outbox_archive", "sent_at"),
            (("--since", "soon"), "public.outbox_archive", "--since"),
            (("--set", "outboxes.orders.columns.entity_id=customer"), "public.outbox_archive", "customer"),
            (("--set", "outboxes.orders.route.topic=no-such-topic"), "public.outbox_archive", "no-such-topic"),
            (("--set", "outboxes.orders.route.topic={"), "public.outbox_archive", "route.topic")):
        done = scene.run(*flags, against=against)
        assert done.returncode == 78 and fragment in done.stderr and done.stdout == "", (flags, done.stderr)


def test_servers_that_are_away_are_told(scene):
    port = free_port()
    scene.content["outboxes"]["orders"]["sinks"][0]["brokers"] = f"127.0.0.1:{port}"
    done = scene.run(timeout=60)
    assert done.returncode == 1 and str(port) in done.stderr and done.stdout == ""
    scene.content["database"]["url"] = f"postgresql://x@127.0.0.1:{port}/y"
    done = scene.run()
    assert done.returncode == 1 and str(port) in done.stderr
