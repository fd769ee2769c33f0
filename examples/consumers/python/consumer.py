"""A consumer that does its work once for each message, although messages arrive at least once.

../../../docs/consumers.md explains it; ../inbox.sql has its tables. Any error ends it: whoever restarts it, systemd or
Kubernetes, is its loop of retries, and what it had not finished comes again.
"""

import logging
import os
import signal

import psycopg
from confluent_kafka import Consumer, KafkaException

BROKERS = os.environ.get("BROKERS", "127.0.0.1:9092")
TOPIC = os.environ.get("TOPIC", "outbox.event.order")
NAME = os.environ.get("CONSUMER", "billing")        # Kafka's consumer group, and our name in the inbox
ID_HEADER = os.environ.get("ID_HEADER", "id")       # ce_id for CloudEvents
DATABASE_URL = os.environ.get("DATABASE_URL", "")   # without it, what libpq finds in PGHOST, PGDATABASE, …
BATCH = 100                                         # messages in one transaction, at most

log = logging.getLogger(NAME)


# quote: once
def handle_batch(connection, messages):
    """All in one transaction; returns how many of them were new."""
    with connection.transaction():
        return sum(handle_once(connection, message) for message in messages)


def handle_once(connection, message):
    """Remembers the message and does its work, or neither when it was here before; then it returns False."""
    remembered = connection.execute(
        "INSERT INTO inbox (consumer, message_id) VALUES (%s, %s) ON CONFLICT DO NOTHING", (NAME, id_of(message)))
    if remembered.rowcount == 0:
        return False
    work(connection, message)
    return True


def work(connection, message):
    """Yours. It uses the same connection and does not commit."""
    connection.execute(
        "INSERT INTO invoice_line (order_id, body) VALUES (%s, %s)", (message.key().decode(), message.value()))
# end quote


def id_of(message):
    for name, value in message.headers() or []:
        if name == ID_HEADER and value:
            return value.decode()
    raise ValueError(f"{message.topic()} partition {message.partition()} offset {message.offset()} has no header"
                     f" {ID_HEADER}: does something else write to this topic, or is ID_HEADER wrong?")


# quote: loop
def consume(consumer, connection, stopping):
    while not stopping:
        messages = next_batch(consumer)
        if messages:
            new = handle_batch(connection, messages)
            commit_offsets(consumer)
            log.info("%d new messages, %d seen before", new, len(messages) - new)


def commit_offsets(consumer):
    """After the transaction, never before it: a crash between the two must cost a repeat and not a message."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        log.warning("could not commit offsets, so these messages come again: %s", error)
# end quote


def next_batch(consumer):
    """Waits for one message; takes with it what has been fetched already."""
    messages = []
    while len(messages) < BATCH:
        message = consumer.poll(0 if messages else 1.0)
        if message is None:
            break
        if message.error():
            raise KafkaException(message.error())
        messages.append(message)
    return messages


# quote: settings
def new_consumer():
    consumer = Consumer({
        "bootstrap.servers": BROKERS,
        "group.id": NAME,
        "enable.auto.commit": False,        # offsets follow our transactions, not a clock
        "auto.offset.reset": "earliest",    # a group without an offset must not skip what is there
        "session.timeout.ms": 6000,         # a killed consumer's partitions go to another after so long
    })
    consumer.subscribe([TOPIC])
    return consumer
# end quote


def stop_flag():
    """A list that has something in it once we are asked to stop."""
    stopping = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda signum, frame: stopping.append(signum))
    return stopping


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    stopping = stop_flag()
    with psycopg.connect(DATABASE_URL, autocommit=True) as connection:
        consumer = new_consumer()
        try:
            consume(consumer, connection, stopping)
        finally:
            consumer.close()


if __name__ == "__main__":
    main()
