"""Queues in PostgreSQL. The consumer receives and acknowledges as any other would, so each message comes once; those that
came are remembered by the place."""

import json

from tests.e2e.relay import postrider, settings, write_config

from .base import Message, Missing, Refusal
from .pg_server import POISON, PgPlace, PgServer


class QueueDestination(PgServer):
    name = "queue"

    def __init__(self, folder):
        super().__init__(folder)
        self.install(self.database)

    def install(self, database):
        done = postrider("init", "-c", write_config(
            self.folder / "queues.yaml", settings(database.dsn, {"type": "queue"}, route={"topic": "none"})))
        assert done.returncode == 0, done.stderr

    def fresh(self):
        return QueuePlace(self)


class QueuePlace(PgPlace):
    count = 0

    def __init__(self, destination):
        super().__init__(destination)
        QueuePlace.count += 1
        self.queue = f"place-{QueuePlace.count}"
        self.route = {"topic": self.queue}
        self.messages = []

    def sink(self, port=None, **options):
        return {"type": "queue", "url": self.url(port), **options}

    def arrived(self):
        """All that can be received now. A round takes the first message of each key, so it takes several."""
        if self.database.value("SELECT EXISTS (SELECT FROM postrider.queue WHERE name = %s)", (self.queue,)):
            with self.database.connect() as connection:
                while self._round(connection):
                    pass
        return list(self.messages)

    def _round(self, connection):
        came = connection.execute(
            "SELECT receipt, key, payload, headers, message_id FROM postrider.receive(%s, 1000)", (self.queue,)).fetchall()
        done, = connection.execute("SELECT postrider.ack(%s, %s::text[])", (self.queue, [row[0] for row in came])).fetchone()
        assert all(done)
        self.messages += [Message(key.encode(), value, headers or {}, number) for _, key, value, headers, number in came]
        return came

    def refusing(self):
        self.database.execute(
            f"ALTER TABLE postrider.queue_message ADD CONSTRAINT taste_{QueuePlace.count}"
            f" CHECK (strpos(encode(payload, 'escape'), '{POISON}') = 0)")
        return Refusal(self.sink(), {"payload": json.dumps({POISON: "x" * 1000})})

    def missing(self):
        """A database that knows nothing of queues yet."""
        self.database = type(self.database)(self.destination.server, f"queues_later_{QueuePlace.count}")
        return Missing(self.sink(), self.route, "postrider.queue_message",
                       lambda: self.destination.install(self.database))
