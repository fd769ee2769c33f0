"""One entity with very many rows neither starves the others nor fills the memory."""

import pytest

from tests.e2e.consume import read_topic
from tests.e2e.relay import settings

BIG, SMALL = 200_000, 10_000


@pytest.mark.timeout(180)
def test_a_huge_entity_starves_nobody_and_memory_stays_bounded(database, kafka, make_topic, start_relay):
    topic = make_topic(config={"message.timestamp.type": "LogAppendTime"})
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                     " SELECT 'order', 'big', 'changed', json_build_object('n', n, 'text', repeat('x', 150))"
                     " FROM generate_series(1, %s) AS n", (BIG,))
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                     " SELECT 'order', 'small-' || n, 'changed', json_build_object('n', n)"
                     " FROM generate_series(1, %s) AS n", (SMALL,))
    database.execute("VACUUM ANALYZE public.outbox")
    relay = start_relay(settings(database.dsn, {"type": "kafka", "brokers": kafka.bootstrap}, route={"topic": topic}))
    database.wait_until_empty(timeout=120)
    peak = relay.peak_rss_mb()
    assert relay.stop() == 0

    records = read_topic(kafka, topic, timeout=60)
    big = [record for record in records if record.key == b"big"]
    small = [record for record in records if record.key != b"big"]
    assert (len(big), len(small)) == (BIG, SMALL)
    assert [int(record.value.split(b",")[0].split(b":")[1]) for record in big] == list(range(1, BIG + 1))
    assert max(record.timestamp for record in small) <= big[-1].timestamp
    assert peak < 100, f"{peak:.0f} MB"
