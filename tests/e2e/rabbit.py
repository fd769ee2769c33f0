"""RabbitMQ as its consumers see it, through pika."""

import contextlib

import pika


class Rabbit:
    """Declares, and takes messages from queues; a connection for each call, because tests stop the server."""

    def __init__(self, server):
        self.server = server

    @contextlib.contextmanager
    def channel(self):
        login = pika.PlainCredentials(self.server.username, self.server.password)
        connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self.server.port, credentials=login))
        try:
            yield connection.channel()
        finally:
            connection.close()

    def declare(self, exchange, queue, pattern, **arguments):
        """A topic exchange and a durable queue bound to it; `arguments` are the queue's."""
        with self.channel() as channel:
            channel.exchange_declare(exchange, "topic", durable=True)
            channel.queue_declare(queue, durable=True, arguments={name.replace("_", "-"): value for name, value in arguments.items()})
            channel.queue_bind(queue, exchange, pattern)

    def take(self, queue):
        """What is in the queue, in order, and now no longer is: (properties, body) of each."""
        taken = []
        with self.channel() as channel:
            for method, properties, body in channel.consume(queue, auto_ack=False, inactivity_timeout=0.3):
                if method is None:
                    break
                taken.append((properties, body))
            if taken:
                channel.basic_ack(0, multiple=True)
            channel.cancel()
        return taken
