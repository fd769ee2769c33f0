"""An event store."""

import json

from .base import Message, Missing, Refusal
from .pg_server import POISON, PgPlace, PgServer

STORE = """
CREATE TABLE {table} (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    entity_type text NOT NULL, entity_id text NOT NULL, version bigint NOT NULL, event_type text,
    message_id text NOT NULL UNIQUE, payload bytea, headers jsonb, created_at timestamptz,
    UNIQUE (entity_type, entity_id, version))
"""


class PostgresDestination(PgServer):
    name = "postgres"

    def fresh(self):
        return PostgresPlace(self)


class PostgresPlace(PgPlace):
    count = 0

    def __init__(self, destination):
        super().__init__(destination)
        PostgresPlace.count += 1
        self.table = f"public.store_{PostgresPlace.count}"
        self.database.execute(STORE.format(table=self.table))

    def sink(self, port=None, **options):
        return {"type": "postgres", "url": self.url(port), "table": self.table, **options}

    def arrived(self):
        rows = self.database.execute(
            f"SELECT entity_id, payload, headers, message_id FROM {self.table} ORDER BY position")
        return [Message(key.encode(), value, headers or {}, number) for key, value, headers, number in rows]

    def refusing(self):
        self.database.execute(
            f"ALTER TABLE {self.table} ADD CONSTRAINT taste CHECK (strpos(encode(payload, 'escape'), '{POISON}') = 0)")
        return Refusal(self.sink(), {"payload": json.dumps({POISON: "x" * 1000})})

    def missing(self):
        name = f"{self.table}_later"

        def create():
            self.table = name
            self.database.execute(STORE.format(table=name))

        return Missing(self.sink(table=name), {}, name, create)
