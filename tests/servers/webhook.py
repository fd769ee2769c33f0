"""A receiver of webhooks, which shares no code with what sends them.

It checks signatures by itself, writes down what it takes before it answers, and can be told to answer otherwise. It runs as a
process of its own, so that it can be stopped and killed; what it has written stays.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
import sys
import time
import urllib.request
from pathlib import Path

from .certificates import make_certificates
from .common import Server, free_port

SECRETS = ["whsec_" + base64.b64encode(key).decode() for key in (bytes(range(32)), b"the secret that follows it")]
AUTHORIZATION = "Bearer relay-secret"
TOLERANCE_SECONDS = 300


class Webhook(Server):
    """Paths: /in/… takes what is signed with `SECRETS[0]`; /secured/… wants AUTHORIZATION too; /any/… takes anything, and
    looks at the signature for its cost alone. All else is 404.

    It speaks TLS on `tls_port` for the name localhost."""

    name = "webhook receiver"

    def __init__(self):
        super().__init__()
        self._read, self._records = 0, []

    def prepare(self):
        self.port, self.tls_port = free_port(), free_port()
        self.certificates = make_certificates(self.workdir, names="DNS:localhost")

    def command(self):
        return [sys.executable, "-m", "tests.servers.webhook", self.workdir, self.port, self.tls_port,
                self.certificates.certificate, self.certificates.key]

    def environment(self):
        return {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}

    def url(self, path, port=None):
        return f"http://127.0.0.1:{port or self.port}{path}"

    def answer(self, path="", **rule):
        """From now on requests whose path begins so are answered by this rule: see Rule. A later one comes first."""
        self._tell({"path": path, **rule})

    def behave(self):
        """Forgets all rules."""
        self._tell(None)

    def records(self, path=""):
        """What was taken: dicts with path, headers (names in small letters), body, time, connection."""
        return [record for record in self._all() if record["status"] == 200 and record["path"].startswith(path)]

    def requests(self, path=""):
        """The same with what was refused."""
        return [record for record in self._all() if record["path"].startswith(path)]

    def _all(self):
        file = self.workdir / "records"
        if file.exists():
            with open(file, "rb") as lines:
                lines.seek(self._read)
                whole, end, _ = lines.read().rpartition(b"\n")
            self._read += len(whole + end)
            for line in whole.splitlines():
                record = json.loads(line)
                self._records.append(record | {"body": base64.b64decode(record["body"])})
        return self._records

    def _tell(self, rule):
        request = urllib.request.Request(self.url("/_rules"), json.dumps(rule).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200


def fault_of(headers, body, secrets, now):
    """Why a request is not one of Standard Webhooks, or None. Any signature by any of the secrets will do."""
    try:
        name, sent = headers["webhook-id"], headers["webhook-timestamp"]
        signatures = [part.partition(",")[2] for part in headers["webhook-signature"].split(" ") if part.startswith("v1,")]
    except KeyError as missing:
        return f"no header {missing}"
    if not name or abs(now - int(sent)) > TOLERANCE_SECONDS:
        return "no id, or sent at another time"
    for secret in secrets:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        right = base64.b64encode(hmac.new(key, f"{name}.{sent}.".encode() + body, hashlib.sha256).digest()).decode()
        if any(hmac.compare_digest(right, signature) for signature in signatures):
            return None
    return "no signature is right"


class Rule:
    """Answers `status` with `headers` to requests that have `contains` in their body, `count` times, after `delay` seconds.
    A status of None stands for no answer at all, 0 for what would be answered anyhow."""

    def __init__(self, path, status=0, contains="", headers=None, count=None, delay=0, secrets=None):
        self.path, self.status, self.contains, self.headers = path, status, contains.encode(), headers or {}
        self.count, self.delay, self.secrets = count, delay, secrets

    def fits(self, path, body):
        return self.count != 0 and path.startswith(self.path) and self.contains in body

    def used(self):
        if self.count is not None:
            self.count -= 1


class Receiver:
    """All that connections share."""

    def __init__(self, folder):
        self.rules = []
        self.connections = 0
        self.file = open(folder / "records", "ab")

    def control(self, body):
        rule = json.loads(body)
        self.rules = [] if rule is None else [Rule(**rule), *self.rules]
        return 200, {}, 0

    def judge(self, path, headers, body):
        """Status, headers and delay of the answer."""
        rule = next((rule for rule in self.rules if rule.fits(path, body)), None)
        if rule:
            rule.used()
            if rule.status != 0:
                return rule.status, rule.headers, rule.delay
        return self.usual(path, headers, body, rule.secrets if rule and rule.secrets else SECRETS[:1]), {}, rule.delay if rule else 0

    def usual(self, path, headers, body, secrets):
        if not path.startswith(("/in/", "/secured/", "/any/")):
            return 404
        if path.startswith("/secured/") and headers.get("authorization") != AUTHORIZATION:
            return 401
        return 401 if fault_of(headers, body, secrets, time.time()) and not path.startswith("/any/") else 200

    def note(self, status, path, headers, body, connection):
        record = {"status": status, "path": path, "headers": headers, "body": base64.b64encode(body).decode(),
                  "time": time.time(), "connection": connection}
        self.file.write(json.dumps(record).encode() + b"\n")
        self.file.flush()


class Connection(asyncio.Protocol):
    """HTTP/1.1 as far as a relay speaks it: Content-Length, keep-alive, one request at a time."""

    def __init__(self, receiver):
        self.receiver = receiver
        self.parts, self.size, self.wanted = [], 0, 0

    def connection_made(self, transport):
        self.transport = transport
        self.receiver.connections += 1
        self.number = self.receiver.connections

    def data_received(self, data):
        self.parts.append(data)
        self.size += len(data)
        if self.size >= self.wanted:
            self.parts = [b"".join(self.parts)]
            self.take()

    def take(self):
        head, end, rest = self.parts[0].partition(b"\r\n\r\n")
        if not end:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        self.wanted = len(head) + 4 + length
        if len(rest) < length:
            return
        self.parts, self.size, self.wanted = [], 0, 0
        self.handle(first.split(" ")[1], headers, rest)

    def handle(self, path, headers, body):
        if path == "/_rules":
            self.say(*self.receiver.control(body))
            return
        status, more, delay = self.receiver.judge(path, headers, body)
        self.receiver.note(status, path, headers, body, self.number)
        if status is not None:
            self.say(status, more, delay)

    def say(self, status, headers, delay):
        lines = [f"HTTP/1.1 {status} Whatever", "Content-Length: 0", *(f"{name}: {value}" for name, value in headers.items())]
        text = ("\r\n".join(lines) + "\r\n\r\n").encode()
        if delay:
            asyncio.get_running_loop().call_later(delay, self.transport.write, text)
        else:
            self.transport.write(text)


async def serve(folder, port, tls_port, certificate, key):
    receiver = Receiver(Path(folder))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    loop = asyncio.get_running_loop()
    both = [await loop.create_server(lambda: Connection(receiver), "127.0.0.1", int(tls_port), ssl=tls, backlog=1024),
            await loop.create_server(lambda: Connection(receiver), "127.0.0.1", int(port), backlog=1024)]
    await asyncio.gather(*(server.serve_forever() for server in both))


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
