"""Small relays that publish into a list: claims that look right and are wrong, and one that is right.

They show that the checker sees what the product must never do, and why the product claims as it does. All of them
run in the same setting: several workers, and a pause where a real relay waits for its broker.
"""

import random
import threading
import time

import psycopg

from tests.e2e.checker import Arrival

BATCH = 5
CANDIDATES = """
    WITH entities AS MATERIALIZED (SELECT DISTINCT entity_id FROM public.outbox),
    candidates AS MATERIALIZED (SELECT entity_id FROM entities ORDER BY random()),
    locked AS MATERIALIZED (
        SELECT entity_id FROM candidates WHERE pg_try_advisory_lock(hashtextextended(entity_id, 0)) LIMIT %s)
"""
ROWS = "SELECT o.id, o.entity_id, o.payload, o.message_id::text FROM public.outbox o"


def lock_and_read_at_once(connection, publish):
    """WRONG: the rows are read with a snapshot from before the lock, so another worker may have published them."""
    rows = connection.execute(
        f"{CANDIDATES} {ROWS} WHERE o.entity_id IN (SELECT entity_id FROM locked) ORDER BY o.entity_id, o.id",
        (BATCH,)).fetchall()
    publish(rows)
    settle(connection, rows)


def lock_then_read(connection, publish):
    """Right: the second statement has a new snapshot, in which everything settled before the lock is gone."""
    entities = [row[0] for row in connection.execute(f"{CANDIDATES} SELECT entity_id FROM locked", (BATCH,))]
    rows = connection.execute(f"{ROWS} WHERE o.entity_id = ANY(%s) ORDER BY o.entity_id, o.id", (entities,)).fetchall()
    publish(rows)
    settle(connection, rows)


def settle(connection, rows):
    connection.execute("DELETE FROM public.outbox WHERE id = ANY(%s)", ([row[0] for row in rows],))
    connection.execute("SELECT pg_advisory_unlock_all()")


def lock_rows(connection, publish):
    """WRONG: workers share out rows, not entities, so two of them hold rows of one entity."""
    with connection.transaction():
        rows = connection.execute(f"{ROWS} ORDER BY o.id LIMIT {BATCH} FOR UPDATE SKIP LOCKED").fetchall()
        publish(rows)
        connection.execute("DELETE FROM public.outbox WHERE id = ANY(%s)", ([row[0] for row in rows],))


class ListRelay:
    """Workers that claim with one of the functions above and publish into `log`."""

    def __init__(self, dsn, claim, workers=6, pause=(0.001, 0.03)):
        self.dsn = dsn
        self.claim = claim
        self.pause = pause
        self.log = []
        self.errors = []
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(workers)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exception):
        self.stopping.set()
        for thread in self.threads:
            thread.join(30)
        if self.errors:
            raise self.errors[0]

    def _run(self):
        try:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                while not self.stopping.is_set():
                    self.claim(connection, self._publish)
        except Exception as error:
            self.errors.append(error)

    def _publish(self, rows):
        time.sleep(random.uniform(*self.pause))
        self.log.extend(Arrival(entity, payload["seq"], message_id) for _, entity, payload, message_id in rows)
