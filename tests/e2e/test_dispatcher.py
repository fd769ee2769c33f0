"""The reader `dispatcher`: one process fetches for a pool of workers, the others stand by."""

import time

import pytest

from tests.e2e.checker import expect_complete, expect_exactly_once, expect_in_order
from tests.e2e.consume import read_topic
from tests.e2e.ledger import Writers, arrivals, write_one_freely
from tests.e2e.relay import kafka_settings, settings, wait_until

every_postgres = pytest.mark.parametrize("pg", [15, 18], indirect=True)


def dispatcher_settings(database, kafka, topic, **options):
    return kafka_settings(database, kafka, topic, reader="dispatcher", **options)


@every_postgres
def test_one_process_publishes_and_the_others_stand_by(database, kafka, topic, start_relay):
    entities = database.entities(60)
    content = dispatcher_settings(database, kafka, topic)
    relays = [start_relay(content) for _ in range(3)]
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        time.sleep(4)
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0, 0]
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))
    published = [relay.events("relay.stopped")[0]["published"] for relay in relays]
    assert published[0] > 0 and published[1:] == [0, 0]
    assert [len(relay.events("dispatcher.standby")) for relay in relays] == [0, 1, 1]


def test_a_backlog_goes_through_the_pool_in_order(database, kafka, topic, start_relay):
    database.entities(3000)
    database.write_backlog(10)
    relay = start_relay(dispatcher_settings(database, kafka, topic))
    database.wait_until_empty()
    assert relay.stop() == 0
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_rows_that_commit_late_are_found(database, kafka, topic, start_relay):
    entities = database.entities(40)
    relay = start_relay(dispatcher_settings(database, kafka, topic))
    with Writers(database.dsn, entities, threads=8, pause=0.002, late=0.3, write=write_one_freely):
        time.sleep(4)
    database.wait_until_empty()
    assert relay.stop() == 0
    expect_complete(database.ledger(), arrivals(read_topic(kafka, topic)))


@every_postgres
def test_the_standby_takes_over_within_two_seconds_of_a_kill(database, kafka, topic, start_relay):
    entities = database.entities(60)
    content = dispatcher_settings(database, kafka, topic)
    relays = [start_relay(content) for _ in range(3)]
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        for victim in relays[:2]:
            time.sleep(2)
            victim.kill9()
            killed = time.monotonic()
            wait_until(lambda: any(relay.events("dispatcher.active") for relay in relays if relay.running),
                       what="an active dispatcher")
            assert time.monotonic() - killed < 2
        time.sleep(1)
    database.wait_until_empty()
    assert relays[2].stop() == 0
    expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_a_clean_stop_hands_over_without_a_duplicate(database, kafka, topic, start_relay):
    entities = database.entities(60)
    content = dispatcher_settings(database, kafka, topic)
    relays = [start_relay(content) for _ in range(2)]
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        for number in range(3):
            time.sleep(1)
            assert relays[number].stop() == 0
            relays.append(start_relay(content))
        time.sleep(1)
    database.wait_until_empty()
    assert [relay.stop() for relay in relays[3:]] == [0, 0]
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_a_frozen_dispatcher_is_replaced_and_does_no_harm_when_it_wakes(database, kafka, topic, start_relay):
    entities = database.entities(30)
    content = dispatcher_settings(database, kafka, topic)
    content["database"]["idle_session_timeout"] = "2s"
    frozen, other = start_relay(content), start_relay(content)
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        time.sleep(1)
        frozen.freeze()
        other.wait_for("dispatcher.active", timeout=6)
        time.sleep(1)
        frozen.thaw()
        time.sleep(2)
    database.wait_until_empty()
    assert [frozen.stop(), other.stop()] == [0, 0]
    expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_a_restart_of_postgresql_loses_nothing(fragile_database, kafka, topic, start_relay):
    entities = fragile_database.entities(30)
    relays = [start_relay(dispatcher_settings(fragile_database, kafka, topic)) for _ in range(2)]
    with Writers(fragile_database.dsn, entities, threads=4, pause=0.001, patient=True):
        time.sleep(1)
        fragile_database.server.restart("immediate")
        time.sleep(3)
    fragile_database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0]
    expect_in_order(fragile_database.ledger(), arrivals(read_topic(kafka, topic)))


def test_the_event_store_is_written_through_its_own_connection(database, start_relay):
    entities = database.entities(20)
    relay = start_relay(settings(database.dsn, {"type": "postgres"}, reader="dispatcher"))
    with Writers(database.dsn, entities, threads=2, pause=0.001):
        time.sleep(1.5)
    database.wait_until_empty()
    assert relay.stop() == 0
    expect_exactly_once(database.ledger(), database.event_store())


def test_rows_without_an_entity_stay_and_disturb_nobody(database, kafka, topic, start_relay):
    database.execute("ALTER TABLE public.outbox ALTER entity_id DROP NOT NULL")
    database.insert(None)
    relay = start_relay(dispatcher_settings(database, kafka, topic))
    database.insert("a")
    wait_until(lambda: database.pending() == 1, what="the row with an entity published")
    assert relay.stop() == 0
    assert [record.key for record in read_topic(kafka, topic)] == [b"a"]
