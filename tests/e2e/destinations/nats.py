"""NATS: a stream and a subject for each test. One server is plain, a second one has TLS and a user."""

import json
import time

from tests.e2e.nats_client import NatsClient
from tests.servers import Nats
from tests.servers.certificates import make_certificates

from .base import Destination, Message, Missing, Place, Refusal

USER, PASSWORD = "relay", "nats-secret"
NARROW = 20_000


class NatsDestination(Destination):
    name = "nats"
    limit = 1_000_000       # its max_payload is 1 MiB, headers included

    def __init__(self, folder):
        super().__init__(folder)
        self.certificates = make_certificates(folder, names="DNS:localhost")
        self.server = Nats().start()
        self.guarded = Nats({"user": USER, "password": PASSWORD}, self.certificates).start()

    def close(self):
        super().close()
        self.guarded.close()

    def fresh(self):
        return NatsPlace(self)


class NatsPlace(Place):
    count = 0

    def __init__(self, destination):
        NatsPlace.count += 1
        self.destination = destination
        self.stream = f"STREAM-{NatsPlace.count}"
        self.subject = f"test.{NatsPlace.count}"
        self.route = {"topic": self.subject}
        self.client = NatsClient(destination.server)
        self.client.add_stream(self.stream, [self.subject])

    def sink(self, port=None, **options):
        return {"type": "nats", "servers": self.destination.server.url(port=port), "stream": self.stream, **options}

    def received(self, count, timeout=30):
        deadline = time.monotonic() + timeout
        while self.client.count(self.stream) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        return [as_message(record) for record in self.client.records(self.stream)]

    def refusing(self):
        self.client.update_stream(self.stream, [self.subject], max_msg_size=NARROW)
        return Refusal(self.sink(), {"payload": json.dumps({"poison": "x" * 2 * NARROW})})

    def wrong_password(self, password):
        return self._secured(password_file=self.destination.secret("wrong-password", password))

    def missing(self):
        subject = f"{self.subject}.later"

        def create():
            self.stream = f"{self.stream}-later"
            self.client.add_stream(self.stream, [subject])

        return Missing({"type": "nats", "servers": self.destination.server.url()}, {"topic": subject}, subject, create)

    def tls(self):
        return self._secured()

    def tls_wrong_name(self):
        return self._secured(servers=self.destination.guarded.url("127.0.0.1"))

    def _secured(self, **replaced):
        guarded = self.destination.guarded
        self.client = NatsClient(guarded, "localhost", user=USER, password=PASSWORD)
        self.client.add_stream(self.stream, [self.subject])
        return {
            "type": "nats", "servers": guarded.url("localhost"), "stream": self.stream, "tls": "on",
            "tls_ca_file": str(self.destination.certificates.ca), "user": USER,
            "password_file": self.destination.secret("password", PASSWORD), **replaced}


def as_message(record):
    headers = record.headers
    key = headers.get("Postrider-Key")
    return Message(None if key is None else key.encode(), record.data, headers, headers["Nats-Msg-Id"])
