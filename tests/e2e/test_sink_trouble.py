"""Trouble with a sink that is nobody's row's fault: it is shown, nothing is counted, and it goes on by itself."""

import json
import os
import time

from tests.e2e.consume import read_topic
from tests.e2e.relay import kafka_settings, postrider, settings, wait_until
from tests.e2e.scene import initialised, new_database, new_topic


def sink_state(database):
    """What the only node says of its only sink; None before its first heartbeat."""
    rows = database.execute("SELECT state #> '{outboxes,0,sinks,0}' FROM postrider.node")
    return rows[0][0] if rows else None


def wait_until_away(database, kind, *fragments):
    def look():
        state = sink_state(database)
        return state if state and state["open_since"] else None

    state = wait_until(look, 60, "the sink is away")
    assert state["kind"] == kind, state
    assert all(part in state["reason"] for part in fragments), state
    return state


def wait_until_there(database):
    wait_until(lambda: sink_state(database)["open_since"] is None, 60, "the sink is there")


def nothing_is_blamed(database):
    return database.value("SELECT count(*) FROM postrider.retry") == 0


def test_brokers_that_are_away_are_shown_and_rows_go_on_in_order(database, fragile_kafka, fragile_topic, start_relay):
    relay = start_relay(kafka_settings(database, fragile_kafka, fragile_topic))
    database.insert("a", '{"n": 0}')
    database.wait_until_empty()
    wait_until(lambda: sink_state(database) == {"name": "kafka", "open_since": None}, what="a sink that is there")
    fragile_kafka.stop()
    for number in range(1, 30):
        database.insert("a", json.dumps({"n": number}))
        database.insert(f"entity-{number}")
    state = wait_until_away(database, "transport", fragile_kafka.bootstrap)
    time.sleep(4)
    assert nothing_is_blamed(database)
    assert sink_state(database)["open_since"] == state["open_since"]
    text = postrider("status", "-c", relay.config).stdout
    assert f"sink kafka of orders on node 1: away since {state['open_since']}: " in text
    shown = json.loads(postrider("status", "--json", "-c", relay.config).stdout)
    assert shown["nodes"][0]["outboxes"][0]["sinks"][0]["open_since"] == state["open_since"]
    fragile_kafka.start()
    wait_until_there(database)
    database.wait_until_empty(60)
    assert "away" not in postrider("status", "-c", relay.config).stdout
    numbers = [json.loads(record.value)["n"] for record in read_topic(fragile_kafka, fragile_topic) if record.key == b"a"]
    assert numbers == list(range(30))
    assert nothing_is_blamed(database)
    assert relay.stop() == 0


def test_without_rows_a_relay_notices_that_brokers_are_back(database, fragile_kafka, fragile_topic, start_relay):
    relay = start_relay(kafka_settings(database, fragile_kafka, fragile_topic))
    database.insert("a")
    database.wait_until_empty()
    fragile_kafka.stop()
    wait_until_away(database, "transport")
    cpu = relay.cpu_seconds()
    time.sleep(3)
    assert relay.cpu_seconds() - cpu < 0.15, "looking for the brokers is work"
    fragile_kafka.start()
    wait_until_there(database)
    relay.wait_for("kafka.back")
    assert relay.stop() == 0


def test_brokers_that_refuse_us_are_shown_and_nothing_is_counted(database, kafka_sasl, start_relay, tmp_path):
    secret = tmp_path / "password"
    secret.write_text("not-the-password")
    content = kafka_settings(database, kafka_sasl, new_topic(kafka_sasl))
    content["outboxes"]["orders"]["sinks"][0] |= {
        "tls": "on", "tls_ca_file": str(kafka_sasl.ca_file), "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": kafka_sasl.username, "sasl_password_file": str(secret)}
    content["stop_timeout"] = "1s"
    database.insert("a")
    relay = start_relay(content, wait=False)
    wait_until_away(database, "auth", "uthentication")
    assert relay.events("kafka.refused")
    time.sleep(3)
    assert database.pending() == 1 and nothing_is_blamed(database)
    relay.stop()


def test_an_event_store_that_is_away_is_shown_and_goes_on(database, fragile_pg, start_relay, tmp_path):
    store = initialised(new_database(fragile_pg), tmp_path)
    relay = start_relay(settings(database.dsn, {"type": "postgres", "url": store.dsn}, poll_interval="1s"))
    database.insert("a")
    database.wait_until_empty()
    fragile_pg.stop("immediate")
    for number in range(5):
        database.insert("a", json.dumps({"n": number}))
    wait_until_away(database, "transport")
    assert database.pending() == 5 and nothing_is_blamed(database)
    fragile_pg.start()
    database.wait_until_empty(60)
    wait_until_there(database)
    assert nothing_is_blamed(database)
    stored = store.execute("SELECT version, payload ->> 'n' FROM postrider.event ORDER BY version OFFSET 1")
    assert stored == [(number + 2, str(number)) for number in range(5)]
    assert relay.stop() == 0


def test_a_pipe_that_nobody_reads_is_shown_and_goes_on(database, start_relay, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    relay = start_relay(settings(database.dsn, {"type": "stdout", "path": str(pipe)}))
    for number in range(5):
        database.insert("a", json.dumps({"n": number}))
    wait_until_away(database, "transport", str(pipe))
    assert database.pending() == 5 and nothing_is_blamed(database)
    with open(pipe) as lines:
        assert [json.loads(lines.readline())["payload"]["n"] for _ in range(5)] == list(range(5))
        database.wait_until_empty(20)
        wait_until_there(database)
        assert relay.stop() == 0


def test_a_topic_that_is_created_later_gets_its_rows_in_seconds(database, kafka, topic, start_relay):
    """Only entities of that topic wait meanwhile, and no attempt is counted."""
    later = f"{topic}-later"
    relay = start_relay(kafka_settings(database, kafka, topic))
    for number in range(1, 4):
        database.insert("early", json.dumps({"n": number}), topic=later)
        database.insert("free", json.dumps({"n": number}))
    relay.wait_for("row.refused", kind="config")
    wait_until(lambda: database.pending() == 3, what="the rows of the other topic gone")
    time.sleep(5)
    assert database.value("SELECT max(attempts) FROM postrider.retry") == 0
    kafka.create_topic(later, partitions=2)
    database.wait_until_empty(10)
    assert [json.loads(record.value)["n"] for record in read_topic(kafka, later)] == [1, 2, 3]
    wait_until(lambda: database.value("SELECT count(*) FROM postrider.retry") == 0, what="no entity on the list")
    assert relay.stop() == 0
