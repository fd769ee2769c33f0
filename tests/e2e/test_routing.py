"""From columns to topic, key, headers and value, byte for byte."""

import json
import re
import uuid

import pytest

from tests.e2e.consume import read_topic
from tests.e2e.relay import kafka_settings, postrider, settings, write_config

ALL_BYTES = bytes(range(256))
ODD_JSON = '{ "b" :  1.50 ,\n\t"a":[ ],  "b": "\\u00e9ü" }'
RFC_3339 = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"


@pytest.fixture
def publish(database, kafka, start_relay):
    """Runs a relay over what is in the table and returns the records of a topic."""

    def run(content, topic, table="public.outbox"):
        relay = start_relay(content)
        database.wait_until_empty(table=table)
        assert relay.stop() == 0
        return read_topic(kafka, topic)

    return run


def existing(database, tmp_path, table):
    """Installs what belongs beside a table that is already there."""
    config = write_config(tmp_path / "existing.yaml", settings(database.dsn, {"type": "stdout"}, table=table))
    done = postrider("init", "-c", config, "--existing", table)
    assert done.returncode == 0, done.stderr


# ---- The recommended table ------------------------------------------------------------------------------------------

def test_the_default_record(database, kafka, topic, publish):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    database.insert("order-1", ODD_JSON, traceparent=trace)
    message_id = database.value("SELECT message_id::text FROM public.outbox").encode()
    (record,) = publish(kafka_settings(database, kafka, topic), topic)
    assert record.key == b"order-1"
    assert record.value == ODD_JSON.encode()
    assert [name for name, _ in record.headers] == ["id", "event_type", "entity_type", "created_at", "traceparent"]
    assert record.header("id") == message_id
    assert record.header("event_type") == b"changed"
    assert record.header("entity_type") == b"order"
    assert re.fullmatch(RFC_3339, record.header("created_at"))
    assert record.header("traceparent") == trace.encode()


def test_headers_from_a_jsonb_column_and_from_templates(database, kafka, topic, publish):
    headers = {"tenant": "acme", "count": 7, "ok": True, "none": None, "nested": {"a": [1, 2]}, "event_type": "mine"}
    database.insert("a", headers=json.dumps(headers))
    route = {"topic": topic, "headers": {"origin": "shop", "who": "{entity_type}/{entity_id}", "tenant": "template"}}
    (record,) = publish(kafka_settings(database, kafka, topic, route=route), topic)
    assert record.header("count") == b"7"
    assert record.header("ok") == b"true"
    assert record.header("none") is None
    assert json.loads(record.header("nested")) == {"a": [1, 2]}
    assert record.header("event_type") == b"mine"
    assert record.header("origin") == b"shop"
    assert record.header("who") == b"order/a"
    assert record.header("tenant") == b"template"


def test_the_topic_comes_from_a_template_or_from_the_row(database, kafka, make_topic, start_relay):
    by_type, by_row = make_topic(), make_topic()
    database.insert("a", entity_type=by_type.removeprefix("test-"))
    database.insert("b", topic=by_row)
    relay = start_relay(kafka_settings(database, kafka, "test-{entity_type}"))
    database.wait_until_empty()
    assert relay.stop() == 0
    assert [record.key for record in read_topic(kafka, by_type)] == [b"a"]
    assert [record.key for record in read_topic(kafka, by_row)] == [b"b"]


def test_the_key_may_be_another_template(database, kafka, topic, publish):
    database.insert("7")
    route = {"topic": topic, "key": "{entity_type}-{entity_id}"}
    (record,) = publish(kafka_settings(database, kafka, topic, route=route), topic)
    assert record.key == b"order-7"


def test_cloudevents_in_binary_mode(database, kafka, topic, publish):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    database.insert("order-1", traceparent=trace)
    message_id = database.value("SELECT message_id::text FROM public.outbox").encode()
    route = {"topic": topic, "envelope": "cloudevents", "source": "/shops/{entity_type}"}
    (record,) = publish(kafka_settings(database, kafka, topic, route=route), topic)
    assert record.header("ce_specversion") == b"1.0"
    assert record.header("ce_id") == message_id
    assert record.header("ce_source") == b"/shops/order"
    assert record.header("ce_type") == b"changed"
    assert record.header("ce_subject") == b"order-1"
    assert re.fullmatch(RFC_3339, record.header("ce_time"))
    assert record.header("ce_traceparent") == trace.encode()
    assert record.header("content-type") == b"application/json"
    assert record.value == b'{"a": 1}'


def test_a_null_payload_is_a_null_value(database, kafka, topic, publish):
    database.insert("a", None)
    (record,) = publish(kafka_settings(database, kafka, topic), topic)
    assert record.key == b"a" and record.value is None


@pytest.mark.parametrize("tombstone", [False, True])
def test_an_empty_payload_becomes_a_tombstone_when_asked(database, kafka, topic, publish, tombstone):
    database.execute("ALTER TABLE public.outbox ALTER payload TYPE text")
    database.insert("a", "")
    content = kafka_settings(database, kafka, topic, route={"topic": topic, "tombstone": tombstone})
    (record,) = publish(content, topic)
    assert record.value == (None if tombstone else b"")


def murmur2(data):
    """The 32-bit Murmur2 of Kafka's Java client (org.apache.kafka.common.utils.Utils), as a positive number."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    for at in range(0, len(data) - len(data) % 4, 4):
        k = int.from_bytes(data[at:at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    tail = data[len(data) - len(data) % 4:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def test_keys_land_where_the_java_producer_would_put_them(database, kafka, topic, publish):
    keys = [f"order-{number}" for number in range(12)] + ["ä", "x" * 99]
    for key in keys:
        database.insert(key)
    records = publish(kafka_settings(database, kafka, topic), topic)
    assert {record.key: record.partition for record in records} == {
        key.encode(): murmur2(key.encode()) % 6 for key in keys}


# ---- Other people's tables ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind, stored, sent", [
    ("json", ODD_JSON, ODD_JSON.encode()),
    ("json", " null ", b" null "),
    ("jsonb", '{"b": 1, "a":[ ] }', b'{"a": [], "b": 1}'),
    ("text", "  not json, ünïcode 🚚\r\n", "  not json, ünïcode 🚚\r\n".encode()),
    ("text", "x" * 300_000, b"x" * 300_000),
    ("bytea", ALL_BYTES, ALL_BYTES),
    ("bytea", b"", b""),
], ids=["json", "json null", "jsonb", "text", "toasted text", "bytea", "empty bytea"])
def test_payloads_arrive_byte_for_byte(database, tmp_path, kafka, topic, publish, kind, stored, sent):
    database.execute(f"ALTER TABLE public.outbox ALTER payload TYPE {kind} USING payload::text::{kind}")
    database.insert("a", stored)
    (record,) = publish(kafka_settings(database, kafka, topic), topic)
    assert record.value == sent


@pytest.mark.parametrize("id_type, key_type", [
    ("bigint", "text"), ("bigint", "bigint"), ("bigint", "uuid"), ("integer", "varchar(40)"), ("text", "text"),
    ("uuid", "uuid"), ("uuid", "integer"), ("numeric", "char(8)")])
def test_any_type_of_id_and_key_works_through_a_column_mapping(
        database, tmp_path, kafka, topic, publish, id_type, key_type):
    """A table of somebody else: other names, other types, a reserved word and a capital letter, order by a column."""
    database.execute(f"""
        CREATE SCHEMA "Shop";
        CREATE TABLE "Shop"."event log" (
            "user" {key_type} NOT NULL, "Key" {id_type} PRIMARY KEY, position bigint NOT NULL, body bytea)""")
    existing(database, tmp_path, '"Shop"."event log"')
    values = {"uuid": lambda n: str(uuid.UUID(int=n)), "text": lambda n: f"k{n:03}", "char(8)": lambda n: f"k{n:03}",
              "varchar(40)": lambda n: f"k'\"{{}}\\{n:03}"}
    make_id, make_key = values.get(id_type, int), values.get(key_type, int)
    expected = {}
    with database.connect() as connection:
        for n in range(60):
            key = make_key(n % 7)
            # Ids run against the order, which the column `position` gives.
            connection.execute('INSERT INTO "Shop"."event log" VALUES (%s, %s, %s, %s)',
                               (key, make_id(100 - n), n, str(n).encode()))
            stored = connection.execute(f"SELECT (%s::{key_type})::text", (key,)).fetchone()[0]
            expected.setdefault(stored.encode(), []).append(str(n).encode())
    content = kafka_settings(
        database, kafka, topic, table='"Shop"."event log"', order_by="position",
        columns={"id": "Key", "entity_id": "user", "payload": "body"})
    arrived = {}
    for record in publish(content, topic, table='"Shop"."event log"'):
        arrived.setdefault(record.key, []).append(record.value)
    assert arrived == expected


def test_a_partitioned_table_works(database, tmp_path, kafka, topic, publish):
    database.execute("""
        CREATE TABLE public.parted (
            id bigint GENERATED BY DEFAULT AS IDENTITY, entity_id text NOT NULL, payload json,
            created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (id, created_at))
            PARTITION BY RANGE (created_at);
        CREATE TABLE public.parted_old PARTITION OF public.parted FOR VALUES FROM (MINVALUE) TO ('2020-01-01');
        CREATE TABLE public.parted_new PARTITION OF public.parted FOR VALUES FROM ('2020-01-01') TO (MAXVALUE);
        CREATE INDEX ON public.parted (entity_id, id)""")
    existing(database, tmp_path, "public.parted")
    database.execute("""
        INSERT INTO public.parted (entity_id, payload, created_at)
        SELECT 'e' || n % 5, json_build_object('n', n), CASE WHEN n % 2 = 0 THEN now() ELSE '2019-01-01' END
        FROM generate_series(1, 100) AS n""")
    records = publish(kafka_settings(database, kafka, topic, table="public.parted"), topic, table="public.parted")
    numbers = [json.loads(record.value)["n"] for record in records if record.key == b"e3"]
    assert numbers == list(range(3, 101, 5))
    assert len(records) == 100


# ---- Debezium's table, unchanged ------------------------------------------------------------------------------------

DEBEZIUM_TABLE = """
CREATE TABLE public.outboxevent (
    id uuid NOT NULL PRIMARY KEY,
    aggregatetype character varying(255) NOT NULL,
    aggregateid character varying(255) NOT NULL,
    type character varying(255) NOT NULL,
    payload jsonb,
    tenant text)
"""


def test_debezium_preset_writes_the_records_of_its_event_router(database, tmp_path, kafka, make_topic, start_relay):
    """Topic outbox.event.<aggregatetype>, key aggregateid, header id, value the payload; more columns as headers."""
    kind = f"Order-{database.name}"
    name = kafka.create_topic(f"outbox.event.{kind}", partitions=3)
    database.execute(DEBEZIUM_TABLE)
    columns = "SELECT attname, atttypid FROM pg_attribute WHERE attrelid = 'public.outboxevent'::regclass"
    before = database.execute(columns)
    existing(database, tmp_path, "public.outboxevent")
    rows = [
        (str(uuid.uuid4()), kind, "1", "OrderCreated", '{"id": 1, "lines": [{"n": 1}]}', "acme"),
        (str(uuid.uuid4()), kind, "2", "OrderDeleted", None, None),
    ]
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO public.outboxevent VALUES (%s, %s, %s, %s, %s, %s)", rows)
    content = settings(
        database.dsn, {"type": "kafka", "brokers": kafka.bootstrap}, preset="debezium", table="public.outboxevent",
        route={"headers": {"eventType": "{type}", "tenant": "{tenant}"}})
    relay = start_relay(content)
    database.wait_until_empty(table="public.outboxevent")
    assert relay.stop() == 0

    created, deleted = sorted(read_topic(kafka, name), key=lambda record: record.key)
    assert (created.key, created.value) == (b"1", b'{"id": 1, "lines": [{"n": 1}]}')
    assert created.headers == [("id", rows[0][0].encode()), ("eventType", b"OrderCreated"), ("tenant", b"acme")]
    assert (deleted.key, deleted.value) == (b"2", None)
    assert deleted.headers == [("id", rows[1][0].encode()), ("eventType", b"OrderDeleted"), ("tenant", None)]
    assert database.execute(columns) == before
