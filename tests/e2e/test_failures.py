"""What becomes of a row that its destination refuses for good: retries, and each policy when they are used up."""

import json
import time

import pytest

from tests.e2e.consume import read_topic
from tests.e2e.relay import kafka_settings, postrider, settings, wait_until, write_config

LIMIT = 20_000
BIG = json.dumps({"text": "x" * 2 * LIMIT})

READERS = {
    "advisory": {"reader": "advisory"},
    "lease": {"reader": "lease", "lease": "3s"},
    "skip_locked": {"reader": "skip_locked", "order": "entity"},
    "shards": {"reader": "shards", "shards": {"count": 2}},
    "dispatcher": {"reader": "dispatcher"},
    "wal": {"reader": "wal"},
}
each_reader = pytest.mark.parametrize("reader", READERS)


@pytest.fixture
def small_topic(make_topic):
    return make_topic(config={"max.message.bytes": str(LIMIT)})


@pytest.fixture
def start(start_relay, tmp_path):
    """Prepares the reader and starts a relay with quick retries; `failure` are its settings."""
    def prepared(database, kafka, topic, reader, failure, wait=True, **options):
        slot = {"wal": {"slot": f"{database.name}_slot"}} if reader == "wal" else {}
        content = kafka_settings(database, kafka, topic, **READERS[reader], **slot, **options,
                                 failure={"first_delay": "50ms", "max_delay": "200ms", **failure})
        done = postrider("init", "-c", write_config(tmp_path / "prepare.yaml", content))
        assert done.returncode == 0, done.stderr
        return start_relay(content, wait=wait)
    return prepared


def letters(database):
    with database.connect() as connection:
        return connection.execute(
            "SELECT entity, row_id, attempts, kind, error, topic, event_type, row ->> 'payload', is_message, names, fields"
            " FROM postrider.dead_letter ORDER BY id").fetchall()


def held(database, entity="held"):
    return database.value("SELECT count(*) FROM postrider.retry WHERE entity = %s", (entity,))


def values(kafka, topic, key=b"held"):
    return [json.loads(record.value) for record in read_topic(kafka, topic) if record.key == key]


def nothing_is_left(database):
    assert database.pending() == 0
    assert database.value("SELECT count(*) FROM postrider.retry") == 0
    assert database.value("SELECT count(*) FROM postrider.parked") == 0


# ---- Dead letters -----------------------------------------------------------------------------------------------------

@each_reader
def test_a_dead_letter_lets_its_entity_go_on_in_order(database, kafka, small_topic, start, reader):
    """First it is tried as often as the settings say; nothing of its entity passes it meanwhile."""
    relay = start(database, kafka, small_topic, reader, {"then": "dead_letter", "max_retries": 2})
    database.insert("held", '{"n": 1}')
    poison = database.insert("held", BIG)
    for n in range(3, 20):
        database.insert("held", json.dumps({"n": n}))
        database.insert(f"free-{n}", '{"n": 1}')
    wait_until(lambda: len(letters(database)) == 1, 40, "a dead letter")
    wait_until(lambda: database.pending() == 0, 40, "everything else gone")
    entity, row_id, attempts, kind, error, topic, event_type, *_ = letters(database)[0]
    assert (entity, row_id, attempts, kind, topic) == ("held", str(poison), 3, "rejected", small_topic)
    assert event_type and "too large" in error.lower()
    wait_until(lambda: len(read_topic(kafka, small_topic)) == 35, 20, "all others published")
    assert relay.stop() == 0
    assert values(kafka, small_topic) == [{"n": n} for n in range(1, 20) if n != 2]
    assert [event["id"] for event in relay.events("row.dead")] == [str(poison)]
    assert len(relay.events("row.refused", id=str(poison))) == 2
    nothing_is_left(database)


@each_reader
def test_without_retries_the_first_refusal_is_the_last(database, kafka, small_topic, start, reader):
    """Several in one claim, one behind the other, beside good rows."""
    for n in range(1, 31):
        database.insert("held", BIG if n % 3 == 0 else json.dumps({"n": n}))
    relay = start(database, kafka, small_topic, reader, {"then": "dead_letter", "max_retries": 0})
    wait_until(lambda: len(letters(database)) == 10, 60, "ten dead letters")
    wait_until(lambda: database.pending() == 0, 40, "everything else gone")
    assert relay.stop() == 0
    assert values(kafka, small_topic) == [{"n": n} for n in range(1, 31) if n % 3]
    assert {letter[2] for letter in letters(database)} == {1}
    nothing_is_left(database)


@pytest.mark.parametrize("reader", ["advisory", "wal"])
def test_a_dead_letter_has_everything_of_its_row(database, kafka, small_topic, start, reader):
    relay = start(database, kafka, small_topic, reader, {"then": "dead_letter", "max_retries": 0})
    payload = '{"b":  1, "a": 2, "text": "%s"}' % ("ü" * LIMIT)
    number = database.insert("held", payload, headers='{"x": "y"}', topic=small_topic)
    wait_until(lambda: letters(database), 40, "a dead letter")
    assert relay.stop() == 0
    with database.connect() as connection:
        row, message_id, names, fields = connection.execute(
            "SELECT row::text, message_id, names, fields FROM postrider.dead_letter").fetchone()
    if reader == "wal":
        found = dict(zip(names, fields))
        assert found["payload"].decode() == payload and found["entity_id"] == b"held"
    else:
        assert payload in row, "json is kept byte for byte"
        assert json.loads(row)["id"] == number and json.loads(row)["message_id"] == message_id
        assert json.loads(row)["headers"] == {"x": "y"}


@pytest.mark.parametrize("reader", ["advisory", "dispatcher", "wal"])
def test_a_dead_letter_goes_to_its_topic_too(database, kafka, small_topic, make_topic, start, reader):
    grave = make_topic()
    relay = start(database, kafka, small_topic, reader,
                  {"then": "dead_letter", "max_retries": 1, "dead_letter_topic": grave})
    database.insert("held", '{"n": 1}')
    poison = database.insert("held", BIG)
    database.insert("held", '{"n": 3}')
    wait_until(lambda: len(letters(database)) == 1, 40, "a dead letter")
    wait_until(lambda: database.pending() == 0, 40, "everything else gone")
    assert relay.stop() == 0
    [letter] = read_topic(kafka, grave)
    assert letter.value.decode() == BIG and letter.key == b"held"
    assert letter.header("postrider-dead-topic").decode() == small_topic
    assert letter.header("postrider-dead-kind") == b"rejected"
    assert letter.header("postrider-dead-attempts") == b"2"
    assert "too large" in letter.header("postrider-dead-error").decode().lower()
    assert [row[1] for row in letters(database)] == [str(poison)]
    assert letters(database)[0][5] == small_topic
    assert values(kafka, small_topic) == [{"n": 1}, {"n": 3}]
    nothing_is_left(database)


def test_a_letter_that_its_topic_refuses_as_well_is_kept_in_the_table(database, kafka, small_topic, make_topic, start):
    grave = make_topic(config={"max.message.bytes": str(LIMIT)})
    relay = start(database, kafka, small_topic, "advisory",
                  {"then": "dead_letter", "max_retries": 0, "dead_letter_topic": grave})
    database.insert("held", BIG)
    database.insert("held", '{"n": 2}')
    wait_until(lambda: len(letters(database)) == 1, 40, "a dead letter")
    wait_until(lambda: database.pending() == 0, 40, "everything else gone")
    assert relay.stop() == 0
    assert letters(database)[0][5] == small_topic
    assert read_topic(kafka, grave) == []
    assert values(kafka, small_topic) == [{"n": 2}]


def test_a_row_that_cannot_be_routed_becomes_a_dead_letter(database, kafka, topic, start):
    relay = start(database, kafka, topic, "advisory", {"then": "dead_letter", "max_retries": 0, "dead_letter_topic": topic})
    database.insert("held", headers='["not", "an", "object"]')
    database.insert("held", '{"n": 2}')
    wait_until(lambda: len(letters(database)) == 1 and database.pending() == 0, 40, "a dead letter")
    assert relay.stop() == 0
    assert values(kafka, topic) == [{"n": 2}]


def test_a_row_that_the_event_store_refuses_becomes_a_dead_letter(database, start_relay):
    """The store rides in the settling transaction, which is refused as a whole."""
    database.execute("ALTER TABLE postrider.event ADD CHECK (payload::text NOT LIKE '%poison%')")
    relay = start_relay(settings(database.dsn, {"type": "postgres"}, poll_interval="1s",
                                 failure={"then": "dead_letter", "max_retries": 1, "first_delay": "50ms"}))
    for n in range(1, 40):
        database.insert("held", json.dumps({"n": n} if n % 10 else {"poison": n}))
    wait_until(lambda: database.pending() == 0, 40, "everything gone")
    assert relay.stop() == 0
    assert len(letters(database)) == 3
    with database.connect() as connection:
        stored = connection.execute("SELECT payload FROM postrider.event ORDER BY position").fetchall()
    assert [payload["n"] for payload, in stored] == [n for n in range(1, 40) if n % 10]


# ---- The other policies -----------------------------------------------------------------------------------------------

@each_reader
def test_a_row_that_is_skipped_is_dropped_and_logged(database, kafka, small_topic, start, reader):
    relay = start(database, kafka, small_topic, reader, {"then": "skip", "max_retries": 1})
    database.insert("held", '{"n": 1}')
    poison = database.insert("held", BIG)
    database.insert("held", '{"n": 3}')
    wait_until(lambda: database.pending() == 0, 40, "everything gone")
    wait_until(lambda: len(values(kafka, small_topic)) == 2, 20, "the rest published")
    assert relay.stop() == 0
    assert values(kafka, small_topic) == [{"n": 1}, {"n": 3}]
    assert [event["id"] for event in relay.events("row.skipped")] == [str(poison)]
    assert letters(database) == []
    nothing_is_left(database)


@each_reader
def test_an_entity_that_is_blocked_stays_so_after_a_restart(database, kafka, small_topic, start, start_relay, reader):
    relay = start(database, kafka, small_topic, reader, {"then": "block", "max_retries": 1})
    database.insert("held", '{"n": 1}')
    poison = database.insert("held", BIG)
    database.insert("held", '{"n": 3}')
    relay.wait_for("entity.blocked", id=str(poison))
    wait_until(lambda: database.value("SELECT count(*) FROM postrider.retry WHERE blocked_at IS NOT NULL"), 20, "it blocked")
    attempts = database.value("SELECT attempts FROM postrider.retry")
    assert attempts == 2
    assert relay.stop() == 0
    again = start(database, kafka, small_topic, reader, {"then": "block", "max_retries": 1})
    database.insert("free", '{"n": 1}')
    wait_until(lambda: values(kafka, small_topic, b"free"), 20, "another entity published")
    time.sleep(1)
    assert again.stop() == 0
    assert values(kafka, small_topic) == [{"n": 1}]
    assert database.value("SELECT attempts FROM postrider.retry WHERE blocked_at IS NOT NULL") == attempts
    assert not again.events("row.refused")


@each_reader
def test_stop_ends_the_process_at_the_first_refusal(database, kafka, small_topic, start, reader):
    relay = start(database, kafka, small_topic, reader, {"then": "stop"})
    database.insert("held", '{"n": 1}')
    poison = database.insert("held", BIG)
    database.insert("held", '{"n": 3}')
    relay.process.wait(30)
    assert relay.process.returncode == 1, relay.log_text()
    [last] = relay.events("relay.failed")
    assert str(poison) in last["error"] and "failure.then is stop" in last["error"]
    assert values(kafka, small_topic) == [{"n": 1}]
    assert database.value("SELECT row_id FROM postrider.retry") == str(poison)
    assert database.value("SELECT count(*) FROM postrider.dead_letter") == 0

    # Mended, the next process goes on in order.
    if reader == "wal":
        return
    database.execute("UPDATE public.outbox SET payload = '{\"n\": 2}' WHERE id = %s", (poison,))
    again = start(database, kafka, small_topic, reader, {"then": "stop"})
    database.wait_until_empty()
    assert again.stop() == 0
    assert values(kafka, small_topic) == [{"n": n} for n in (1, 2, 3)]


def test_topics_have_policies_of_their_own(database, kafka, make_topic, start):
    topics = {name: make_topic(config={"max.message.bytes": str(LIMIT)}) for name in ("skip", "dead_letter", "block")}
    other = make_topic(config={"max.message.bytes": str(LIMIT)})
    relay = start(database, kafka, other, "advisory", {
        "then": "dead_letter", "max_retries": 0,
        "topics": {topics["skip"]: "skip", topics["block"][:-1] + "*": "block"}})
    for name, topic in [*topics.items(), ("other", other)]:
        database.insert(name, BIG, topic=topic)
    wait_until(lambda: database.pending() == 1 and held(database, "block"), 40, "each row has its end")
    assert relay.stop() == 0
    assert sorted(row[0] for row in letters(database)) == ["dead_letter", "other"]
    assert [event["entity"] for event in relay.events("row.skipped")] == ["skip"]


def test_wrong_policies_are_refused_with_their_place(tmp_path, database):
    content = ('outboxes:\n  orders:\n    sinks: [{type: stdout}]\n    failure:\n      then: explode\n      topics:\n'
               '        audit: explode\n      first_delay: 10s\n      max_delay: 1s\n')
    done = postrider("check", "-c", write_config(tmp_path / "wrong.yaml", content))
    assert done.returncode == 78
    for line in ("wrong.yaml:5:13: `failure.then` must be block, dead_letter, skip or stop",
                 "wrong.yaml:7:16: `failure.topics.audit` must be block, dead_letter, skip or stop, not \"explode\"",
                 "wrong.yaml:9:18: `failure.max_delay` is less than `failure.first_delay`"):
        assert line in done.stderr, done.stderr


# ---- Retries ------------------------------------------------------------------------------------------------------------

def test_delays_double_up_to_the_longest(database, kafka, small_topic, start):
    relay = start(database, kafka, small_topic, "advisory",
                  {"max_retries": 5, "first_delay": "100ms", "max_delay": "400ms", "jitter": 0, "then": "block"})
    poison = database.insert("held", BIG)
    relay.wait_for("entity.blocked", id=str(poison))
    assert relay.stop() == 0
    delays = [event["retry_in_ms"] for event in relay.events("row.refused", id=str(poison))]
    assert delays == [100, 200, 400, 400, 400]


@pytest.mark.parametrize("reader", [reader for reader in READERS if reader != "wal"])  # the log has the row as it was written
def test_a_row_that_is_mended_passes_and_the_count_is_forgotten(database, kafka, small_topic, make_topic, start, reader):
    """Nobody has to unblock what recovers by itself."""
    relay = start(database, kafka, small_topic, reader, {"max_retries": 1000, "then": "dead_letter"})
    poison = database.insert("held", BIG)
    database.insert("held", '{"n": 2}')
    wait_until(lambda: len(relay.events("row.refused", id=str(poison))) >= 3, 20, "three refusals")
    database.execute("UPDATE public.outbox SET payload = '{\"n\": 1}' WHERE id = %s", (poison,))
    database.wait_until_empty(40)
    assert relay.stop() == 0
    assert values(kafka, small_topic) == [{"n": 1}, {"n": 2}]
    nothing_is_left(database)


@each_reader
def test_a_letter_says_when_its_entity_has_gone_on(database, kafka, small_topic, start, reader):
    """Rows ahead of it do not count, nor do other entities."""
    relay = start(database, kafka, small_topic, reader, {"then": "dead_letter", "max_retries": 0})
    with database.connect() as connection:
        connection.execute(
            "INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
            " SELECT 'order', e, 'changed', p FROM (VALUES ('held', '{\"n\": 1}'::json), ('held', %s), ('free', '{}')) v(e, p)",
            (BIG,))
    wait_until(lambda: len(letters(database)) == 1 and database.pending() == 0, 40, "a dead letter")
    database.insert("free")
    wait_until(lambda: database.pending() == 0, 20, "the free one gone")
    assert database.value("SELECT passed_at FROM postrider.dead_letter") is None
    database.insert("held", '{"n": 3}')
    wait_until(lambda: database.value("SELECT passed_at FROM postrider.dead_letter"), 20, "the entity gone on")
    assert relay.stop() == 0
    assert values(kafka, small_topic) == [{"n": 1}, {"n": 3}]
