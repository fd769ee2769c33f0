"""What the conformance suite has to know of a sink: its real server, and a place there for each test.

A sink joins the suite with a class of each kind, and a line in __init__.py. What a server cannot do, or does not
have, stands in `lacks` with the reason; the test that asks for it is then left out and says why.
"""

import json
import time
from typing import Callable, NamedTuple, Optional

import pytest

from tests.e2e.checker import Arrival

# What a destination may lack; each is asked for by the test that needs it.
ABILITIES = ("a server", "a proxy", "refusing", "a password", "missing", "tls")


class Message(NamedTuple):
    """One message as an independent client saw it."""

    key: Optional[bytes]
    value: Optional[bytes]
    headers: dict       # name → text
    id: str

    def arrival(self):
        """For the checker, of a row that tests.e2e.ledger wrote."""
        return Arrival(self.key.decode(), json.loads(self.value)["seq"], self.id)


class Refusal(NamedTuple):
    """Settings under which the server refuses exactly this row; `row` are columns of the outbox."""

    sink: dict
    row: dict


class Missing(NamedTuple):
    """Settings that lead to something that is not there. `name` is what a message about it names, `create` makes it."""

    sink: dict
    route: dict
    name: str
    create: Callable


class Destination:
    """The server of one kind of sink. It starts with the object (or ServerMissing says what is not installed), lives
    until close(), and may be stopped, killed and started by tests in between: `server` is one of tests.servers.

    `limit` is how many bytes of payload the other side takes at most. None: 5 MB pass.
    `keeps_order` is False where what is sent in order may still be received in another.
    `patience` is how many seconds the server may take for tens of thousands of rows.
    `holds_back_when_refused`: while the server refuses us as a whole, the sink gives rows back (as `auth` or `config`), and
    they are held back without an attempt being counted. False: not even that.
    """

    name = None
    variant = ""        # of the same sink: "-fifo"
    keeps_order = True
    holds_back_when_refused = True
    limit = None
    patience = 60
    lacks = {}
    server = None

    def __init__(self, folder):
        """`folder` is for files that settings name: secrets, certificates."""
        self.folder = folder

    def close(self):
        if self.server:
            self.server.close()

    def recover(self):
        """Well again, whatever a test that failed has left behind."""
        if self.server and not self.server.pid:
            self.server.start()

    def proxy(self, toxiproxy):
        """A way to the server that can be cut; its port is for Place.sink."""
        return toxiproxy.proxy(self.name, self.server.port)

    def fresh(self):
        """A Place of its own for one test."""
        raise NotImplementedError

    def must_have(self, ability):
        assert ability in ABILITIES, ability
        if ability in self.lacks:
            pytest.skip(f"{self.name}: {self.lacks[ability]}")

    def secret(self, name, text):
        """The path of a file that holds a secret, as settings want it."""
        path = self.folder / name
        path.write_text(text + "\n")
        return str(path)


class Place:
    """A topic, queue, stream, table: whatever this server calls it. It implements `sink` and `arrived`, and of the
    methods from `refusing` on those that its destination does not lack."""

    route = {}

    def sink(self, port=None, **options):
        """The entry of outboxes.*.sinks that leads here; `port` is that of a proxy in front of the server."""
        raise NotImplementedError

    def arrived(self):
        """What is there now, read by an independent client: for each key in the order of arrival, repeats included."""
        raise NotImplementedError

    def received(self, count, timeout=30):
        """The same as soon as there are `count` messages; what is there after `timeout` seconds where they are fewer.

        A server that hands out each message only once needs its own way to do this."""
        deadline = time.monotonic() + timeout
        while True:
            messages = self.arrived()
            if len(messages) >= count or time.monotonic() > deadline:
                return messages
            time.sleep(0.05)

    def refusing(self):
        """Makes the server refuse something; returns a Refusal."""
        raise NotImplementedError

    def wrong_password(self, password):
        """Settings with this password, which is not the right one."""
        raise NotImplementedError

    def missing(self):
        """Returns a Missing."""
        raise NotImplementedError

    def tls(self):
        """Settings for TLS, with the certificate verified, and a user and password where the server has them."""
        raise NotImplementedError

    def tls_wrong_name(self):
        """The same by a name that is not in the server's certificate."""
        raise NotImplementedError
