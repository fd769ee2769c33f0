"""What only RabbitMQ does: routing, returned messages, alarms, heartbeats, permissions. The rest is in test_conformance.py."""

import contextlib
import itertools
import socket
import time

import pytest

from tests.e2e.rabbit import Rabbit
from tests.e2e.relay import postrider, settings, wait_until, write_config
from tests.e2e.sink_state import nothing_is_blamed, sink_state, wait_until_away, wait_until_there
from tests.servers import RabbitMQ

ALL = "*.*"
_numbers = itertools.count(1)


@pytest.fixture
def server(servers):
    return servers.get("rabbitmq", RabbitMQ)


@pytest.fixture
def rabbit(server):
    return Rabbit(server)


@pytest.fixture
def names(server):
    """An exchange and a queue that nobody else uses; they are not declared yet."""
    number = next(_numbers)
    return f"shop-{number}", f"mail-{number}"


@pytest.fixture
def configured(database, server, tmp_path):
    """Settings that lead to an exchange."""
    secret = tmp_path / "rabbitmq-password"
    secret.write_text(server.password + "\n")

    def make(exchange, topic="{entity_type}.{event_type}", **options):
        sink = {"type": "rabbitmq", "hosts": f"127.0.0.1:{server.port}", "exchange": exchange, "user": server.username,
                "password_file": str(secret), **options}
        content = settings(database.dsn, sink, poll_interval="1s", route={"topic": topic},
                           failure={"max_delay": "2s"})
        return content | {"stop_timeout": "5s"}

    return make


def connections(server):
    return server.ctl("list_connections", "pid", "client_properties")


def test_a_message_says_what_the_row_says(database, rabbit, names, configured, start_relay):
    """To the default exchange, where the routing key is the name of a queue: D3's smallest case."""
    _, queue = names
    with rabbit.channel() as channel:
        channel.queue_declare(queue, durable=True)
    database.insert("17", '{"total": 9.90}', event_type="paid", headers='{"tenant": "acme"}')
    identity = database.value("SELECT message_id FROM public.outbox")
    relay = start_relay(configured("", topic=queue))
    database.wait_until_empty()
    assert relay.stop() == 0
    [(properties, body)] = rabbit.take(queue)
    assert body == b'{"total": 9.90}'
    assert (properties.delivery_mode, properties.content_type, properties.type) == (2, "application/json", "paid")
    assert properties.message_id == str(identity) == properties.headers["id"]
    assert properties.headers.items() >= {"tenant": "acme", "key": "17", "entity_type": "order"}.items()


def test_a_message_that_no_queue_takes_is_a_failure_and_goes_when_one_is_bound(
        database, rabbit, names, configured, start_relay):
    exchange, queue = names
    rabbit.declare(exchange, queue, "order.paid")
    relay = start_relay(configured(exchange))
    lost = database.insert("a", '{"n": 1}', event_type="forgotten")
    database.insert("a", '{"n": 2}', event_type="paid")
    for number in range(300):
        database.insert(f"free-{number}", event_type="paid")
    held = relay.wait_for("row.refused", id=str(lost), kind="config")
    assert "order.forgotten" in held["error"] and exchange in held["error"] and "bind a queue" in held["hint"], held
    wait_until(lambda: database.pending() == 2, what="all others gone")
    assert database.value("SELECT max(attempts) FROM postrider.retry") == 0
    with rabbit.channel() as channel:
        channel.queue_bind(queue, exchange, "order.forgotten")
    database.wait_until_empty()
    assert relay.stop() == 0
    bodies = [body for properties, body in rabbit.take(queue) if properties.headers["key"] == "a"]
    assert bodies == [b'{"n": 1}', b'{"n": 2}']


def test_an_exchange_that_is_deleted_is_missed_and_waited_for(database, rabbit, names, configured, start_relay):
    exchange, queue = names
    rabbit.declare(exchange, queue, ALL)
    relay = start_relay(configured(exchange))
    database.insert("a", '{"n": 1}')
    database.wait_until_empty()
    with rabbit.channel() as channel:
        channel.exchange_delete(exchange)
    for number in range(2, 5):
        for entity in "abc":
            database.insert(entity, f'{{"n": {number}}}')
    wait_until_away(database, "config", exchange)
    assert database.pending() >= 6      # those that the server was asked for first may be held one by one
    rabbit.declare(exchange, queue, ALL)
    database.wait_until_empty()
    wait_until_there(database)
    assert relay.stop() == 0
    bodies = [body for properties, body in rabbit.take(queue) if properties.headers["key"] == "a"]
    assert list(dict.fromkeys(bodies)) == [b'{"n": %d}' % number for number in range(1, 5)]


@contextlib.contextmanager
def alarm(server):
    """The server believes that it is short of memory."""
    server.ctl("set_vm_memory_high_watermark", "absolute", "1MB")
    try:
        yield
    finally:
        server.ctl("set_vm_memory_high_watermark", "0.4")


def test_a_server_that_blocks_publishers_is_shown_and_waited_for(database, server, rabbit, names, configured, start_relay):
    exchange, queue = names
    rabbit.declare(exchange, queue, ALL)
    entities = database.entities(50)
    relay = start_relay(configured(exchange))
    with alarm(server):
        database.write_backlog(40)
        state = wait_until_away(database, "throttled", "connection.blocked")
        assert "away since" in postrider("status", "-c", relay.config).stdout, state
        before, cpu = database.pending(), relay.cpu_seconds()
        time.sleep(3)
        assert before == database.pending() > 0
        assert relay.cpu_seconds() - cpu < 0.3
        assert nothing_is_blamed(database)
    database.wait_until_empty()
    wait_until_there(database)
    assert relay.stop() == 0
    assert len(rabbit.take(queue)) == 40 * len(entities)


def test_a_relay_that_cannot_publish_still_stops(database, server, rabbit, names, configured, start_relay):
    exchange, queue = names
    rabbit.declare(exchange, queue, ALL)
    relay = start_relay(configured(exchange))
    with alarm(server):
        for number in range(30):
            database.insert(f"e{number}", '"' + "x" * 1_000_000 + '"')
        wait_until_away(database, None)
        began = time.monotonic()
        relay.stop()
        assert time.monotonic() - began < 12
    assert database.pending() > 0


def test_a_login_that_is_not_answered_does_not_hold_up_a_stop(database, names, configured, start_relay):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        content = configured(names[0], hosts=f"127.0.0.1:{silent.getsockname()[1]}", connect_timeout="1m")
        database.insert("a")
        relay = start_relay(content | {"stop_timeout": "1s"})
        silent.settimeout(10)
        connection, _ = silent.accept()
        with connection:
            began = time.monotonic()
            relay.stop()
            assert time.monotonic() - began < 8
    assert database.pending() == 1


def test_an_idle_connection_is_kept_alive_by_heartbeats(database, server, rabbit, names, configured, start_relay):
    exchange, queue = names
    rabbit.declare(exchange, queue, ALL)
    relay = start_relay(configured(exchange, heartbeat="2s"))
    for number in range(20):
        database.insert(f"e{number}")
    database.wait_until_empty()
    before = connections(server)
    assert "postrider" in before
    time.sleep(9)       # the server gives up after two that it missed
    assert connections(server) == before
    assert "missed heartbeats" not in server.log_text()
    database.insert("again")
    database.wait_until_empty()
    assert relay.stop() == 0
    assert len(rabbit.take(queue)) == 21
    assert not relay.warnings("sink.failed")


def test_a_queue_that_refuses_when_it_is_full_is_waited_for(database, rabbit, names, configured, start_relay):
    """It answers with basic.nack."""
    exchange, queue = names
    rabbit.declare(exchange, queue, ALL, x_max_length=10, x_overflow="reject-publish")
    relay = start_relay(configured(exchange))
    for number in range(60):
        database.insert(f"e{number % 20}", f'{{"n": {number}}}')
    relay.wait_for_warning("basic.nack")
    assert nothing_is_blamed(database)
    taken = []

    def all_taken():
        taken.extend((properties.headers["key"], body) for properties, body in rabbit.take(queue))
        return len({body for _, body in taken}) == 60

    wait_until(all_taken, 60, "all messages taken")
    database.wait_until_empty()
    assert relay.stop() == 0
    for entity in range(20):
        bodies = dict.fromkeys(body for key, body in taken if key == f"e{entity}")
        assert list(bodies) == [b'{"n": %d}' % number for number in range(entity, 60, 20)]


def test_without_the_right_to_write_nothing_is_lost_and_the_right_is_named(
        database, server, rabbit, names, configured, start_relay):
    exchange, queue = names
    rabbit.declare(exchange, queue, ALL)
    user = f"reader{exchange}"
    server.ctl("add_user", user, server.password)
    server.ctl("set_permissions", user, "^$", "^$", ".*")
    relay = start_relay(configured(exchange, user=user))
    for number in range(20):
        database.insert(f"e{number}")
    refused = relay.wait_for("row.refused", kind="auth")
    assert exchange in refused["error"] and "set_permissions" in refused["hint"], refused
    wait_until_away(database, "auth")
    assert database.value("SELECT max(attempts) FROM postrider.retry") == 0
    server.ctl("set_permissions", user, "^$", exchange, "^$")
    database.wait_until_empty(60)
    wait_until_there(database)
    assert relay.stop() == 0
    assert len(rabbit.take(queue)) == 20


def test_check_says_what_is_wrong(server, rabbit, names, configured, tmp_path):
    exchange, queue = names

    def check(**options):
        done = postrider("check", "-c", write_config(tmp_path / "check.yaml", configured(**options)), timeout=60)
        assert server.password not in done.stdout + done.stderr
        return done.returncode, done.stdout

    code, said = check(exchange=exchange)
    assert code == 1 and exchange in said and "declare the exchange" in said
    code, said = check(exchange="", topic=queue)
    assert code == 1 and queue in said and "queue" in said
    rabbit.declare(exchange, queue, ALL)
    assert check(exchange=exchange)[0] == 0
    assert check(exchange="", topic=queue)[0] == 0
    code, said = check(exchange=exchange, vhost="nowhere")
    assert code == 1 and "nowhere" in said
    code, said = check(exchange=exchange, hosts=f"localhost:{server.tls_port}", tls="on")
    assert code == 1 and "certificate" in said and "tls_ca_file" in said
    assert check(exchange=exchange, hosts=f"localhost:{server.tls_port}", tls_ca_file=str(server.certificates.ca))[0] == 0


def test_hosts_are_tried_in_turn(database, server, rabbit, names, configured, start_relay):
    exchange, queue = names
    rabbit.declare(exchange, queue, ALL)
    relay = start_relay(configured(exchange, hosts=f"127.0.0.1:1, 127.0.0.1:{server.port}"))
    for number in range(50):
        database.insert(f"e{number}")
    database.wait_until_empty()
    wait_until(lambda: sink_state(database)["open_since"] is None, what="the sink is there")
    assert relay.stop() == 0
    assert len({properties.message_id for properties, _ in rabbit.take(queue)}) == 50


@pytest.mark.parametrize("options, fragment", [
    ({"hosts": "rabbit:port"}, "is not a host"),
    ({"hosts": "[::1"}, "is not a host"),
    ({"tls_ca_file": "/nowhere/ca.pem"}, "tls_ca_file: could not read /nowhere/ca.pem"),
])
def test_settings_that_cannot_be_right_are_refused_at_the_start(configured, tmp_path, options, fragment):
    done = postrider("run", "-c", write_config(tmp_path / "wrong.yaml", configured("shop", **options)), timeout=30)
    assert done.returncode != 0
    assert fragment in done.stderr, done.stderr


def test_a_routing_key_that_amqp_cannot_carry_is_refused_at_the_start(configured, tmp_path):
    done = postrider("run", "-c", write_config(tmp_path / "wrong.yaml", configured("shop", topic="x" * 256)), timeout=30)
    assert done.returncode != 0
    assert "255 bytes" in done.stderr, done.stderr
