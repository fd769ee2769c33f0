"""Fan-out: branches of an outbox, each with sinks and progress of its own."""

import contextlib
import json
import threading
import time

import psycopg
import pytest

from tests.e2e.checker import expect_exactly_once, expect_in_order
from tests.e2e.consume import read_topic
from tests.e2e.destinations.redis import RedisDestination
from tests.e2e.ledger import Writers, arrivals
from tests.e2e.relay import postrider, settings, wait_until, write_config
from tests.e2e.scene import started
from tests.servers import PgBouncer

every_postgres = pytest.mark.parametrize("pg", [15, 18], indirect=True)
TO_STORE = {"sinks": [{"type": "postgres"}]}


# ---- The scene ------------------------------------------------------------------------------------------------------

def branching(database, branches, **options):
    """Settings of an outbox with branches; polls often, so that a lost wake-up costs a test little."""
    content = settings(database.dsn, poll_interval="1s", branches=branches, **options)
    del content["outboxes"]["orders"]["sinks"]
    return content


def to_kafka(server, topic, **more):
    return {"sinks": [{"type": "kafka", "brokers": server.bootstrap}], "route": {"topic": topic}, **more}


def to_file(path, **more):
    return {"sinks": [{"type": "stdout", "path": str(path)}], **more}


def table_of(branch, outbox="orders"):
    return f'postrider."branch_{outbox}.{branch}"'


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    destination = RedisDestination(tmp_path_factory.mktemp("redis"))
    yield destination
    destination.close()


@pytest.fixture
def installed(database, tmp_path):
    """Runs `init` with these settings, and returns them."""

    def install(content, *flags):
        done = postrider("init", "-c", write_config(tmp_path / "branches.yaml", content), *flags)
        assert done.returncode == 0, done.stderr
        return content

    return install


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_until_through(database, *branches, timeout=30):
    database.wait_until_empty(timeout)
    for branch in branches:
        database.wait_until_empty(timeout, table_of(branch))


def count_moves(database, branch):
    """From now on every row that is inserted into the branch leaves a line, and the line stays."""
    database.execute(f"""
        CREATE TABLE IF NOT EXISTS public.moved (branch text NOT NULL, message_id uuid NOT NULL);
        CREATE OR REPLACE FUNCTION public.count_move() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN INSERT INTO public.moved VALUES (TG_ARGV[0], NEW.message_id); RETURN NULL; END';
        CREATE TRIGGER count_move AFTER INSERT ON {table_of(branch)} FOR EACH ROW
            EXECUTE FUNCTION public.count_move('{branch}')""")


def expect_moved_once(database, branch):
    rows = database.execute("SELECT message_id::text FROM public.moved WHERE branch = %s", (branch,))
    moved = [row[0] for row in rows]
    assert len(moved) == len(set(moved)), f"{len(moved) - len(set(moved))} rows moved into {branch} twice"
    assert set(moved) == {entry.message_id for entry in database.ledger()}


# ---- Which rows go where --------------------------------------------------------------------------------------------

@every_postgres
def test_rows_go_to_the_branches_that_take_them(database, installed, start_relay, tmp_path):
    """By event type, topic and header; a row may go to several branches."""
    names = ("all", "typed", "topical", "tenant", "both")
    only = {
        "typed": {"event_type": "order.*|invoice.paid"},
        "topical": {"topic": "shop.?"},
        "tenant": {"headers": {"tenant": "acme"}},
        "both": {"event_type": "order.*", "headers": {"tenant": "*"}},
    }
    files = {name: tmp_path / f"{name}.jsonl" for name in names}
    start_relay(installed(branching(
        database, {name: to_file(files[name], **({"only": only[name]} if name in only else {})) for name in names})))
    database.insert("a", event_type="order.new")
    database.insert("b", event_type="invoice.paid")
    database.insert("c", event_type="invoice.sent", topic="shop.1")
    database.insert("d", event_type="x", headers='{"tenant": "acme"}')
    database.insert("e", event_type="order.old", topic="shop.12", headers='{"tenant": "globex"}')
    wait_until_through(database, *names)
    assert {name: sorted(line["key"] for line in lines(files[name])) for name in names} == {
        "all": ["a", "b", "c", "d", "e"], "typed": ["a", "b", "e"], "topical": ["c"], "tenant": ["d"], "both": ["e"]}


def test_a_topic_is_that_of_the_outbox_not_of_the_branch(database, installed, start_relay, tmp_path):
    """And the message goes where the branch says."""
    path = tmp_path / "orders.jsonl"
    start_relay(installed(branching(
        database, {"orders": to_file(path, only={"topic": "shop.order"}, route={"topic": "elsewhere"})},
        route={"topic": "shop.{entity_type}", "headers": {"from": "shop"}})))
    database.insert("a")
    database.insert("b", entity_type="invoice")
    wait_until_through(database, "orders")
    line, = lines(path)
    assert (line["key"], line["topic"], line["headers"]["from"]) == ("a", "elsewhere", "shop")


def test_a_row_that_no_branch_takes_is_settled(database, installed, start_relay, tmp_path):
    path = tmp_path / "orders.jsonl"
    start_relay(installed(branching(database, {"orders": to_file(path, only={"event_type": "order.*"})})))
    database.insert("a", event_type="invoice.paid")
    database.insert("a", event_type="order.new")
    wait_until_through(database, "orders")
    assert len(lines(path)) == 1
    told = "SELECT jsonb_path_query_first(state, '$.outboxes[*] ? (@.name == \"orders\").sinks[0].unmatched') FROM postrider.node"
    wait_until(lambda: database.value(told) == 1, what="a count of rows that nobody took")


def test_a_row_arrives_as_it_would_without_branches(database, installed, start_relay, tmp_path):
    """Payloads of any kind, keys, headers and the source of an event."""
    database.execute("ALTER TABLE public.outbox ALTER COLUMN payload TYPE text")
    direct, branched = tmp_path / "direct.jsonl", tmp_path / "branched.jsonl"
    route = {"envelope": "cloudevents", "topic": "t.{entity_type}", "headers": {"more": "{event_type}"}}
    rows = [("a", '{"x":  1}', None), ("b", "no json", '{"h": "v"}'), ("c", "x" * 3_000_000, None), ("d", "\u00e9\u20ac", None)]

    def publish(content):
        relay = start_relay(content)
        for entity, payload, headers in rows:
            database.insert(entity, payload=payload, headers=headers, created_at="2026-01-01T00:00:00Z",
                            message_id=f"00000000-0000-0000-0000-00000000000{entity}")
        database.wait_until_empty()
        return relay

    sink = {"type": "stdout", "path": str(direct)}
    publish(settings(database.dsn, sink, route=route)).stop()
    relay = publish(installed(branching(database, {"all": to_file(branched)}, route=route)))
    wait_until_through(database, "all")
    relay.stop()
    assert sorted(lines(direct), key=lambda line: line["key"]) == sorted(lines(branched), key=lambda line: line["key"])
    assert len(lines(direct)) == len(rows)


def test_scheduled_rows_wait_in_the_outbox(database, installed, start_relay, tmp_path):
    path = tmp_path / "all.jsonl"
    start_relay(installed(branching(database, {"all": to_file(path)})))
    due = database.value("SELECT clock_timestamp() + interval '2 s'")
    database.insert("a", scheduled_for=due)
    time.sleep(1)
    assert database.pending() == 1 and database.pending(table_of("all")) == 0
    wait_until_through(database, "all")
    assert database.value("SELECT clock_timestamp()") >= due and len(lines(path)) == 1


# ---- Each at its own pace -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("fragile_pg", [15, 18], indirect=True)
def test_a_dead_sink_holds_nobody_else_back(
        fragile_database, tmp_path, fragile_kafka, fragile_topic, redis, start_relay):
    """Others drain while it is away; when it is back, it gets everything in order."""
    database, path, stream = fragile_database, tmp_path / "file.jsonl", redis.fresh()
    content = branching(database, {
        "store": TO_STORE, "file": to_file(path), "cache": {"sinks": [stream.sink()], "route": stream.route},
        "stream": to_kafka(fragile_kafka, fragile_topic)})
    done = postrider("init", "-c", write_config(tmp_path / "branches.yaml", content))
    assert done.returncode == 0, done.stderr
    entities = database.entities(40)
    start_relay(content)
    fragile_kafka.stop()
    with Writers(database.dsn, entities, threads=2):
        time.sleep(4)
    written = len(database.ledger())
    wait_until_through(database, "store", "file", "cache", timeout=10)
    expect_exactly_once(database.ledger(), database.event_store())
    expect_exactly_once(database.ledger(), [message.arrival() for message in stream.arrived()])
    assert len(lines(path)) == written and database.pending(table_of("stream")) > written / 2
    fragile_kafka.start()
    wait_until_through(database, "stream", timeout=60)
    expect_in_order(database.ledger(), arrivals(read_topic(fragile_kafka, fragile_topic)))


def test_a_restart_repeats_nothing_in_live_branches(database, installed, start_relay, tmp_path):
    """A chain would: there the row is unsettled until the dead sink has it."""
    path = tmp_path / "file.jsonl"
    dead = {"sinks": [{"type": "kafka", "brokers": "127.0.0.1:1"}]}
    content = installed(branching(database, {"file": to_file(path), "dead": dead}))
    content["stop_timeout"] = "1s"
    relay = start_relay(content)
    for number in range(50):
        database.insert(f"e{number % 5}")
    wait_until_through(database, "file")
    relay.stop()
    relay = start_relay(content)
    database.insert("last")
    wait_until_through(database, "file")
    assert len(lines(path)) == 51
    assert database.pending(table_of("dead")) == 51


@every_postgres
@pytest.mark.parametrize("reader", ["advisory", "lease", "shards"])
def test_kill_9_of_nodes_loses_and_repeats_nothing(database, installed, kafka, topic, start_relay, reader):
    """Rows move into their branches exactly once, and each branch keeps the order of its entities."""
    content = installed(branching(
        database, {"store": TO_STORE, "stream": to_kafka(kafka, topic)}, reader=reader, workers=2, lease="3s"))
    entities = database.entities(40)
    for branch in ("store", "stream"):
        count_moves(database, branch)
    with Writers(database.dsn, entities, threads=4, pause=0.001):
        survivor = start_relay(content)
        for _ in range(4):
            victim = start_relay(content)
            time.sleep(0.6)
            victim.kill9()
    wait_until_through(database, "store", "stream", timeout=60)
    assert survivor.stop() == 0
    for branch in ("store", "stream"):
        expect_moved_once(database, branch)
    expect_exactly_once(database.ledger(), database.event_store())
    expect_in_order(database.ledger(), arrivals(read_topic(kafka, topic)))


@every_postgres
def test_rows_that_an_application_changes_meanwhile_move_once(database, installed, start_relay):
    """An UPDATE moves a row to another address between reading and settling."""
    content = installed(branching(database, {"store": TO_STORE}))
    entities = database.entities(20)
    count_moves(database, "store")
    stop = threading.Event()

    def keep_changing():
        with database.connect() as connection:
            while not stop.is_set():
                with contextlib.suppress(psycopg.errors.DeadlockDetected):
                    connection.execute("UPDATE public.outbox SET headers = '{\"changed\": \"yes\"}'")

    changer = threading.Thread(target=keep_changing)
    start_relay(content)
    changer.start()
    try:
        with Writers(database.dsn, entities, threads=4, pause=0.001):
            time.sleep(4)
    finally:
        stop.set()
        changer.join()
    wait_until_through(database, "store")
    expect_moved_once(database, "store")
    expect_exactly_once(database.ledger(), database.event_store())
    assert database.value("SELECT count(*) FROM postrider.event WHERE headers ? 'changed'") > 0


def test_dead_letters_of_one_branch_are_nobody_elses(database, installed, kafka, make_topic, start_relay, tmp_path):
    path = tmp_path / "file.jsonl"
    narrow = make_topic(config={"max.message.bytes": "20000"})
    content = installed(branching(database, {
        "file": to_file(path),
        "stream": to_kafka(kafka, narrow, failure={"max_retries": 0, "then": "dead_letter"})}))
    start_relay(content)
    for number in range(3):
        database.insert("a", payload=json.dumps({"n": number, "x": "x" * (50_000 if number == 1 else 1)}))
    wait_until_through(database, "file", "stream")
    assert [line["payload"]["n"] for line in lines(path)] == [0, 1, 2]
    assert [json.loads(record.value)["n"] for record in read_topic(kafka, narrow)] == [0, 2]
    assert database.execute("SELECT o.table_name FROM postrider.dead_letter d JOIN postrider.outbox o ON o.id = d.outbox") == [
        (table_of("stream"),)]
    config = write_config(tmp_path / "dead.yaml", content)
    letter, = json.loads(postrider("dead", "list", "--outbox", "orders.stream", "--json", "-c", config).stdout)["letters"]
    assert letter["entity"] == "a"


def test_a_paused_branch_pauses_alone(database, installed, start_relay, tmp_path):
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    content = installed(branching(database, {"one": to_file(one), "other": to_file(other)}))
    config = write_config(tmp_path / "pause.yaml", content)
    start_relay(content)
    assert postrider("pause", "orders.one", "-c", config).returncode == 0
    database.insert("a")
    wait_until_through(database, "other")
    assert database.pending(table_of("one")) == 1
    status = postrider("status", "-c", config).stdout
    assert "orders.one" in status and "orders.other" in status
    assert postrider("resume", "orders.one", "-c", config).returncode == 0
    wait_until_through(database, "one")


@pytest.mark.parametrize("reader", ["lease", "shards", "dispatcher", "skip_locked", "wal"])
def test_a_branch_has_any_reader(database, installed, start_relay, reader):
    start_relay(installed(branching(database, {"store": {**TO_STORE, "reader": reader, "order": "entity"}})))
    database.entities(10)
    database.write_backlog(50)
    wait_until_through(database, "store")
    expect_exactly_once(database.ledger(), database.event_store())


@pytest.mark.parametrize("published, kept", [
    ("mark", "public.outbox WHERE published_at IS NOT NULL"), ("archive", "public.outbox_archive")])
def test_the_outbox_keeps_its_history(database, installed, start_relay, tmp_path, published, kept):
    """What becomes of published rows is the outbox's own setting; branches just delete."""
    path = tmp_path / "all.jsonl"
    start_relay(installed(branching(database, {"all": to_file(path)}, published=published)))
    for number in range(20):
        database.insert(f"e{number % 3}")
    wait_until(lambda: len(lines(path)) == 20 and database.value(f"SELECT count(*) FROM {kept}") == 20)
    database.wait_until_empty(table=table_of("all"))
    assert len(lines(path)) == 20


def test_an_outbox_in_partitions_has_branches_too(database, installed, start_relay):
    start_relay(installed(branching(
        database, {"store": TO_STORE}, published="partitions", partitions={"rows": 100})))
    database.entities(10)
    database.write_backlog(50)
    wait_until_through(database, "store")
    expect_exactly_once(database.ledger(), database.event_store())


@every_postgres
def test_any_table_can_have_branches(database, installed, start_relay, tmp_path):
    """Ids that are no numbers, an order of its own, bytes, names that need quotes, a generated column."""
    path = tmp_path / "all.jsonl"
    database.execute("""
        CREATE TABLE public."Odd % box" (
            "the id" uuid PRIMARY KEY DEFAULT gen_random_uuid(), seq bigserial, who varchar(20) COLLATE "C" NOT NULL,
            body bytea, twice bigint GENERATED ALWAYS AS (seq * 2) STORED);
        CREATE INDEX ON public."Odd % box" (who, seq)""")
    start_relay(installed(branching(
        database, {"all": to_file(path)}, table='public."Odd % box"', order_by="seq",
        columns={"id": "the id", "entity_id": "who", "payload": "body"},
        route={"topic": "t", "headers": {"twice": "{twice}"}})))
    for number in range(60):
        database.execute('INSERT INTO public."Odd %% box" (who, body) VALUES (%s, %s)',
                         (f"e{number % 3}", json.dumps({"n": number}).encode()))
    database.wait_until_empty(table='public."Odd % box"')
    database.wait_until_empty(table=table_of("all"))
    arrived = lines(path)
    for entity in range(3):
        of_entity = [line for line in arrived if line["key"] == f"e{entity}"]
        assert [line["payload"]["n"] for line in of_entity] == list(range(entity, 60, 3))
        assert [line["headers"]["twice"] for line in of_entity] == [str(2 * n + 2) for n in range(entity, 60, 3)]


def test_a_row_that_the_table_of_a_branch_refuses_waits_alone(database, installed, start_relay, tmp_path):
    """Here because the branch has a row of that id already. It is blamed itself, and others go on."""
    path = tmp_path / "all.jsonl"
    content = installed(branching(database, {"all": to_file(path)}, failure={"max_retries": 0, "then": "block"}))
    config = write_config(tmp_path / "pause.yaml", content)
    assert postrider("pause", "orders.all", "-c", config).returncode == 0
    database.execute(f"INSERT INTO {table_of('all')} (id, entity_type, entity_id, event_type, message_id, created_at)"
                     " VALUES (1, 'order', 'early', 'x', gen_random_uuid(), now())")
    for entity in "abc":
        database.insert(entity)
    relay = start_relay(content)
    blocked = relay.wait_for("entity.blocked")
    assert (blocked["outbox"], blocked["entity"]) == ("orders", "a") and "duplicate key" in blocked["error"]
    wait_until(lambda: database.pending() == 1)
    assert postrider("resume", "orders.all", "-c", config).returncode == 0
    wait_until(lambda: sorted(line["key"] for line in lines(path)) == ["b", "c", "early"])


# ---- init and check -------------------------------------------------------------------------------------------------

@every_postgres
def test_init_makes_the_tables_and_a_role_needs_nothing_else(database, installed, start_relay, tmp_path):
    role = f"relay_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN")
    path = tmp_path / "all.jsonl"
    content = installed(branching(database, {"all": to_file(path), "more": TO_STORE}), "--role", role)
    config = write_config(tmp_path / "again.yaml", content)
    assert "nothing to do" in postrider("init", "-c", config, "--role", role).stdout
    assert database.value("SELECT has_table_privilege(%s, 'public.outbox', 'UPDATE')", (role,)) is False
    content["database"]["url"] = database.server.dsn(database.name, role)
    start_relay(content)
    database.insert("a")
    wait_until_through(database, "all", "more")
    assert postrider("check", "-c", write_config(tmp_path / "check.yaml", content)).returncode == 0


def test_init_as_a_script_does_the_same(database, tmp_path):
    config = write_config(tmp_path / "script.yaml", branching(database, {"all": TO_STORE}))
    script = postrider("init", "-c", config, "--print-sql").stdout
    for _ in range(2):
        database.execute(script)
    assert "nothing to do" in postrider("init", "-c", config).stdout
    assert postrider("check", "-c", config).returncode == 0


def test_tables_that_init_has_not_made_are_missed(database, start_relay, make_relay, tmp_path):
    content = branching(database, {"all": to_file(tmp_path / "all.jsonl")})
    config = write_config(tmp_path / "missing.yaml", content)
    done = postrider("check", "-c", config)
    assert done.returncode == 1
    assert "branch orders.all has no table yet" in done.stdout and "run `postrider init`" in done.stdout
    relay = make_relay(content).start(wait=False)
    assert relay.wait() != 0
    assert "branch_orders.all" in relay.log_text()


def test_a_new_column_of_the_outbox_is_told_and_added(database, installed, start_relay, tmp_path):
    path = tmp_path / "all.jsonl"
    content = installed(branching(database, {"all": to_file(path, route={"headers": {"tenant": "{tenant}"}})}))
    config = write_config(tmp_path / "column.yaml", content)
    database.execute("ALTER TABLE public.outbox ADD COLUMN tenant text")
    told = postrider("check", "-c", config).stdout
    assert "column tenant of public.outbox is not copied" in told and "run `postrider init`" in told
    assert "added the column tenant text" in postrider("init", "-c", config).stdout
    database.execute("ALTER TABLE public.outbox ALTER COLUMN tenant TYPE varchar(9)")
    assert "column tenant is of type text, and in public.outbox of type character varying(9)" in postrider(
        "check", "-c", config).stdout
    start_relay(content)
    database.insert("a", tenant="acme")
    wait_until_through(database, "all")
    assert lines(path)[0]["headers"]["tenant"] == "acme"


def test_rows_of_a_branch_that_was_removed_are_not_forgotten(database, installed, start_relay, tmp_path):
    content = installed(branching(database, {"kept": to_file(tmp_path / "kept.jsonl"), "gone": TO_STORE}))
    database.execute(f"INSERT INTO {table_of('gone')} (id, entity_type, entity_id, event_type, message_id, created_at)"
                     " SELECT n, 'order', 'a', 'x', gen_random_uuid(), now() FROM generate_series(1, 3) n")
    del content["outboxes"]["orders"]["branches"]["gone"]
    config = write_config(tmp_path / "gone.yaml", content)
    assert f"table {table_of('gone')} has 3 rows of a branch that the settings no longer have" in postrider(
        "check", "-c", config).stdout
    relay = start_relay(content)
    warning, = relay.events("branch.left_over")
    assert (warning["table"], warning["rows"]) == (table_of("gone"), 3)
    relay.stop()
    plain = settings(database.dsn, {"type": "stdout"})
    assert len(start_relay(plain).events("branch.left_over")) == 1, "an outbox that has no branches any more"


@pytest.mark.parametrize("reader", ["dispatcher", "skip_locked", "wal"])
def test_readers_that_cannot_move_rows_are_refused(database, make_relay, tmp_path, reader):
    content = branching(database, {"all": to_file(tmp_path / "all.jsonl")}, reader=reader)
    done = postrider("check", "-c", write_config(tmp_path / "reader.yaml", content))
    assert done.returncode == 78
    assert f"the reader {reader} cannot move rows into them" in done.stdout
    assert "set its `reader` to advisory, lease or shards" in done.stdout
    assert make_relay(content).start(wait=False).wait() != 0


def test_what_is_wrong_in_a_branch_is_named_as_the_settings_have_it(database, installed, tmp_path):
    content = branching(database, {"all": to_file(tmp_path / "all.jsonl", route={"topic": "{no_such_column}"})})
    done = postrider("check", "-c", write_config(tmp_path / "names.yaml", installed(content)))
    assert done.returncode == 1
    assert "outboxes.orders.branches.all.route: table postrider.\"branch_orders.all\" has no column no_such_column" in done.stdout


def test_a_pooler_that_shares_connections_is_refused(database, installed, tmp_path, make_relay):
    """There the reader lease carries no riders."""
    content = installed(branching(database, {"all": to_file(tmp_path / "all.jsonl")}, reader="lease"))
    with contextlib.closing(started(PgBouncer(database.server, "transaction"))) as pooler:
        content["database"]["url"] = pooler.dsn(database.name)
        relay = make_relay(content).start(wait=False)
        assert relay.wait() == 78
        assert "rows cannot move into branches through a pooler" in relay.log_text()


def test_an_outbox_with_branches_is_not_replayed(database, installed, tmp_path):
    config = write_config(tmp_path / "replay.yaml", installed(branching(database, {"store": TO_STORE})))
    done = postrider("replay", "--outbox", "orders", "--all", "-c", config)
    assert done.returncode != 0 and "replay a branch" in done.stderr
