"""NATS JetStream: what the conformance suite does not ask, because only this sink has it."""

import itertools
import json
import os
import signal
import time

import pytest

from tests.e2e.nats_client import NatsClient
from tests.e2e.relay import postrider, settings, wait_until, write_config
from tests.e2e.sink_state import nothing_is_blamed, nothing_is_counted, wait_until_away, wait_until_there
from tests.servers import Nats, Toxiproxy
from tests.servers.certificates import make_certificates
from tests.servers.common import free_port
from tests.servers.nats_accounts import make_accounts

# A session whose client was killed still ends the statement that it waits in.
END_SESSIONS = ("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name LIKE 'postrider%'")
_numbers = itertools.count(1)


@pytest.fixture
def nats(servers):
    return servers.get("nats", Nats)


@pytest.fixture
def client(nats):
    return NatsClient(nats)


@pytest.fixture
def name():
    """Of a stream; its subject is the same in small letters."""
    return f"ORDERS-{next(_numbers)}"


def content_of(database, server, name, stream=None, **options):
    sink = {"type": "nats", "servers": server.url(), **({"stream": stream} if stream else {}), **options}
    return settings(database.dsn, sink, poll_interval="1s", route={"topic": name.lower()})


def in_flight(database):
    rows = database.execute("SELECT state #> '{outboxes,0,workers,0,rows}' FROM postrider.node")
    return rows[0][0] if rows else None


def values(client, stream):
    return [json.loads(record.data) for record in client.records(stream)]


# ---- Repeats ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("window, copies", [(120, 1), (0.1, 2)], ids=["inside its window", "behind it"])
def test_a_row_that_is_repeated_after_kill_9_is_stored_once(
        database, nats, client, name, start_relay, window, copies):
    """Locks keep the relay from settling what is acknowledged, so all of it is published again after its death. The
    window behind which a stream forgets shows that it is the stream that remembers."""
    rows = 200
    client.add_stream(name, [name.lower()], duplicate_window=window)
    for number in range(rows):
        database.insert(f"entity-{number}", json.dumps({"n": number}))
    content = content_of(database, nats, name, name)
    with database.connect() as blocker, blocker.transaction():
        blocker.execute("SELECT FROM public.outbox FOR KEY SHARE")
        relay = start_relay(content, wait=False)
        wait_until(lambda: client.count(name) == rows, what="all rows in the stream")
        relay.kill9()
        wait_until(lambda: not database.execute(END_SESSIONS), what="the end of the relay's sessions")
    assert database.pending() == rows, "rows were settled in spite of the locks"
    time.sleep(0.3)
    again = start_relay(content)
    database.wait_until_empty()
    assert again.stop() == 0
    assert client.count(name) == copies * rows
    assert {value["n"] for value in values(client, name)} == set(range(rows))


def test_messages_have_id_key_and_headers(database, nats, client, name, start_relay):
    client.add_stream(name, [name.lower()])
    database.insert("order 17", '{"n": 1}', headers='{"tenant": "acme", "Nats-Msg-Id": "not this"}')
    start_relay(content_of(database, nats, name, name))
    database.wait_until_empty()
    record, = client.records(name)
    assert record.subject == name.lower()
    assert record.headers["Postrider-Key"] == "order 17"
    assert record.headers["tenant"] == "acme"
    assert record.headers["Nats-Expected-Stream"] == name
    assert record.headers["Nats-Msg-Id"] == record.headers["id"]


def test_what_has_not_left_is_dropped_when_its_claims_are_gone(database, client, name, start_relay, nats):
    """The server stands still, so most of what the relay holds waits. Then its session is gone, and somebody else has
    published the rows: they must not follow when the server goes on."""
    rows = 60
    client.add_stream(name, [name.lower()])
    content = content_of(database, nats, name, name, ack_timeout="60s")
    content["outboxes"]["orders"] |= {"workers": 1, "in_flight_bytes": "200MiB"}
    relay = start_relay(content)
    os.kill(nats.pid, signal.SIGSTOP)
    try:
        database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload) SELECT 'order', n, 'changed',"
                         " to_json(repeat('x', 900000)) FROM generate_series(1, %s) n", (rows,))
        wait_until(lambda: in_flight(database) == rows, what="all rows in the relay's hands")
        time.sleep(0.5)
        database.execute("DELETE FROM public.outbox")
        database.execute(END_SESSIONS)
        relay.wait_for("database.lost")
        wait_until(lambda: in_flight(database) == 0, what="all rows given back")
    finally:
        os.kill(nats.pid, signal.SIGCONT)
    time.sleep(1)
    assert client.count(name) < rows / 2
    database.insert("later", '{"n": 1}')
    database.wait_until_empty()
    assert relay.stop() == 0
    assert client.records(name)[-1].data == b'{"n": 1}'


# ---- The stream -------------------------------------------------------------------------------------------------------

def test_a_stream_that_is_missing_at_the_start_is_named_and_waited_for(database, nats, client, name, start_relay):
    relay = start_relay(content_of(database, nats, name, name))
    numbers = range(1, 6)
    for number in numbers:
        database.insert("a", json.dumps({"n": number}))
    wait_until_away(database, "config", name, "stream not found")
    assert nothing_is_counted(database)
    client.add_stream(name, [name.lower()])
    database.wait_until_empty()
    wait_until_there(database)
    assert relay.stop() == 0
    assert [value["n"] for value in values(client, name)] == list(numbers)


def test_a_subject_of_another_stream_is_not_stored_there(database, nats, client, name, start_relay):
    """The stream that is expected is there, but another one has the subject."""
    client.add_stream(name, [f"{name.lower()}.other"])
    client.add_stream(f"{name}-WRONG", [name.lower()])
    relay = start_relay(content_of(database, nats, name, name))
    database.insert("a")
    relay.wait_for("row.refused", kind="config")
    assert "expected stream does not match" in relay.log_text()
    assert nothing_is_counted(database)
    assert client.count(f"{name}-WRONG") == 0
    client.delete_stream(f"{name}-WRONG")
    client.update_stream(name, [name.lower()])
    database.wait_until_empty()
    assert client.count(name) == 1


def test_a_stream_that_is_full_is_waited_for(database, nats, client, name, start_relay):
    """It discards new messages: rows wait, nothing is blamed, and nothing spins."""
    client.add_stream(name, [name.lower()], max_msgs=5, discard="new")
    relay = start_relay(content_of(database, nats, name, name))
    for number in range(12):
        database.insert(f"entity-{number % 4}", json.dumps({"n": number}))
    wait_until(lambda: database.pending() == 7, what="a full stream")
    wait_until_away(database, "throttled", "maximum messages exceeded")
    before = relay.cpu_seconds()
    time.sleep(2)
    assert relay.cpu_seconds() - before < 0.2
    assert database.pending() == 7
    assert nothing_is_blamed(database)
    seen = values(client, name)
    for _ in range(4):
        if database.pending() == 0:
            break
        client.purge_stream(name)
        pending = database.pending()
        wait_until(lambda: database.pending() <= max(pending - 5, 0), what="some more rows stored")
        seen += values(client, name)
    wait_until_there(database)
    assert relay.stop() == 0
    for entity in range(4):
        assert [value["n"] for value in seen if value["n"] % 4 == entity] == [entity, entity + 4, entity + 8]


# ---- Settings ---------------------------------------------------------------------------------------------------------

def test_a_server_that_is_not_there_is_passed_over(database, nats, client, name, start_relay):
    client.add_stream(name, [name.lower()])
    servers = f"127.0.0.1:{free_port()},{nats.url()}"
    start_relay(content_of(database, nats, name, servers=servers))
    database.insert("a")
    database.wait_until_empty()
    assert client.count(name) == 1


def test_a_token_opens_the_door(database, name, start_relay, tmp_path):
    with Nats({"token": "open-sesame"}) as server:
        client = NatsClient(server, token="open-sesame")
        client.add_stream(name, [name.lower()])
        (tmp_path / "token").write_text("close-sesame\n")
        start_relay(content_of(database, server, name, token_file=str(tmp_path / "token")))
        database.insert("a")
        wait_until_away(database, "auth", "Authorization Violation")
        (tmp_path / "token").write_text("open-sesame\n")
        database.wait_until_empty()
        assert client.count(name) == 1


def test_a_credentials_file_opens_the_door(database, name, start_relay, tmp_path):
    """The server knows no password: the user proves by its nkey that the signed token is its own."""
    known, credentials = make_accounts()
    file = tmp_path / "relay.creds"
    file.write_text(make_accounts()[1])
    (tmp_path / "admin.creds").write_text(credentials)
    with Nats(settings=known) as server:
        client = NatsClient(server, user_credentials=str(tmp_path / "admin.creds"))
        client.add_stream(name, [name.lower()])
        start_relay(content_of(database, server, name, credentials_file=str(file)))
        database.insert("a")
        wait_until_away(database, "auth", "Authorization Violation")
        file.write_text(credentials)
        database.wait_until_empty()
        assert client.count(name) == 1


def test_a_tls_server_is_trusted_after_silence_too(database, name, start_relay, tmp_path):
    """A context that libnats makes anew would not have our authority in it. Rows are large, so that some are half sent."""
    rows = 1000
    certificates = make_certificates(tmp_path, names="DNS:localhost")
    with Nats(certificates=certificates) as server, Toxiproxy() as toxiproxy:
        client = NatsClient(server, "localhost")
        client.add_stream(name, [name.lower()])
        proxy = toxiproxy.proxy("nats", server.port)
        content = content_of(database, server, name, name, servers=server.url("localhost", proxy.port),
                             tls_ca_file=str(certificates.ca), ack_timeout="1s")
        content["outboxes"]["orders"]["in_flight_bytes"] = "50MiB"
        relay = start_relay(content)
        for _ in range(2):
            database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload) SELECT 'order', n,"
                             " 'changed', to_json(repeat('x', 100000)) FROM generate_series(1, %s) n", (rows,))
            time.sleep(0.1)
            proxy.silence()
            time.sleep(3)
            proxy.mend()
            database.wait_until_empty(20)
        assert relay.stop() == 0
        assert not relay.warnings("certificate"), "the server was not trusted"
        assert client.count(name) == 2 * rows


def test_a_user_who_may_not_publish_is_told_at_once(database, name, start_relay, tmp_path):
    """The server names no message, only the subject; rows of other subjects go on."""
    allowed = {"publish": ["allowed.>", "$JS.API.>"], "subscribe": ["_INBOX.>"]}
    users = [{"user": "admin", "password": "a"}, {"user": "relay", "password": "r", "permissions": allowed}]
    (tmp_path / "password").write_text("r\n")
    with Nats({"users": users}) as server:
        client = NatsClient(server, user="admin", password="a")
        client.add_stream(name, ["allowed.*", "denied.*"])
        content = content_of(database, server, name, name, user="relay", password_file=str(tmp_path / "password"))
        content["outboxes"]["orders"]["route"]["topic"] = "{event_type}.x"
        relay = start_relay(content)
        denied = database.insert("a", event_type="denied")
        database.insert("b", event_type="allowed")
        refusal = relay.wait_for("row.refused", timeout=3, id=str(denied), kind="auth")
        assert "denied.x" in refusal["error"]
        wait_until(lambda: database.pending() == 1, what="the other row gone")
        assert client.count(name) == 1


def test_a_subject_that_cannot_be_is_refused(database, nats, tmp_path, start_relay):
    path = write_config(tmp_path / "wild.yaml", content_of(database, nats, "orders.*"))
    done = postrider("check", "-c", path)
    assert done.returncode != 0
    assert "wildcard" in done.stdout + done.stderr


def test_check_looks_for_the_stream(database, nats, client, name, tmp_path):
    def check(stream=None):
        done = postrider("check", "-c", write_config(tmp_path / "check.yaml", content_of(database, nats, name, stream)))
        return done.returncode, done.stdout + done.stderr

    code, said = check()
    assert code != 0 and "no stream takes this subject" in said
    client.add_stream(name, [name.lower()])
    code, said = check()
    assert f"stream {name} keeps subject {name.lower()}" in said
    code, said = check(name)
    assert f"stream {name} keeps subject {name.lower()}" in said
    code, said = check("ELSEWHERE")
    assert code != 0 and "ELSEWHERE" in said and "stream not found" in said
    client.add_stream(f"{name}-OTHER", [f"{name.lower()}.other"])
    code, said = check(f"{name}-OTHER")
    assert code != 0 and f"belongs to stream {name}, not to {name}-OTHER" in said
