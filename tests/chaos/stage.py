"""The servers, started once and used by all runs, and the way to each through a proxy that can be cut."""

from tests.servers import Kafka, Postgres, Toxiproxy
from tests.servers.common import free_port
from tests.servers.kafka import QUICK_TO_START

POSTGRES_SETTINGS = {"fsync": "off"}    # the server crashes here, never the machine


class Stage:
    """Servers start when a run first asks for them."""

    def __init__(self):
        self.servers = []
        self.toxiproxy = None
        self.of_postgres = {}       # version → server
        self.of_kafka = None
        self.proxies = {}           # (server, who uses it) → proxy

    def __enter__(self):
        self.toxiproxy = self._start(Toxiproxy())
        return self

    def __exit__(self, *exception):
        for server in reversed(self.servers):
            server.close()

    def postgres(self, version):
        if version not in self.of_postgres:
            self.of_postgres[version] = self._start(Postgres(version, POSTGRES_SETTINGS))
        return self.of_postgres[version]

    def way_to_postgres(self, version, node):
        """The proxy that leads one node to the server: one of them can be cut off while others are not."""
        key = (version, node)
        if key not in self.proxies:
            self.proxies[key] = self.toxiproxy.proxy(f"postgres-{version}-{node}", self.postgres(version).port)
        return self.proxies[key]

    def kafka(self):
        if not self.of_kafka:
            port = free_port()
            self.of_kafka = self._start(Kafka(proxy_port=port, java_options=QUICK_TO_START))
            self.proxies["kafka"] = self.toxiproxy.proxy("kafka", self.of_kafka.proxied_port, port)
        return self.of_kafka

    def way_to_kafka(self):
        """One proxy for all nodes: a broker has one address for everybody."""
        self.kafka()
        return self.proxies["kafka"]

    def mend(self):
        """Everything as it should be, whatever a run that was broken off has left behind."""
        for proxy in self.proxies.values():
            proxy.mend()
        for server in self.servers:
            if not server.process:
                server.start()

    def _start(self, server):
        server.start()
        self.servers.append(server)
        return server
