"""Rows that are wrong in some way: each has one outcome for each sink, and nothing else stops.

One scene has all kinds at once, each between two good rows of its entity, and good rows of other entities before,
between and behind. `KINDS` is the table of docs/bad-rows.md, to be run.
"""

import base64
import json
import random
import time
from typing import NamedTuple, Optional

import psycopg
import pytest

from tests.e2e.consume import read_topic
from tests.e2e.relay import postrider, settings, wait_until, write_config
from tests.e2e.scene import dropped, initialised, new_database, new_topic
from tests.servers import Kafka

# Everything that a column can allow is allowed: a table that somebody else has made.
TABLE = """
CREATE TABLE public.outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    entity_id text,
    entity_type text,
    event_type text,
    message_key text,
    payload bytea,
    headers text,
    topic text,
    message_id text DEFAULT gen_random_uuid()::text,
    created_at timestamptz DEFAULT clock_timestamp())"""
INDEX = "CREATE INDEX ON public.outbox (entity_id, id)"

FREE_ENTITIES, FREE_ROWS = 20, 5
LONGEST_STALL_S = 8         # no row of another entity waits nearly as long; one behind a bad row would wait for ever
MEGABYTE = 1 << 20

READERS = {
    "advisory": {"reader": "advisory"},
    "lease": {"reader": "lease", "lease": "3s"},
    "skip_locked": {"reader": "skip_locked", "order": "entity"},
    "shards": {"reader": "shards", "shards": {"count": 2}},
    "dispatcher": {"reader": "dispatcher"},
    "wal": {"reader": "wal"},
}

# ---- What becomes of them -----------------------------------------------------------------------------------------------

ARRIVES = None
WAITS = "a topic that may come into being"      # nothing is counted, and the policy does not apply
NOT_AN_OBJECT = "not a JSON object that can be used"
NO_JSON = "invalid input syntax for type json"
NO_TOPIC = {"kafka": WAITS, "nats": WAITS, "rabbitmq": WAITS, "sqs": WAITS}    # streams of Redis, and queues, are made
TOO_LONG = {"kafka": "is longer than 249 characters", "queue": "is longer than 255 bytes", "rabbitmq": "255",
            "sqs": "is longer than 80"}
NATS_NAME = "is not a name that a header of NATS can have"
WEBHOOK_NAME = "is not a name that a header of HTTP can have"
NAMES = {"nats": NATS_NAME, "webhook": WEBHOOK_NAME}
SINKS = ("kafka", "store", "file", "nats", "queue", "rabbitmq", "redis", "sqs", "webhook")


class Kind(NamedTuple):
    """A kind of bad row: its columns, and for each sink a part of the reason why it is refused, or ARRIVES, or WAITS."""

    columns: dict
    kafka: Optional[str] = ARRIVES
    store: Optional[str] = ARRIVES      # the event store, in the same database or in another one
    file: Optional[str] = ARRIVES
    nats: Optional[str] = ARRIVES
    queue: Optional[str] = ARRIVES
    rabbitmq: Optional[str] = ARRIVES
    redis: Optional[str] = ARRIVES
    sqs: Optional[str] = ARRIVES
    webhook: Optional[str] = ARRIVES
    expected: dict = {}                 # of what arrives: key, payload, headers
    entity: Optional[str] = None        # where it is not the name of the kind


def headers_that(outcome, text, others={}, **headers):
    """`others`: what some sinks have against them, when nobody else has anything."""
    outcomes = dict.fromkeys(SINKS, outcome) | others
    return Kind({"headers": text}, **outcomes, expected={"headers": headers})


KINDS = {
    "key NULL": Kind({"message_key": None}, expected={"key": None}),
    "key empty": Kind({"message_key": ""}, expected={"key": ""}),
    "key of 10 KB": Kind({"message_key": "k" * 10_240}, expected={"key": "k" * 10_240}),
    "entity empty": Kind({}, entity=""),
    "entity of 10 KB": Kind({}, entity="long" * 2_560),
    "message id NULL": Kind({"message_id": None}),

    "payload NULL": Kind({"payload": None}, expected={"payload": None}),
    "payload empty": Kind({"payload": b""}, store=NO_JSON, expected={"payload": b""}),
    "payload not UTF-8": Kind({"payload": b"\xff\xfe\0"}, store="invalid byte sequence", expected={"payload": b"\xff\xfe\0"}),
    "payload not JSON": Kind({"payload": b'{"a"'}, store=NO_JSON, expected={"payload": b'{"a"'}),
    "payload nested 20,000 deep": Kind({"payload": b"[" * 20_000 + b"]" * 20_000}, store="stack depth limit exceeded"),

    "headers not JSON": headers_that(NOT_AN_OBJECT, '{"a": '),
    "headers empty text": headers_that(NOT_AN_OBJECT, ""),
    "headers a list": headers_that(NOT_AN_OBJECT, '["a", "b"]'),
    "headers a number": headers_that(NOT_AN_OBJECT, "7"),
    "headers null": headers_that(ARRIVES, "null"),
    "headers nested": headers_that(ARRIVES, '{"a": {"b": [1, "x  y"]}, "c": true}', a='{"b":[1,"x  y"]}', c="true"),
    "headers 1,000": headers_that(ARRIVES, json.dumps({f"h{n}": "x" for n in range(1000)}), h0="x", h999="x"),
    "headers 1,001": headers_that("too many headers", json.dumps({f"h{n}": "x" for n in range(1001)})),
    "headers with control characters": headers_that(ARRIVES, json.dumps({"a\nb": "c\r\nd\te\x01"}), NAMES,
                                                    **{"a\nb": "c\r\nd\te\x01"}),
    "headers with a second line": headers_that(ARRIVES, json.dumps({"a": "b\nc"}), {"nats": "more than one line"}, a="b\nc"),
    "headers with a bare line end": headers_that("a control character in a string", '{"a": "b\nc"}'),
    "headers with U+0000": headers_that("the character \\u0000", r'{"a": "b\u0000c"}'),
    "headers with half a pair": headers_that("half of a surrogate pair", r'{"a": "\ud800"}'),
    "headers not ASCII": headers_that(ARRIVES, '{"größe-€": "\U0001f600"}', NAMES, **{"größe-€": "\U0001f600"}),
    "header values not ASCII": headers_that(ARRIVES, '{"a": "\U0001f600"}', a="\U0001f600"),
    "headers without a name": headers_that(ARRIVES, '{"": "x"}', NAMES, **{"": "x"}),

    "topic empty": Kind({"topic": ""}),
    "topic unknown": Kind({"topic": "unknown"}, **NO_TOPIC),
    "topic with spaces": Kind({"topic": "not a topic"}, **NO_TOPIC | {
        "kafka": "has other characters than letters", "nats": "has a blank",
        "sqs": "has other characters than letters"}),
    "topic of 300 characters": Kind({"topic": "t" * 300}, **NO_TOPIC | TOO_LONG),
    "topic of 1,000 characters": Kind({"topic": "t" * 1000}, **NO_TOPIC | TOO_LONG),
}


# ---- Sinks --------------------------------------------------------------------------------------------------------------

class Arrived(NamedTuple):
    id: str
    payload: Optional[bytes]
    headers: dict
    at: Optional[float] = None          # seconds since 1970, where the sink knows
    key: Optional[str] = "the sink has no keys"


class KafkaSink:
    null, outcome = None, "kafka"

    def __init__(self, kafka, properties=None, **topic):
        self.kafka, self.topic = kafka, new_topic(kafka, partitions=1, **topic)
        self.settings = {"type": "kafka", "brokers": kafka.bootstrap, "properties": properties or {}}

    def arrived(self):
        for record in read_topic(self.kafka, self.topic):
            headers = {name: value and value.decode() for name, value in record.headers}
            key = None if record.key is None else record.key.decode()
            yield Arrived(headers["id"], record.value, headers, record.timestamp / 1000, key)


class BrokerSink:
    """A server of the conformance suite."""

    topics = {"nats": lambda place: place.subject, "rabbitmq": lambda place: "order.changed",
              "redis": lambda place: place.stream, "sqs": lambda place: place.queue,
              "webhook": lambda place: "order.changed"}

    def __init__(self, destination):
        self.place = destination.fresh()
        self.outcome, self.topic = destination.name, self.topics[destination.name](self.place)
        self.settings = self.place.sink()
        # NATS and AMQP have nothing that is no payload.
        self.null = None if self.outcome in ("redis", "sqs", "webhook") else b""
        if self.outcome == "redis":
            self.place.drop_all_streams()

    def arrived(self):
        for message in self.messages():
            yield Arrived(message.id, message.value, message.headers,
                          key=None if message.key is None else message.key.decode())

    def messages(self):
        if self.outcome == "redis":
            return self.place.arrived_in_all_streams()
        return self.place.stored() if self.outcome == "sqs" else self.place.received(0, timeout=0)


class StoreSink:
    null, outcome, topic = None, "store", "any"

    def __init__(self, database, url=None):
        self.database = database
        self.settings = {"type": "postgres"} | ({"url": url} if url else {})

    def arrived(self):
        for message_id, payload, headers, at in self.database.execute(
                "SELECT message_id, payload::text, headers, extract(epoch FROM stored_at)::float8"
                " FROM postrider.event ORDER BY position"):
            yield Arrived(message_id, payload and payload.encode(), headers, at)


class QueueSink:
    """All queues of a database. Nobody consumes, so that messages stay as they came."""

    null, outcome, topic = None, "queue", "any"

    def __init__(self, database, url=None):
        self.database = database
        self.settings = {"type": "queue"} | ({"url": url} if url else {})

    def arrived(self):
        for message_id, payload, headers, at, key in self.database.execute(
                "SELECT message_id, payload, headers, extract(epoch FROM sent_at)::float8, key"
                " FROM postrider.queue_message ORDER BY id"):
            yield Arrived(message_id, payload, headers, at, key)


class FileSink:
    null, outcome, topic = None, "file", "any"

    def __init__(self, path):
        self.path = path
        self.settings = {"type": "stdout", "path": str(path)}

    def arrived(self):
        for text in self.path.read_text().splitlines() if self.path.exists() else []:
            line = json.loads(text)
            yield Arrived(line["id"], self._payload(line), line["headers"], key=line["key"])

    @staticmethod
    def _payload(line):
        if "payload_base64" in line:
            return base64.b64decode(line["payload_base64"])
        value = line["payload"]
        return value.encode() if isinstance(value, str) else None if value is None else json.dumps(value).encode()


# ---- The scene ----------------------------------------------------------------------------------------------------------

@pytest.fixture
def outbox(product, empty_database, tmp_path):
    empty_database.execute(TABLE)
    empty_database.execute(INDEX)
    return initialised(empty_database, tmp_path)


@pytest.fixture
def make_sink(outbox, brokers, request, tmp_path):
    stores = []

    def make(name, **options):
        if name == "kafka":
            return KafkaSink(request.getfixturevalue("kafka"), **options)
        if name == "file":
            return FileSink(tmp_path / "lines.json")
        if name.partition("-")[0] in BrokerSink.topics:
            return BrokerSink(brokers(name))
        kind = {"store": StoreSink, "queue": QueueSink}[name.split()[0]]
        if name.endswith("beside"):
            return kind(outbox)
        stores.append(initialised(new_database(outbox.server), tmp_path))
        return kind(stores[-1], stores[-1].dsn)

    yield make
    for store in stores:
        dropped(store)


@pytest.fixture
def configure(outbox, tmp_path):
    """Settings of a relay with quick retries, for which everything is prepared."""
    def configured(sink, reader, failure, **options):
        slot = {"wal": {"slot": f"{outbox.name}_slot"}} if reader == "wal" else {}
        content = settings(outbox.dsn, sink.settings, **READERS[reader], **slot,
                           **{"poll_interval": "1s", "route": {"topic": sink.topic, "key": "{message_key}"}, **options},
                           failure={"max_retries": 1, "first_delay": "50ms", "max_delay": "200ms", **failure})
        done = postrider("init", "-c", write_config(tmp_path / "prepare.yaml", content))
        assert done.returncode == 0, done.stderr
        return content
    return configured


class Writer:
    """Writes rows one by one and remembers, for each entity, their numbers and message ids in order."""

    def __init__(self, database):
        self.connection = database.connect()
        self.rows = {}

    def write(self, entity, **columns):
        row = {"entity_id": entity, "entity_type": "order", "message_key": entity, "payload": b'{"a": 1}', **columns}
        names, marks = ", ".join(row), ", ".join(["%s"] * len(row))
        number, message_id = self.connection.execute(
            f"INSERT INTO public.outbox ({names}) VALUES ({marks}) RETURNING id, coalesce(message_id, id::text)",
            list(row.values())).fetchone()
        self.rows.setdefault(entity, []).append((str(number), message_id))
        return str(number)

    def write_free(self):
        for number in range(FREE_ENTITIES):
            self.write(f"free {number}")

    def ids(self, entity):
        return [message_id for _, message_id in self.rows[entity]]


def entity_of(name):
    return name if KINDS[name].entity is None else KINDS[name].entity


def arrived_ids(sink):
    return [arrived.id for arrived in sink.arrived()]


def in_order(writer, ids):
    """What arrived, as a list for each entity."""
    entity_by_id = {message_id: entity for entity, rows in writer.rows.items() for _, message_id in rows}
    found = {entity: [] for entity in writer.rows}
    for message_id in ids:
        found[entity_by_id[message_id]].append(message_id)
    return found


def expected_ids(writer, sink, policy):
    """Which rows arrive: of the entities of bad rows it depends on the outcome."""
    expected = {entity: writer.ids(entity) for entity in writer.rows}
    for name, kind in KINDS.items():
        outcome = getattr(kind, sink.outcome)
        before, _, *after = expected[entity_of(name)]
        if outcome not in (ARRIVES, WAITS) and policy == "dead_letter":
            expected[entity_of(name)] = [before, *after]
        elif outcome is not ARRIVES:
            expected[entity_of(name)] = [before]
    return expected


def outcomes(sink):
    """The kinds that are refused, with the reason; and those that wait."""
    by_name = {name: getattr(kind, sink.outcome) for name, kind in KINDS.items()}
    return ({name: why for name, why in by_name.items() if why not in (ARRIVES, WAITS)},
            [name for name, why in by_name.items() if why is WAITS])


def letters(database):
    return {row_id: rest for row_id, *rest in database.execute(
        "SELECT row_id, entity, attempts, kind, error FROM postrider.dead_letter")}


def held(database):
    return {entity: rest for entity, *rest in database.execute(
        "SELECT entity, row_id, attempts, kind, error, blocked_at IS NOT NULL FROM postrider.retry")}


def check_refused(database, writer, refused, policy):
    """Each refused row is where the policy puts it, with its reason."""
    dead, waiting = letters(database), held(database)
    for name, why in refused.items():
        entity, row_id = entity_of(name), writer.rows[entity_of(name)][1][0]
        if policy == "dead_letter":
            found_entity, attempts, kind, error = dead[row_id]
            assert (found_entity, attempts, kind) == (entity, 2, "rejected"), name
        else:
            found_row, attempts, kind, error, blocked = waiting[entity]
            assert (found_row, attempts, kind, blocked) == (row_id, 2, "rejected", True), name
        assert why in error, name
    assert len(dead) == (len(refused) if policy == "dead_letter" else 0)


def check_waiting(database, writer, waiting):
    """Nothing was counted, and nobody gave up."""
    rows = held(database)
    for name in waiting:
        row_id, attempts, kind, _, blocked = rows[entity_of(name)]
        assert (row_id, attempts, kind, blocked) == (writer.rows[name][1][0], 0, "config", False), name


def check_arrived(sink, writer):
    """What arrived of bad rows is what they were."""
    by_id = {arrived.id: arrived for arrived in sink.arrived()}
    for name, kind in KINDS.items():
        if getattr(kind, sink.outcome) is not ARRIVES:
            continue
        arrived = by_id[writer.ids(entity_of(name))[1]]
        if "payload" in kind.expected:
            payload = kind.expected["payload"]
            assert arrived.payload == (sink.null if payload is None else payload), name
        if "key" in kind.expected and arrived.key != Arrived._field_defaults["key"]:
            assert arrived.key == kind.expected["key"], name
        assert kind.expected.get("headers", {}).items() <= arrived.headers.items(), name


def check_nobody_waited(sink, writer, began):
    """The rows of other entities came soon, however long the topics of some rows were waited for."""
    free = {message_id for entity in writer.rows if entity.startswith("free ") for message_id in writer.ids(entity)[:-1]}
    last = max((arrived.at for arrived in sink.arrived() if arrived.at and arrived.id in free), default=began)
    assert last - began < LONGEST_STALL_S


def is_settled(database, sink, policy):
    """Whether every bad row is where it ends, or waits."""
    refused, waiting = outcomes(sink)
    if policy == "dead_letter":
        return len(letters(database)) == len(refused) and len(held(database)) == len(waiting)
    blocked = [row for row in held(database).values() if row[4]]
    return len(blocked) == len(refused) and len(held(database)) == len(refused) + len(waiting)


@pytest.mark.parametrize("sink, reader, policy", [
    *((sink, "advisory", policy) for sink in ("kafka", "store beside", "store elsewhere", "file")
      for policy in ("dead_letter", "block")),
    ("kafka", "dispatcher", "dead_letter"), ("kafka", "wal", "dead_letter"), ("kafka", "wal", "block"),
    ("kafka", "skip_locked", "dead_letter"), ("kafka", "shards", "block"),
    ("store beside", "lease", "block"), ("store beside", "shards", "dead_letter"),
    ("store elsewhere", "wal", "dead_letter"), ("file", "dispatcher", "block"),
    ("queue beside", "advisory", "dead_letter"), ("queue beside", "lease", "block"), ("queue elsewhere", "wal", "block"),
    ("nats", "advisory", "dead_letter"), ("nats", "wal", "block"), ("rabbitmq", "advisory", "block"),
    ("rabbitmq", "shards", "dead_letter"), ("redis", "advisory", "dead_letter"), ("redis", "dispatcher", "block"),
    ("sqs-fifo", "advisory", "dead_letter"), ("sqs-fifo", "lease", "block"),
    ("webhook", "advisory", "block"), ("webhook", "wal", "dead_letter"),
])
def test_a_bad_row_has_its_outcome_and_nothing_else_stops(outbox, make_sink, configure, start_relay, sink, reader, policy):
    sink = make_sink(sink)
    content = configure(sink, reader, {"then": policy})
    writer = Writer(outbox)
    # All of this is read at once: bad and good rows share claims, batches and transactions.
    writer.write_free()
    for name, kind in KINDS.items():
        writer.write(entity_of(name))
        writer.write(entity_of(name), **kind.columns)
        writer.write(entity_of(name))
    writer.write_free()
    relay = start_relay(content)
    for name in KINDS:
        writer.write(entity_of(name))
    began = time.time()
    for _ in range(FREE_ROWS):
        writer.write_free()
    expected = expected_ids(writer, sink, policy)
    wait_until(lambda: is_settled(outbox, sink, policy), 60, "every bad row where it belongs", pause=0.2)
    wait_until(lambda: len(arrived_ids(sink)) >= sum(map(len, expected.values())), 30, "every good row arrived", pause=0.2)
    if sink.outcome == "kafka":
        time.sleep(2)                   # several attempts more at the topics that are missing
    late = writer.write("free 0")
    wait_until(lambda: writer.ids("free 0")[-1] in arrived_ids(sink), 20, f"row {late} arrived")
    assert relay.stop() == 0
    expected["free 0"] = writer.ids("free 0")
    assert in_order(writer, arrived_ids(sink)) == expected
    refused, waiting = outcomes(sink)
    check_refused(outbox, writer, refused, policy)
    check_waiting(outbox, writer, waiting)
    check_arrived(sink, writer)
    check_nobody_waited(sink, writer, began)


# ---- Topics -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("reader", ["advisory", "dispatcher", "wal"])
def test_a_missing_topic_is_waited_for_and_nothing_of_its_entity_passes(
        outbox, kafka, make_sink, configure, start_relay, reader):
    """However often it is tried, and though the next row has a topic that is there."""
    sink = make_sink("kafka")
    content = configure(sink, reader, {"then": "dead_letter", "max_retries": 0})
    writer, missing = Writer(outbox), f"missing-{outbox.name}"
    writer.write("held")
    waiting = writer.write("held", topic=missing)
    writer.write("held")
    relay = start_relay(content)
    wait_until(lambda: held(outbox).get("held"), 20, "the entity held back")
    relay.wait_for("row.refused", id=waiting, kind="config")
    time.sleep(2)
    writer.write("free")
    wait_until(lambda: writer.ids("free")[0] in arrived_ids(sink), 20, "another entity published")
    assert in_order(writer, arrived_ids(sink)) == {"held": writer.ids("held")[:1], "free": writer.ids("free")}
    assert held(outbox)["held"][1] == 0, "an attempt was counted"
    assert letters(outbox) == {}
    kafka.create_topic(missing, partitions=1)
    wait_until(lambda: outbox.pending() == 0, 40, "everything published")
    assert relay.stop() == 0
    assert arrived_ids(sink)[-1] == writer.ids("held")[2]
    [record] = read_topic(kafka, missing)
    assert record.header("id").decode() == writer.ids("held")[1]
    assert held(outbox) == {}


def test_a_missing_topic_is_made_where_brokers_may(outbox, servers, configure, start_relay):
    """That takes both: brokers that do so, and the property of the sink."""
    generous = servers.get("generous_kafka", lambda: Kafka(settings={"auto.create.topics.enable": "true"}))
    sink = KafkaSink(generous, {"allow.auto.create.topics": "true"})
    relay = start_relay(configure(sink, "advisory", {"then": "block"}))
    writer, missing = Writer(outbox), f"missing-{outbox.name}"
    for topic in (None, missing, None):
        writer.write("held", topic=topic)
    wait_until(lambda: outbox.pending() == 0, 40, "everything published")
    assert relay.stop() == 0
    assert len(read_topic(generous, missing)) == 1
    assert arrived_ids(sink) == [writer.ids("held")[0], writer.ids("held")[2]]


@pytest.mark.parametrize("sink", ["kafka", "store beside", "file"])
def test_a_row_whose_topic_cannot_be_made_is_refused(outbox, make_sink, configure, start_relay, sink):
    """The same for sinks without topics: what a row lacks does not depend on where it goes."""
    sink = make_sink(sink)
    route = {"topic": "orders.{entity_type}", "key": "{message_key}"}
    relay = start_relay(configure(sink, "advisory", {"then": "dead_letter", "max_retries": 0}, route=route))
    writer = Writer(outbox)
    writer.write("held", entity_type=None)
    writer.write("held", topic=sink.topic)
    wait_until(lambda: outbox.pending() == 0, 20, "everything settled")
    assert relay.stop() == 0
    assert arrived_ids(sink) == writer.ids("held")[1:]
    [(_, _, kind, error)] = letters(outbox).values()
    assert kind == "rejected" and "its topic needs column entity_type, which is NULL" in error


# ---- Entities and ids ---------------------------------------------------------------------------------------------------

def test_the_database_itself_refuses_an_entity_that_its_index_cannot_take(outbox):
    """About 2,700 bytes, after compression; the writer hears of it."""
    incompressible = base64.b64encode(random.Random(1).randbytes(7_680)).decode()
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="index row requires"):
        Writer(outbox).write(incompressible)


@pytest.mark.parametrize("reader", [name for name in READERS if name != "wal"])
def test_rows_without_an_entity_stay_where_order_is_kept_and_check_counts_them(
        outbox, make_sink, configure, start_relay, tmp_path, reader):
    sink = make_sink("file")
    content = configure(sink, reader, {})
    writer = Writer(outbox)
    for _ in range(3):
        writer.write(None)
        writer.write("free")
    relay = start_relay(content)
    wait_until(lambda: outbox.pending() == 3, 20, "the others published")
    assert relay.events("outbox.nullable_entity")
    assert relay.stop() == 0
    assert arrived_ids(sink) == writer.ids("free")
    checked = postrider("check", "-c", write_config(tmp_path / "check.yaml", content))
    assert "entity_id is NULL in 3 rows, which are never published where order is kept" in checked.stdout, checked.stdout
    assert 'UPDATE public.outbox SET "entity_id" = "id"::text' in checked.stdout, checked.stdout


@pytest.mark.parametrize("options", [{"reader": "wal"}, {"reader": "skip_locked", "order": "none"}],
                         ids=["wal", "skip_locked"])
def test_rows_without_an_entity_are_published_where_they_need_none(
        outbox, make_sink, configure, start_relay, options):
    """The event store, whose table has versions of an entity, refuses them."""
    sink = make_sink("store elsewhere")
    content = configure(sink, options["reader"], {"then": "dead_letter"})
    content["outboxes"]["orders"] |= options | {"sinks": [{"type": "stdout"}, sink.settings]}
    relay = start_relay(content)
    writer = Writer(outbox)
    for _ in range(3):
        writer.write(None)
    writer.write("")
    writer.write("free")
    wait_until(lambda: outbox.pending() == 0 and len(letters(outbox)) == 3, 20, "everything settled")
    wait_until(lambda: not held(outbox), 5, "nothing held back any more")
    assert relay.stop() == 0
    published = [json.loads(line)["id"] for line in relay.out_file.read_text().splitlines()]
    assert set(published) == {message_id for entity in writer.rows for message_id in writer.ids(entity)}
    assert sorted(arrived_ids(sink)) == sorted(writer.ids("") + writer.ids("free"))
    assert {letter[3] for letter in letters(outbox).values()} == {
        'could not append events: null value in column "entity_id" of relation "event" violates not-null constraint'}
    assert sorted(letters(outbox)) == sorted(row_id for row_id, _ in writer.rows[None])


@pytest.mark.parametrize("reader", ["advisory", "dispatcher", "wal"])
def test_a_long_id_that_is_not_ascii_does_not_keep_its_refusal_from_being_recorded(
        empty_database, tmp_path, start_relay, reader):
    """Messages name it as far as it fits, and must not be cut within a character: the database would refuse them."""
    database = empty_database
    database.execute("CREATE TABLE public.outbox (id text PRIMARY KEY, entity_id text NOT NULL, payload json, headers text)")
    database.execute("CREATE INDEX ON public.outbox (entity_id, id)")
    slot = {"wal": {"slot": f"{database.name}_slot"}} if reader == "wal" else {}
    content = settings(database.dsn, {"type": "stdout"}, **READERS[reader], **slot, poll_interval="1s",
                       route={"topic": "any"}, failure={"then": "block", "max_retries": 0})
    done = postrider("init", "-c", write_config(tmp_path / "prepare.yaml", content))
    assert done.returncode == 0, done.stderr
    relay = start_relay(content)
    database.execute("INSERT INTO public.outbox VALUES (%s, 'held', '{}', '[]'), ('2', 'free', '{}', NULL)",
                     ("x" + "ü" * 300,))
    wait_until(lambda: database.pending() == 1 and held(database).get("held"), 20, "one row held, the other gone")
    database.execute("INSERT INTO public.outbox VALUES ('3', 'free', '{}', NULL)")
    wait_until(lambda: database.pending() == 1, 20, "the next one gone")
    assert relay.stop() == 0
    assert not relay.events("settle.failed")
    assert held(database)["held"][0] == "x" + "ü" * 300


# ---- Twenty megabytes ---------------------------------------------------------------------------------------------------

LARGE = 20 * MEGABYTE
LARGE_ROWS = 5
# Four workers, of which each may have one such row: as libpq got it, as a buffer that it grew in, and as it goes out.
LARGE_CEILING_MB = 4 * 5 * LARGE / MEGABYTE + 60


def write_large(writer, rows):
    """They do not shrink much where they are stored. Each is an entity's second row."""
    source = random.Random(2)
    for number in range(rows):
        writer.write(f"large {number}")
        writer.write(f"large {number}", payload=json.dumps({"text": source.randbytes(LARGE // 2).hex()}).encode())
        writer.write(f"large {number}")
        writer.write(f"free {number}")


@pytest.mark.parametrize("sink, reader", [
    *((sink, "advisory") for sink in ("store beside", "store elsewhere", "file")),
    ("kafka", "advisory"), ("kafka", "dispatcher"), ("kafka", "wal")])
def test_payloads_of_20_mb_arrive_where_they_may_and_memory_is_bounded(
        outbox, make_sink, configure, start_relay, sink, reader):
    large = {"message.max.bytes": "30000000"}
    sink = make_sink(sink, properties=large, config={"max.message.bytes": "30000000"}) if sink == "kafka" else make_sink(sink)
    content = configure(sink, reader, {"then": "block"})
    writer = Writer(outbox)
    relay = start_relay(content)
    write_large(writer, LARGE_ROWS)
    wait_until(lambda: outbox.pending() == 0, 120, "everything settled", pause=0.2)
    peak = relay.peak_rss_mb()
    assert relay.stop() == 0
    assert in_order(writer, arrived_ids(sink)) == {entity: writer.ids(entity) for entity in writer.rows}
    print(f"peak RSS {peak:.0f} MB")
    assert peak < LARGE_CEILING_MB


@pytest.mark.parametrize("reader", ["advisory", "dispatcher", "wal"])
@pytest.mark.parametrize("policy", ["dead_letter", "block"])
def test_payloads_of_20_mb_are_refused_by_a_topic_that_takes_one(
        outbox, make_sink, configure, start_relay, reader, policy):
    """That is Kafka as it comes. The whole row is among the dead letters, and other entities do not wait for it."""
    sink = make_sink("kafka")
    relay = start_relay(configure(sink, reader, {"then": policy}))
    writer = Writer(outbox)
    write_large(writer, 3)
    if policy == "dead_letter":
        wait_until(lambda: outbox.pending() == 0 and len(letters(outbox)) == 3, 120, "three dead letters", pause=0.2)
    else:
        wait_until(lambda: sum(row[4] for row in held(outbox).values()) == 3, 120, "three blocked entities", pause=0.2)
    wait_until(lambda: len(arrived_ids(sink)) >= (9 if policy == "dead_letter" else 6), 20, "the others arrived")
    peak = relay.peak_rss_mb()
    assert relay.stop() == 0
    kept = slice(None, None, 2) if policy == "dead_letter" else slice(1)
    assert in_order(writer, arrived_ids(sink)) == {
        entity: writer.ids(entity)[kept] if entity.startswith("large") else writer.ids(entity) for entity in writer.rows}
    if policy == "dead_letter":
        column = "octet_length(fields[array_position(names, 'payload')])" if reader == "wal" else \
            "octet_length(decode(substr(row ->> 'payload', 3), 'hex'))"
        assert [size for size, in outbox.execute(f"SELECT {column} FROM postrider.dead_letter")] == [LARGE + 12] * 3
    print(f"peak RSS {peak:.0f} MB")
    assert peak < LARGE_CEILING_MB
