"""Real servers on loopback for tests, demo and benchmarks.

    from tests.servers import Postgres, Kafka, PgBouncer, Toxiproxy

    with Postgres(version=18) as pg, Kafka() as kafka:
        ...

Each server lives in its own temporary folder on a free port and is gone, with its folder, when the block ends.
"""

from .common import ServerError, ServerMissing, servers_required, exit_on_signals
from .elasticmq import ElasticMQ
from .kafka import Kafka
from .nats import Nats
from .pgbouncer import PgBouncer
from .postgres import Postgres
from .prometheus import Prometheus
from .rabbitmq import RabbitMQ
from .redis import Redis
from .toxiproxy import Door, Toxiproxy
from .webhook import Webhook

__all__ = ["Door", "ElasticMQ", "Kafka", "Nats", "PgBouncer", "Postgres", "Prometheus", "RabbitMQ", "Redis", "ServerError",
           "ServerMissing", "Toxiproxy", "Webhook", "exit_on_signals", "servers_required"]
