"""docs/consumers.md: the consumers that it shows do their work once and in order, and it shows what is tested here."""

import os
import re
import signal
import textwrap
from collections import Counter

import pytest
from confluent_kafka import Producer
from psycopg import RawCursor

from tests.e2e.checker import expect_in_order
from tests.e2e.consume import read_topic, wait_for_records
from tests.e2e.consumers import COMMANDS, EXAMPLES, Books, ExampleConsumer, wait_until_all_is_consumed
from tests.e2e.ledger import arrivals
from tests.e2e.relay import ROOT, kafka_settings, postrider, wait_until, write_config
from tests.e2e.scene import dropped, new_database

ENTITIES, ROWS = 50, 40
PAGE = ROOT / "docs" / "consumers.md"

# Where Go is not there yet, the first test that needs the example builds it.
pytestmark = pytest.mark.timeout(300)

every_language = pytest.mark.parametrize("language", list(COMMANDS))


@pytest.fixture
def books(pg):
    database = new_database(pg)
    yield Books(database)
    dropped(database)


@pytest.fixture
def start_consumer(make_relay, request, language, books, tmp_path):
    """Starts processes of the example in that language; they end with the test, and a failure shows their logs."""
    command = COMMANDS[language]()

    def start(kafka, topic, id_header="id"):
        consumer = ExampleConsumer(tmp_path, command, books, kafka, topic, id_header)
        request.node.relays.append(consumer)
        return consumer.start(wait=False)

    return start


def publish_without_settling(database, kafka, topic, start_relay, rows):
    """A relay publishes at least that many rows and is killed before one of them is settled."""
    with database.connect(autocommit=False) as holder:
        holder.execute("SELECT FROM public.outbox FOR UPDATE")          # reading goes on, deleting waits
        relay = start_relay(kafka_settings(database, kafka, topic))
        wait_for_records(kafka, topic, rows)
        relay.kill9()
        # Its settling waits in the server and would be done after all.
        database.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                         " WHERE application_name LIKE 'postrider%%' AND datname = current_database()")


def publish_the_rest(database, kafka, topic, start_relay):
    relay = start_relay(kafka_settings(database, kafka, topic))
    database.wait_until_empty()
    assert relay.stop() == 0


def repeats(records, id_header="id"):
    counts = Counter(record.header(id_header) for record in records)
    return sum(counts.values()) - len(counts)


# ---- Once, and in order ---------------------------------------------------------------------------------------------

# Each on one version of PostgreSQL: the statements are the same, and both versions are met.
@pytest.mark.parametrize("language, pg", [("python", 15), ("go", 18)], indirect=["pg"])
def test_killed_relays_and_consumers_leave_every_effect_once_and_in_order(
        database, books, fragile_kafka, fragile_topic, start_relay, start_consumer, language):
    kafka, topic = fragile_kafka, fragile_topic
    database.entities(ENTITIES)
    database.write_backlog(ROWS)
    publish_without_settling(database, kafka, topic, start_relay, 100)
    first = start_consumer(kafka, topic)
    # So that what is new from here on is in the topic only once: nothing makes good for a message that is passed over.
    wait_until_all_is_consumed(kafka, topic)

    with books.work_held_up():
        publish_the_rest(database, kafka, topic, start_relay)
        books.wait_until_somebody_is_held_up()
        first.kill9()                                   # in the middle of a transaction
        books.end_sessions()
        second = start_consumer(kafka, topic)
        books.wait_until_somebody_is_held_up()
        before = books.remembered()
        os.kill(kafka.pid, signal.SIGSTOP)
    wait_until(lambda: books.remembered() > before, 20, "a transaction that is committed")
    second.kill9()                                      # behind its transaction, before its offsets
    os.kill(kafka.pid, signal.SIGCONT)
    not_committed = books.remembered() - before

    third = start_consumer(kafka, topic)
    wait_until_all_is_consumed(kafka, topic)
    assert third.stop() == 0

    records = read_topic(kafka, topic)
    expect_in_order(database.ledger(), arrivals(records))
    assert repeats(records) >= 100
    assert third.handled()[1] >= not_committed > 0
    assert books.remembered() == ENTITIES * ROWS
    assert books.lines() == {f"order-{number}": list(range(1, ROWS + 1)) for number in range(ENTITIES)}


# ---- The id by its other names --------------------------------------------------------------------------------------

DEBEZIUM_TABLE = """
CREATE TABLE public.outboxevent (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL,
    aggregateid text NOT NULL, type text NOT NULL, payload jsonb, seq bigint GENERATED ALWAYS AS IDENTITY);
CREATE INDEX ON public.outboxevent (aggregateid, seq);
"""
SETTINGS = {
    "cloudevents": ("ce_id", "public.outbox", {}, {"envelope": "cloudevents"}),
    "debezium": ("id", "public.outboxevent", {"preset": "debezium", "order_by": "seq"}, {}),
}
INSERTS = {
    "public.outbox": "INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)",
    "public.outboxevent": "INSERT INTO public.outboxevent (aggregatetype, aggregateid, type, payload)",
}


@every_language
@pytest.mark.parametrize("kind", list(SETTINGS))
def test_the_id_is_found_under_its_other_names(database, books, kafka, topic, start_relay, start_consumer, tmp_path,
                                               kind):
    id_header, table, options, route = SETTINGS[kind]
    content = kafka_settings(database, kafka, topic, table=table, route={"topic": topic, **route}, **options)
    database.execute(DEBEZIUM_TABLE)
    done = postrider("init", "-c", write_config(tmp_path / "existing.yaml", content), "--existing", table)
    assert done.returncode == 0, done.stderr
    database.execute(INSERTS[table] + " SELECT 'order', 'order-1', 'changed', jsonb_build_object('seq', n)"
                                      " FROM generate_series(1, 20) AS n")
    relay = start_relay(content)
    database.wait_until_empty(table=table)
    assert relay.stop() == 0
    records = read_topic(kafka, topic)
    produce_again(kafka, topic, records)

    consumer = start_consumer(kafka, topic, id_header)
    wait_until_all_is_consumed(kafka, topic)
    assert consumer.stop() == 0
    assert consumer.handled() == (len(records), len(records))
    assert books.lines() == {"order-1": list(range(1, 21))}


def produce_again(kafka, topic, records):
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for record in records:
        producer.produce(topic, record.value, key=record.key, headers=record.headers, partition=record.partition)
    assert producer.flush(20) == 0


@every_language
def test_a_message_without_an_id_ends_the_consumer_and_is_not_passed_over(books, kafka, topic, start_consumer):
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b'{"seq": 1}', key=b"order-1")
    assert producer.flush(20) == 0
    for _ in range(2):
        consumer = start_consumer(kafka, topic)
        assert consumer.wait() == 1
        assert "has no header id" in consumer.log_text()
    assert books.remembered() == 0 and books.lines() == {}


# ---- Statements -----------------------------------------------------------------------------------------------------

def test_the_inbox_forgets_what_is_old_and_nothing_else(books):
    database = books.database
    database.execute("INSERT INTO inbox SELECT 'billing', n, now() - n * interval '10 days'"
                     " FROM generate_series(1, 5) AS n")
    database.execute((EXAMPLES / "expire.sql").read_text())
    assert database.execute("SELECT message_id FROM inbox ORDER BY 1") == [("1",), ("2",)]


def test_the_upsert_keeps_the_newest_whatever_comes_again(database, books, kafka, topic, start_relay):
    """The number is the row's id, in a header that the settings on the page ask for."""
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                     " SELECT 'order', 'order-' || e, 'changed', jsonb_build_object('seq', n)"
                     " FROM generate_series(1, 10) AS n, generate_series(1, 5) AS e ORDER BY n, e")
    relay = start_relay(kafka_settings(
        database, kafka, topic, route={"topic": topic, "headers": {"sequence": "{id}"}}))
    database.wait_until_empty()
    assert relay.stop() == 0
    records = read_topic(kafka, topic)

    books.database.execute(quote("version.sql", "table"))
    upsert = quote("version.sql", "upsert")
    with books.database.connect(cursor_factory=RawCursor) as connection:
        for record in [*records, *records[:-3]]:
            connection.execute(upsert, (record.key.decode(), int(record.header("sequence")), record.value.decode()))
    assert books.database.execute("SELECT order_id, (body ->> 'seq')::int FROM order_copy ORDER BY 1") == [
        (f"order-{number}", 10) for number in range(1, 6)]


# ---- The page shows what was tested ---------------------------------------------------------------------------------

def quote(path, name):
    """The part of an example between `quote: NAME` and `end quote`."""
    return quotes(EXAMPLES / path)[name]


def quotes(path):
    found = re.findall(r"^\S+ quote: (\w+)\n(.*?)^\S+ end quote$", path.read_text(), re.DOTALL | re.MULTILINE)
    return {name: textwrap.dedent(text).strip("\n") for name, text in found}


def test_the_page_shows_the_code_that_is_tested():
    """Code in a programming language follows a comment that says where it is from; all that is marked is shown."""
    marked = {(str(path.relative_to(ROOT)), name): text for path in EXAMPLES.rglob("*.*")
              for name, text in quotes(path).items()}
    blocks = re.findall(r"(?:^<!-- (\S+): (\w+) -->\n)?^```(?:python|go|sql)\n(.*?)\n```$", PAGE.read_text(),
                        re.DOTALL | re.MULTILINE)
    shown = {(path, name): text for path, name, text in blocks}
    assert len(marked) >= 9 and shown == marked


def test_the_example_asks_for_the_packages_that_it_is_tested_with():
    def pins(path):
        return {line for line in path.read_text().splitlines() if line and not line.startswith("#")}

    assert pins(EXAMPLES / "python" / "requirements.txt") <= pins(ROOT / "tests" / "requirements.txt")
