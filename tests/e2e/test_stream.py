"""Row by row or batch by batch: how much travels together, and how much a crash repeats."""

import time

import pytest

from tests.e2e.checker import expect_exactly_once, expect_in_order
from tests.e2e.consume import read_topic
from tests.e2e.ledger import Writers, arrivals
from tests.e2e.relay import kafka_settings, wait_until

STREAM = {"batch_size": 1, "batch_max": 1, "settle": "row"}


@pytest.mark.parametrize("reader", ["advisory", "lease", "dispatcher"])
def test_rows_go_one_by_one(reader, database, kafka, topic, start_relay):
    entities = database.entities(20)
    relay = start_relay(kafka_settings(database, kafka, topic, reader=reader, **STREAM))
    with Writers(database.dsn, entities, threads=2, pause=0.005):
        time.sleep(2)
    database.wait_until_empty()
    assert relay.stop() == 0
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_with_settle_row_each_row_has_a_transaction_of_its_own(database, kafka, topic, start_relay):
    """The settling DELETE of each row shows as a transaction id of its own: what a crash could repeat is one row."""
    database.execute("CREATE TABLE public.deleted (id bigint, xid xid8);"
                     "CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS"
                     " $$BEGIN INSERT INTO public.deleted VALUES (OLD.id, pg_current_xact_id()); RETURN OLD; END$$;"
                     "CREATE TRIGGER note AFTER DELETE ON public.outbox FOR EACH ROW EXECUTE FUNCTION public.note()")
    database.entities(20)
    database.write_backlog(5)
    relay = start_relay(kafka_settings(database, kafka, topic, settle="row"))
    database.wait_until_empty()
    assert relay.stop() == 0
    assert database.execute("SELECT count(*), count(DISTINCT xid) FROM public.deleted") == [(100, 100)]


def test_after_a_crash_what_was_acknowledged_and_settled_does_not_come_again(database, kafka, topic, start_relay):
    database.entities(50)
    database.write_backlog(200)
    content = kafka_settings(database, kafka, topic, settle="row", workers=1)
    relay = start_relay(content)
    wait_until(lambda: database.pending() < 9000, what="some rows settled")
    relay.kill9()
    left = database.pending()
    relay = start_relay(content)
    database.wait_until_empty()
    assert relay.stop() == 0
    report = expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))
    # Settled rows cannot repeat; those in flight at the kill, two claims at most, may.
    assert len(report.duplicates) <= min(left, 2 * 1000)
