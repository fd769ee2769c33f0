"""Apache Kafka: one node that is broker and controller at once (KRaft), from Maven."""

import shutil
import subprocess
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from .certificates import make_certificates
from .common import Server, ServerError, ServerMissing, free_port, maven_jars

POM = Path(__file__).with_name("kafka-pom.xml")
CLUSTER_ID = "postriderTestsCluster0"
QUICK_TO_START = ("-XX:TieredStopAtLevel=1",)   # for java_options of a broker that is started often
LOG_CONFIG = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = OUT
appender.out.type = Console
appender.out.name = OUT
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n%throwable
"""


class Kafka(Server):
    """A Kafka broker; topics are not created by themselves (see create_topic).

    `listener` is "plain", or "sasl_ssl" for TLS with SCRAM: then `username`, `password` and `ca_file` are what a client
    needs, and `other_ca_file` is a CA that did not sign the certificate. `bootstrap` is the address of that listener.
    `admin_bootstrap` is plaintext without authentication in both cases. `settings` go into server.properties.
    `proxy_port` is where a proxy will listen that leads to `proxied_port`: clients that come that way are sent back to
    it, and stay behind the proxy. `java_options` go to the virtual machine.
    """

    name = "Kafka"
    ready_within = 60

    def __init__(self, listener="plain", settings=None, heap="512m", proxy_port=None, java_options=()):
        super().__init__()
        if listener not in ("plain", "sasl_ssl"):
            raise ValueError(f"listener is plain or sasl_ssl, not {listener}")
        self.listener = listener
        self.settings = settings or {}
        self.heap = heap
        self.java_options = java_options
        self.proxy_port = proxy_port
        self.proxied_port = None
        self.username = "relay" if listener == "sasl_ssl" else None
        self.password = "relay-secret" if listener == "sasl_ssl" else None
        self.ca_file = self.other_ca_file = None

    def prepare(self):
        if not shutil.which("java"):
            raise ServerMissing("java is not installed (Debian package default-jre-headless)")
        self.jars = fetch()
        self.port = self.admin_port = free_port()
        self.controller_port = free_port()
        self.proxied_port = free_port() if self.proxy_port else None
        if self.listener == "sasl_ssl":
            self.port = free_port()
            self._make_certificates()
        self.properties = self.workdir / "server.properties"
        (self.workdir / "log4j2.properties").write_text(LOG_CONFIG)
        self._write_properties()
        self._format()

    def command(self):
        self._write_properties()
        return self._java("kafka.Kafka", self.properties, options=[f"-Xmx{self.heap}", f"-Xms{self.heap}", *self.java_options])

    def is_ready(self):
        # The log is new at each start: see _spawn.
        return "Kafka Server started" in self.log_text()

    @property
    def bootstrap(self):
        return f"127.0.0.1:{self.port}"

    @property
    def admin_bootstrap(self):
        return f"127.0.0.1:{self.admin_port}"

    def client_config(self):
        """The librdkafka properties with which a client reaches `bootstrap`."""
        config = {"bootstrap.servers": self.bootstrap}
        if self.listener == "sasl_ssl":
            config |= {
                "security.protocol": "SASL_SSL", "sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": self.username,
                "sasl.password": self.password, "ssl.ca.location": str(self.ca_file)}
        return config

    def create_topic(self, name, partitions=6, config=None):
        """Creates a topic and returns its name when each partition has a leader."""
        admin = AdminClient({"bootstrap.servers": self.admin_bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result(30)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            known = admin.list_topics(name, timeout=10).topics[name].partitions.values()
            if len(known) == partitions and all(partition.leader >= 0 for partition in known):
                return name
            time.sleep(0.02)
        raise ServerError(f"topic {name} got no leaders\n{self._log_tail()}")

    def _spawn(self):
        if self.log_file.exists():
            self.log_file.rename(self.workdir / "log.previous")
        super()._spawn()

    def _write_properties(self):
        listeners = {"ADMIN": ("PLAINTEXT", self.admin_port), "CONTROLLER": ("PLAINTEXT", self.controller_port)}
        if self.listener == "sasl_ssl":
            listeners["CLIENT"] = ("SASL_SSL", self.port)
        if self.proxy_port:
            listeners["PROXIED"] = ("PLAINTEXT", self.proxied_port)
        addresses = {name: f"{name}://127.0.0.1:{port}" for name, (_, port) in listeners.items()}
        advertised = {name: text for name, text in addresses.items() if name != "CONTROLLER"}
        if self.proxy_port:
            advertised["PROXIED"] = f"PROXIED://127.0.0.1:{self.proxy_port}"
        properties = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "ADMIN",
            "listeners": ",".join(addresses.values()),
            "advertised.listeners": ",".join(advertised.values()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, (kind, _) in listeners.items()),
            "log.dirs": self.workdir / "data",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            # After a kill the broker may come back only when the session of its former self is over.
            "broker.session.timeout.ms": 4000,
            "broker.heartbeat.interval.ms": 1000,
        }
        if self.listener == "sasl_ssl":
            properties |= {
                "listener.name.client.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
                "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
                "listener.name.client.ssl.keystore.type": "PEM",
                "listener.name.client.ssl.keystore.location": self.workdir / "server.pem",
            }
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                properties[f"listener.name.client.{mechanism}.sasl.jaas.config"] = (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;")
        properties |= self.settings
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    def _format(self):
        command = self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self.properties,
                             options=["-Xmx128m", "-XX:TieredStopAtLevel=1"])
        if self.listener == "sasl_ssl":
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                command += ["--add-scram", f"{mechanism}=[name={self.username},password={self.password}]"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=self.workdir)
        if done.returncode != 0:
            raise ServerError(f"formatting Kafka's storage failed:\n{(done.stdout + done.stderr)[-2000:]}")

    def _java(self, main_class, *arguments, options=()):
        return [
            "java", *options, "-XX:+UseSerialGC", "-Xshare:auto", "-Djava.net.preferIPv4Stack=true",
            f"-Dlog4j2.configurationFile={self.workdir / 'log4j2.properties'}",
            "-cp", f"{self.jars}/*", main_class, *arguments]

    def _make_certificates(self):
        made = make_certificates(self.workdir)
        (self.workdir / "server.pem").write_text(made.key.read_text() + made.certificate.read_text())
        self.ca_file, self.other_ca_file = made.ca, made.other_ca


def fetch():
    """The folder with Kafka's jars in the cache, downloaded when they are not there yet."""
    return maven_jars(POM)
