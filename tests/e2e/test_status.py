"""`postrider status`: nodes, workers, and what waits, for people and for programs."""

import json
import re
import time

import pytest

from tests.e2e.relay import postrider, settings, wait_until, write_config
from tests.servers.common import free_port

COLUMNS = 100


@pytest.fixture
def config(database, tmp_path):
    return write_config(tmp_path / "status.yaml", settings(database.dsn, {"type": "stdout"}))


def status(config, *flags, expect=0):
    done = postrider("status", "-c", config, *flags)
    assert done.returncode == expect, done.stdout + done.stderr
    return done


def status_json(config):
    return json.loads(status(config, "--json").stdout)


def text(config):
    """What people see; it fits their screen."""
    shown = status(config).stdout
    assert max(map(len, shown.splitlines())) <= COLUMNS, shown
    return shown


def fill(database, rows, age="0 s"):
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, created_at)"
                     " SELECT 'order', 'e' || n %% 500, 'changed', clock_timestamp() - %s::interval"
                     " FROM generate_series(1, %s) AS n", (age, rows))


def test_an_idle_database_without_nodes(database, config):
    version = database.value("SELECT max(version) FROM postrider.migration")
    assert status_json(config) == {
        "schema": {"version": version, "known": version}, "nodes": [],
        "outboxes": [{"name": "orders", "table": "public.outbox", "reader": "advisory", "pending": 0,
                      "pending_exact": True, "oldest_ms": None, "scheduled": 0, "next_due_ms": None, "held": 0, "blocked": 0, "next_try_at": None,
                      "paused_since": None, "paused_by": None, "error": None}],
        "slots": []}
    shown = text(config)
    assert f"version {version}" in shown and "no relay runs" in shown
    assert re.search(r"orders +public.outbox +advisory +0 +- +0 +-", shown), shown


@pytest.mark.parametrize("pg", [15, 18], indirect=True)
def test_nodes_and_workers_are_shown(database, config, start_relay):
    content = settings(database.dsn, {"type": "stdout"}, workers=3)
    relays = [start_relay(content | {"node": name}) for name in ("alpha", "beta")]
    for number in range(10):
        database.insert(f"e{number}")
    database.wait_until_empty()

    def settled():
        return sum(worker["settled"] for node in status_json(config)["nodes"] for outbox in node["outboxes"]
                   for worker in outbox["workers"]) == 10

    wait_until(settled, 5, "10 settled rows")
    alpha, beta = status_json(config)["nodes"]
    assert [(node["name"], node["state"], node["workers"], node["heartbeat_ms"]) for node in (alpha, beta)] == [
        ("alpha", "alive", 3, 1000), ("beta", "alive", 3, 1000)]
    assert (alpha["pid"], alpha["version"] in postrider("--version").stdout) == (relays[0].pid, True)
    assert 0 <= alpha["heartbeat_age_ms"] < 2000
    assert set(alpha["outboxes"][0]["workers"][0]) >= {
        "number", "connected", "entities", "rows", "claimed", "settled", "claims", "empty_claims", "looked", "lost",
        "claim_ms"}
    shown = text(config)
    assert len(re.findall(r"^ +\d+ +orders +[012] +up ", shown, re.M)) == 6, shown
    assert re.search(r"alpha +\S+ +alive +\d{4}-\d\d-\d\dT[\d:]+Z +[\d.]+ s ago +3$", shown, re.M), shown
    assert [relay.stop() for relay in relays] == [0, 0]


def test_what_a_worker_holds_is_shown(database, config, start_relay):
    """An event store that somebody locks keeps rows in flight."""
    relay = start_relay(settings(database.dsn, {"type": "postgres"}, workers=1))
    with database.connect(autocommit=False) as blocker:
        blocker.execute("LOCK TABLE postrider.event IN ACCESS EXCLUSIVE MODE")
        database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type)"
                         " SELECT 'order', 'e' || n % 3, 'changed' FROM generate_series(1, 6) AS n")

        def held():
            worker, = status_json(config)["nodes"][0]["outboxes"][0]["workers"]
            return (worker["entities"], worker["rows"]) == (3, 6)

        wait_until(held, 10, "3 entities with 6 rows")
        assert re.search(r"orders +0 +up +3 +- +6 ", text(config))
    database.wait_until_empty()
    assert relay.stop() == 0


def test_a_dead_node_a_silent_one_and_one_of_another_version(database, config, start_relay):
    relay = start_relay(settings(database.dsn, {"type": "stdout"}) | {"node": "new", "heartbeat": "60s"})
    with database.connect() as connection:
        database.execute(
            "INSERT INTO postrider.node (name, version, schema, pid, heartbeat_ms, heartbeat_at, backend_pid,"
            " backend_start, state) SELECT v.name, '0.0.9', 2, 1, 1000, clock_timestamp() - v.silent, v.session,"
            " a.backend_start, v.state FROM (VALUES"
            " ('old', interval '1 second', %(here)s,"
            "  '{\"outboxes\": [{\"name\": \"orders\", \"workers\": [{}, 7]}]}'::jsonb),"
            " ('mute', '1 minute', %(here)s, '{}'), ('pooled', '1 minute', NULL, '[]'),"
            " ('dead', '1 minute', 1073741823, '7')"
            " ) AS v(name, silent, session, state) LEFT JOIN pg_stat_get_activity(%(here)s) a ON true",
            {"here": connection.info.backend_pid})
        found = {node["name"]: (node["version"], node["state"], node["workers"])
                 for node in status_json(config)["nodes"]}
        shown = text(config)
    assert found == {"new": (found["new"][0], "alive", 4), "old": ("0.0.9", "alive", 2), "mute": ("0.0.9", "silent", 0),
                     "pooled": ("0.0.9", "silent", 0), "dead": ("0.0.9", "dead", 0)}
    assert re.search(r"old +0\.0\.9 +alive", shown) and re.search(r"dead +0\.0\.9 +dead", shown)
    assert relay.stop() == 0


def test_what_keeps_a_worker_away_is_told(database, config):
    database.execute(
        "INSERT INTO postrider.node (name, version, schema, pid, heartbeat_ms, state) VALUES ('a', '1', 3, 1, 1000,"
        " '{\"outboxes\": [{\"name\": \"orders\", \"workers\": [{\"number\": 2, \"connected\": false,"
        " \"error\": \"could not connect: too many clients\"}]}]}')")
    shown = text(config)
    assert re.search(r"orders +2 +down +- +-", shown)
    assert re.search(r"worker 2 of orders on node \d+: could not connect: too many clients", shown)


def test_a_worker_that_cannot_connect_says_why(database, config, tmp_path, start_relay):
    """The role may have no more sessions: the heart has one, workers get none."""
    role = f"relay_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN")
    assert postrider("init", "-c", config, "--role", role).returncode == 0
    relay = start_relay(settings(database.server.dsn(database.name, role), {"type": "stdout"}, workers=2))
    database.execute(f"ALTER ROLE {role} CONNECTION LIMIT 1")
    database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                     " WHERE usename = %s AND application_name = 'postrider worker'", (role,))

    def told():
        workers = status_json(config)["nodes"][0]["outboxes"][0]["workers"]
        errors = [worker.get("error", "") for worker in workers]
        return not any(worker["connected"] for worker in workers) and all("too many connections" in e for e in errors)

    wait_until(told, 10, "the reason in the state of both workers")
    shown = status(config).stdout
    assert len(re.findall(r"worker [01] of orders on node \d+: .*too many connections for role", shown)) == 2, shown
    database.execute(f"ALTER ROLE {role} CONNECTION LIMIT -1")
    relay.wait_for("database.back")
    wait_until(lambda: all(worker["connected"] and "error" not in worker
                           for worker in status_json(config)["nodes"][0]["outboxes"][0]["workers"]), 15, "no error")
    assert relay.stop() == 0


def owned(config, what):
    """Node by node, what each of its workers has in the database."""
    return {node["name"]: [entry[what] for entry in node["owns"]] for node in status_json(config)["nodes"]}


def test_the_shards_of_each_worker_are_shown(database, config, tmp_path, start_relay):
    content = settings(database.dsn, {"type": "stdout"}, reader="shards", lease="3s", workers=2)
    assert postrider("init", "-c", write_config(tmp_path / "shards.yaml", content)).returncode == 0
    relays = [start_relay(content | {"node": name}) for name in ("alpha", "beta")]
    wait_until(lambda: owned(config, "shards") == {"alpha": [4, 4], "beta": [4, 4]}, 20, "a fair share for each")
    # A node's own word of its workers comes with its next heartbeat.
    wait_until(lambda: len(re.findall(r"^ +\d+ +orders +[01] +up +0 +4 +0 ", text(config), re.M)) == 4, 5, "4 such workers")
    assert [relay.stop() for relay in relays] == [0, 0]


def test_the_leases_of_each_worker_are_shown(database, config, start_relay):
    relay = start_relay(settings(database.dsn, {"type": "postgres"}, reader="lease", workers=1) | {"node": "alpha"})
    with database.connect(autocommit=False) as blocker:
        blocker.execute("LOCK TABLE postrider.event IN ACCESS EXCLUSIVE MODE")
        for number in range(3):
            database.insert(f"e{number}")
        wait_until(lambda: owned(config, "leases") == {"alpha": [3]}, 10, "3 leases")
        wait_until(lambda: re.search(r"orders +0 +up +3 +3 +3 ", text(config)), 5, "3 entities, leases and rows")
    database.wait_until_empty()
    assert relay.stop() == 0


def test_who_is_active_and_who_stands_by_is_shown(database, config, start_relay):
    content = settings(database.dsn, {"type": "stdout"}, reader="dispatcher", workers=2) | {"heartbeat": "300ms"}
    relays = [start_relay(content | {"node": name}) for name in ("alpha", "beta")]

    def conditions():
        return {node["name"]: [worker.get("condition") for outbox in node["outboxes"] for worker in outbox["workers"]]
                for node in status_json(config)["nodes"] if node["state"] == "alive"}

    wait_until(lambda: conditions() == {"alpha": [None, None], "beta": ["standby"] * 2}, 5, "one that stands by")
    shown = text(config)
    assert len(re.findall(r"orders +[01] +up ", shown)) == len(re.findall(r"orders +[01] +standby ", shown)) == 2, shown
    relays[0].kill9()
    wait_until(lambda: conditions() == {"beta": [None, None]}, 10, "the other one at work")
    assert relays[1].stop() == 0


def test_pending_rows_and_the_oldest_age(database, config):
    fill(database, 3, "2 hours")
    fill(database, 40, "1 minute")
    outbox, = status_json(config)["outboxes"]
    assert (outbox["pending"], outbox["pending_exact"]) == (43, True)
    assert 7200_000 <= outbox["oldest_ms"] < 7260_000
    assert re.search(r"advisory +43 +2 h +0 +-", text(config))


def test_a_huge_backlog_is_not_counted(database, config):
    fill(database, 100_001, "3 minutes")
    outbox, = status_json(config)["outboxes"]
    assert (outbox["pending"], outbox["pending_exact"], outbox["oldest_ms"] >= 180_000) == (100_000, False, True)
    assert re.search(r"more than 100,000 +3 min ", text(config))


def test_without_an_index_the_oldest_of_a_huge_backlog_is_not_searched(database, tmp_path):
    fill(database, 100_001)
    content = settings(database.dsn, {"type": "stdout"}, order_by="created_at")
    outbox, = status_json(write_config(tmp_path / "p.yaml", content))["outboxes"]
    assert (outbox["pending"], outbox["oldest_ms"]) == (100_000, None)


def test_held_entities_and_their_next_attempt(database, config):
    database.insert("bad")
    database.insert("worse")
    for entity, seconds in (("bad", 40), ("worse", 100), ("deleted meanwhile", 1)):
        database.execute("INSERT INTO postrider.retry (outbox, entity, row_id, attempts, kind, error, retry_at)"
                         " VALUES (1, %s, '1', 3, 'rejected', 'no', clock_timestamp() + %s * interval '1 second')",
                         (entity, seconds))
    outbox, = status_json(config)["outboxes"]
    assert outbox["held"] == 2
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", outbox["next_try_at"])
    assert re.search(r" 2 +in (39|40) s$", text(config), re.M)


def test_blocked_and_parked_entities_are_told_apart(database, config):
    row = database.insert("bad")
    database.insert("aside")
    database.execute("INSERT INTO postrider.retry (outbox, entity, row_id, attempts, kind, error, retry_at, blocked_at)"
                     " VALUES (1, 'bad', %s, 3, 'rejected', 'no', now() + interval '100 years', now()),"
                     " (1, 'aside', NULL, 0, 'parked', 'by me', now() + interval '100 years', now())", (str(row),))
    outbox, = status_json(config)["outboxes"]
    assert (outbox["held"], outbox["blocked"], outbox["next_try_at"]) == (2, 2, None)
    shown = text(config)
    assert re.search(r" 2 +-$", shown, re.M)
    assert "orders: 2 of the entities that are held back are blocked or parked" in shown


def test_tables_of_any_shape(database, tmp_path):
    """Quoted names, an entity that is no text, no time of creation."""
    with database.connect() as connection:
        connection.execute('CREATE TABLE public."Mine" (id uuid PRIMARY KEY, "Who" bigint NOT NULL, what bytea)')
        connection.execute('INSERT INTO public."Mine" VALUES (gen_random_uuid(), 7, \'x\')')
    content = settings(database.dsn, {"type": "stdout"}, table='public."Mine"',
                       columns={"entity_id": "Who", "payload": "what"})
    config = write_config(tmp_path / "p.yaml", content)
    assert postrider("init", "-c", config, "--existing", 'public."Mine"').returncode == 0
    database.execute("INSERT INTO postrider.retry (outbox, entity, row_id, attempts, kind, error, retry_at)"
                     " VALUES (2, '7', 'x', 3, 'rejected', 'no', now())")
    outbox, = status_json(config)["outboxes"]
    assert (outbox["pending"], outbox["oldest_ms"], outbox["held"]) == (1, None, 1)
    assert re.search(r" 1 +- +1 +now$", text(config), re.M)


def test_long_names_fit_the_screen(database, tmp_path, start_relay):
    name = "a-very-long-name-of-an-outbox-0123456789"
    content = settings(database.dsn, {"type": "stdout"}, outbox=name) | {"node": "ünïcödé-" * 10}
    relay = start_relay(content)
    wait_until(lambda: status_json(relay.config)["nodes"][0]["workers"] == 4, 5, "4 workers")
    assert "…" in text(relay.config)
    assert status_json(relay.config)["nodes"][0]["name"] == "ünïcödé-" * 10
    assert relay.stop() == 0


def test_a_database_that_is_away_is_told(product, tmp_path):
    port = free_port()
    content = settings(f"postgresql://x@127.0.0.1:{port}/y", {"type": "stdout"})
    done = status(write_config(tmp_path / "p.yaml", content), expect=1)
    assert done.stdout == "" and str(port) in done.stderr and "could not connect" in done.stderr


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_schema_that_is_not_installed_is_told(product, empty_database, tmp_path, flags):
    config = write_config(tmp_path / "p.yaml", settings(empty_database.dsn, {"type": "stdout"}))
    done = status(config, *flags, expect=1)
    assert "not installed" in done.stderr and "postrider init" in done.stderr


def test_a_table_that_is_not_there_does_not_hide_the_rest(database, tmp_path):
    content = settings(database.dsn, {"type": "stdout"})
    content["outboxes"]["lost"] = {"table": "public.nowhere", "sinks": [{"type": "stdout"}]}
    database.insert("a")
    config = write_config(tmp_path / "p.yaml", content)
    done = json.loads(status(config, "--json", expect=1).stdout)
    found = {outbox["name"]: (outbox["pending"], outbox["error"]) for outbox in done["outboxes"]}
    assert found["orders"] == (1, None)
    assert found["lost"][0] is None and "public.nowhere" in found["lost"][1]
    assert "public.nowhere" in status(config, expect=1).stdout


def test_it_is_quick_on_a_large_table(database, config):
    fill(database, 300_000)
    begin = time.monotonic()
    status(config)
    assert time.monotonic() - begin < 3


def test_no_more_rows_are_read_than_are_counted(database, config):
    """Whatever the planner thinks of a column that is always NULL."""
    fill(database, 300_000)
    database.execute("ANALYZE public.outbox")
    read = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relid = 'public.outbox'::regclass"
    before = database.value(read)
    status(config)
    time.sleep(1.5)     # statistics come a little later
    assert 100_000 < database.value(read) - before < 150_000


def test_wrong_settings_end_with_78(product, tmp_path):
    status(write_config(tmp_path / "p.yaml", "outboxes: 7\n"), expect=78)
