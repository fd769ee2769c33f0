"""Where the conformance suite sends rows to: one file for each sink, and one line here."""

from .kafka import KafkaDestination
from .nats import NatsDestination
from .postgres import PostgresDestination
from .rabbitmq import RabbitMQDestination
from .redis import RedisDestination
from .stdout import StdoutDestination

DESTINATIONS = [
    KafkaDestination,
    NatsDestination,
    PostgresDestination,
    RabbitMQDestination,
    RedisDestination,
    StdoutDestination,
]
