"""A consumer of a queue, as a process of its own that tests may kill: python -m tests.e2e.queue_consumer DSN QUEUE [moody]

Processing a message is a row in public.processed. While it lasts the consumer holds an advisory lock on the key: who does
not get it was handed a key that another consumer is at work on, and says so in public.intruder. A moody one processes and
acknowledges in one transaction, which it keeps open for a while. Now and then it rolls that back, and gives the message
back.
"""

import random
import sys
import time

import psycopg

TABLES = """
CREATE TABLE public.processed (n bigint GENERATED ALWAYS AS IDENTITY, key text, message_id text, payload bytea,
    consumer integer DEFAULT pg_backend_pid());
CREATE TABLE public.intruder (key text, message_id text);
"""
PROCESS = """
WITH try AS MATERIALIZED (SELECT pg_try_advisory_lock(hashtextextended(%(key)s, 1)) AS alone),
    intruder AS (INSERT INTO public.intruder SELECT %(key)s, %(id)s FROM try WHERE NOT alone),
    work AS (INSERT INTO public.processed (key, message_id, payload) VALUES (%(key)s, %(id)s, %(payload)s))
SELECT alone FROM try
"""
# The lock goes before the acknowledgement is to be seen: from then on the key may be somebody else's.
FINISH = """
SELECT CASE WHEN %(alone)s THEN pg_advisory_unlock(hashtextextended(%(key)s, 1)) END,
    postrider.ack(%(queue)s, %(receipt)s)
"""


def work(connection, queue, message):
    names = dict(zip(("receipt", "key", "id", "payload"), message), queue=queue)
    names["alone"], = connection.execute(PROCESS, names).fetchone()
    connection.execute(FINISH, names)


def work_moodily(connection, queue, message):
    names = dict(zip(("receipt", "key", "id", "payload"), message), queue=queue)
    fails = random.random() < 0.2
    with connection.transaction(force_rollback=fails):
        names["alone"], = connection.execute(PROCESS, names).fetchone()
        connection.execute("SELECT postrider.ack(%(queue)s, %(receipt)s)", names)
        time.sleep(random.random() / 50)
        connection.execute("SELECT pg_advisory_unlock(hashtextextended(%(key)s, 1)) WHERE %(alone)s", names)
    if fails:
        connection.execute("SELECT postrider.nack(%(queue)s, %(receipt)s)", names)


def main(dsn, queue, mood=None):
    # There may be a pooler, which does not know what the last session has prepared.
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        while True:
            messages = connection.execute("SELECT receipt, key, message_id, payload FROM postrider.receive(%s, %s)",
                                          (queue, random.randint(1, 20))).fetchall()
            for message in messages:
                (work_moodily if mood == "moody" else work)(connection, queue, message)
            if not messages:
                time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
