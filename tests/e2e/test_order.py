"""Order per entity and completeness, with many workers on several processes, and while they die."""

import time

import pytest

from tests.e2e.checker import expect_complete, expect_exactly_once, expect_in_order
from tests.e2e.consume import read_topic
from tests.e2e.ledger import Writers, arrivals, write_one_freely
from tests.e2e.relay import kafka_settings

every_postgres = pytest.mark.parametrize("pg", [15, 18], indirect=True)


@every_postgres
def test_three_processes_with_four_workers_keep_order_while_rows_are_written(database, kafka, topic, start_relay):
    entities = database.entities(60)
    relays = [start_relay(kafka_settings(database, kafka, topic)) for _ in range(3)]
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        time.sleep(4)
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0, 0]
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


@every_postgres
def test_a_backlog_is_drained_in_order_by_three_processes(database, kafka, topic, start_relay):
    """30,000 rows of 3,000 entities, written before any relay runs: claims grow, and workers meet often."""
    database.entities(3000)
    database.write_backlog(10)
    relays = [start_relay(kafka_settings(database, kafka, topic)) for _ in range(3)]
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0, 0]
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


@every_postgres
def test_kill_9_loses_nothing_and_others_take_over_in_order(database, kafka, topic, start_relay):
    entities = database.entities(60)
    content = kafka_settings(database, kafka, topic)
    relays = [start_relay(content) for _ in range(3)]
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        for victim in relays[:2]:
            time.sleep(1.5)
            victim.kill9()
        time.sleep(1)
        relays.append(start_relay(content))
        time.sleep(1)
        relays[2].kill9()
    database.wait_until_empty()
    assert relays[3].stop() == 0
    expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_a_frozen_process_is_taken_over_and_does_no_harm_when_it_wakes(database, kafka, topic, start_relay):
    """Frozen means released: idle_session_timeout ends its sessions, and what it held goes to the others."""
    entities = database.entities(30)
    content = kafka_settings(database, kafka, topic)
    content["database"]["idle_session_timeout"] = "2s"
    frozen, other = start_relay(content), start_relay(content)
    with Writers(database.dsn, entities, threads=2, pause=0.002):
        time.sleep(1)
        frozen.freeze()
        time.sleep(3)
    database.wait_until_empty(timeout=15)
    frozen.thaw()
    with Writers(database.dsn, entities, threads=2, pause=0.002):
        time.sleep(1)
    database.wait_until_empty()
    assert frozen.stop() == 0
    assert other.stop() == 0
    expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))


@every_postgres
def test_rows_that_commit_in_another_order_than_their_ids_are_not_lost(database, kafka, topic, start_relay):
    """Each entity is serial, but transactions stay open after taking their ids: lower ids turn up late."""
    entities = database.entities(40)
    relays = [start_relay(kafka_settings(database, kafka, topic)) for _ in range(2)]
    with Writers(database.dsn, entities, threads=12, pause=0.001, late=0.15):
        time.sleep(3)
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0]
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_unordered_writers_of_one_entity_lose_nothing(database, kafka, topic, start_relay):
    """Writers that lock nothing: within an entity rows with lower ids commit after higher ones were published."""
    entities = database.entities(5)
    relays = [start_relay(kafka_settings(database, kafka, topic)) for _ in range(2)]
    with Writers(database.dsn, entities, threads=12, pause=0.001, late=0.1, write=write_one_freely):
        time.sleep(3)
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0]
    expect_complete(database.ledger(), arrivals(read_topic(kafka, topic)))
