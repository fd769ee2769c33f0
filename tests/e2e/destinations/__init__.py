"""Where the conformance suite sends rows to: one file for each sink, and one line here."""

from tests.e2e.scene import missing
from tests.servers import ServerMissing

from .kafka import KafkaDestination
from .nats import NatsDestination
from .postgres import PostgresDestination
from .queue import QueueDestination
from .rabbitmq import RabbitMQDestination
from .redis import RedisDestination
from .sqs import SqsDestination, SqsFifoDestination
from .stdout import StdoutDestination
from .webhook import WebhookDestination

DESTINATIONS = [
    KafkaDestination,
    NatsDestination,
    PostgresDestination,
    QueueDestination,
    RabbitMQDestination,
    RedisDestination,
    SqsDestination,
    SqsFifoDestination,
    StdoutDestination,
    WebhookDestination,
]


def opened(kind, folder):
    """A destination of this kind with its server started, or the reason why the test is left out."""
    try:
        return kind(folder)
    except ServerMissing as error:
        missing(f"{kind.name}: {error}")
