"""The first batch that a new producer sends to a partition is refused: no later row of an entity may pass the refused one.

The broker takes any number from a producer that it does not know yet, so behind a refused first batch it would accept the
second. Rows that do not compress, in requests of one row each, make that nearly certain: with compression nobody knows
before the broker whether a row is too large."""

import json
import random

import pytest

from tests.e2e.consume import read_topic
from tests.e2e.relay import kafka_settings, wait_until

ENTITIES, ROWS = 20, 12


def insert_entities(database, chance):
    """Each entity's first row is too large for the topic, the others are small; all of it in one transaction."""
    with database.connect() as connection, connection.transaction():
        for seq in range(1, ROWS + 1):
            for entity in range(ENTITIES):
                blob = chance.randbytes(25_000).hex() if seq == 1 else ""
                connection.execute(
                    "INSERT INTO public.outbox (entity_type, entity_id, event_type, payload) VALUES ('o', %s, 'x', %s)",
                    (f"e{entity}", json.dumps({"seq": seq, "blob": blob})))


@pytest.mark.parametrize("round_number", range(3))
def test_no_row_passes_a_refused_first_batch(database, kafka, make_topic, start_relay, round_number):
    topic = make_topic(partitions=3, config={"max.message.bytes": "20000"})
    content = kafka_settings(database, kafka, topic)
    content["outboxes"]["orders"]["sinks"][0]["properties"] = {"compression.codec": "lz4", "batch.num.messages": "1"}
    insert_entities(database, random.Random(round_number))
    relay = start_relay(content)
    wait_until(lambda: database.value("SELECT count(*) FROM postrider.retry") == ENTITIES, 60, "every entity held")
    database.insert("free")
    wait_until(lambda: database.pending() == ENTITIES * ROWS, what="the free row gone")
    assert relay.stop() == 0
    assert [record.key for record in read_topic(kafka, topic)] == [b"free"]
