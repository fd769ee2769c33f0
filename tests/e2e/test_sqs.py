"""What is special about SQS: batches, groups, signatures, credentials, throttling. The rest: test_conformance.py."""

import http.server
import itertools
import json
import threading
import time
from datetime import datetime, timedelta, timezone

import pytest

from tests.e2e.destinations.sqs import as_message
from tests.e2e.relay import postrider, settings, wait_until, write_config
from tests.e2e.scene import started
from tests.e2e.sink_state import nothing_is_blamed, nothing_is_counted, wait_until_away, wait_until_there
from tests.servers import ElasticMQ
from tests.servers.sqs_guard import Key, SqsGuard, refusal

KEY = Key("AKIDTEST", "secret-of-the-test")
TEMPORARY = Key("ASIATEMPORARY", "temporary-secret", "session/token+with=signs")
NO_METADATA = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"}

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server():
    made = started(ElasticMQ())
    yield made
    made.close()


@pytest.fixture
def guard(server):
    made = SqsGuard(server, [KEY, TEMPORARY])
    yield made
    made.close()


class Queue:
    """A new queue, and what arrives there."""

    def __init__(self, server, suffix=""):
        self.name = f"test-{next(_numbers)}{suffix}"
        self.client = server.client()
        self.url = self.client.create_queue(self.name)

    def take(self, count, timeout=20):
        """So many messages as SQS gives them, and whatever comes in the half second behind them."""
        messages, deadline = [], time.monotonic() + timeout
        while time.monotonic() < deadline:
            messages += self.client.receive(self.url)
            if len(messages) >= count:
                deadline = min(deadline, time.monotonic() + 0.5)
            time.sleep(0.02)
        return messages


@pytest.fixture
def queue(server):
    return Queue(server)


@pytest.fixture
def fifo(server):
    return Queue(server, ".fifo")


@pytest.fixture
def secret(tmp_path):
    def write(text, name=None):
        path = tmp_path / (name or f"secret-{next(_numbers)}")
        path.write_text(text + "\n")
        return str(path)

    return write


@pytest.fixture
def relay_to(database, start_relay, guard, secret):
    """Starts a relay that sends to a queue through the guard. `environment` in place of a key in the settings."""

    def start(topic, environment=None, **sink):
        sink = {"type": "sqs", "region": "eu-central-1", "endpoint": f"http://127.0.0.1:{guard.port}", **sink}
        if environment is None:
            sink = {"access_key_id": KEY.id, "secret_access_key_file": secret(KEY.secret)} | sink
        content = settings(database.dsn, sink, poll_interval="1s", route={"topic": topic})
        return start_relay(content | {"stop_timeout": "10s"}, environment=NO_METADATA | (environment or {}))

    return start


def sent(guard):
    """The entries of all batches that reached the guard, batch by batch."""
    return [call.members["Entries"] for call in list(guard.calls) if call.action == "SendMessageBatch"]


# ---- Messages and batches ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_batches_are_full_and_have_one_row_of_an_entity_each(server, guard, database, relay_to, suffix):
    """Rows of an entity are on their way one at a time, however many there are; others fill the batches."""
    queue, entities, each = Queue(server, suffix), 200, 10
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload) SELECT 'order', 'e' || e,"
                     " 'changed', json_build_object('n', n) FROM generate_series(1, %s) n, generate_series(1, %s) e",
                     (each, entities))
    relay = relay_to(queue.name)
    database.wait_until_empty(60)
    assert relay.stop() == 0
    batches, last = sent(guard), {}
    for batch in batches:
        keys = [entry["MessageAttributes"]["postrider-key"]["StringValue"] for entry in batch]
        assert len(set(keys)) == len(keys)
        for key, entry in zip(keys, batch):
            number = json.loads(entry["MessageBody"])["n"]
            assert number == last.get(key, 0) + 1, key
            last[key] = number
            assert entry.get("MessageGroupId") == (key if suffix else None)
    assert sum(map(len, batches)) == entities * each
    assert len(batches) < entities * each / 5
    assert len([call for call in guard.calls if call.action == "GetQueueUrl"]) <= 4, "once for each worker"


def test_large_rows_share_a_megabyte(queue, guard, database, relay_to):
    for number in range(20):
        database.insert(f"e{number}", json.dumps({"text": "x" * 300_000}))
    relay = relay_to(queue.name)
    database.wait_until_empty(60)
    assert relay.stop() == 0
    assert len(queue.take(20)) == 20
    assert {len(batch) for batch in sent(guard)} <= {1, 2, 3}


def test_a_lower_limit_is_minded(queue, database, relay_to):
    number = database.insert("large", json.dumps({"text": "x" * 20_000}))
    database.insert("small", "{}")
    relay = relay_to(queue.name, max_message_bytes="16KiB")
    relay.wait_for("row.refused", id=str(number), kind="rejected")
    wait_until(lambda: database.pending() == 1, what="the other row gone")
    assert relay.stop() == 0
    assert [as_message(message).key for message in queue.take(1)] == [b"small"]


def test_more_headers_than_attributes(fifo, database, relay_to):
    headers = {f"h{number}": str(number) for number in range(30)} | {"a b": "", "line": "a\x01", "umlaut": "ü\uffff"}
    database.insert("e", "{}", headers=json.dumps(headers))
    relay = relay_to(fifo.name)
    database.wait_until_empty()
    assert relay.stop() == 0
    message, = fifo.take(1)
    assert len(message["MessageAttributes"]) == 10
    assert as_message(message).headers.items() >= headers.items()


def test_a_queue_by_its_url(fifo, database, relay_to, guard):
    database.insert("e", "{}")
    relay = relay_to(fifo.url)
    database.wait_until_empty()
    assert relay.stop() == 0
    message, = fifo.take(1)
    assert message["Attributes"]["MessageGroupId"] == "e"
    assert message["Attributes"]["MessageDeduplicationId"] == as_message(message).id
    assert "GetQueueUrl" not in {call.action for call in guard.calls}


@pytest.mark.parametrize("suffix, copies", [("", 2), (".fifo", 1)])
def test_an_answer_that_is_lost_costs_a_copy_except_on_fifo(server, guard, database, relay_to, suffix, copies):
    queue, lost = Queue(server, suffix), []

    def store_and_fail(call):
        if call.action != "SendMessageBatch" or lost:
            return None
        lost.append(call)
        queue.client.call(call.action, **call.members)
        return 500, {}

    guard.answer = store_and_fail
    database.insert("e", "{}")
    relay = relay_to(queue.name)
    database.wait_until_empty()
    assert nothing_is_blamed(database)
    assert relay.stop() == 0
    messages = queue.take(copies)
    assert len(messages) == copies
    assert len({as_message(message).id for message in messages}) == 1


# ---- Trouble -------------------------------------------------------------------------------------------------------------

def throttled_request(call):
    return refusal("ThrottlingException", "Rate exceeded")


def throttled_entries(call):
    return 200, {"Successful": [], "Failed": [
        {"Id": entry["Id"], "SenderFault": False, "Code": "RequestThrottled", "Message": "slow down"}
        for entry in call.members.get("Entries", [])]}


def unavailable(call):
    return 503, {}


@pytest.mark.parametrize("answer", [throttled_request, throttled_entries, unavailable])
def test_throttling_slows_everything_down_and_blames_nobody(queue, guard, database, relay_to, answer):
    guard.answer = lambda call: answer(call) if call.action == "SendMessageBatch" else None
    for number in range(50):
        database.insert(f"e{number}", "{}")
    relay = relay_to(queue.name)
    wait_until_away(database, "throttled")
    time.sleep(1)
    before = len(guard.calls)
    time.sleep(3)
    assert len(guard.calls) - before < 4 * 8, "pauses do not grow"
    assert nothing_is_blamed(database)
    guard.answer = None
    database.wait_until_empty(40)
    wait_until_there(database)
    assert relay.stop() == 0
    assert len(queue.take(50)) == 50


def test_a_batch_that_is_refused_as_a_whole_costs_one_row_only(queue, guard, database, relay_to):
    """Which of its rows is meant is not said; the others are not blamed for it."""
    guard.answer = lambda call: (refusal("BatchRequestTooLong", "too long") if any(
        "poison" in entry["MessageBody"] for entry in call.members.get("Entries", [])) else None)
    for number in range(60):
        database.insert(f"e{number}", "{}")
    poison = database.insert("bad", '{"poison": 1}')
    for number in range(60):
        database.insert(f"f{number}", "{}")
    relay = relay_to(queue.name)
    relay.wait_for("row.refused", id=str(poison), kind="rejected")
    wait_until(lambda: database.pending() == 1, what="all others gone")
    assert relay.stop() == 0
    assert {event["id"] for event in relay.events("row.refused")} == {str(poison)}
    assert len(queue.take(120)) == 120


def test_a_queue_that_is_missing_or_denied_holds_back_its_own_rows_only(server, guard, database, relay_to):
    """The topic comes from the row. The missing one is named with the command that creates it."""
    here, denied = Queue(server), Queue(server)
    guard.answer = lambda call: (
        refusal("AccessDeniedException", "not authorized", 403) if call.members.get("QueueUrl") == denied.url else None)
    for name in (here.name, denied.name, "nowhere"):
        database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload) VALUES (%s, %s, 'x', '{}')",
                         (name, f"of {name}"))
    relay = relay_to("{entity_type}")
    wait_until(lambda: database.pending() == 2, what="the good one gone")
    relay.wait_for_warning("aws sqs create-queue --queue-name nowhere")
    relay.wait_for_warning("sqs:SendMessage", "AccessDenied")
    assert nothing_is_counted(database)
    guard.answer = None
    later = server.client().create_queue("nowhere")
    database.wait_until_empty(30)
    assert relay.stop() == 0
    assert len(denied.take(1)) == 1 and len(server.client().receive(later)) == 1


def test_a_queue_that_is_made_anew_is_found_again(server, queue, database, relay_to):
    database.insert("e", '{"n": 1}')
    relay = relay_to(queue.name)
    database.wait_until_empty()
    queue.client.call("DeleteQueue", QueueUrl=queue.url)
    database.insert("e", '{"n": 2}')
    relay.wait_for_warning("QueueDoesNotExist")
    queue.client.create_queue(queue.name)
    database.wait_until_empty(30)
    assert relay.stop() == 0
    assert [message["Body"] for message in queue.take(1)] == ['{"n": 2}']


# ---- Credentials ---------------------------------------------------------------------------------------------------------

class Giver:
    """Gives out credentials over HTTP, to those who ask in the right way: `answers` maps (method, path) to a function of the
    request's headers and body, which returns (status, text)."""

    def __init__(self, answers):
        self.asked = []
        giver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                giver.asked.append((self.command, self.path))
                make = answers.get((self.command, self.path))
                status, text = make(self.headers, body) if make else (404, "")
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_PUT = do_POST = answer

            def log_message(self, *arguments):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def make_giver():
    made = []

    def make(answers):
        made.append(Giver(answers))
        return made[-1]

    yield make
    for giver in made:
        giver.close()


def credentials(key, lasts=3600):
    until = datetime.now(timezone.utc) + timedelta(seconds=lasts)
    return json.dumps({"Code": "Success", "AccessKeyId": key.id, "SecretAccessKey": key.secret, "Token": key.token,
                       "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ")})


def instance(key_now, lasts=3600):
    """The metadata service of an instance, version 2: nothing without a token."""
    token = "metadata-token"

    def guarded(make):
        return lambda headers, body: (
            (200, make()) if headers.get("X-aws-ec2-metadata-token") == token else (401, ""))

    return {
        ("PUT", "/latest/api/token"): lambda headers, body: (
            (200, token) if headers.get("X-aws-ec2-metadata-token-ttl-seconds") else (400, "")),
        ("GET", "/latest/meta-data/iam/security-credentials/"): guarded(lambda: "relay-role"),
        ("GET", "/latest/meta-data/iam/security-credentials/relay-role"): guarded(lambda: credentials(key_now(), lasts)),
    }


def from_environment(make_giver, secret):
    return {"AWS_ACCESS_KEY_ID": TEMPORARY.id, "AWS_SECRET_ACCESS_KEY": TEMPORARY.secret, "AWS_SESSION_TOKEN": TEMPORARY.token}


def from_file(make_giver, secret):
    path = secret(f"[default]\naws_access_key_id = nobody\naws_secret_access_key = nothing\n"
                  f"# the one that counts\n[relay]\naws_access_key_id={TEMPORARY.id}\n"
                  f"aws_secret_access_key = {TEMPORARY.secret}\naws_session_token = {TEMPORARY.token}\n[other]\n"
                  f"aws_access_key_id = somebody else")
    return {"AWS_SHARED_CREDENTIALS_FILE": path, "AWS_PROFILE": "relay"}


def from_container(make_giver, secret):
    giver = make_giver({("GET", "/v2/relay"): lambda headers, body: (
        (200, credentials(TEMPORARY)) if headers.get("Authorization") == "container-token" else (401, ""))})
    return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{giver.url}/v2/relay",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": secret("container-token")}


def from_instance(make_giver, secret):
    giver = make_giver(instance(lambda: TEMPORARY))
    return {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": giver.url}


def from_web_identity(make_giver, secret):
    def assume(headers, body):
        if "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Frelay" not in body or "WebIdentityToken=jwt.of.pod" not in body:
            return 403, "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"
        return 200, (f"<AssumeRoleWithWebIdentityResponse><Credentials><AccessKeyId>{TEMPORARY.id}</AccessKeyId>"
                     f"<SecretAccessKey>{TEMPORARY.secret}</SecretAccessKey><SessionToken>{TEMPORARY.token}</SessionToken>"
                     "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResponse>")

    giver = make_giver({("POST", "/"): assume})
    return {"AWS_ROLE_ARN": "arn:aws:iam::1:role/relay", "AWS_WEB_IDENTITY_TOKEN_FILE": secret("jwt.of.pod"),
            "AWS_ENDPOINT_URL_STS": giver.url}


@pytest.mark.parametrize("source", [from_environment, from_file, from_container, from_instance, from_web_identity])
def test_credentials_are_found_where_aws_keeps_them(queue, guard, database, relay_to, make_giver, secret, source):
    """They are temporary, so their token is sent and signed, too; the guard verifies."""
    database.insert("e", "{}")
    relay = relay_to(queue.name, environment=source(make_giver, secret))
    database.wait_until_empty()
    assert relay.stop() == 0
    assert len(queue.take(1)) == 1
    assert {call.key_id for call in guard.calls} == {TEMPORARY.id} and guard.refused == 0
    for text in (TEMPORARY.secret, TEMPORARY.token):
        assert text not in relay.log_text()


def test_credentials_are_renewed_before_they_expire(queue, guard, database, relay_to, make_giver):
    """These last two seconds longer than the five minutes in which they are renewed. Nothing is refused on the way."""
    second, given = Key("ASIASECOND", "second-secret", "second-token"), []
    guard.keys.append(second)

    def next_key():
        given.append(TEMPORARY if len(given) < 4 else second)     # one for each worker
        return given[-1]

    giver = make_giver(instance(next_key, lasts=302))
    environment = {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": giver.url}
    relay = relay_to(queue.name, environment=environment)
    rows = 0
    deadline = time.monotonic() + 20
    while second.id not in {call.key_id for call in list(guard.calls)} and time.monotonic() < deadline:
        database.insert(f"e{rows % 40}", "{}")
        rows += 1
        time.sleep(0.02)
    database.wait_until_empty()
    assert relay.stop() == 0
    assert {call.key_id for call in guard.calls} == {TEMPORARY.id, second.id}
    assert guard.refused == 0 and not relay.warnings()
    assert len(queue.take(rows)) == rows


def test_a_secret_that_is_replaced_is_read_again(queue, guard, database, relay_to, secret):
    path = secret(KEY.secret, "rotated")
    relay = relay_to(queue.name, secret_access_key_file=path)
    database.insert("e", "{}")
    database.wait_until_empty()
    guard.keys = [Key(KEY.id, "its-successor")]
    database.insert("e", "{}")
    wait_until_away(database, "auth", "InvalidSignatureException")
    assert nothing_is_counted(database)
    secret("its-successor", "rotated")
    database.wait_until_empty(40)
    wait_until_there(database)
    assert relay.stop() == 0
    assert KEY.secret not in relay.log_text() and "its-successor" not in relay.log_text()


@pytest.mark.parametrize("environment, fragments", [
    ({}, ["there are no credentials of AWS"]),
    ({"AWS_ACCESS_KEY_ID": "x"}, ["AWS_SECRET_ACCESS_KEY is not"]),
    ({"AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/file"}, ["shared file", "/nonexistent/file"]),
    ({"AWS_EC2_METADATA_DISABLED": "no", "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}, ["instance", "127.0.0.1:1"]),
    ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.com/x"}, ["neither https nor on this machine"]),
])
def test_without_credentials_rows_wait(queue, database, relay_to, environment, fragments):
    database.insert("e", "{}")
    relay = relay_to(queue.name, environment=environment)
    wait_until_away(database, None, *fragments)
    assert nothing_is_counted(database) and database.pending() == 1
    assert relay.stop() == 0


# ---- check -----------------------------------------------------------------------------------------------------------------

@pytest.fixture
def check(database, guard, secret, tmp_path):
    def run(topic, key=KEY, **sink):
        sink = {"type": "sqs", "region": "eu-central-1", "endpoint": f"http://127.0.0.1:{guard.port}", "access_key_id": key.id,
                "secret_access_key_file": secret(key.secret)} | sink
        content = settings(database.dsn, sink, route={"topic": topic})
        return postrider("check", "-c", write_config(tmp_path / "check.yaml", content), environment=NO_METADATA)

    return run


def test_check_looks_at_the_queue(check, queue):
    done = check(queue.name)
    assert done.returncode == 0 and f"has queue {queue.name}" in done.stdout, done.stdout
    assert check(queue.url).returncode == 0
    assert check("{entity_type}").returncode == 0
    done = check("not-there.fifo")
    assert done.returncode != 0
    assert "aws sqs create-queue --queue-name not-there.fifo --attributes FifoQueue=true" in done.stdout, done.stdout
    done = check(queue.name, Key(KEY.id, "wrong-secret"))
    assert done.returncode != 0 and "InvalidSignatureException" in done.stdout
    assert "wrong-secret" not in done.stdout + done.stderr


@pytest.mark.parametrize("sink, fragment", [
    ({"endpoint": "http://sqs.example.com"}, "plain text"),
    ({"endpoint": "sqs.example.com"}, "not the address of a server"),
    ({"region": ""}, "there is no region"),
])
def test_settings_that_cannot_be_meant(check, queue, sink, fragment):
    done = check(queue.name, **sink)
    assert done.returncode != 0 and fragment in done.stdout + done.stderr, done.stdout + done.stderr


def test_topics_that_no_queue_can_have(check):
    done = check("outbox.event.Order")
    assert done.returncode != 0 and "letters, digits" in done.stdout + done.stderr
