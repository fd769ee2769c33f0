"""Each process is a node in postrider.node: seen while it lives, buried when it dies, known by its version."""

import json
import re
import time

import pytest

from tests.e2e.relay import postrider, settings, wait_until, write_config
from tests.e2e.scene import started
from tests.servers import PgBouncer

every_postgres = pytest.mark.parametrize("pg", [15, 18], indirect=True)


def node_settings(database, name="alpha", **process):
    return settings(database.dsn, {"type": "stdout"}, workers=2) | {"node": name} | process


def nodes(database, columns="id, name"):
    return database.execute(f"SELECT {columns} FROM postrider.node ORDER BY id")


def names(database):
    return [name for _, name in nodes(database)]


def hold_something(database, node):
    """Rows in the tables of claims and shards that carry the node's number, as readers write them."""
    database.execute("INSERT INTO postrider.claim (outbox, entity, node, worker, token, expires_at)"
                     " VALUES (1, 'held by ' || %s, %s, 0, 1, now() + interval '1 hour')", (node, node))
    database.execute("INSERT INTO postrider.shard (outbox, shard, node, worker, epoch, expires_at)"
                     " VALUES (1, %s, %s, 0, 1, now() + interval '1 hour')", (node, node))
    database.execute("INSERT INTO postrider.shard_member (outbox, node, worker, name, expires_at)"
                     " VALUES (1, %s, 0, 'somebody', now() + interval '1 hour')", (node,))


def held(database, node):
    claims = database.value("SELECT count(*) FROM postrider.claim WHERE node = %s", (node,))
    shards = database.value("SELECT count(*) FROM postrider.shard WHERE node = %s AND expires_at > now()", (node,))
    members = database.value("SELECT count(*) FROM postrider.shard_member WHERE node = %s", (node,))
    return claims, shards, members


def expect_heartbeats(database, node, seconds=1.5):
    beat = "SELECT heartbeat_at FROM postrider.node WHERE id = %s"
    before = database.value(beat, (node,))
    wait_until(lambda: database.value(beat, (node,)) > before, seconds, "another heartbeat")


# ---- A life ---------------------------------------------------------------------------------------------------------

@every_postgres
def test_a_node_registers_beats_and_signs_off(database, start_relay):
    relay = start_relay(node_settings(database))
    (node, name, version, schema, pid, beat_ms, session), = nodes(
        database, "id, name, version, schema, pid, heartbeat_ms, backend_pid")
    assert (name, schema, pid, beat_ms) == ("alpha", database.value("SELECT max(version) FROM postrider.migration"),
                                            relay.pid, 1000)
    assert version in postrider("--version").stdout
    assert database.execute("SELECT application_name FROM pg_stat_activity WHERE pid = %s", (session,)) == [
        ("postrider heart",)]
    expect_heartbeats(database, node)
    hold_something(database, node)
    assert relay.stop() == 0
    assert names(database) == []
    assert held(database, node) == (0, 0, 0)
    assert relay.events("node.joined", node="alpha", number=node)


def test_its_workers_tell_what_they_do(database, start_relay):
    relay = start_relay(node_settings(database))
    for number in range(10):
        database.insert(f"e{number % 3}")
    database.wait_until_empty()

    def told():
        (state,), = nodes(database, "state")
        outbox, = state["outboxes"]
        return outbox if sum(worker["settled"] for worker in outbox["workers"]) == 10 else None

    outbox = wait_until(told, 5, "10 settled rows in the node's state")
    assert (outbox["name"], outbox["table"], outbox["reader"]) == ("orders", "public.outbox", "advisory")
    assert [worker["number"] for worker in outbox["workers"]] == [0, 1]
    assert all(worker["connected"] and worker["claims"] > 0 for worker in outbox["workers"])
    assert [worker["rows"] + worker["entities"] for worker in outbox["workers"]] == [0, 0]
    assert relay.stop() == 0


def test_a_heartbeat_that_is_cut_off_goes_on(database, start_relay):
    relay = start_relay(node_settings(database))
    (node, session), = nodes(database, "id, backend_pid")
    database.execute("SELECT pg_terminate_backend(%s)", (session,))
    relay.wait_for("heart.back", timeout=5)
    expect_heartbeats(database, node)
    assert nodes(database, "id, backend_pid <> %d" % session) == [(node, True)]
    assert relay.stop() == 0
    assert names(database) == []


def test_a_restart_of_the_database_buries_nobody(fragile_database, start_relay):
    """All nodes are silent then, and all sessions gone; none of them is dead."""
    database = fragile_database
    relays = [start_relay(node_settings(database, name, heartbeat="300ms")) for name in ("alpha", "beta")]
    before = nodes(database)
    database.server.stop()
    time.sleep(3)
    database.server.start()
    for relay in relays:
        relay.wait_for("heart.back", timeout=20)
    time.sleep(2)
    assert nodes(database) == before
    assert not [relay.events("node.buried") for relay in relays if relay.events("node.buried")]
    assert [relay.stop() for relay in relays] == [0, 0]


# ---- Others ---------------------------------------------------------------------------------------------------------

@every_postgres
def test_a_killed_node_is_buried_within_three_heartbeats_and_what_it_held_is_free(database, start_relay):
    relays = [start_relay(node_settings(database, name, heartbeat="500ms")) for name in ("alpha", "beta", "gamma")]
    dead, _ = nodes(database)[0]
    hold_something(database, dead)
    time.sleep(2)       # the others have beaten for as long as a node may be silent
    relays[0].kill9()
    begin = time.monotonic()
    wait_until(lambda: names(database) == ["beta", "gamma"], 10, "the burial")
    took = time.monotonic() - begin
    assert 0.9 < took < 3 * 0.5 + 0.5 + 1, took
    assert held(database, dead) == (0, 0, 0)
    time.sleep(1)
    buried = [event for relay in relays[1:] for event in relay.events("node.buried")]
    assert [(event["node"], event["number"], event["claims"], event["shards"]) for event in buried] == [
        ("alpha", dead, 1, 1)]
    for relay in relays[1:]:
        assert len(relay.events("node.gone")) == 1
        assert len(relay.events("node.silent")) <= 1
        assert relay.stop() == 0


def test_nodes_tell_of_each_other(database, start_relay):
    first = start_relay(node_settings(database, "alpha", heartbeat="300ms"))
    second = start_relay(node_settings(database, "beta", heartbeat="300ms"))
    first.wait_for("node.joined", node="beta")
    assert second.stop() == 0
    first.wait_for("node.left", node="beta")
    assert not first.warnings("node.")
    assert first.stop() == 0


def test_a_frozen_node_keeps_its_number_until_its_session_ends(database, start_relay):
    """Silent is not dead: as long as its session is there it may wake up and still have its locks."""
    frozen = start_relay(node_settings(database, "alpha", heartbeat="300ms"))
    other = start_relay(node_settings(database, "beta", heartbeat="300ms"))
    before = nodes(database)
    time.sleep(1.5)
    frozen.freeze()
    other.wait_for("node.silent", timeout=5, node="alpha")
    time.sleep(1)
    assert nodes(database) == before
    frozen.thaw()
    other.wait_for("node.back", timeout=5, node="alpha")
    assert nodes(database) == before
    assert len(other.events("node.silent")) == 1 and not other.events("node.buried")
    assert [frozen.stop(), other.stop()] == [0, 0]


def test_a_node_that_was_buried_alive_goes_on_under_a_new_number(database, start_relay):
    content = node_settings(database, "alpha", heartbeat="300ms")
    content["database"]["idle_session_timeout"] = "2s"
    frozen = start_relay(content)
    other = start_relay(node_settings(database, "beta", heartbeat="300ms"))
    old, _ = nodes(database)[0]
    time.sleep(1.5)
    frozen.freeze()
    other.wait_for("node.buried", timeout=8, node="alpha")
    frozen.thaw()
    frozen.wait_for("node.replaced", timeout=5, number=old)
    assert wait_until(lambda: names(database) == ["beta", "alpha"], 5, "the new number")
    database.insert("a")
    database.wait_until_empty()
    assert [frozen.stop(), other.stop()] == [0, 0]
    assert names(database) == []


def insert_node(database, silent, session=None, name="stranger", version="0.0.9"):
    return database.value(
        "INSERT INTO postrider.node"
        " (name, version, schema, pid, heartbeat_ms, heartbeat_at, backend_pid, backend_start)"
        " VALUES (%s, %s, 2, 1, 1000, clock_timestamp() - %s::interval, %s, now() - interval '1 day') RETURNING id",
        (name, version, silent, session))


def test_a_node_behind_a_pooler_is_removed_after_five_minutes_and_keeps_its_claims(database, start_relay):
    """Without a session that could be looked at nobody knows that it is dead: what it holds expires by itself."""
    late, lost = insert_node(database, "4 minutes", name="late"), insert_node(database, "6 minutes", name="lost")
    hold_something(database, late)
    hold_something(database, lost)
    relay = start_relay(node_settings(database, heartbeat="200ms"))
    relay.wait_for("node.buried", node="lost")
    time.sleep(1)
    assert names(database) == ["late", "alpha"]
    assert held(database, late) == held(database, lost) == (1, 1, 1)
    assert relay.stop() == 0


def test_a_pid_that_was_given_to_another_session_deceives_nobody(database, start_relay):
    with database.connect() as connection:
        insert_node(database, "5 seconds", connection.info.backend_pid)
        relay = start_relay(node_settings(database, heartbeat="200ms"))
        relay.wait_for("node.buried", node="stranger")
        assert relay.stop() == 0


def test_a_role_that_may_not_look_at_sessions_judges_by_their_pid(database, tmp_path, start_relay):
    role = f"relay_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN")
    owner = write_config(tmp_path / "owner.yaml", settings(database.dsn, {"type": "stdout"}))
    assert postrider("init", "-c", owner, "--role", role).returncode == 0
    gone = insert_node(database, "10 seconds", 2 ** 30, name="gone")
    content = node_settings(database, heartbeat="200ms")
    content["database"]["url"] = database.server.dsn(database.name, role)
    with database.connect() as connection:
        insert_node(database, "10 seconds", connection.info.backend_pid, name="unknown")
        relay = start_relay(content)
        relay.wait_for("node.buried", number=gone)
        relay.wait_for("node.silent", node="unknown")
        time.sleep(1)
        assert names(database) == ["unknown", "alpha"]
        assert relay.stop() == 0


def test_without_the_right_to_register_a_relay_says_what_to_do(database, tmp_path, start_relay):
    role = f"relay_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN")
    owner = write_config(tmp_path / "owner.yaml", settings(database.dsn, {"type": "stdout"}))
    assert postrider("init", "-c", owner, "--role", role).returncode == 0
    database.execute(f"REVOKE INSERT ON postrider.node FROM {role}")
    content = node_settings(database)
    content["database"]["url"] = database.server.dsn(database.name, role)
    weak = write_config(tmp_path / "weak.yaml", content)
    done = postrider("run", "-c", weak)
    assert done.returncode == 78
    assert f"postrider init --role {role}" in done.stderr, done.stderr
    done = postrider("check", "-c", weak)
    assert done.returncode == 1
    assert "INSERT ON postrider.node" in done.stdout and f"--role {role}" in done.stdout, done.stdout


def test_who_may_not_bury_goes_on_beating(database, tmp_path, start_relay):
    role = f"relay_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN")
    owner = write_config(tmp_path / "owner.yaml", settings(database.dsn, {"type": "stdout"}))
    assert postrider("init", "-c", owner, "--role", role).returncode == 0
    database.execute(f"REVOKE DELETE ON postrider.claim FROM {role}")
    insert_node(database, "10 seconds", 2 ** 30)
    content = node_settings(database, heartbeat="200ms")
    content["database"]["url"] = database.server.dsn(database.name, role)
    relay = start_relay(content)
    event = relay.wait_for("node.unburied")
    assert role in event["hint"]
    time.sleep(1)
    assert len(relay.events("node.unburied")) == 1 and not relay.events("heart.lost")
    expect_heartbeats(database, database.value("SELECT id FROM postrider.node WHERE name = 'alpha'"))
    assert relay.stop() == 0


@pytest.mark.parametrize("mode, reader", [("session", "advisory"), ("transaction", "lease")])
def test_behind_a_pooler_no_session_is_told(database, start_relay, mode, reader):
    """The heart needs no session of its own: it registers, beats, sees others and leaves in transaction mode too."""
    pooler = started(PgBouncer(database.server, mode, {"default_pool_size": 20 if mode == "session" else 4}))
    try:
        relays = []
        for name in ("alpha", "beta"):
            content = settings(pooler.dsn(database.name), {"type": "stdout"}, workers=2, reader=reader) | {"node": name}
            content["database"] |= {"pooler": "session"} if mode == "session" else {}
            relays.append(start_relay(content))
        (node, session, since), (other, *_) = nodes(database, "id, backend_pid, backend_start")
        assert (session, since) == (None, None)
        expect_heartbeats(database, node)
        expect_heartbeats(database, other)
        expect_status_to_tell_of_poolers(relays[0].config, [node, other])
        database.insert("a")
        database.wait_until_empty()
        assert relays[1].stop() == 0
        relays[0].wait_for("node.left", node="beta")
        assert names(database) == ["alpha"]
        assert relays[0].stop() == 0
        assert names(database) == []
    finally:
        pooler.close()


def expect_status_to_tell_of_poolers(config, numbers):
    told = json.loads(postrider("status", "-c", config, "--json").stdout)["nodes"]
    assert [(node["number"], node["session"], node["state"]) for node in told] == [
        (number, None, "alive") for number in numbers]
    shown = postrider("status", "-c", config).stdout
    for number in numbers:
        assert f"node {number} is behind a pooler" in shown, shown


# ---- Versions side by side ------------------------------------------------------------------------------------------

def add_migration(database, serves):
    """A later migration, as a newer program would have applied it."""
    known = database.value("SELECT max(version) FROM postrider.migration")
    database.execute("INSERT INTO postrider.migration (version, name, checksum, serves) VALUES (%s, 'later', 'x', %s)",
                     (known + 1, known if serves else serves))
    return known


@pytest.mark.parametrize("command", ["run", "check", "status"])
def test_a_newer_schema_that_does_not_serve_us_is_refused(database, tmp_path, command):
    known = add_migration(database, serves=None)
    done = postrider(command, "-c", write_config(tmp_path / "p.yaml", node_settings(database)))
    assert done.returncode == {"run": 78, "check": 1, "status": 1}[command]
    told = done.stdout + done.stderr
    assert f"version {known + 1}" in told and f"up to {known}" in told and "install" in told, told


def test_a_newer_schema_that_still_serves_us_is_welcome(database, tmp_path, start_relay):
    known = add_migration(database, serves=True)
    relay = start_relay(node_settings(database))
    database.insert("a")
    database.wait_until_empty()
    assert relay.stop() == 0
    assert [(event["version"], event["known"], event["level"]) for event in relay.events("schema.newer")] == [
        (known + 1, known, "info")]
    config = write_config(tmp_path / "p.yaml", node_settings(database))
    for command in ("check", "status"):
        done = postrider(command, "-c", config)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"version {known + 1}" in done.stdout
    done = postrider("init", "-c", config)
    assert done.returncode == 1 and "newer" in done.stderr


def test_an_older_schema_wants_init(database, tmp_path):
    database.execute("DELETE FROM postrider.migration WHERE version = (SELECT max(version) FROM postrider.migration)")
    done = postrider("run", "-c", write_config(tmp_path / "p.yaml", node_settings(database)))
    assert done.returncode == 78
    assert "run `postrider init`" in done.stderr


def test_a_schema_that_outgrows_a_running_node_is_told_once(database, start_relay):
    relay = start_relay(node_settings(database, heartbeat="200ms"))
    known = add_migration(database, serves=None)
    event = relay.wait_for("schema.outgrown", timeout=5)
    assert (event["serves"], event["known"], event["level"]) == (known + 1, known, "warn")
    time.sleep(1)
    database.insert("a")
    database.wait_until_empty()
    assert len(relay.events("schema.outgrown")) == 1
    assert relay.stop() == 0


def test_init_upgrades_a_schema_that_knows_nothing_of_versions_served(product, empty_database, tmp_path, start_relay):
    """As version 2 left it: no column `serves`, no nodes."""
    database = empty_database
    config = write_config(tmp_path / "p.yaml", node_settings(database))
    blocks = re.findall(r"^DO \$postrider\$.*?^\$postrider\$;", postrider("init", "-c", config, "--print-sql").stdout,
                        re.M | re.S)
    with database.connect() as connection:
        for block in blocks[:3]:        # the schema itself, and two migrations
            connection.execute(block)
        connection.execute("ALTER TABLE postrider.migration DROP COLUMN serves")
    refused = postrider("run", "-c", config)
    assert refused.returncode == 78 and "version 2" in refused.stderr, refused.stderr
    done = postrider("init", "-c", config)
    assert done.returncode == 0, done.stderr
    assert "applied migration 0003_nodes" in done.stdout
    assert database.execute("SELECT version, serves FROM postrider.migration WHERE version < 4 ORDER BY 1") == [
        (1, None), (2, None), (3, 2)]
    assert start_relay(node_settings(database)).stop() == 0
