"""Trouble with a sink that is nobody's row's fault: it is shown, nothing is counted, and it goes on by itself."""

import json
import os
import time

from tests.e2e.consume import read_topic
from tests.e2e.relay import kafka_settings, settings, wait_until
from tests.e2e.sink_state import nothing_is_blamed, wait_until_away, wait_until_there


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
