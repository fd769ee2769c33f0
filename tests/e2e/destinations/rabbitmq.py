"""RabbitMQ: an exchange and a durable queue for each test, read by pika."""

import json

from tests.e2e.rabbit import Rabbit
from tests.servers import RabbitMQ

from .base import Destination, Message, Missing, Place, Refusal

LIMIT = 6_000_000       # bytes of a message, for the whole server
WRONG_NAME = "127.0.0.1"


class RabbitMQDestination(Destination):
    name = "rabbitmq"

    def __init__(self, folder):
        super().__init__(folder)
        self.server = RabbitMQ({"max_message_size": LIMIT}).start()
        self.rabbit = Rabbit(self.server)

    def fresh(self):
        return RabbitMQPlace(self)


class RabbitMQPlace(Place):
    count = 0

    def __init__(self, destination):
        RabbitMQPlace.count += 1
        self.destination = destination
        self.server = destination.server
        self.rabbit = destination.rabbit
        self.exchange = f"events-{RabbitMQPlace.count}"
        self.queue = f"queue-{RabbitMQPlace.count}"
        self.route = {"topic": "{entity_type}.{event_type}"}
        self.seen = []
        self.rabbit.declare(self.exchange, self.queue, "order.*")

    def sink(self, port=None, **options):
        return {
            "type": "rabbitmq", "hosts": f"127.0.0.1:{port or self.server.port}", "exchange": self.exchange,
            "user": self.server.username, "password_file": self.destination.secret("password", self.server.password),
            # A connection that is silent is noticed after two of these.
            "heartbeat": "1s", "connect_timeout": "2s", **options}

    def arrived(self):
        self.seen += [as_message(*delivery) for delivery in self.rabbit.take(self.queue)]
        return list(self.seen)

    def refusing(self):
        return Refusal(self.sink(), {"payload": json.dumps({"poison": "x" * (LIMIT + 1)})})

    def wrong_password(self, password):
        return self.sink(password_file=self.destination.secret("wrong-password", password))

    def missing(self):
        exchange = f"{self.exchange}-later"
        return Missing(self.sink(exchange=exchange), self.route, exchange,
                       lambda: self.rabbit.declare(exchange, self.queue, "order.*"))

    def tls(self):
        return self._secured("localhost")

    def tls_wrong_name(self):
        return self._secured(WRONG_NAME)

    def _secured(self, host):
        return self.sink(hosts=f"{host}:{self.server.tls_port}", tls="on", tls_ca_file=str(self.server.certificates.ca))


def as_message(properties, body):
    key = properties.headers.get("key")
    return Message(None if key is None else key.encode(), body, properties.headers, properties.message_id)
