"""Redis: a stream for each test. The server has TLS on a second port, and a user who may do just what a relay must."""

import itertools
import json
from datetime import datetime

from tests.servers import Redis

from .base import Destination, Message, Place, Refusal

USER, PASSWORD = "relay", "relay-secret"
ROOMY, NARROW = 512 << 20, 1 << 20      # bytes of one field; less than the second cannot be set
HEADER = b"h:"

_numbers = itertools.count(1)


class RedisDestination(Destination):
    name = "redis"
    lacks = {"missing": "a stream is created by its first entry"}

    def __init__(self, folder):
        super().__init__(folder)
        rules = f"{USER} on >{PASSWORD} ~* resetchannels -@all +xadd +multi +exec"
        self.server = Redis(users=[rules], tls=True).start()

    def recover(self):
        super().recover()
        self._limit(ROOMY)

    def fresh(self):
        return RedisPlace(self, f"stream-{next(_numbers)}")

    def narrow(self):
        self._limit(NARROW)

    def _limit(self, size):
        with self.server.client() as client:
            client.config_set("proto-max-bulk-len", size)


class RedisPlace(Place):

    def __init__(self, destination, stream):
        self.destination = destination
        self.server = destination.server
        self.stream = stream
        self.route = {"topic": stream}

    def sink(self, port=None, **options):
        # Where a proxy swallows the answer, the suite does not want to wait for the default of 30 s.
        return {"type": "redis", "address": f"127.0.0.1:{port or self.server.port}", "answer_timeout": "5s", **options}

    def arrived(self):
        with self.server.client() as client:
            return [as_message(fields) for _, fields in client.xrange(self.stream)]

    def drop_all_streams(self):
        with self.server.client() as client:
            client.flushall()

    def arrived_in_all_streams(self):
        """Of this server, whoever wrote there, by the millisecond of their arrival. Ids of different streams say no more,
        so within one it is the time when the row was written."""
        def when(entry):
            return int(entry[0].split(b"-")[0]), datetime.fromisoformat(entry[1][HEADER + b"created_at"].decode())

        with self.server.client() as client:
            entries = [entry for stream in client.scan_iter(_type="stream") for entry in client.xrange(stream)]
        return [as_message(fields) for _, fields in sorted(entries, key=when)]

    def refusing(self):
        self.destination.narrow()
        return Refusal(self.sink(), {"payload": json.dumps({"poison": "x" * 2 * NARROW})})

    def wrong_password(self, password):
        return self._secured(password_file=self.destination.secret("wrong-password", password))

    def tls(self):
        return self._secured()

    def tls_wrong_name(self):
        return self._secured(address=f"127.0.0.1:{self.server.tls_port}")

    def _secured(self, **replaced):
        return {
            "type": "redis", "address": f"localhost:{self.server.tls_port}", "tls": "on", "user": USER,
            "tls_ca_file": str(self.server.certificates.ca),
            "password_file": self.destination.secret("password", PASSWORD), **replaced}


def as_message(fields):
    headers = {name[len(HEADER):].decode(): value.decode() for name, value in fields.items() if name.startswith(HEADER)}
    return Message(fields.get(b"key"), fields.get(b"payload"), headers, fields[b"id"].decode())
