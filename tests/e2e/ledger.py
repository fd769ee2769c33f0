"""An application that uses the outbox, and its ledger of what it committed.

Each transaction writes its business data (a row of `ledger`) and its outbox row together, so the ledger is right even
where a connection broke during COMMIT and the application never learnt how it ended.
"""

import json
import random
import threading
import time

import psycopg

from tests.e2e.checker import Arrival, Entry, Remains

SCHEMA = """
CREATE TABLE public.entity (id text PRIMARY KEY, seq bigint NOT NULL DEFAULT 0);
CREATE TABLE public.ledger (entity text NOT NULL, seq bigint NOT NULL, message_id uuid PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE public.poison (message_id uuid PRIMARY KEY);
"""
POISON = "x" * 600_000  # more than a topic for it takes, which is more than a batch of other rows has


def create(connection, entities):
    """Creates the application's tables and its entities; returns their names."""
    names = [f"order-{number}" for number in range(entities)]
    connection.execute(SCHEMA)
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO public.entity (id) VALUES (%s)", [(name,) for name in names])
    return names


def write_backlog(connection, rows):
    """That many rows for each entity in one transaction, those of an entity far apart."""
    with connection.transaction():
        connection.execute("UPDATE public.entity SET seq = %s", (rows,))
        connection.execute("""
            WITH events AS (
                INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)
                SELECT 'order', id, 'changed', json_build_object('seq', n)
                FROM generate_series(1, %s) AS n, public.entity ORDER BY n, id
                RETURNING entity_id, (payload->>'seq')::bigint, message_id)
            INSERT INTO public.ledger SELECT * FROM events""", (rows,))


def read(connection):
    """What has been committed so far, with the time just before each commit."""
    rows = connection.execute(
        "SELECT entity, seq, message_id::text, extract(epoch FROM at)::float8 FROM public.ledger").fetchall()
    return [Entry(*row) for row in rows]


def remains(connection, table="public.outbox"):
    """What the relays have left in the database."""
    rows = connection.execute(f"SELECT message_id::text FROM {table}").fetchall()
    held = connection.execute("SELECT entity FROM postrider.retry").fetchall()
    dead = connection.execute("SELECT message_id FROM postrider.dead_letter").fetchall()
    poison = connection.execute("SELECT message_id::text FROM public.poison").fetchall()
    return Remains(frozenset(row[0] for row in rows), tuple(row[0] for row in held), tuple(row[0] for row in dead),
                   frozenset(row[0] for row in poison))


def arrivals(records):
    """What a consumer read from a topic, as the checker wants it. The header `relay`, if it is there, is the claim."""
    return [
        Arrival(record.key.decode(), json.loads(record.value)["seq"], record.header("id").decode(), record.partition,
                record.timestamp / 1000, _claim(record))
        for record in records]


def _claim(record):
    return next((value.decode() for name, value in record.headers if name == "relay"), None)


def event_store(connection, table="postrider.event", ordered=True):
    """What arrived in an event store. Where order is kept, the version must be the number that the application gave."""
    rows = connection.execute(f"""
        SELECT entity_id, version, (payload->>'seq')::bigint, message_id, extract(epoch FROM stored_at)::float8,
            headers->>'relay'
        FROM {table} ORDER BY position""").fetchall()
    wrong = [row for row in rows if row[1] != row[2]]
    assert not (ordered and wrong), wrong[:5]
    return [Arrival(entity, seq, message_id, None, time, claim) for entity, _, seq, message_id, time, claim in rows]


def write_one(connection, entity, late=0.0, table="public.outbox"):
    """One serial transaction: the entity's own row is locked first, so ids follow commit order within the entity."""
    with connection.transaction():
        (seq,) = connection.execute(
            "UPDATE public.entity SET seq = seq + 1 WHERE id = %s RETURNING seq", (entity,)).fetchone()
        _insert(connection, entity, seq, table)
        if late:
            time.sleep(late)


def write_poison(connection, entity):
    """One serial transaction with a row that no sink takes, between two that are good."""
    with connection.transaction():
        (last,) = connection.execute(
            "UPDATE public.entity SET seq = seq + 3 WHERE id = %s RETURNING seq", (entity,)).fetchone()
        _insert(connection, entity, last - 2, "public.outbox")
        connection.execute("INSERT INTO public.poison VALUES (%s)",
                           (_insert(connection, entity, last - 1, "public.outbox", poison=POISON),))
        _insert(connection, entity, last, "public.outbox")


def write_one_freely(connection, entity, late=0.0, table="public.outbox"):
    """One transaction that locks nothing: it commits whenever it likes, in another order than the ids."""
    with connection.transaction():
        _insert(connection, entity, random.getrandbits(40), table)
        if late:
            time.sleep(late)


def write_burst(connection, entity, rows, table="public.outbox"):
    """One serial transaction with many rows of one entity."""
    with connection.transaction():
        (last,) = connection.execute(
            "UPDATE public.entity SET seq = seq + %s WHERE id = %s RETURNING seq", (rows, entity)).fetchone()
        connection.execute(f"""
            WITH events AS (
                INSERT INTO {table} (entity_type, entity_id, event_type, payload)
                SELECT 'order', %(entity)s, 'changed', json_build_object('seq', n)
                FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n ORDER BY n
                RETURNING entity_id, (payload->>'seq')::bigint, message_id)
            INSERT INTO public.ledger SELECT * FROM events""",
            {"entity": entity, "first": last - rows + 1, "last": last})


def _insert(connection, entity, seq, table, **more):
    (message_id,) = connection.execute(
        f"INSERT INTO {table} (entity_type, entity_id, event_type, payload) VALUES ('order', %s, 'changed', %s)"
        " RETURNING message_id", (entity, json.dumps({"seq": seq, **more}))).fetchone()
    connection.execute("INSERT INTO public.ledger VALUES (%s, %s, %s)", (entity, seq, message_id))
    return message_id


class Writers:
    """Threads that write until they are stopped.

    `pause` is the time between transactions of one thread, `late` the longest time that a transaction stays open after
    its insert, `patient` lets them reconnect when the server goes away. Errors of a thread come out at stop().
    """

    def __init__(self, dsn, entities, threads=4, pause=0.002, late=0.0, write=write_one, patient=False):
        self.dsn = dsn
        self.entities = entities
        self.pause = pause
        self.late = late
        self.write = write
        self.patient = patient
        self.errors = []
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(seed,), daemon=True) for seed in range(threads)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exception):
        self.stop()

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(30)
        if self.errors:
            raise self.errors[0]

    def _run(self, seed):
        randomness = random.Random(seed)
        while not self.stopping.is_set():
            try:
                with psycopg.connect(self.dsn, autocommit=True, connect_timeout=5) as connection:
                    self._write_all(connection, randomness)
            except psycopg.OperationalError as error:
                if not self.patient:
                    self.errors.append(error)
                    return
                self.stopping.wait(0.1)
            except Exception as error:
                self.errors.append(error)
                return

    def _write_all(self, connection, randomness):
        while not self.stopping.is_set():
            self.write(connection, randomness.choice(self.entities), randomness.uniform(0, self.late))
            self.stopping.wait(randomness.uniform(0, 2 * self.pause))
