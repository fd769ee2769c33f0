"""Kafka: a topic for each test. One broker has all listeners: plain, behind a proxy, and TLS with SCRAM."""

import json

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.e2e.consume import read_topic
from tests.e2e.scene import new_topic
from tests.servers import Kafka
from tests.servers.common import free_port
from tests.servers.kafka import QUICK_TO_START

from .base import Destination, Message, Missing, Place, Refusal

ROOMY = 8_000_000       # bytes of a message; the default of broker and client is 1 MB
NARROW = 20_000
WRONG_NAME = "127.1"    # leads to 127.0.0.1, and is neither an address nor a name in the certificate


class KafkaDestination(Destination):
    name = "kafka"
    holds_back_when_refused = False

    def __init__(self, folder):
        super().__init__(folder)
        self.server = Kafka("sasl_ssl", proxy_port=free_port(), java_options=QUICK_TO_START).start()

    def proxy(self, toxiproxy):
        return toxiproxy.proxy(self.name, self.server.proxied_port, self.server.proxy_port)

    def fresh(self):
        return KafkaPlace(self, new_topic(self.server, config={"max.message.bytes": str(ROOMY)}))


class KafkaPlace(Place):

    def __init__(self, destination, topic):
        self.destination = destination
        self.server = destination.server
        self.topic = topic
        self.route = {"topic": topic}

    def sink(self, port=None, **options):
        brokers = f"127.0.0.1:{port}" if port else self.server.admin_bootstrap
        return {"type": "kafka", "brokers": brokers, "properties": {"message.max.bytes": str(ROOMY)}, **options}

    def arrived(self):
        return [as_message(record) for record in read_topic(self.server, self.topic)]

    def refusing(self):
        change = ConfigEntry("max.message.bytes", str(NARROW), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic, incremental_configs=[change])
        admin = AdminClient({"bootstrap.servers": self.server.admin_bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(10)
        return Refusal(self.sink(), {"payload": json.dumps({"poison": "x" * 2 * NARROW})})

    def wrong_password(self, password):
        return self._secured(sasl_password_file=self.destination.secret("wrong-password", password))

    def missing(self):
        topic = f"{self.topic}-later"

        def create():
            self.topic = self.server.create_topic(topic)

        return Missing(self.sink(), {"topic": topic}, topic, create)

    def tls(self):
        return self._secured()

    def tls_wrong_name(self):
        return self._secured(brokers=f"{WRONG_NAME}:{self.server.port}")

    def _secured(self, **replaced):
        return {
            "type": "kafka", "brokers": self.server.bootstrap, "tls": "on", "tls_ca_file": str(self.server.ca_file),
            "sasl_mechanism": "SCRAM-SHA-512", "sasl_username": self.server.username,
            "sasl_password_file": self.destination.secret("password", self.server.password), **replaced}


def as_message(record):
    headers = {name: value.decode() for name, value in record.headers}
    return Message(record.key, record.value, headers, headers["id"])
