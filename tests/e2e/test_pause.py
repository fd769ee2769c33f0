"""`pause` and `resume`: all nodes stop claiming within a second, and go on within one. Nothing is lost, order holds."""

import time

import pytest

from tests.e2e.relay import postrider, wait_until, write_config
from tests.e2e.scene import started
from tests.e2e.steering import READERS, Stream
from tests.servers import PgBouncer


def stays(value, seconds=1.5):
    """True when what the function returns does not change for a while."""
    before = value()
    time.sleep(seconds)
    return value() == before


@pytest.mark.parametrize("reader", READERS)
def test_all_nodes_pause_and_resume_within_a_second(database, stage, reader):
    s = stage(reader)
    nodes = [s.node(), s.node()]
    with Stream(s) as stream:
        wait_until(lambda: s.count() > 200, what="rows that flow")
        assert "outbox orders is paused" in s.done("pause", "orders")
        time.sleep(1)
        assert stays(s.count), "rows were published while the outbox was paused"
        assert database.pending() > 0
        in_flight = "SELECT sum((w->>'rows')::int) FROM postrider.node n," \
                    " jsonb_path_query(n.state, '$.outboxes[*].workers[*]') w"
        if reader != "wal":     # its workers keep what was dealt to them before
            wait_until(lambda: database.value(in_flight) == 0, 5, "nothing in flight")
        before = s.count()
        assert "is running" in s.done("resume", "orders")
        wait_until(lambda: s.count() > before, 1, "rows that flow again")
    database.wait_until_empty()
    stream.check(ordered=reader != "skip_locked")
    assert all(node.events("outbox.paused") and node.events("outbox.resumed") for node in nodes)
    assert [node.stop() for node in nodes] == [0, 0]


@pytest.mark.parametrize("reader", ["advisory", "dispatcher", "wal"])
def test_a_pause_survives_restarts(database, stage, reader):
    s = stage(reader)
    assert s.json("pause", "orders")["outboxes"][0] == {
        "outbox": "orders", "paused": True, "changed": True, "rows_on_their_way": 0, "nodes_behind": []}
    s.insert("a", 1)
    node = s.node()
    assert stays(s.count) and s.count() == 0
    assert node.stop() == 0
    node = s.node()
    assert stays(s.count) and s.count() == 0
    s.done("resume", "orders")
    s.wait_for("a", [1], timeout=5)
    assert node.stop() == 0


def test_a_paused_node_stops_cleanly_and_keeps_beating(database, stage):
    s = stage(lease="3s")
    node = s.node()
    s.done("pause", "--all")
    time.sleep(2)
    assert [n["state"] for n in s.json("status")["nodes"]] == ["alive"]
    assert node.stop(timeout=5) == 0


def test_claims_are_given_back(database, stage):
    """Also of entities that were claimed and turned out to have no rows."""
    s = stage("lease", lease="60s")
    s.node()
    with Stream(s):
        wait_until(lambda: s.count() > 100)
        s.done("pause", "orders")
        wait_until(lambda: database.value("SELECT count(*) FROM postrider.claim") == 0, 5, "no claim")


def test_status_says_since_when_and_by_whom(stage):
    s = stage()
    assert s.json("status")["outboxes"][0]["paused_since"] is None
    s.done("pause", "orders")
    assert " orders: paused since 20" in s.done("status")
    assert "@" in s.json("status")["outboxes"][0]["paused_by"]
    assert "already paused" in s.done("pause", "orders")
    s.done("resume", "orders")
    assert "paused since" not in s.done("status")
    assert "already running" in s.done("resume", "orders")


def test_other_outboxes_go_on(database, stage, tmp_path, start_relay):
    s = stage()
    database.execute("CREATE TABLE public.other (LIKE public.outbox INCLUDING ALL)")
    s.content["outboxes"]["other"] = {**s.content["outboxes"]["orders"], "table": "public.other"}
    write_config(s.config, s.content)
    s.done("init", "--existing", "public.other")
    s.node()
    s.done("pause", "orders")
    database.insert("a", '{"n": 1}')
    database.insert("b", '{"n": 1}', table="public.other")
    s.wait_for("b", [1])
    assert s.arrived("a") == []
    assert len(s.json("pause", "--all")["outboxes"]) == 2
    database.insert("c", '{"n": 1}', table="public.other")
    assert stays(s.count, 1)
    s.done("resume", "--all")
    s.wait_for("a", [1])
    s.wait_for("c", [1])


def test_behind_a_pooler(database, stage, tmp_path, start_relay):
    """No notification comes through, so the node looks by itself."""
    pooler = started(PgBouncer(database.server, "transaction"))
    try:
        s = stage("lease", dsn=pooler.dsn(database.name))
        s.node()
        with Stream(s, pause=0.02) as stream:
            wait_until(lambda: s.count() > 50, what="rows that flow")
            s.done("pause", "orders")
            time.sleep(1)
            assert stays(s.count)
            before = s.count()
            s.done("resume", "orders")
            wait_until(lambda: s.count() > before, 1.5, "rows that flow again")
        database.wait_until_empty()
        stream.check()
    finally:
        pooler.close()


def test_a_node_that_does_not_answer_is_named(database, stage):
    s = stage()
    node = s.node()
    node.freeze()
    try:
        done = s.run("pause", "orders")
        assert (done.returncode, "has not answered" in done.stderr) in [(1, True), (0, False)]   # silent after 3 s
    finally:
        node.thaw()
    wait_until(lambda: node.events("outbox.paused"), what="a node that has learned of it")


@pytest.mark.parametrize("arguments, told", [
    (["pause"], "say which outbox to pause, or --all"),
    (["resume"], "say which outbox to resume, or --all"),
    (["pause", "nothing"], "the settings have no outbox nothing"),
    (["pause", "order"], "did you mean orders?"),
    (["pause", "orders", "--all"], "--all goes without names"),
    (["pause", "orders", "--since", "now"], "unknown option --since"),
])
def test_wrong_command_lines(stage, arguments, told):
    done = stage().run(*arguments)
    assert done.returncode == 2 and told in done.stderr, done.stderr


def test_a_database_that_is_away_is_told(product, tmp_path):
    config = write_config(tmp_path / "p.yaml", {"database": {"url": "postgresql://127.0.0.1:1/none"},
                                                "outboxes": {"orders": {"table": "public.outbox"}}})
    for command in (["pause", "orders"], ["dead", "list"], ["entity", "show", "a"], ["explain", "a"]):
        done = postrider(*command, "-c", config)
        assert done.returncode == 1 and "could not connect" in done.stderr.lower(), done.stderr
