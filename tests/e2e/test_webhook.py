"""What is special about webhooks: signatures, Retry-After, 410, where requests may go, how many at a time. The rest:
test_conformance.py. The receiver, tests/servers/webhook.py, shares no code with the relay."""

import collections
import email.utils
import itertools
import json
import time

import pytest

from tests.e2e.relay import postrider, settings, wait_until, write_config
from tests.e2e.sink_state import nothing_is_blamed, nothing_is_counted, wait_until_away, wait_until_there
from tests.servers.webhook import AUTHORIZATION, SECRETS, Webhook, fault_of

SECRET_PATH = "secret-part-of-the-path"

_numbers = itertools.count(1)


@pytest.fixture
def receiver(servers):
    server = servers.get("webhook", Webhook)
    yield server
    server.behave()


@pytest.fixture
def path():
    """A path of its own for each test; it never belongs into a log."""
    return f"/in/{SECRET_PATH}/{next(_numbers)}/"


@pytest.fixture
def secret_file(tmp_path):
    file = tmp_path / "secrets"
    file.write_text(SECRETS[0] + "\n")
    return file


@pytest.fixture
def content(database, receiver, path, secret_file):
    """Settings of a relay to the receiver; arguments are settings of the sink."""

    def make(route=None, workers=4, **sink):
        sink = {"type": "webhook", "url": receiver.url(path), "secret_file": str(secret_file), "allow_private": True, **sink}
        more = {"route": route} if route else {}
        return settings(database.dsn, sink, poll_interval="1s", workers=workers, **more) | {"stop_timeout": "5s"}

    return make


def numbers(records):
    return [json.loads(record["body"])["n"] for record in records]


# ---- Requests ---------------------------------------------------------------------------------------------------------

def test_a_request_has_all_of_the_row(database, receiver, path, content, start_relay):
    database.insert("order 17 ü", '{"n": 1}',
                    headers='{"tenant": "acme", "host": "evil", "line": "a\\r\\nEvil: 1", "content-type": "text/x-row"}')
    relay = start_relay(content({"topic": "shop.orders"}))
    database.wait_until_empty()
    assert relay.stop() == 0
    record, = receiver.records(path)
    headers = record["headers"]
    assert record["body"] == b'{"n": 1}' and record["path"] == path
    assert fault_of(headers, record["body"], SECRETS[:1], time.time()) is None
    assert fault_of(headers, record["body"] + b" ", SECRETS[:1], time.time()), "a signature for any body"
    assert headers["webhook-id"] == headers["postrider-id"]
    assert headers["content-type"] == "text/x-row"
    assert headers["postrider-key"] == "order 17 %C3%BC"
    assert headers["postrider-topic"] == "shop.orders"
    assert headers["postrider-tenant"] == "acme"
    assert headers["postrider-host"] == "evil" and headers["host"] == f"127.0.0.1:{receiver.port}"
    assert headers["postrider-line"] == "a%0D%0AEvil: 1" and "evil" not in headers
    assert "postrider-created-at" in headers and "postrider-payload" not in headers
    assert SECRET_PATH not in relay.log_text()


def test_a_null_payload_says_so(database, receiver, path, content, start_relay):
    database.execute("ALTER TABLE public.outbox ALTER payload DROP NOT NULL")
    database.insert("a", None)
    start_relay(content())
    database.wait_until_empty()
    record, = receiver.records(path)
    assert record["body"] == b"" and record["headers"]["postrider-payload"] == "null"
    assert record["headers"]["content-type"] == "application/json"


def test_the_url_may_have_the_topic_in_it(database, receiver, path, content, start_relay):
    """What is wrong with one topic holds up its rows, and no others."""
    receiver.answer(path + "lost", status=404)
    for topic in ("lost", "a b/ü", "plain"):
        database.insert(topic, topic=topic)
    database.insert("dots", topic="..")
    relay = start_relay(content(url=receiver.url(path) + "{topic}"))
    wait_until(lambda: database.pending() == 2, what="all but two rows gone")
    relay.wait_for("row.refused", kind="rejected", entity="dots")
    relay.wait_for("row.refused", kind="config", entity="lost")
    assert {record["path"] for record in receiver.records(path)} == {path + "a%20b%2F%C3%BC", path + "plain"}
    receiver.behave()
    wait_until(lambda: database.pending() == 1, 30, what="the row of the topic that came back gone")


# ---- Secrets ----------------------------------------------------------------------------------------------------------

def test_secrets_change_without_a_gap(database, receiver, path, content, start_relay, secret_file):
    """The receiver learns the new one while both sign, and only then the old one goes."""
    relay = start_relay(content())
    database.insert("a", '{"n": 1}')
    database.wait_until_empty()
    secret_file.write_text("\n".join(SECRETS) + "\n")
    time.sleep(1.1)
    database.insert("a", '{"n": 2}')
    database.wait_until_empty()
    receiver.answer(path, secrets=SECRETS[1:])
    database.insert("a", '{"n": 3}')
    database.wait_until_empty()
    secret_file.write_text(SECRETS[1] + "\n")
    time.sleep(1.1)
    database.insert("a", '{"n": 4}')
    database.wait_until_empty()
    assert relay.stop() == 0
    assert numbers(receiver.requests(path)) == [1, 2, 3, 4], "one was refused"
    assert [record["headers"]["webhook-signature"].count("v1,") for record in receiver.records(path)] == [1, 2, 2, 1]
    assert not any(secret in relay.log_text() for secret in SECRETS)


def test_a_secret_that_becomes_unreadable_holds_up_rows_until_it_is_mended(
        database, receiver, path, content, start_relay, secret_file):
    relay = start_relay(content())
    secret_file.write_text("whsec_half a secr")
    time.sleep(1.1)
    database.insert("a", '{"n": 1}')
    wait_until_away(database, "config", f"line 1 of {secret_file}")
    assert nothing_is_counted(database) and not receiver.requests(path)
    secret_file.write_text(SECRETS[0])
    database.wait_until_empty()
    wait_until_there(database)
    assert relay.stop() == 0
    assert "half a secr" not in relay.log_text()


def test_an_authorization_that_changes_is_read_again(database, receiver, content, start_relay, tmp_path):
    file, secured = tmp_path / "authorization", f"/secured/{next(_numbers)}/"
    file.write_text("Bearer not-the-right-one\n")
    relay = start_relay(content(url=receiver.url(secured), authorization_file=str(file)))
    database.insert("a", '{"n": 1}')
    wait_until_away(database, "auth", "answered 401")
    file.write_text(AUTHORIZATION + "\n")
    database.wait_until_empty(30)
    wait_until_there(database)
    assert relay.stop() == 0
    assert "not-the-right-one" not in relay.log_text()


@pytest.mark.parametrize("wrong, reason", [
    ({"url": "http://hooks.example.com/secret-part"}, "plain text"),
    ({"url": "https://user:secret-part@hooks.example.com/"}, "a user or a password"),
    ({"url": "gopher://secret-part/"}, "not a URL"),
    ({"secret_file": "/nowhere/secrets"}, "/nowhere/secrets"),
    ({"header_prefix": "a b"}, "header_prefix"),
])
def test_settings_that_cannot_be_meant_end_the_start(content, make_relay, wrong, reason):
    relay = make_relay(content(**wrong))
    relay.start(wait=False)
    assert relay.wait() == 78
    assert reason in relay.log_text()
    assert "secret-part" not in relay.log_text()


# ---- Answers ----------------------------------------------------------------------------------------------------------

def as_seconds(seconds):
    return str(seconds)


def as_date(seconds):
    return email.utils.formatdate(time.time() + seconds + 1, usegmt=True)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", [as_seconds, as_date], ids=["seconds", "date"])
def test_retry_after_is_waited_for_as_told(database, receiver, path, content, start_relay, status, form):
    """Nothing at all is sent meanwhile, whatever entity it is of, and by whichever worker."""
    relay = start_relay(content())
    receiver.answer(path, status=status, headers={"Retry-After": form(4)}, count=1)
    database.insert("a", '{"n": 1}')
    state = wait_until_away(database, "throttled", f"answered {status} and asks us to wait for ")
    for number in range(2, 40):
        database.insert(f"entity-{number}", f'{{"n": {number}}}')
    shown = postrider("status", "-c", relay.config).stdout
    assert f": away since {state['open_since']}: " in shown and "asks us to wait for " in shown
    database.wait_until_empty()
    wait_until_there(database)
    assert relay.events("sink.failed", kind="throttled") and nothing_is_blamed(database)
    assert relay.stop() == 0
    first, *rest = receiver.requests(path)
    assert min(record["time"] for record in rest) - first["time"] >= 3.9
    assert sorted(numbers(rest)) == list(range(1, 40)), "repeated, or lost"


def test_retry_after_is_waited_for_no_longer_than_allowed(database, receiver, path, content, start_relay):
    receiver.answer(path, status=429, headers={"Retry-After": "86400"}, count=1)
    database.insert("a", '{"n": 1}')
    start_relay(content(max_retry_after="1s"))
    database.wait_until_empty(10)
    first, second = receiver.requests(path)
    assert 0.9 <= second["time"] - first["time"] < 5


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_an_endpoint_in_trouble_is_waited_for(database, receiver, path, content, start_relay, status):
    receiver.answer(path, status=status, count=4)
    relay = start_relay(content())
    database.insert("a", '{"n": 1}')
    database.insert("a", '{"n": 2}')
    database.wait_until_empty()
    assert nothing_is_blamed(database)
    assert relay.stop() == 0
    assert numbers(receiver.requests(path)) == [1] * 5 + [2]
    times = [record["time"] for record in receiver.requests(path)]
    assert times[4] - times[0] > 0.5, "no pause between tries"


def test_an_endpoint_that_is_gone_gets_nothing_more(database, receiver, path, content, start_relay):
    """Said loudly once, shown for as long as it lasts; no row is lost or blamed, and a restart tries again."""
    relay = start_relay(content())
    receiver.answer(path, status=410, contains='"n": 1}', count=1)
    database.insert("a", '{"n": 1}')
    wait_until_away(database, "config", "answered 410")
    for number in range(2, 40):
        database.insert(f"entity-{number % 7}", f'{{"n": {number}}}')
    time.sleep(3)
    gone, = relay.events("webhook.gone")
    assert gone["level"] == "error" and "answered 410" in gone["error"]
    assert "answered 410" in postrider("status", "-c", relay.config).stdout
    assert len(receiver.requests(path)) == 1 and database.pending() == 39
    assert nothing_is_blamed(database)
    relay.stop()
    again = start_relay(content())
    database.wait_until_empty()
    assert again.stop() == 0
    assert sorted(numbers(receiver.records(path))) == list(range(1, 40))


def test_a_redirect_is_not_followed(database, receiver, path, content, start_relay):
    elsewhere = f"/in/elsewhere/{next(_numbers)}/"
    receiver.answer(path, status=307, headers={"Location": receiver.url(elsewhere)})
    database.insert("a", '{"n": 1}')
    relay = start_relay(content())
    wait_until_away(database, "config", "answered 307")
    relay.wait_for_warning("redirects are not followed")
    assert nothing_is_counted(database) and not receiver.requests(elsewhere)


def test_a_row_that_the_endpoint_refuses_goes_to_the_dead_letters(database, receiver, path, content, start_relay):
    receiver.answer(path, status=400, contains="poison")
    settings_ = content()
    settings_["outboxes"]["orders"]["failure"] = {"then": "dead_letter", "max_retries": 1, "first_delay": "100ms"}
    database.insert("a", '{"n": "poison"}')
    database.insert("a", '{"n": 2}')
    start_relay(settings_)
    database.wait_until_empty()
    assert numbers(receiver.records(path)) == [2]


def test_a_silent_endpoint_is_given_up_in_time(database, receiver, path, content, start_relay):
    receiver.answer(path, status=None, count=1)
    database.insert("a", '{"n": 1}')
    relay = start_relay(content(answer_timeout="1s"))
    relay.wait_for_warning("no answer from http://127.0.0.1:", "timed out")
    database.wait_until_empty()
    assert numbers(receiver.records(path)) == [1] and nothing_is_blamed(database)


# ---- Where requests may go --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]"])
def test_private_addresses_are_refused(database, receiver, path, content, start_relay, tmp_path, host):
    before = len(receiver.requests())
    sink = {"url": f"https://{host}:{receiver.tls_port}{path}", "allow_private": False,
            "tls_ca_file": str(receiver.certificates.ca)}
    checked = postrider("check", "-c", write_config(tmp_path / "check.yaml", content(**sink)))
    assert checked.returncode != 0 and "allow_private" in checked.stdout
    database.insert("a", '{"n": 1}')
    relay = start_relay(content(**sink))
    wait_until_away(database, "config", "leads to a private, local or reserved address")
    assert nothing_is_counted(database)
    assert relay.stop() == 0
    assert len(receiver.requests()) == before and database.pending() == 1


def test_check_connects_and_sends_nothing(database, receiver, path, content, tmp_path):
    tls = {"url": f"https://localhost:{receiver.tls_port}{path}", "tls_ca_file": str(receiver.certificates.ca)}

    def check(**sink):
        return postrider("check", "-c", write_config(tmp_path / "check.yaml", content(**sink)))

    good = check(**tls)
    assert good.returncode == 0, good.stdout
    assert f"https://localhost:{receiver.tls_port} can be connected to" in good.stdout
    assert SECRET_PATH not in good.stdout
    other = check(**tls | {"tls_ca_file": str(receiver.certificates.other_ca)})
    assert other.returncode != 0 and "tls_ca_file" in other.stdout
    nobody = check(url="http://127.0.0.1:1/")
    assert nobody.returncode != 0 and "no answer from http://127.0.0.1:1" in nobody.stdout
    assert not receiver.requests(path)


# ---- Many at a time ---------------------------------------------------------------------------------------------------

def test_one_request_of_an_entity_is_under_way_and_many_of_others(database, receiver, path, content, start_relay):
    entities, each, delay = 20, 3, 0.4
    receiver.answer(path, delay=delay)
    for number in range(each):
        for entity in range(entities):
            database.insert(f"entity-{entity}", f'{{"n": {number}}}')
    # One worker may have all of them, and its share of the requests must do.
    start_relay(content(concurrency=4 * entities))
    database.wait_until_empty()
    times = collections.defaultdict(list)
    for record in receiver.records(path):
        times[record["headers"]["postrider-key"]].append((record["time"], json.loads(record["body"])["n"]))
    assert len(times) == entities
    for seen in times.values():
        assert [number for _, number in seen] == [0, 1, 2]
        assert all(later - earlier >= delay - 0.01 for (earlier, _), (later, _) in zip(seen, seen[1:]))
    begun = [seen[0][0] for seen in times.values()]
    assert max(begun) - min(begun) < delay, "entities waited for each other"


@pytest.mark.parametrize("workers, concurrency, rows", [(1, 8, 60), (3, 24, 600)])
def test_no_more_are_under_way_than_allowed(database, receiver, path, content, start_relay, workers, concurrency, rows):
    """A worker takes 256 entities at most, so that all of them have something to send."""
    delay = 0.25
    receiver.answer(path, delay=delay)
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                     " SELECT 'order', n, 'changed', '{}' FROM generate_series(1, %s) n", (rows,))
    start_relay(content(workers=workers, concurrency=concurrency))
    database.wait_until_empty(60)
    times = [record["time"] for record in receiver.records(path)]
    most = max(sum(1 for later in times if 0 <= later - time_ < delay - 0.02) for time_ in times)
    # A worker that comes later has one under way from the start.
    assert concurrency <= most < concurrency + workers


def test_connections_are_used_again(database, receiver, path, content, start_relay):
    rows = 2000
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                     " SELECT 'order', n, 'changed', '{}' FROM generate_series(1, %s) n", (rows,))
    start_relay(content())
    database.wait_until_empty()
    records = receiver.records(path)
    assert len(records) == rows
    assert len({record["connection"] for record in records}) <= 4 * 64
