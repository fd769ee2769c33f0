"""In front of a server that speaks like SQS and lets everybody in: TLS, and signatures that must be right.

It knows Signature Version 4 from its specification alone. Tests may also have it answer in the server's place.
"""

import hashlib
import hmac
import http.client
import http.server
import json
import ssl
import threading
from typing import NamedTuple

from .common import free_port

CONTENT_TYPE = "application/x-amz-json-1.0"


class Key(NamedTuple):
    """Whom the guard lets in. `token` is that of temporary credentials, which must then come along, signed."""

    id: str
    secret: str
    token: str = None


class Call(NamedTuple):
    """One request: which action, its members, and by which key."""

    action: str
    members: dict
    key_id: str


def refusal(code, message="", status=400):
    """An answer of SQS that says no."""
    return status, {"__type": f"com.amazonaws.sqs#{code}", "message": message}


class SqsGuard:
    """Listens on `port`, and with `certificates` speaks TLS there. `keys` may be changed at any time.

    `calls` has every request that was let through. `answer`, when it is set, is asked first with each of them: it returns
    (status, body) to answer in the server's place, or None."""

    def __init__(self, server, keys, certificates=None):
        self.server, self.keys = server, list(keys)
        self.calls, self.answer, self.refused = [], None, 0
        self.lock = threading.Lock()
        self.port = free_port()
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), _handler_of(self), bind_and_activate=False)
        self.http.daemon_threads = True
        self.http.server_bind()
        self.http.server_activate()
        if certificates:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates.certificate, certificates.key)
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True, do_handshake_on_connect=False)
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    def decide(self, headers, body):
        """What to answer, or None to ask the server."""
        try:
            key = self._verify(headers, body)
        except ValueError as wrong:
            with self.lock:
                self.refused += 1
            return refusal("InvalidSignatureException", f"{wrong}; the canonical string should have been {headers}", 403)
        call = Call(headers["X-Amz-Target"].removeprefix("AmazonSQS."), json.loads(body), key.id)
        with self.lock:
            self.calls.append(call)
            return self.answer(call) if self.answer else None

    def _verify(self, headers, body):
        scheme, _, rest = headers.get("Authorization", "").partition(" ")
        parts = dict(part.strip().split("=", 1) for part in rest.split(",") if "=" in part)
        if scheme != "AWS4-HMAC-SHA256" or set(parts) != {"Credential", "SignedHeaders", "Signature"}:
            raise ValueError("no signature")
        key_id, *scope = parts["Credential"].split("/")
        key = next((known for known in self.keys if known.id == key_id), None)
        if not key:
            raise ValueError("an unknown key")
        if (headers.get("X-Amz-Security-Token") or None) != key.token:
            raise ValueError("another token")
        names = parts["SignedHeaders"].split(";")
        if names != sorted(names) or not {"host", "x-amz-date", "x-amz-target"} <= set(names):
            raise ValueError("headers that should be signed are not")
        if key.token and "x-amz-security-token" not in names:
            raise ValueError("the token is not signed")
        if not hmac.compare_digest(_signature(key.secret, scope, names, headers, body), parts["Signature"]):
            raise ValueError("a wrong signature")
        return key


def _signature(secret, scope, names, headers, body):
    canonical = "\n".join(
        ["POST", "/", "", *(f"{name}:{' '.join(headers[name].split())}" for name in names), "", ";".join(names),
         hashlib.sha256(body).hexdigest()])
    text = "\n".join(["AWS4-HMAC-SHA256", headers["X-Amz-Date"], "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in scope:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _handler_of(guard):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self):
            super().setup()
            self.onward = http.client.HTTPConnection("127.0.0.1", guard.server.port, timeout=30)

        def finish(self):
            self.onward.close()
            super().finish()

        def handle(self):
            try:
                super().handle()
            except (ssl.SSLError, ConnectionError):
                pass    # a client that does not trust us, or went away

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            decided = guard.decide(self.headers, body)
            if decided:
                status, answer = decided[0], json.dumps(decided[1]).encode()
            else:
                status, answer = self._ask(body)
            self.send_response(status)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def _ask(self, body):
            self.onward.request("POST", "/", body, {"Content-Type": CONTENT_TYPE, "X-Amz-Target": self.headers["X-Amz-Target"]})
            answer = self.onward.getresponse()
            return answer.status, answer.read()

        def log_message(self, *arguments):
            pass

    return Handler
