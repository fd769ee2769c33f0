"""An independent consumer: reads what is in a topic, in the broker's order."""

import time
from typing import NamedTuple, Optional

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition


class Record(NamedTuple):
    key: Optional[bytes]
    value: Optional[bytes]
    headers: list           # of (name, bytes or None), in the order on the wire
    partition: int
    offset: int
    timestamp: int          # milliseconds

    def header(self, name):
        """The value of the only header of that name."""
        found = [value for key, value in self.headers if key == name]
        assert len(found) == 1, f"{len(found)} headers {name} in {self.headers}"
        return found[0]


def read_topic(kafka, topic, timeout=30):
    """All records that are in the topic now, sorted by partition and offset."""
    consumer = Consumer({
        "bootstrap.servers": kafka.admin_bootstrap, "group.id": "e2e", "enable.auto.commit": False,
        "enable.partition.eof": True, "fetch.wait.max.ms": 50, "log_level": 2})
    try:
        partitions = consumer.list_topics(topic, timeout=timeout).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        return _read(consumer, set(partitions), time.monotonic() + timeout)
    finally:
        consumer.close()


def _read(consumer, unfinished, deadline):
    records = []
    while unfinished:
        assert time.monotonic() < deadline, f"partitions {unfinished} were not read to their end in time"
        for message in consumer.consume(10000, timeout=0.2):
            if message.error() is None:
                records.append(Record(message.key(), message.value(), message.headers() or [], message.partition(),
                                      message.offset(), message.timestamp()[1]))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            else:
                raise AssertionError(message.error())
    return sorted(records, key=lambda record: (record.partition, record.offset))


def wait_for_records(kafka, topic, count, timeout=20):
    """The records of the topic, as soon as there are at least `count` of them."""
    deadline = time.monotonic() + timeout
    while True:
        records = read_topic(kafka, topic)
        if len(records) >= count:
            return records
        assert time.monotonic() < deadline, f"{len(records)} of {count} records in {topic} after {timeout} s"
        time.sleep(0.05)
