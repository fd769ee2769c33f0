"""A consumer of a queue: DATABASE_URL and QUEUE say which. Start as many of them as you like."""

import json
import os
import time

import psycopg

QUEUE = os.environ.get("QUEUE", "orders")
RECEIVE = "SELECT receipt, key, message_id, payload FROM postrider.receive(%s, 10)"


def handle(connection, key, message_id, order):
    """The work. It may write to the same database: that commits together with the acknowledgement."""
    connection.execute("INSERT INTO invoice (order_id, message_id, body) VALUES (%s, %s, %s)",
                       (key, message_id, json.dumps(order)))


def consume(connection, receipt, key, message_id, payload):
    try:
        with connection.transaction():
            if connection.execute("SELECT postrider.ack(%s, %s)", (QUEUE, receipt)).fetchone()[0]:
                handle(connection, key, message_id, json.loads(payload))
    except Exception as error:  # whatever it is, the message comes again in ten seconds, and a dead letter says why
        connection.execute("SELECT postrider.nack(%s, %s, '10 s', %s)", (QUEUE, receipt, str(error)))


def main():
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        while True:
            messages = connection.execute(RECEIVE, (QUEUE,)).fetchall()
            for message in messages:
                consume(connection, *message)
            if not messages:
                time.sleep(0.5)


if __name__ == "__main__":
    main()
