"""One entity with very many rows, or very many that must wait: neither starves the others, or costs too much."""

import time

import pytest

from tests.e2e.consume import read_topic
from tests.e2e.readers import READERS
from tests.e2e.relay import kafka_settings, settings, wait_until

BIG, SMALL = 200_000, 10_000
PARKED = 3_000


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


@pytest.mark.parametrize("reader", ["advisory", "lease", "skip_locked-ordered"])
def test_a_row_behind_thousands_of_parked_entities_is_found_and_nobody_goes_on_searching(database, kafka, topic, start_relay,
                                                                                         reader):
    """A walk looks at a few hundred entities. One that found nothing there must not take that for all that there is, nor
    look again and again when it has seen everything."""
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                     " SELECT 'order', 'parked-' || n, 'changed', '{}' FROM generate_series(1, %s) AS n", (PARKED,))
    database.execute("INSERT INTO postrider.retry (outbox, entity, attempts, kind, error, retry_at, blocked_at)"
                     " SELECT b.id, o.entity_id, 0, 'parked', 'by hand', now() + interval '1 year', now()"
                     " FROM public.outbox o, postrider.outbox b")
    relay = start_relay(kafka_settings(database, kafka, topic, **READERS[reader], poll_interval="30s"))
    for number in range(3):
        database.insert(f"parked-{number}-not")
        wait_until(lambda: database.pending() == PARKED, timeout=3, what="the row that may go")
    time.sleep(4)
    assert relay.stop() == 0
    assert relay.events("relay.stopped")[0]["empty_claims"] < 100
