"""All nodes read a table with the same reader: one that would not is refused, unless the others are dead."""

import time

import pytest

from tests.e2e.relay import postrider, settings, wait_until, write_config

DEAD_AFTER = 3 * 0.5            # seconds of silence, at the heartbeat of these tests
every_postgres = pytest.mark.parametrize("pg", [15, 18], indirect=True)


def reading(database, node, reader, heartbeat="500ms", **options):
    content = settings(database.dsn, {"type": "stdout"}, reader=reader, workers=2, poll_interval="500ms", **options)
    return content | {"node": node, "heartbeat": heartbeat}


def refused(content, folder, *said):
    done = postrider("run", "-c", write_config(folder / "refused.yaml", content))
    assert done.returncode == 78, done.stderr
    for part in (*said, "stop all nodes"):
        assert part in done.stderr, done.stderr
    assert "relay.ready" not in done.stderr


def names(database):
    return [name for name, in database.execute("SELECT name FROM postrider.node ORDER BY id")]


@every_postgres
def test_another_reader_is_refused_while_a_node_lives(database, start_relay, tmp_path):
    alpha = start_relay(reading(database, "alpha", "advisory"))
    begin = time.monotonic()
    refused(reading(database, "beta", "lease"), tmp_path, "(alpha)", "public.outbox", "`reader: advisory`",
            "`reader: lease`")
    assert time.monotonic() - begin < 1.5
    assert names(database) == ["alpha"]
    gamma = start_relay(reading(database, "gamma", "advisory"))
    assert [alpha.stop(), gamma.stop()] == [0, 0]
    beta = start_relay(reading(database, "beta", "lease"))
    assert beta.stop() == 0
    assert not beta.warnings()


def test_rows_in_order_and_rows_in_none_do_not_go_together(database, start_relay, tmp_path):
    alpha = start_relay(reading(database, "alpha", "skip_locked"))
    refused(reading(database, "beta", "skip_locked", order="entity"), tmp_path, "(alpha)", "`order: none`",
            "`order: entity`")
    assert alpha.stop() == 0


def test_nodes_of_other_tables_read_as_they_like(database, start_relay, tmp_path):
    database.execute("CREATE TABLE public.second (LIKE public.outbox INCLUDING ALL)")
    content = reading(database, "beta", "lease", table="public.second")
    done = postrider("init", "-c", write_config(tmp_path / "second.yaml", content), "--existing", "public.second")
    assert done.returncode == 0, done.stderr
    relays = [start_relay(reading(database, "alpha", "advisory")), start_relay(content)]
    assert [relay.stop() for relay in relays] == [0, 0]


@every_postgres
def test_a_killed_node_is_in_nobody_s_way_for_long(database, start_relay):
    alpha = start_relay(reading(database, "alpha", "advisory"))
    alpha.kill9()
    begin = time.monotonic()
    beta = start_relay(reading(database, "beta", "lease"))
    took = time.monotonic() - begin
    assert DEAD_AFTER < took < DEAD_AFTER + 2, took
    waited, = beta.events("node.waiting")
    assert "(alpha)" in waited["error"]
    assert [event["node"] for event in beta.events("node.buried")] == ["alpha"]
    assert names(database) == ["beta"]
    assert beta.stop() == 0


def test_of_two_that_start_together_one_gets_in(database, make_relay):
    for turn in range(5):
        relays = [make_relay(reading(database, f"{reader}-{turn}", reader)) for reader in ("advisory", "lease")]
        for relay in relays:
            relay.start(wait=False)
        loser = wait_until(lambda: next((relay for relay in relays if not relay.running), None), 10, "a refusal")
        winner, = [relay for relay in relays if relay is not loser]
        assert loser.wait() == 78
        winner.wait_for("relay.ready")
        assert winner.stop() == 0


def test_a_node_that_only_slept_is_not_overrun(database, start_relay):
    alpha = start_relay(reading(database, "alpha", "advisory"))
    alpha.freeze()
    time.sleep(DEAD_AFTER + 0.5)
    beta = start_relay(reading(database, "beta", "lease"), wait=False)
    beta.wait_for("node.waiting")
    time.sleep(DEAD_AFTER + 0.5)
    assert beta.running and names(database) == ["alpha"]
    alpha.thaw()
    assert beta.wait(timeout=5) == 78
    assert len(beta.events("node.waiting")) == 1
    assert alpha.stop() == 0


def test_a_node_that_slept_for_too_long_ends_when_another_reader_has_come(database, start_relay):
    content = reading(database, "alpha", "advisory")
    content["database"]["idle_session_timeout"] = "2s"
    alpha = start_relay(content)
    alpha.freeze()
    time.sleep(DEAD_AFTER + 0.5)
    beta = start_relay(reading(database, "beta", "lease"))
    assert names(database) == ["beta"]
    alpha.thaw()
    assert alpha.wait(timeout=10) == 78
    assert "(beta)" in alpha.log_text() and "`reader: lease`" in alpha.log_text()
    assert names(database) == ["beta"]
    database.insert("a")
    database.wait_until_empty()
    assert beta.stop() == 0


def test_after_an_outage_of_the_database_nobody_is_taken_for_dead(fragile_database, start_relay):
    """All look dead at that moment; those that ran before come back first."""
    database = fragile_database
    alpha = start_relay(reading(database, "alpha", "advisory"))
    database.server.stop()
    beta = start_relay(reading(database, "beta", "lease"), wait=False)
    time.sleep(DEAD_AFTER + 1)
    database.server.start()
    assert beta.wait(timeout=20) == 78
    assert "(alpha)" in beta.log_text()
    database.insert("a")
    database.wait_until_empty()
    assert alpha.stop() == 0


def test_a_wait_can_be_stopped(database, start_relay):
    alpha = start_relay(reading(database, "alpha", "advisory", heartbeat="20s"))
    alpha.kill9()
    beta = start_relay(reading(database, "beta", "lease"), wait=False)
    beta.wait_for("node.waiting")
    assert beta.stop() == 0
