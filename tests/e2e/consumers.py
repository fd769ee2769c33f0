"""The consumers in examples/consumers, as processes that a test starts, kills and questions."""

import contextlib
import re
import sys

from confluent_kafka import Consumer, TopicPartition

from tests.e2e.relay import ROOT, Relay, clean_environment, wait_until
from tests.e2e.scene import missing
from tests.servers import ServerMissing
from tests.servers.golang import fetch_example

EXAMPLES = ROOT / "examples" / "consumers"
NAME = "billing"
HANDLED = re.compile(r"(\d+) new messages, (\d+) seen before")


def go_command():
    try:
        return [fetch_example()]
    except ServerMissing as error:
        missing(f"the consumer in Go: {error}")


COMMANDS = {
    "python": lambda: [sys.executable, EXAMPLES / "python" / "consumer.py"],
    "go": go_command,
}


class ExampleConsumer(Relay):
    """One process of an example; it is started, stopped and killed as a relay is."""

    def __init__(self, folder, command, books, kafka, topic, id_header):
        Relay.count += 1
        self.name = f"consumer-{Relay.count}"
        self.log_file = folder / f"{self.name}.log"
        self.out_file = folder / f"{self.name}.out"
        self.command = [str(part) for part in command]
        self.environment = clean_environment({
            "BROKERS": kafka.bootstrap, "TOPIC": topic, "CONSUMER": NAME, "ID_HEADER": id_header,
            "DATABASE_URL": books.dsn})
        self.process = None

    def handled(self):
        """How many messages its log says were new, and how many it had seen before."""
        pairs = [(int(new), int(old)) for new, old in HANDLED.findall(self.log_text())]
        return sum(new for new, _ in pairs), sum(old for _, old in pairs)


class Books:
    """What the consumers have in their own database."""

    def __init__(self, database):
        self.database = database
        self.dsn = database.dsn
        database.execute((EXAMPLES / "inbox.sql").read_text())

    def remembered(self):
        return self.database.value("SELECT count(*) FROM inbox WHERE consumer = %s", (NAME,))

    def lines(self):
        """The work that was done: entity → the numbers of its events, in the order of the work."""
        done = {}
        rows = self.database.execute(
            "SELECT order_id, (convert_from(body, 'UTF8')::json ->> 'seq')::int FROM invoice_line ORDER BY line")
        for entity, seq in rows:
            done.setdefault(entity, []).append(seq)
        return done

    @contextlib.contextmanager
    def work_held_up(self):
        """Whoever writes a line waits, in the middle of his transaction, until the block ends."""
        with self.database.connect(autocommit=False) as holder:
            holder.execute("LOCK TABLE invoice_line IN SHARE MODE")
            yield

    def end_sessions(self):
        """Ends the sessions of consumers that were killed: one that waits does not notice that its client is gone."""
        self.database.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE NOT granted"
                              " AND relation = 'invoice_line'::regclass")

    def wait_until_somebody_is_held_up(self):
        wait_until(lambda: self.database.value(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'invoice_line'::regclass"),
            30, "a consumer in the middle of its transaction")


def wait_until_all_is_consumed(kafka, topic, timeout=60):
    """The group has committed the end of every partition."""
    reader = Consumer({"bootstrap.servers": kafka.admin_bootstrap, "group.id": NAME, "log_level": 2})
    try:
        places = [TopicPartition(topic, number)
                  for number in reader.list_topics(topic, timeout=30).topics[topic].partitions]
        ends = {place.partition: reader.get_watermark_offsets(place, timeout=30)[1] for place in places}

        def behind():
            return [place for place in reader.committed(places, timeout=30)
                    if max(place.offset, 0) < ends[place.partition]]

        wait_until(lambda: not behind(), timeout, "offsets committed to the end of the topic", pause=0.1)
    finally:
        reader.close()
