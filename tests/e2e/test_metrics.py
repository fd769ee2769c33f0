"""/metrics: what is counted is what happened, and one node tells what only the database knows."""

import re
import subprocess
import threading
import time

import pytest

from tests.e2e.observe import check_by_promtool, get, scrape, wait_for_value, watched
from tests.e2e.relay import ROOT, postrider, wait_until, write_config
from tests.e2e.scene import started
from tests.servers import Prometheus, Redis
from tests.servers.common import free_port

FILL = ("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
        " SELECT 'order', 'e' || n %% 50, 'changed', '{}' FROM generate_series(1, %s) AS n")
HOLD = ("INSERT INTO postrider.retry (outbox, entity, row_id, attempts, kind, error, retry_at, blocked_at)"
        " VALUES (1, %s, %s, 3, 'rejected', 'no', now() + interval '100 years', %s)")


@pytest.fixture
def redis(servers):
    return servers.get("redis for metrics", Redis)


def lines(folder):
    return {"type": "stdout", "path": str(folder / "out.jsonl")}


# ---- What a node counts ---------------------------------------------------------------------------------------------

def test_what_was_published_is_counted_exactly(database, tmp_path, start_relay):
    content, port = watched(database.dsn, lines(tmp_path), {"type": "postgres"}, workers=3)
    relay = start_relay(content)
    database.execute(FILL, (5000,))
    database.wait_until_empty()
    wait_for_value(port, 5000, "postrider_published_rows_total", outbox="orders")
    wait_for_value(port, 0, "postrider_in_flight_rows")
    found = scrape(port)
    check_by_promtool(found.text)
    for sink in ("stdout", "postgres"):
        assert found.value("postrider_sink_acknowledged_rows_total", outbox="orders", sink=sink) == 5000
        assert all(value == 0 for _, value in found.all("postrider_sink_errors_total", sink=sink))
    assert found.value("postrider_created_to_ack_seconds_count", outbox="orders") == 5000
    assert 0 < found.value("postrider_created_to_ack_seconds_sum") < 5000 * 30
    assert found.value("postrider_claim_seconds_count") == found.value("postrider_claims_total", reader="advisory") > 0
    assert found.value("postrider_workers") == found.value("postrider_workers_connected") == 3
    assert found.value("postrider_claimed_rows_total") == 5000
    assert found.value("postrider_in_flight_bytes") == found.value("postrider_in_flight_entities") == 0
    assert found.value("postrider_build_info") == found.value("postrider_outbox_info", table="public.outbox") == 1
    assert found.value("postrider_outbox_paused") == 0
    assert found.value("postrider_heartbeat_age_seconds") < 5
    assert 1e6 < found.value("process_resident_memory_bytes") < 1e9
    assert found.value("process_open_fds") > 10 and found.value("process_cpu_seconds_total") > 0
    assert abs(found.value("process_start_time_seconds") - time.time()) < 120
    assert relay.stop() == 0


def test_errors_are_counted_by_kind_and_sink(database, redis, start_relay):
    """A stream whose name is taken by something else refuses each row."""
    with redis.client() as client:
        client.set("taken", "text")
    content, port = watched(database.dsn, {"type": "redis", "address": redis.address}, workers=1,
                            route={"topic": "taken"}, failure={"max_retries": 1, "first_delay": "10ms", "then": "dead_letter"})
    relay = start_relay(content)
    database.insert("bad")
    wait_for_value(port, 1, "postrider_dead_letters", outbox="orders")
    found = scrape(port)
    assert found.value("postrider_sink_errors_total", sink="redis", kind="rejected") == 2
    assert found.value("postrider_refused_rows_total", outcome="retry") == 1
    assert found.value("postrider_refused_rows_total", outcome="dead_letter") == 1
    assert found.value("postrider_published_rows_total") == 0
    assert relay.stop() == 0


def test_hostile_names_stay_text(database, tmp_path, start_relay):
    node, table = 'a"} 1\nevil 2{x="\\n', 'public."we""ird\\table"'
    content, port = watched(database.dsn, {"type": "stdout"}, table=table)
    content |= {"node": node.replace("\n", "")}
    database.execute('CREATE TABLE public."we""ird\\table" (LIKE public.outbox INCLUDING ALL)')
    assert postrider("init", "-c", write_config(tmp_path / "i.yaml", content), "--existing", table).returncode == 0
    relay = start_relay(content)
    wait_for_value(port, 0, "postrider_pending_rows")
    found = scrape(port)
    check_by_promtool(found.text)
    assert found.all("postrider_build_info")[0][0]["node"] == node.replace("\n", "")
    assert found.all("postrider_outbox_info")[0][0]["table"] == table
    assert not any(name == "evil" for name, _, _ in found.samples)
    assert relay.stop() == 0


# ---- What one node reads for all ------------------------------------------------------------------------------------

def test_figures_of_a_table(database, start_relay):
    for entity, blocked in (("held", None), ("blocked", "now()")):
        row = database.insert(entity)
        database.execute(HOLD, (entity, str(row), blocked))
    database.insert("later", scheduled_for="2999-01-01")
    database.execute("UPDATE public.outbox SET created_at = now() - interval '1 hour' WHERE entity_id = 'held'")
    content, port = watched(database.dsn, {"type": "stdout"})
    relay = start_relay(content)
    wait_for_value(port, 2, "postrider_pending_rows", outbox="orders")
    found = scrape(port)
    check_by_promtool(found.text)
    assert found.value("postrider_pending_rows_estimated") == 0
    assert 3600 <= found.value("postrider_oldest_pending_seconds") < 3700
    assert (found.value("postrider_held_entities"), found.value("postrider_blocked_entities")) == (2, 1)
    assert found.value("postrider_scheduled_rows") == 1 and found.value("postrider_next_due_seconds") > 1e9
    assert found.value("postrider_table_bytes") == database.value("SELECT pg_total_relation_size('public.outbox')")
    assert found.value("postrider_nodes", state="alive") == 1 and found.value("postrider_nodes", state="dead") == 0
    assert found.value("postrider_survey_seconds") < 5 and found.value("postrider_survey_failures_total") == 0
    with database.connect(autocommit=False) as old:
        old.execute("SELECT 1")
        wait_until(lambda: scrape(port).value("postrider_oldest_transaction_seconds") > 2, 10, "an old transaction")
    database.execute("DELETE FROM public.outbox WHERE entity_id <> 'later'")
    wait_for_value(port, 0, "postrider_oldest_pending_seconds")
    assert relay.stop() == 0


def test_a_large_table_is_estimated(database, start_relay):
    """Nothing goes out: nobody listens where the sink is."""
    database.execute(FILL, (150_000,))
    database.execute("ANALYZE public.outbox")
    content, port = watched(database.dsn, {"type": "redis", "address": f"127.0.0.1:{free_port()}"}, workers=1)
    relay = start_relay(content)
    wait_for_value(port, 1, "postrider_pending_rows_estimated")
    found = scrape(port)
    assert 120_000 < found.value("postrider_pending_rows") < 180_000
    assert found.value("postrider_survey_seconds") < 2
    relay.kill9()


def test_owners_of_shards(database, tmp_path, start_relay):
    contents = [watched(database.dsn, {"type": "stdout"}, reader="shards", lease="3s", workers=2) for _ in range(2)]
    assert postrider("init", "-c", write_config(tmp_path / "s.yaml", contents[0][0])).returncode == 0
    relays = [start_relay(content | {"node": name}) for (content, _), name in zip(contents, ("alpha", "beta"))]
    for name in ("alpha", "beta"):
        wait_for_value(contents[0][1], 8, "postrider_shards_owned", node=name)
    assert scrape(contents[0][1]).value("postrider_shards", outbox="orders") == 16
    assert [relay.stop() for relay in relays] == [0, 0]


def test_the_slot(database, tmp_path, start_relay):
    content, port = watched(database.dsn, {"type": "stdout"}, reader="wal", workers=1)
    assert postrider("init", "-c", write_config(tmp_path / "w.yaml", content)).returncode == 0
    relay = start_relay(content)
    wait_for_value(port, 1, "postrider_slot_state", state="active")
    found = scrape(port)
    assert found.value("postrider_slot_retained_bytes", table="public.outbox") >= 0
    assert sum(value for _, value in found.all("postrider_slot_state")) == 1
    assert relay.stop() == 0


def test_a_database_that_is_away_takes_the_figures_with_it(fragile_database, start_relay):
    """No figure is better than an old one."""
    content, port = watched(fragile_database.dsn, {"type": "stdout"})
    relay = start_relay(content)
    wait_for_value(port, 0, "postrider_pending_rows")
    fragile_database.server.stop()
    wait_for_value(port, None, "postrider_pending_rows")
    assert scrape(port).value("postrider_survey_failures_total") > 0
    fragile_database.server.start()
    wait_for_value(port, 0, "postrider_pending_rows", timeout=40)
    assert len(relay.events("survey.failed")) == 1
    assert relay.stop() == 0


# ---- A real Prometheus ----------------------------------------------------------------------------------------------

def test_prometheus_adds_up_nodes(database, tmp_path, start_relay):
    token = tmp_path / "token"
    token.write_text("a secret token\n")
    contents = [watched(database.dsn, lines(tmp_path), http={"token_file": str(token)}) for _ in range(2)]
    first, second = [start_relay(content | {"node": name, "heartbeat": "200ms"})
                     for (content, _), name in zip(contents, ("alpha", "beta"))]
    database.execute(FILL, (3000,))
    database.wait_until_empty()
    prometheus = Prometheus([f"127.0.0.1:{port}" for _, port in contents], token)
    started(prometheus)
    try:
        def ask(expression):
            return [value for _, value in prometheus.query(expression)]

        wait_until(lambda: ask("sum(up)") == [2], 20, "both nodes are scraped")
        wait_until(lambda: ask("sum(postrider_published_rows_total)") == [3000], 20, "3000 published")
        assert ask("sum(postrider_created_to_ack_seconds_count)") == [3000]
        wait_until(lambda: ask("sum(postrider_pending_rows)") == [0], 20, "nothing is pending")
        assert ask("count(postrider_pending_rows)") == ask("count(postrider_oldest_transaction_seconds)") == [1]
        assert ask("sum(postrider_nodes{state='alive'})") == [2]
        first.kill9()
        wait_until(lambda: ask("count(postrider_pending_rows and on(instance) up == 1)") == [1] and ask("sum(up)") == [1],
                   20, "the other node reads the tables")
    finally:
        prometheus.close()
    assert second.stop() == 0


def test_scraping_does_not_slow_the_relay_down(database, tmp_path, start_relay):
    """Roughly: the machine is shared."""
    content, port = watched(database.dsn, lines(tmp_path))
    relay = start_relay(content)

    def drain():
        database.execute(FILL, (30_000,))
        begin = time.monotonic()
        database.wait_until_empty(60)
        return time.monotonic() - begin

    drain()
    alone, stop, answers = drain(), threading.Event(), []

    def keep_scraping():
        while not stop.wait(0.01):
            answers.append(get(port, "/metrics")[0])

    scraper = threading.Thread(target=keep_scraping)
    scraper.start()
    try:
        watched_too = drain()
    finally:
        stop.set()
        scraper.join()
    print(f"30,000 rows: {alone:.2f} s alone, {watched_too:.2f} s with {len(answers)} scrapes")
    assert set(answers) == {200} and len(answers) > 5
    assert watched_too < 2 * alone + 1
    wait_for_value(port, 90_000, "postrider_published_rows_total")
    assert relay.stop() == 0


def test_the_alerts_of_the_documentation_are_rules(tmp_path):
    """And speak of metrics that there are."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    (rules,) = re.findall(r"```yaml\n(groups:.*?)```", page, re.S)
    file = tmp_path / "rules.yml"
    file.write_text(rules)
    done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    used = set(re.findall(r"postrider_[a-z_]+", rules))
    assert len(used) > 5 and used <= set(re.findall(r"^\| `(postrider_[a-z_]+)`", page, re.M))
