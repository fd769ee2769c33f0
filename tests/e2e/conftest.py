"""Servers that tests share, a database and a topic of its own for each test, and relays that never outlive it."""

import os
import signal

import pytest

from tests.e2e.destinations import DESTINATIONS, opened
from tests.e2e.relay import BINARY, Relay
from tests.e2e.scene import dropped, initialised, missing, new_database, new_topic, started
from tests.e2e.steering import Stage
from tests.servers import Kafka, Postgres

LOG_TAIL, LOG_WIDTH = 40, 500
POSTGRES_SETTINGS = {"fsync": "off"}    # tests crash the server, never the machine


# ---- Servers --------------------------------------------------------------------------------------------------------

class Servers:
    """Each server starts when the first test asks for it and stays until the last test has ended."""

    def __init__(self):
        self.running = {}

    def get(self, key, make):
        if key not in self.running:
            self.running[key] = started(make())
        return self.running[key]

    def close(self):
        for server in self.running.values():
            server.close()


@pytest.fixture(scope="session")
def servers():
    shared = Servers()
    yield shared
    shared.close()


@pytest.fixture
def pg(request, servers):
    """PostgreSQL 15; both versions one after the other in tests marked with @every_postgres."""
    version = getattr(request, "param", 15)
    return servers.get(("postgres", version), lambda: Postgres(version, POSTGRES_SETTINGS))


@pytest.fixture
def kafka(servers):
    return servers.get("kafka", Kafka)


@pytest.fixture
def kafka_sasl(servers):
    return servers.get("kafka_sasl", lambda: Kafka("sasl_ssl"))


@pytest.fixture
def fragile_kafka(servers):
    """A Kafka that a test may stop, freeze and restart; it is made well again afterwards."""
    server = servers.get("fragile_kafka", Kafka)
    yield server
    if server.pid:
        os.kill(server.pid, signal.SIGCONT)
    else:
        server.start()


@pytest.fixture
def fragile_pg(request, servers):
    """A PostgreSQL that a test may stop and restart."""
    version = getattr(request, "param", 15)
    server = servers.get(("fragile", version), lambda: Postgres(version, POSTGRES_SETTINGS))
    yield server
    if not server.pid:
        server.start()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    """Servers of the conformance suite, by name; each is started when it is first asked for."""
    started = {}

    def get(name):
        if name not in started:
            kind = next(kind for kind in DESTINATIONS if kind.name + kind.variant == name)
            started[name] = opened(kind, tmp_path_factory.mktemp(name))
        return started[name]

    yield get
    for destination in started.values():
        destination.close()


# ---- A database and a topic for each test ---------------------------------------------------------------------------

@pytest.fixture
def empty_database(pg):
    """A database without anything of the product in it."""
    database = new_database(pg)
    yield database
    dropped(database)


@pytest.fixture
def database(product, empty_database, tmp_path):
    """A database with the recommended outbox table, as `postrider init` makes it."""
    return initialised(empty_database, tmp_path)


@pytest.fixture
def fragile_database(product, fragile_pg, tmp_path):
    """The same on the server that a test may restart."""
    database = initialised(new_database(fragile_pg), tmp_path)
    yield database
    dropped(database)


@pytest.fixture
def topic(kafka):
    return new_topic(kafka)


@pytest.fixture
def fragile_topic(fragile_kafka):
    return new_topic(fragile_kafka)


@pytest.fixture
def make_topic(kafka):
    """Makes topics with settings of their own."""
    return lambda **options: new_topic(kafka, **options)


# ---- The product ----------------------------------------------------------------------------------------------------

@pytest.fixture
def product():
    if not os.access(BINARY, os.X_OK):
        missing(f"{BINARY} is not built")
    return BINARY


@pytest.fixture
def make_relay(product, tmp_path, request):
    """Makes relays (not started) that are killed when the test ends; their logs are shown when it fails."""
    relays = []
    request.node.relays = relays

    def make(content, **options):
        relays.append(Relay(tmp_path, content, **options))
        return relays[-1]

    yield make
    for relay in relays:
        if relay.running:
            relay.kill9()


@pytest.fixture
def start_relay(make_relay):
    """Makes a relay and waits until it is ready."""

    def start(content, wait=True, **options):
        return make_relay(content, **options).start(wait)

    return start


@pytest.fixture
def stage(database, tmp_path, start_relay):
    """Makes a stage with a reader, for commands that steer."""
    return lambda reader="advisory", **options: Stage(database, tmp_path, start_relay, reader, **options)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        for relay in getattr(item, "relays", []):
            tail = "\n".join(line[:LOG_WIDTH] for line in relay.log_lines()[-LOG_TAIL:])
            report.sections.append((f"end of the log of {relay.name}", tail))
    return report
