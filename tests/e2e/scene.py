"""What a test plays on: servers, a fresh database, a fresh topic."""

import itertools
import os

import psycopg
import pytest

from tests.e2e import ledger
from tests.e2e.relay import postrider, settings, wait_until, write_config
from tests.servers import ServerMissing, servers_required

_numbers = itertools.count(1)


def missing(reason):
    """Where servers are required a missing one is a failure; elsewhere its tests are left out."""
    if servers_required():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def started(server):
    try:
        return server.start()
    except ServerMissing as error:
        missing(f"{server.name}: {error}")


class Database:
    """A fresh database on one of the servers."""

    def __init__(self, server, name):
        self.server = server
        self.name = name
        self.dsn = server.createdb(name)

    def connect(self, **options):
        return self.server.connect(self.name, **options)

    def execute(self, sql, parameters=None):
        """Runs one statement in its own connection; returns the rows, if it has any."""
        with self.connect() as connection:
            cursor = connection.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else None

    def value(self, sql, parameters=None):
        return self.execute(sql, parameters)[0][0]

    def insert(self, entity, payload='{"a": 1}', table="public.outbox", **columns):
        """One row of the recommended table; returns its id."""
        row = {"entity_type": "order", "entity_id": entity, "event_type": "changed", "payload": payload, **columns}
        names, marks = ", ".join(row), ", ".join(["%s"] * len(row))
        return self.value(f"INSERT INTO {table} ({names}) VALUES ({marks}) RETURNING id", list(row.values()))

    def pending(self, table="public.outbox"):
        return self.value(f"SELECT count(*) FROM {table}")

    def wait_until_empty(self, timeout=30, table="public.outbox"):
        """Waits until the relay has settled everything: a row goes only after the sink's acknowledgement."""
        with self.connect() as connection:
            wait_until(lambda: connection.execute(f"SELECT NOT EXISTS (SELECT FROM {table})").fetchone()[0],
                       timeout, f"an empty {table}")

    def entities(self, count):
        """Creates the application that writes to the outbox; returns its entities."""
        with self.connect() as connection:
            return ledger.create(connection, count)

    def write_backlog(self, rows):
        with self.connect() as connection:
            ledger.write_backlog(connection, rows)

    def ledger(self):
        with self.connect() as connection:
            return ledger.read(connection)

    def event_store(self, table="postrider.event"):
        with self.connect() as connection:
            return ledger.event_store(connection, table)


def new_database(server):
    return Database(server, f"test_{next(_numbers)}_{os.getpid()}")


# A reader that was killed keeps its slot in use until its sender has noticed, and with it the database.
END_READERS = ("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
               " WHERE database = %s AND active_pid IS NOT NULL")


def dropped(database):
    """Removes the database with its slots, so that a long session does not fill the disk."""
    try:
        with database.server.connect() as connection:
            wait_until(lambda: not connection.execute(END_READERS, (database.name,)).fetchall(), what="idle slots")
            connection.execute(f'DROP DATABASE IF EXISTS "{database.name}" WITH (FORCE)')
    except psycopg.OperationalError:
        pass    # the test has stopped the server


def initialised(database, folder):
    done = postrider("init", "-c", write_config(folder / "init.yaml", settings(database.dsn, {"type": "stdout"})))
    assert done.returncode == 0, done.stderr
    return database


def new_topic(server, **options):
    return server.create_topic(f"test-{next(_numbers)}-{os.getpid()}", **options)
