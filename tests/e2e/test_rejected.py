"""A row that its sink refuses for good holds its own entity, and nothing else."""

import json
import time

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.e2e.consume import read_topic
from tests.e2e.relay import kafka_settings, postrider, wait_until, write_config


def test_a_row_that_is_too_large_for_the_client_holds_only_its_entity(database, kafka, topic, start_relay):
    """Like one that is too large for the topic, which is in the conformance suite."""
    relay = start_relay(kafka_settings(database, kafka, topic))
    database.insert("held", '{"n": 1}')
    poison = database.insert("held", json.dumps({"n": 2, "text": "x" * 1_200_000}))
    database.insert("held", '{"n": 3}')
    for number in range(300):
        database.insert(f"free-{number % 30}")
    relay.wait_for("row.refused", id=str(poison))
    wait_until(lambda: database.pending() == 2, what="all but the held entity gone")
    for number in range(30):
        database.insert(f"free-{number}")
    wait_until(lambda: database.pending() == 2, what="all but the held entity gone again")
    time.sleep(2)
    keys = [(record.key, record.value) for record in read_topic(kafka, topic)]
    assert [value for key, value in keys if key == b"held"] == [b'{"n": 1}']
    assert sum(key != b"held" for key, _ in keys) == 330
    assert len(relay.events("row.refused", id=str(poison))) < 10
    assert "xxxx" not in relay.log_text(), "a payload in the log"

    database.execute("DELETE FROM public.outbox WHERE id = %s", (poison,))
    database.wait_until_empty(timeout=40)
    held = [record.value for record in read_topic(kafka, topic) if record.key == b"held"]
    assert held == [b'{"n": 1}', b'{"n": 3}']
    wait_until(lambda: database.value("SELECT count(*) FROM postrider.retry") == 0, 40, "no entity on the list")
    assert relay.stop() == 0


def test_a_limit_that_was_raised_costs_no_further_refusal(database, kafka, make_topic, start_relay):
    topic = make_topic(config={"max.message.bytes": "20000"})
    relay = start_relay(kafka_settings(database, kafka, topic))
    database.insert("first")
    database.wait_until_empty()
    database.insert("held", json.dumps({"text": "x" * 30_000}))
    relay.wait_for("row.refused")
    change = ConfigEntry("max.message.bytes", "50000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": kafka.admin_bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(10)
    refused = len(relay.events("row.refused"))
    database.wait_until_empty()
    assert len(relay.events("row.refused")) == refused
    assert not relay.events("kafka.replaced")
    assert relay.stop() == 0


def test_a_row_that_cannot_be_routed_holds_only_its_entity(database, kafka, topic, start_relay):
    relay = start_relay(kafka_settings(database, kafka, topic))
    poison = database.insert("held", headers='["not", "an", "object"]')
    database.insert("held")
    database.insert("free")
    relay.wait_for("row.refused", id=str(poison))
    wait_until(lambda: database.pending() == 2, what="all but the held entity gone")
    database.execute("UPDATE public.outbox SET headers = NULL WHERE id = %s", (poison,))
    database.wait_until_empty(timeout=40)
    assert [record.key for record in read_topic(kafka, topic)].count(b"held") == 2
    assert relay.stop() == 0


def test_what_was_refused_is_known_to_other_processes_and_after_a_restart(database, kafka, make_topic, start_relay):
    """The second process neither overtakes the held row nor starts counting at zero."""
    topic = make_topic(config={"max.message.bytes": "20000"})
    content = kafka_settings(database, kafka, topic)
    first = start_relay(content)
    poison = database.insert("held", json.dumps({"text": "x" * 30_000}))
    database.insert("held", '{"n": 2}')
    first.wait_for("row.refused", id=str(poison))
    wait_until(lambda: database.value("SELECT count(*) FROM postrider.retry") == 1, what="the entity on the list")
    assert first.stop() == 0
    attempts = database.value("SELECT attempts FROM postrider.retry")
    assert attempts >= 1
    second = start_relay(content)
    database.insert("free")
    wait_until(lambda: database.pending() == 2, what="the free row gone")
    wait_until(lambda: database.value("SELECT attempts FROM postrider.retry") > attempts, 40, "another attempt")
    assert {record.key for record in read_topic(kafka, topic)} == {b"free"}
    assert second.stop() == 0


def test_many_held_entities_do_not_stop_the_rest(database, kafka, make_topic, start_relay):
    """More held entities than one claim can hold."""
    topic = make_topic(config={"max.message.bytes": "20000"})
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                     " SELECT 'o', 'bad-' || n, 'x', json_build_object('text', repeat('x', 25000))"
                     " FROM generate_series(1, 150) AS n")
    relay = start_relay(kafka_settings(database, kafka, topic, batch_size=20, batch_max=20, workers=2))
    for number in range(100):
        database.insert(f"good-{number}")
    wait_until(lambda: database.pending() == 150, 40, "all good rows gone")
    assert len(read_topic(kafka, topic)) == 100
    assert relay.stop() == 0


@pytest.mark.parametrize("options", [{"reader": "shards", "shards": {"count": 2}}, {"reader": "dispatcher"}],
                         ids=["shards", "dispatcher"])
def test_a_reader_that_reads_ahead_brings_nothing_past_a_refused_row(
        database, kafka, topic, start_relay, tmp_path, options):
    """Neither later rows of the entity while the first one waits for its next attempt, nor any when it has passed."""
    content = kafka_settings(database, kafka, topic, **options)
    assert postrider("init", "-c", write_config(tmp_path / "init-reader.yaml", content)).returncode == 0
    database.insert("bad", json.dumps({"seq": 1, "blob": "x" * 2_000_000}))
    relay = start_relay(content)
    wait_until(lambda: database.value("SELECT count(*) FROM postrider.retry") == 1, what="a held row")
    for seq in range(2, 40):
        database.insert("bad", json.dumps({"seq": seq}))
        database.insert(f"good-{seq}", json.dumps({"seq": 1}))
    wait_until(lambda: database.pending() == 39, what="the others published")
    database.execute("UPDATE public.outbox SET payload = '{\"seq\": 1}' WHERE length(payload::text) > 1000000")
    database.wait_until_empty(60)
    assert relay.stop() == 0
    bad = [json.loads(record.value)["seq"] for record in read_topic(kafka, topic) if record.key == b"bad"]
    assert bad == list(range(1, 40))
    assert database.value("SELECT count(*) FROM postrider.retry") == 0
