"""What is special about Redis Streams: trimming, replicas, ACLs, failover, a full server. The rest: test_conformance.py."""

import itertools
import json
import time

import pytest

from tests.e2e.checker import check
from tests.e2e.destinations.redis import as_message
from tests.e2e.ledger import Writers
from tests.e2e.relay import postrider, settings, wait_until, write_config
from tests.e2e.scene import started
from tests.e2e.sink_state import expect_quiet, nothing_is_blamed, nothing_is_counted, wait_until_away, wait_until_there
from tests.servers import Redis
from tests.servers.common import free_port

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def shared():
    server = started(Redis())
    yield server
    server.close()


@pytest.fixture
def make_redis():
    """Servers that a test may reconfigure, stop and promote."""
    servers = []

    def make(**options):
        servers.append(started(Redis(**options)))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def stream():
    return f"test-redis-{next(_numbers)}"


@pytest.fixture
def secret(tmp_path):
    def write(text):
        path = tmp_path / f"secret-{next(_numbers)}"
        path.write_text(text + "\n")
        return str(path)

    return write


def redis_settings(source, server, topic, **sink):
    content = settings(source.dsn, {"type": "redis", "address": server.address, **sink}, poll_interval="1s",
                       route={"topic": topic})
    return content | {"stop_timeout": "10s"}


def entries(server, stream, **options):
    with server.client(**options) as client:
        return [as_message(fields) for _, fields in client.xrange(stream)]


def length(server, stream):
    with server.client() as client:
        return client.xlen(stream)


def expect_delivered(database, server, stream, ignore=()):
    report = check(database.ledger(), [message.arrival() for message in entries(server, stream)])
    assert not report.violations(ignore=ignore), str(report)


def insert_many(database, count, entity="e"):
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload) SELECT 'order', %s, 'changed',"
                     " json_build_object('n', n) FROM generate_series(1, %s) n", (entity, count))


# ---- Entries ----------------------------------------------------------------------------------------------------------

def test_an_entry_has_the_fields_that_are_documented(database, shared, stream, start_relay):
    content = redis_settings(database, shared, stream, database=3)
    content["outboxes"]["orders"]["route"] |= {"tombstone": True}
    relay = start_relay(content)
    database.insert("a", '{"n": 1}', headers='{"tenant": "acme", "nothing": null}')
    database.wait_until_empty()
    assert relay.stop() == 0
    with shared.client(db=3) as client:
        [(_, fields)] = client.xrange(stream)
    assert list(fields)[:2] == [b"id", b"key"] and list(fields)[-1] == b"payload"
    assert fields[b"key"] == b"a" and fields[b"payload"] == b'{"n": 1}'
    assert fields[b"h:id"] == fields[b"id"] and fields[b"h:event_type"] == b"changed"
    assert fields[b"h:tenant"] == b"acme" and fields[b"h:nothing"] == b""
    assert length(shared, stream) == 0, "in another database than it should be"


def test_a_stream_is_kept_short(database, shared, stream, start_relay):
    relay = start_relay(redis_settings(database, shared, stream, max_len=500))
    insert_many(database, 5000)
    database.wait_until_empty()
    assert relay.stop() == 0
    numbers = [json.loads(message.value)["n"] for message in entries(shared, stream)]
    assert 500 <= len(numbers) < 1000, "MAXLEN ~ trims whole nodes of 100 entries"
    assert numbers == list(range(5001 - len(numbers), 5001))


def test_a_key_that_is_no_stream_refuses_its_rows_only(database, shared, stream, start_relay):
    with shared.client() as client:
        client.set(f"{stream}-text", "x")
    for number in range(100):
        database.insert(f"e{number}")
    bad = database.insert("bad", topic=f"{stream}-text")
    relay = start_relay(redis_settings(database, shared, stream))
    refused = relay.wait_for("row.refused", id=str(bad), kind="rejected")
    assert "WRONGTYPE" in refused["error"]
    wait_until(lambda: database.pending() == 1, what="all other rows gone")
    assert length(shared, stream) == 100
    assert relay.stop() == 0


def test_a_connection_that_the_server_ends_while_nothing_happens_is_not_missed(database, shared, stream, start_relay):
    relay = start_relay(redis_settings(database, shared, stream))
    for number in range(3):
        database.insert("a", json.dumps({"n": number}))
        database.wait_until_empty()
        with shared.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)
    assert relay.stop() == 0
    assert [json.loads(message.value)["n"] for message in entries(shared, stream)] == [0, 1, 2]
    assert not relay.warnings("redis")


# ---- Replicas ---------------------------------------------------------------------------------------------------------

def test_rows_wait_for_a_replica_and_are_stored_once(database, make_redis, stream, start_relay):
    master = make_redis()
    replica = make_redis(replica_of=master)
    relay = start_relay(redis_settings(database, master, stream, wait_replicas=1, wait_timeout="200ms"))
    insert_many(database, 500, "before")
    database.wait_until_empty()
    assert length(replica, stream) == 500
    replica.stop()
    insert_many(database, 300, "after")
    wait_until_away(database, "transport", "0 of 1 replicas")
    expect_quiet(relay, 2)
    assert database.pending() == 300 and nothing_is_blamed(database)
    assert length(master, stream) > 500, "stored, and not acknowledged"
    replica.start()
    database.wait_until_empty()
    wait_until_there(database)
    assert relay.stop() == 0
    assert length(master, stream) == length(replica, stream) == 800, "a repeated batch"


def test_a_failover_loses_and_reorders_nothing(database, make_redis, stream, start_relay):
    """The address leads to a server that has become a replica, and later is the master again."""
    ours = make_redis()
    other = make_redis(replica_of=ours)
    entities = database.entities(30)
    relay = start_relay(redis_settings(database, ours, stream, wait_replicas=1, wait_timeout="200ms"))
    with Writers(database.dsn, entities, threads=3):
        time.sleep(1)
        other.promote()
        with ours.client() as client:
            client.replicaof("127.0.0.1", other.port)
        wait_until_away(database, "transport", "replica")
        time.sleep(1)
        assert nothing_is_blamed(database)
        wait_until(lambda: link_is_up(ours), what="our server in step with the new master")
        ours.promote()
        with other.client() as client:
            client.replicaof("127.0.0.1", ours.port)
    database.wait_until_empty(60)
    wait_until_there(database)
    assert relay.stop() == 0
    expect_delivered(database, ours, stream, ignore=("duplicates",))


def link_is_up(server):
    with server.client() as client:
        return client.info("replication").get("master_link_status") == "up"


# ---- A server that is full --------------------------------------------------------------------------------------------

def test_a_full_server_is_waited_for(database, make_redis, stream, start_relay):
    server = make_redis()
    relay = start_relay(redis_settings(database, server, stream))
    insert_many(database, 10)
    database.wait_until_empty()
    with server.client() as client:
        client.config_set("maxmemory", "1mb")
        insert_many(database, 50)
        wait_until_away(database, "throttled", "OOM")
        expect_quiet(relay, 2)
        assert database.pending() == 50 and nothing_is_blamed(database)
        client.config_set("maxmemory", 0)
    database.wait_until_empty()
    wait_until_there(database)
    assert relay.stop() == 0


def test_order_holds_while_the_server_is_full_now_and_then(database, make_redis, stream, start_relay):
    """Refused one moment, taken the next: no row may pass an earlier one of its entity. Nothing is stored in part, so
    nothing is repeated either."""
    server = make_redis()
    database.entities(8)
    database.write_backlog(4000)
    relay = start_relay(redis_settings(database, server, stream))
    with server.client() as client, database.connect() as connection:
        while connection.execute("SELECT EXISTS (SELECT FROM public.outbox)").fetchone()[0]:
            client.config_set("maxmemory", "1mb")
            time.sleep(0.001)
            client.config_set("maxmemory", 0)
            time.sleep(0.02)
    assert relay.events("sink.failed", kind="throttled"), "nothing was refused"
    assert relay.stop() == 0
    expect_delivered(database, server, stream)


# ---- Who we are -------------------------------------------------------------------------------------------------------

def test_a_password_of_the_default_user(database, make_redis, stream, start_relay, secret):
    server = make_redis(password="server-secret")
    relay = start_relay(redis_settings(database, server, stream, password_file=secret("server-secret")))
    database.insert("a")
    database.wait_until_empty()
    assert relay.stop() == 0
    assert len(entries(server, stream)) == 1
    assert "server-secret" not in relay.log_text()


def test_a_user_who_may_write_some_streams_only(database, make_redis, stream, start_relay, secret):
    server = make_redis(users=[f"relay on >s3cret ~{stream}* resetchannels -@all +xadd +multi +exec"])
    for number in range(50):
        database.insert(f"e{number}")
    database.insert("bad", topic="elsewhere")
    relay = start_relay(redis_settings(database, server, stream, user="relay", password_file=secret("s3cret")))
    warning = relay.wait_for_warning("NOPERM")
    assert "+xadd" in json.dumps(warning)
    wait_until(lambda: database.pending() == 1, what="all other rows gone")
    assert nothing_is_counted(database)
    with server.client() as client:
        client.execute_command("ACL SETUSER", "relay", "~elsewhere")
    database.wait_until_empty()
    assert relay.stop() == 0
    assert len(entries(server, stream)) == 50 and len(entries(server, "elsewhere")) == 1


def test_a_server_that_wants_our_certificate(database, make_redis, stream, start_relay):
    server = make_redis(tls=True, settings={"tls-auth-clients": "yes"})
    made = server.certificates
    sink = {"address": f"localhost:{server.tls_port}", "tls_ca_file": str(made.ca)}
    database.insert("a")
    relay = start_relay(redis_settings(database, server, stream, **sink) | {"stop_timeout": "1s"}, wait=False)
    relay.wait_for_warning("may want a certificate of ours")
    relay.stop()
    relay = start_relay(redis_settings(
        database, server, stream, tls_cert_file=str(made.certificate), tls_key_file=str(made.key), **sink))
    database.wait_until_empty()
    assert relay.stop() == 0
    assert len(entries(server, stream)) == 1


def test_an_authority_that_did_not_sign_is_told(database, make_redis, stream, tmp_path):
    server = make_redis(tls=True)
    content = redis_settings(database, server, stream, address=f"localhost:{server.tls_port}",
                             tls_ca_file=str(server.certificates.other_ca))
    done = run_check(tmp_path, content)
    assert done.returncode == 1
    assert "certificate" in done.stdout and "tls_ca_file" in done.stdout


def test_without_transactions_nothing_is_sent(database, make_redis, stream, start_relay, secret):
    """XADD would run by itself if MULTI were refused."""
    server = make_redis(users=["relay on >s3cret ~* resetchannels -@all +xadd"])
    database.insert("a")
    relay = start_relay(redis_settings(database, server, stream, user="relay", password_file=secret("s3cret")), wait=False)
    wait_until_away(database, "auth", "NOPERM")
    assert length(server, stream) == 0 and nothing_is_counted(database)
    relay.stop()


# ---- Settings ---------------------------------------------------------------------------------------------------------

def test_a_cluster_is_refused_in_so_many_words(database, make_redis, stream, start_relay):
    # The port of the cluster's own traffic would lie in the range for outgoing connections, where somebody may have it.
    nodes = [make_redis(settings={"cluster-enabled": "yes", "cluster-port": free_port()}) for _ in range(2)]
    with nodes[0].client() as one, nodes[1].client() as two:
        one.execute_command("CLUSTER ADDSLOTSRANGE 0 8191")
        two.execute_command("CLUSTER ADDSLOTSRANGE 8192 16383")
        two.execute_command("CLUSTER SET-CONFIG-EPOCH 2")
        one.execute_command(f"CLUSTER MEET 127.0.0.1 {nodes[1].port} {nodes[1].settings['cluster-port']}")
        wait_until(lambda: one.execute_command("CLUSTER INFO")["cluster_state"] == "ok", what="a cluster")
        away = next(name for name in (f"{stream}-{n}" for n in itertools.count())
                    if one.execute_command("CLUSTER KEYSLOT", name) > 8191)
    relay = start_relay(redis_settings(database, nodes[0], away))
    database.insert("a")
    warning = relay.wait_for_warning("MOVED")
    assert "Redis Cluster is not supported" in json.dumps(warning)
    assert database.pending() == 1 and nothing_is_counted(database)
    assert relay.stop() == 0


def run_check(tmp_path, content):
    return postrider("check", "-c", write_config(tmp_path / f"check-{next(_numbers)}.yaml", content), timeout=60)


def test_check_tells_what_is_wrong(database, shared, stream, tmp_path):
    good = run_check(tmp_path, redis_settings(database, shared, stream))
    assert good.returncode == 0, good.stdout + good.stderr
    assert f"stream {stream} can be written" in good.stdout
    assert length(shared, stream) == 0, "check has written something"
    with shared.client() as client:
        client.set(stream, "x")
    for content, fragment in (
            (redis_settings(database, shared, stream), "WRONGTYPE"),
            (redis_settings(database, shared, "s", wait_replicas=2), "0 replicas are there"),
            (redis_settings(database, shared, "s", database=99), "DB index")):
        done = run_check(tmp_path, content)
        assert done.returncode == 1, done.stdout + done.stderr
        assert fragment in done.stdout, done.stdout


@pytest.mark.parametrize("address", ["localhost", "localhost:0", "::1:6379"])
def test_an_address_that_is_none_is_refused_at_the_start(database, tmp_path, address):
    content = settings(database.dsn, {"type": "redis", "address": address})
    done = run_check(tmp_path, content)
    assert done.returncode != 0
    assert f'address "{address}"' in done.stdout + done.stderr
