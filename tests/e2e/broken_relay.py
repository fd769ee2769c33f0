"""Small relays that publish into a list: some that look right and are wrong, and one that is right.

They show that the checker sees what the product must never do, and why the product works as it does. All of them run in
the same setting: several workers, and a pause where a real relay waits for its broker. In that pause a worker may be
killed: it is abandoned with its connection, and another one begins anew.
"""

import itertools
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
FIELDS = "o.id, o.entity_id, o.payload, o.message_id::text"
ROWS = f"SELECT {FIELDS} FROM public.outbox o"


def lock_and_read_at_once(connection, publish):
    """WRONG: the rows are read with a snapshot from before the lock, so another worker may have published them."""
    rows = connection.execute(
        f"{CANDIDATES} {ROWS} WHERE o.entity_id IN (SELECT entity_id FROM locked) ORDER BY o.entity_id, o.id",
        (BATCH,)).fetchall()
    publish(rows)
    settle(connection, rows)


def lock_then_read(connection, publish):
    """Right: the second statement has a new snapshot, in which everything settled before the lock is gone."""
    rows = locked_rows(connection)
    publish(rows)
    settle(connection, rows)


def settle_first(connection, publish):
    """WRONG: what is deleted and not yet published is nowhere when the worker dies."""
    rows = locked_rows(connection)
    connection.execute("DELETE FROM public.outbox WHERE id = ANY(%s)", ([row[0] for row in rows],))
    publish(rows)
    connection.execute("SELECT pg_advisory_unlock_all()")


def lock_rows(connection, publish):
    """WRONG: workers share out rows, not entities, so two of them hold rows of one entity."""
    with connection.transaction():
        rows = connection.execute(f"{ROWS} ORDER BY o.id LIMIT {BATCH} FOR UPDATE SKIP LOCKED").fetchall()
        publish(rows)
        connection.execute("DELETE FROM public.outbox WHERE id = ANY(%s)", ([row[0] for row in rows],))


def follow_a_cursor(keep):
    """WRONG: a row gets its id when it is inserted and is seen when it is committed. The cursor may have passed then.

    With `keep` it deletes what it published, and such a row stays behind. Without, it deletes up to the cursor, and a
    row that commits in between is gone. One worker, as this design wants it.
    """
    last = 0

    def claim(connection, publish):
        nonlocal last
        rows = connection.execute(f"{ROWS} WHERE o.id > %s ORDER BY o.id LIMIT 100", (last,)).fetchall()
        publish(rows)
        last = rows[-1][0] if rows else last
        if keep:
            connection.execute("DELETE FROM public.outbox WHERE id = ANY(%s)", ([row[0] for row in rows],))
        else:
            connection.execute("DELETE FROM public.outbox WHERE id <= %s", (last,))

    return claim


def locked_rows(connection):
    entities = [row[0] for row in connection.execute(f"{CANDIDATES} SELECT entity_id FROM locked", (BATCH,))]
    return connection.execute(f"{ROWS} WHERE o.entity_id = ANY(%s) ORDER BY o.entity_id, o.id", (entities,)).fetchall()


def settle(connection, rows):
    connection.execute("DELETE FROM public.outbox WHERE id = ANY(%s)", ([row[0] for row in rows],))
    connection.execute("SELECT pg_advisory_unlock_all()")


class Killed(Exception):
    """The worker ends here, and nothing that it would have done afterwards is done."""


class ListRelay:
    """Workers that claim with one of the functions above and publish into `log`.

    `kills` is how likely it is that a worker dies in a pause, before or after the broker has taken its rows.
    """

    def __init__(self, dsn, claim, workers=6, pause=(0.001, 0.03), kills=0.0):
        self.dsn = dsn
        self.claim = claim
        self.pause = pause
        self.kills = kills
        self.log = []
        self.errors = []
        self.claims = itertools.count(1)
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
        while not self.stopping.is_set():
            try:
                with psycopg.connect(self.dsn, autocommit=True) as connection:
                    while not self.stopping.is_set():
                        self.claim(connection, self._publish)
            except Killed:
                pass
            except Exception as error:
                self.errors.append(error)
                return

    def _publish(self, rows):
        """The broker takes them in two parts: others may come between, as with any real one."""
        claim = str(next(self.claims))
        half = len(rows) // 2
        for part in (rows[:half], rows[half:]):
            self._wait_for_the_broker()
            self.log.extend(Arrival(entity, payload["seq"], message_id, time=time.time(), claim=claim)
                            for _, entity, payload, message_id in part)
        self._wait_for_the_broker()

    def _wait_for_the_broker(self):
        time.sleep(random.uniform(*self.pause) / 3)
        if not self.stopping.is_set() and random.random() < self.kills:
            raise Killed
