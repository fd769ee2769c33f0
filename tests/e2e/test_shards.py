"""The reader `shards`: ownership, hand-over, fencing, and what happens when the division changes."""

import json
import time

import pytest

from tests.e2e.checker import expect_complete, expect_exactly_once, expect_in_order
from tests.e2e.consume import read_topic
from tests.e2e.ledger import Writers, arrivals, write_one_freely
from tests.e2e.relay import kafka_settings, postrider, wait_until, write_config

every_postgres = pytest.mark.parametrize("pg", [15, 18], indirect=True)


def shard_settings(database, kafka, topic, lease="3s", **shards):
    return kafka_settings(database, kafka, topic, reader="shards", lease=lease, shards=shards)


def divide(content, folder):
    done = postrider("init", "-c", write_config(folder / "divide.yaml", content))
    assert done.returncode == 0, done.stderr
    return done.stdout


def owners(database):
    """How many shards each worker of each node owns."""
    return database.execute(
        "SELECT node, worker, count(*) FROM postrider.shard WHERE node IS NOT NULL AND expires_at > now()"
        " GROUP BY 1, 2 ORDER BY 1, 2")


def all_owned(database, shards=16):
    return sum(row[2] for row in owners(database)) == shards


@every_postgres
def test_three_processes_keep_order_while_rows_are_written(database, kafka, topic, start_relay, tmp_path):
    entities = database.entities(60)
    content = shard_settings(database, kafka, topic)
    divide(content, tmp_path)
    relays = [start_relay(content) for _ in range(3)]
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        time.sleep(4)
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0, 0]
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))
    assert owners(database) == []
    assert database.value("SELECT count(*) FROM postrider.shard_member") == 0


def test_a_backlog_is_drained_in_order(database, kafka, topic, start_relay, tmp_path):
    database.entities(3000)
    database.write_backlog(10)
    content = shard_settings(database, kafka, topic)
    divide(content, tmp_path)
    relays = [start_relay(content) for _ in range(2)]
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0]
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_rows_that_commit_late_are_found(database, kafka, topic, start_relay, tmp_path):
    """Their place is lower than what has been read already."""
    entities = database.entities(40)
    content = shard_settings(database, kafka, topic)
    divide(content, tmp_path)
    relays = [start_relay(content) for _ in range(2)]
    with Writers(database.dsn, entities, threads=8, pause=0.002, late=0.3, write=write_one_freely):
        time.sleep(4)
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0]
    expect_complete(database.ledger(), arrivals(read_topic(kafka, topic)))


@pytest.mark.parametrize("assignment", ["dynamic", "rendezvous"])
def test_shards_are_handed_over_drained_when_nodes_join_and_leave(
        assignment, database, kafka, topic, start_relay, tmp_path):
    entities = database.entities(60)
    content = shard_settings(database, kafka, topic, assignment=assignment)
    divide(content, tmp_path)
    relays = [start_relay(dict(content, node="node-0"))]
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        wait_until(lambda: all_owned(database), what="shards with owners")
        for number in (1, 2):
            relays.append(start_relay(dict(content, node=f"node-{number}")))
            time.sleep(2.5)
        if assignment == "dynamic":
            wait_until(lambda: len(owners(database)) == 12 and all_owned(database), what="a fair share for each")
            assert {count for _, _, count in owners(database)} == {1, 2}
        for relay in relays[:2]:
            assert relay.stop() == 0
            time.sleep(1.5)
        wait_until(lambda: len({node for node, _, _ in owners(database)}) == 1 and all_owned(database),
                   what="the last node with all shards")
    database.wait_until_empty()
    assert relays[2].stop() == 0
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_kill_9_is_taken_over_in_order(database, kafka, topic, start_relay, tmp_path):
    entities = database.entities(60)
    content = shard_settings(database, kafka, topic)
    divide(content, tmp_path)
    relays = [start_relay(content) for _ in range(3)]
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        time.sleep(2)
        relays[0].kill9()
        time.sleep(2)
        relays[1].kill9()
        killed = time.monotonic()
        wait_until(lambda: all_owned(database) and len({row[0] for row in owners(database)}) == 1, what="take-over")
        assert time.monotonic() - killed < 3 + 2
        time.sleep(1)
    database.wait_until_empty()
    assert relays[2].stop() == 0
    expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_a_frozen_owner_settles_nothing_of_what_others_took_over(database, kafka, topic, start_relay, tmp_path):
    entities = database.entities(30)
    content = shard_settings(database, kafka, topic, lease="2s")
    divide(content, tmp_path)
    frozen, other = start_relay(content), start_relay(content)
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        wait_until(lambda: all_owned(database) and len({row[0] for row in owners(database)}) == 2, what="both nodes")
        frozen.freeze()
        wait_until(lambda: all_owned(database) and len({row[0] for row in owners(database)}) == 1, what="take-over")
        time.sleep(1)
        frozen.thaw()
        time.sleep(2)
    database.wait_until_empty()
    assert [frozen.stop(), other.stop()] == [0, 0]
    expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_static_assignment_divides_by_lists(database, kafka, topic, start_relay, tmp_path):
    entities = database.entities(60)
    contents = [shard_settings(database, kafka, topic, assignment="static", own=own) for own in ("0-9", "10-15")]
    divide(contents[0], tmp_path)
    relays = [start_relay(content) for content in contents]
    with Writers(database.dsn, entities, threads=2, pause=0.001):
        wait_until(lambda: all_owned(database), what="shards with owners")
        assert sorted(count for _, _, count in owners(database)) == [1, 1, 2, 2, 2, 2, 3, 3]
        time.sleep(1)
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0]
    expect_exactly_once(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_the_key_id_spreads_one_entity_over_all_workers(database, kafka, topic, start_relay, tmp_path):
    database.entities(1)
    database.write_backlog(5000)
    content = shard_settings(database, kafka, topic, key="id")
    divide(content, tmp_path)
    relays = [start_relay(content) for _ in range(2)]
    database.wait_until_empty()
    assert [relay.stop() for relay in relays] == [0, 0]
    expect_complete(database.ledger(), arrivals(read_topic(kafka, topic)))


def test_another_number_of_shards_is_refused_while_nodes_run(database, kafka, topic, start_relay, tmp_path):
    content = shard_settings(database, kafka, topic)
    assert "divided public.outbox into 16 shards by entity" in divide(content, tmp_path)
    assert "nothing to do" in divide(content, tmp_path)
    relay = start_relay(content)
    wait_until(lambda: all_owned(database), what="shards with owners")
    other = write_config(tmp_path / "other.yaml", shard_settings(database, kafka, topic, count=32))
    refused = postrider("init", "-c", other)
    assert refused.returncode != 0 and "is being read in 16 shards" in refused.stderr
    started = postrider("run", "-c", other)
    assert started.returncode == 78 and "divided into 16 shards by entity, and the settings say 32" in started.stderr
    checked = postrider("check", "-c", other)
    assert "divided into 16 shards" in checked.stdout
    assert relay.stop() == 0
    assert postrider("init", "-c", other).returncode == 0
    relay = start_relay(json.loads(other.read_text()))
    wait_until(lambda: all_owned(database, 32), what="32 shards with owners")
    database.insert("a")
    database.wait_until_empty()
    assert relay.stop() == 0
