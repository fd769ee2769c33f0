"""The place where everything is measured: one PostgreSQL, one Kafka, one outbox table, and who is on trial."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import tempfile
import time
from collections import deque
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.servers import Kafka, Postgres

PARTITIONS = 6
TICKS = os.sysconf("SC_CLK_TCK")

# Autovacuum would hit some runs and not others; every run begins with a VACUUM instead.
POSTGRES_SETTINGS = {"shared_buffers": "256MB", "max_wal_size": "4GB", "autovacuum": "off"}

# What each reader has in the settings of its outbox. Everything else is the default.
READERS = {
    "advisory": {"reader": "advisory"},
    "lease": {"reader": "lease"},
    "skip_locked": {"reader": "skip_locked"},
    "skip_locked-entity": {"reader": "skip_locked", "order": "entity"},
    "shards": {"reader": "shards"},
    "dispatcher": {"reader": "dispatcher"},
}

FILL = """\
INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)
SELECT %(entity_type)s, 'order-' || n %% %(entities)s, 'order.placed',
       (rpad('{"n":' || n || ',"text":"', %(payload)s - 2, 'x') || '"}')::json
FROM generate_series(0, %(rows)s - 1) AS n"""

# The write-ahead log knows when the last row was deleted, to the microsecond, and asking it afterwards disturbs nobody.
LAST_DELETE = """\
WITH log AS MATERIALIZED (
    SELECT xid, resource_manager, record_type, description, block_ref
    FROM pg_get_wal_records_info(%(since)s, pg_current_wal_flush_lsn()))
SELECT extract(epoch FROM max(split_part(description, ';', 1)::timestamptz))::float8
FROM log
WHERE resource_manager = 'Transaction' AND record_type = 'COMMIT' AND xid IN (
    SELECT xid FROM log
    WHERE resource_manager = 'Heap' AND record_type LIKE 'DELETE%%'
      AND block_ref LIKE '%%/' || pg_relation_filenode('public.outbox') || ' %%')"""


# What `postrider init` makes for readers that divide the table: an index on an expression, and a note of it.
DIVISIONS = """\
SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'public.outbox'::regclass AND indexprs IS NOT NULL"""
UNDIVIDE = "TRUNCATE postrider.sharding, postrider.shard, postrider.shard_member"


class BenchError(RuntimeError):
    """A measurement that makes no sense: a participant failed, or lost or repeated rows."""


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def write_settings(file, database, sink, node="bench", outbox=None):
    """A settings file for one node. JSON is YAML."""
    file.write_text(json.dumps({
        "node": node,
        "database": {"url": database},
        "outboxes": {"orders": {"table": "public.outbox", "sinks": [sink], **(outbox or {})}},
    }))
    return file


def init(postrider, settings):
    done = subprocess.run([postrider, "init", "-c", settings], capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"postrider init ended with status {done.returncode}\n{done.stdout}{done.stderr}")


class Participant:
    """A running relay. Leaving the block ends it."""

    def __init__(self, name, command, log):
        self.name = name
        self.log = log
        self.started = time.time()
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL))  # PR_SET_PDEATHSIG

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def pid(self):
        return self.process.pid

    def check(self):
        if self.process.poll() is not None:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise BenchError(f"{self.name} ended with status {self.process.returncode}\n{tail}")

    def cpu_seconds(self):
        self.check()
        return cpu_seconds(self.pid)

    def peak_rss_mb(self):
        self.check()
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise BenchError("/proc has no VmHWM")


class Team:
    """Several relays that share the work, as one participant. Leaving the block ends them all."""

    def __init__(self, members):
        self.members = members
        self.name = members[0].name
        self.started = members[0].started

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        with contextlib.ExitStack() as stack:
            for member in self.members:
                stack.push(member)

    def check(self):
        for member in self.members:
            member.check()

    def cpu_seconds(self):
        return sum(member.cpu_seconds() for member in self.members)

    def peak_rss_mb(self):
        return sum(member.peak_rss_mb() for member in self.members)


class Lab(contextlib.ExitStack):
    """Servers and table; use as a context manager. `observer` is our own connection to the database."""

    def __init__(self, postrider, peers):
        super().__init__()
        self.postrider = postrider
        self.peers = peers
        self.topics = 0

    def __enter__(self):
        super().__enter__()
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def _start(self):
        self.folder = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="postrider-bench-")))
        self.pg = self.enter_context(Postgres(settings=POSTGRES_SETTINGS))
        self.kafka = self.enter_context(Kafka())
        self.database = self.pg.createdb("bench")
        self.observer = self.enter_context(self.pg.connect("bench"))
        self.observer.execute("SET timezone = 'UTC'")
        self.observer.execute("CREATE EXTENSION pg_walinspect")
        self.admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        self.config = self.settings("bench")
        init(self.postrider, self.config)

    def settings(self, node, outbox=None):
        sink = {"type": "kafka", "brokers": self.kafka.bootstrap}
        return write_settings(self.folder / f"{node}.yaml", self.database, sink, node, outbox)

    # ---- Table and topic

    @contextlib.contextmanager
    def topic(self):
        """A new entity type and its topic, by the default route. Gone after the block."""
        self.topics += 1
        entity_type = f"order{self.topics}"
        name = self.kafka.create_topic(
            f"outbox.event.{entity_type}", PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
        try:
            yield entity_type, name
        finally:
            for future in self.admin.delete_topics([name]).values():
                future.result(30)

    def empty(self):
        self.observer.execute("TRUNCATE public.outbox RESTART IDENTITY")

    def fill(self, entity_type, rows, entities, payload):
        """Rows of different entities, interleaved, in an otherwise empty table that is as tidy as it gets."""
        self.empty()
        self.insert(entity_type, rows, entities, payload)
        self.observer.execute("VACUUM ANALYZE public.outbox")
        self.observer.execute("CHECKPOINT")

    def insert(self, entity_type, rows, entities, payload):
        values = {"entity_type": entity_type, "rows": rows, "entities": entities, "payload": payload}
        self.observer.execute(FILL, values)

    def is_empty(self):
        return not self.observer.execute("SELECT EXISTS (SELECT FROM public.outbox)").fetchone()[0]

    # ---- Participants

    def run_postrider(self, settings=None, name="postrider"):
        settings = settings or self.config
        return Participant(name, [self.postrider, "run", "-c", settings], settings.with_suffix(".log"))

    @contextlib.contextmanager
    def reader(self, name, nodes=1):
        """The table as this reader needs it. Gives a function that starts so many nodes. Afterwards it is as it was, so that
        nobody else pays for an index that only this one uses."""
        files = [self.settings(f"bench-{number}", READERS[name]) for number in range(nodes)]
        self.empty()
        init(self.postrider, files[0])
        try:
            yield lambda: Team([self.run_postrider(file, f"postrider with {name}") for file in files])
        finally:
            for index, in self.observer.execute(DIVISIONS).fetchall():
                self.observer.execute(f"DROP INDEX {index}")
            self.observer.execute(UNDIVIDE)

    def run_peer(self, program, topic, *arguments):
        command = [self.peers / program, "--database", self.database, "--brokers", self.kafka.bootstrap, "--topic", topic]
        return Participant(program, [*command, *arguments], self.folder / f"{program}.log")

    # ---- Observing

    def _offsets(self, topic, spec):
        asked = {TopicPartition(topic, partition): spec for partition in range(PARTITIONS)}
        return [future.result(30) for future in self.admin.list_offsets(asked).values()]

    def published(self, topic):
        return sum(info.offset for info in self._offsets(topic, OffsetSpec.latest()))

    def first_message_at(self, topic):
        """When the broker took the first message of the topic, in seconds."""
        stamps = [info.timestamp for info in self._offsets(topic, OffsetSpec.for_timestamp(0)) if info.offset >= 0]
        return min(stamps) / 1000

    def postgres_cpu_seconds(self):
        """CPU time of the server without what our own questions cost."""
        return self.pg.cpu_seconds() - cpu_seconds(self.observer.info.backend_pid)

    def wait_until_published(self, topic, rows, participant, timeout=300):
        """Waits until the topic holds so many rows; returns how many it holds, and a place in the log shortly before."""
        places = deque(maxlen=4)
        deadline = time.monotonic() + timeout
        while True:
            places.append(self.observer.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()[0])
            seen = self.published(topic)
            if seen >= rows:
                return seen, places[0]
            participant.check()
            if time.monotonic() > deadline:
                raise BenchError(f"{participant.name} published {seen} of {rows} rows in {timeout} s")
            time.sleep(0.04)

    def wait_until_drained(self, topic, rows, participant):
        """Waits until all is published and deleted; returns when the last row was deleted, in seconds."""
        _, since = self.wait_until_published(topic, rows, participant)
        deadline = time.monotonic() + 60
        while not self.is_empty():
            participant.check()
            if time.monotonic() > deadline:
                raise BenchError(f"{participant.name} published all rows, but did not delete them")
            time.sleep(0.04)
        seen = self.published(topic)
        if seen != rows:
            raise BenchError(f"{participant.name} published {seen} records for {rows} rows")
        return self._last_delete(since)

    def _last_delete(self, since):
        # A commit that waits for the disk, so that the log can be read to its end.
        self.observer.execute("SELECT pg_logical_emit_message(true, 'bench', 'end')")
        found = self.observer.execute(LAST_DELETE, {"since": since}).fetchone()[0]
        if found is None:
            raise BenchError("the write-ahead log holds no DELETE")
        return found
