"""Wrong settings: a clear message with its place, and exit code 78; nothing is started and nothing is lost."""

import re

import pytest

from tests.e2e.consume import read_topic
from tests.e2e.relay import ROOT, kafka_settings, postrider, settings, wait_until, write_config

EX_CONFIG = 78

GOOD = """\
database:
  url: postgresql://nobody@127.0.0.1:1/none
outboxes:
  orders:
    table: public.outbox
    sinks:
      - type: stdout
"""


def outbox(lines, sinks="      - type: stdout\n"):
    """A file whose outbox has these lines, from line 6 on."""
    text = "".join(f"    {line}\n" for line in lines.splitlines())
    return GOOD.split("    sinks:")[0] + text + "    sinks:\n" + sinks


def kafka(lines):
    """A file whose sink is Kafka with these lines, from line 10 on."""
    text = "".join(f"        {line}\n" for line in lines.splitlines())
    return outbox("workers: 1", "      - type: kafka\n        brokers: 127.0.0.1:1\n" + text)


WRONG = {
    "unknown key": (outbox("wokers: 4"), [":6:5:", "wokers", "workers"]),
    "unknown key at the top": ("databse: {}\n" + GOOD, [":1:1:", "databse", "database"]),
    "unknown column": (outbox("columns: {entity: x}"), [":6:", "entity", "entity_id"]),
    "number expected": (outbox("workers: many"), [":6:14:", "workers", "many"]),
    "out of range": (outbox("workers: 0"), [":6:14:", "workers", "1"]),
    "far out of range": (outbox("batch_size: 99999999999999999999"), [":6:17:", "batch_size"]),
    "duration without unit": (outbox("poll_interval: 5"), [":6:20:", "poll_interval", "5s"]),
    "unknown unit": (outbox("poll_interval: 5 parsecs"), [":6:20:", "poll_interval"]),
    "negative duration": (outbox("poll_interval: -5s"), [":6:20:", "poll_interval"]),
    "size": (outbox("in_flight_bytes: 4 MegaBytes"), [":6:22:", "in_flight_bytes", "MiB"]),
    "enum": (outbox("wakeup: sometimes"), [":6:13:", "wakeup", "armed", "always", "off"]),
    "boolean": (outbox("route: {tombstone: perhaps}"), [":6:24:", "tombstone", "true"]),
    "batch_max below batch_size": (outbox("batch_size: 500\nbatch_max: 100"), ["batch_max", "batch_size"]),
    "unknown reader": (outbox("reader: advisery"), [":6:13:", "advisery", "advisory"]),
    "unknown preset": (outbox("preset: debezum"), [":6:13:", "debezum", "debezium"]),
    "unknown sink": (outbox("workers: 1", "      - type: kafak\n"), [":8:15:", "kafak", "kafka"]),
    "sink without type": (outbox("workers: 1", "      - name: x\n"), [":8:", "type"]),
    "option of another sink": (
        outbox("workers: 1", "      - type: stdout\n        brokers: a:1\n"), [":9:9:", "brokers", "kafka"]),
    "kafka without brokers": (outbox("workers: 1", "      - type: kafka\n"), ["brokers"]),
    "list expected": (outbox("workers: 1").replace("      - type: stdout\n", "      type: stdout\n"), [":8:", "sinks"]),
    "map expected": (outbox("columns: id"), [":6:14:", "columns"]),
    "duplicate key": (outbox("workers: 1\nworkers: 2"), [":7:5:", "workers"]),
    "bad name of an outbox": (GOOD.replace("  orders:", '  "or ders":'), [":4:", "or ders"]),
    "not YAML": ("outboxes: [\n", ["postrider.yaml:"]),
    "no outboxes": ("database: {url: 'postgresql://127.0.0.1:1/x'}\n", ["outboxes"]),
    "no sinks": (GOOD.split("    sinks:")[0], ["orders", "sinks"]),
    "unclosed template": (outbox('route: {topic: "a.{entity_type"}'), ["topic", "{"]),
    "empty name in a template": (outbox('route: {key: "{}"}'), ["key"]),
    "bad header template": (outbox('route: {headers: {x: "{a"}}'), ["postrider.yaml:6:", "{"]),
    "unknown Kafka property": (kafka("properties: {lingr.ms: 5}"), [":10:", "lingr.ms"]),
    "Kafka property with a wrong value": (kafka("properties: {linger.ms: soon}"), [":10:", "linger.ms"]),
    "Kafka property that breaks the promise": (kafka("properties: {acks: 0}"), [":10:", "acks"]),
    "CA file that is not there": (kafka("tls: on\ntls_ca_file: /nonexistent/ca.pem"), ["/nonexistent/ca.pem"]),
    "password file that is not there": (
        kafka("sasl_mechanism: SCRAM-SHA-512\nsasl_username: relay\nsasl_password_file: /nonexistent/secret"),
        ["/nonexistent/secret"]),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_is_explained_and_ends_with_78(product, tmp_path, name):
    text, fragments = WRONG[name]
    done = postrider("run", "-c", write_config(tmp_path / "postrider.yaml", text))
    assert done.returncode == EX_CONFIG, done.stderr
    for fragment in fragments:
        assert fragment in done.stderr, done.stderr
    assert done.stdout == ""


def test_several_mistakes_are_told_at_once(product, tmp_path):
    text = outbox("wokers: 4\npoll_interval: 5\nwakeup: sometimes")
    done = postrider("check", "-c", write_config(tmp_path / "postrider.yaml", text))
    assert done.returncode == EX_CONFIG
    for place in (":6:", ":7:", ":8:"):
        assert re.search(rf"postrider\.yaml{place}\d+: ", done.stderr), done.stderr


def test_a_file_that_is_not_there(product, tmp_path):
    done = postrider("run", "-c", tmp_path / "none.yaml")
    assert done.returncode == EX_CONFIG
    assert "none.yaml" in done.stderr


@pytest.mark.parametrize("flag, fragments", [
    ("outboxes.orders.wokers=3", ["wokers", "workers"]),
    ("outboxes.orders.workers=none", ["outboxes.orders.workers", "none"]),
    ("outboxes.orders.workers", ["="]),
    ("database.url=postgresql://u:hunter2@127.0.0.1:1/x", ["database.url"]),
])
def test_a_wrong_flag(product, tmp_path, flag, fragments):
    done = postrider("run", "-c", write_config(tmp_path / "postrider.yaml", GOOD), "--set", flag)
    assert done.returncode in (2, EX_CONFIG)
    for fragment in fragments:
        assert fragment in done.stderr
    assert "hunter2" not in done.stderr + done.stdout


@pytest.mark.parametrize("variable", [
    "OUTBOX_WORKER_COUNT", "OUTBOX_BATCH_SIZE", "OUTBOX_POLL_INTERVAL", "POSTRIDER_OUTBOXES_ORDERS_WORKERS"])
def test_a_wrong_variable_is_named(product, tmp_path, variable):
    config = write_config(tmp_path / "postrider.yaml", GOOD)
    done = postrider("run", "-c", config, environment={variable: "plenty"})
    assert done.returncode == EX_CONFIG
    assert variable in done.stderr and "plenty" in done.stderr


# ---- Settings that only the database can judge ----------------------------------------------------------------------

def ended(make_relay, content):
    relay = make_relay(content).start(wait=False)
    assert relay.wait(20) == EX_CONFIG
    return relay.log_text()


def test_a_table_that_does_not_exist(database, make_relay):
    log = ended(make_relay, settings(database.dsn, {"type": "stdout"}, table="public.outbax"))
    assert "outbax" in log and "postrider init" in log


def test_a_schema_that_was_not_initialised(product, empty_database, make_relay):
    empty_database.execute("CREATE TABLE public.outbox (id bigint, entity_id text, payload json)")
    log = ended(make_relay, settings(empty_database.dsn, {"type": "stdout"}))
    assert "postrider init" in log


def test_a_mapped_column_that_does_not_exist(database, make_relay):
    log = ended(make_relay, settings(database.dsn, {"type": "stdout"}, columns={"entity_type": "kind"}))
    assert "kind" in log and "entity_type" in log


def test_a_template_over_a_column_that_does_not_exist(database, make_relay):
    log = ended(make_relay, settings(database.dsn, {"type": "stdout"}, route={"headers": {"tenant": "{tenant}"}}))
    assert "tenant" in log


@pytest.mark.parametrize("setting", ["route.topic", "failure.dead_letter_topic"])
def test_a_topic_that_kafka_can_never_have(database, make_relay, setting):
    section, option = setting.split(".")
    content = settings(database.dsn, {"type": "kafka", "brokers": "127.0.0.1:1"}, **{section: {option: "all my events"}})
    assert f'outboxes.orders.{setting} \\"all my events\\" has other characters' in ended(make_relay, content)


def test_a_missing_privilege(database, make_relay):
    role = f"weak_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN")
    database.execute(f"GRANT SELECT ON public.outbox TO {role}")
    log = ended(make_relay, settings(database.server.dsn(database.name, role), {"type": "stdout"}))
    assert "permission denied" in log and "postrider init --role" in log


def test_an_event_store_that_does_not_exist_is_told_and_waited_for(database, start_relay):
    relay = start_relay(settings(database.dsn, {"type": "postgres", "table": "public.nowhere"}))
    database.insert("a")
    relay.wait_for_warning("nowhere", "does not exist")
    assert database.pending() == 1
    database.execute("CREATE TABLE public.nowhere (LIKE postrider.event INCLUDING ALL)")
    database.wait_until_empty(timeout=30)
    assert database.value("SELECT count(*) FROM public.nowhere") == 1
    assert relay.stop() == 0


# ---- Settings that work ---------------------------------------------------------------------------------------------

def test_outbox_variables_apply_to_every_outbox(database, kafka, topic, start_relay):
    content = kafka_settings(database, kafka, topic, wakeup="off", poll_interval="60s", workers=1, batch_size=7)
    environment = {"OUTBOX_WORKER_COUNT": "3", "OUTBOX_BATCH_SIZE": "10", "OUTBOX_POLL_INTERVAL": "500ms"}
    relay = start_relay(content, environment=environment)
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'postrider%worker%'" \
               " AND datname = current_database()"
    wait_until(lambda: database.value(sessions) == 3, 10, "three workers")
    database.insert("a")
    database.wait_until_empty(timeout=3)
    assert relay.stop() == 0


def test_flags_win_over_environment_and_environment_over_the_file(database, kafka, make_topic, start_relay):
    from_file, from_environment, from_flag = make_topic(), make_topic(), make_topic()
    variable = {"POSTRIDER_OUTBOXES_ORDERS_ROUTE_TOPIC": from_environment}
    content = kafka_settings(database, kafka, from_file)
    for expected, options in (
            (from_file, {}),
            (from_environment, {"environment": variable}),
            (from_flag, {"environment": variable, "flags": ["--set", f"outboxes.orders.route.topic={from_flag}"]})):
        relay = start_relay(content, **options)
        database.insert("a")
        database.wait_until_empty()
        assert relay.stop() == 0
        assert len(read_topic(kafka, expected)) == 1


def test_without_a_file_the_environment_is_enough(database, start_relay, make_relay, tmp_path):
    relay = make_relay("", environment={
        "POSTRIDER_DATABASE_URL": database.dsn, "POSTRIDER_LOG_FORMAT": "json",
        "POSTRIDER_OUTBOXES_OUTBOX_SINKS_0_TYPE": "stdout"})
    relay.command = relay.command[:2]
    relay.start()
    database.insert("a")
    database.wait_until_empty()
    assert relay.stop() == 0
    assert len(relay.out_file.read_text().splitlines()) == 1


def test_pg_variables_are_enough_for_the_connection(database, start_relay):
    content = settings("", {"type": "stdout"})
    server = database.server
    relay = start_relay(content, environment={
        "PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres", "PGDATABASE": database.name})
    database.insert("a")
    database.wait_until_empty()
    assert relay.stop() == 0


def test_unknown_variables_of_a_container_platform_are_only_warned_about(database, start_relay):
    relay = start_relay(settings(database.dsn, {"type": "stdout"}), environment={"POSTRIDER_PORT_80_TCP": "tcp://x"})
    assert "POSTRIDER_PORT_80_TCP" in relay.log_text()
    assert relay.stop() == 0


def test_the_example_in_the_documentation_loads(product):
    done = postrider("check", "-c", ROOT / "docs" / "postrider.example.yaml")
    assert done.returncode != EX_CONFIG, done.stderr
