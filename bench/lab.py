"""The place where everything is measured: one PostgreSQL, one Kafka, one outbox table, and who is on trial."""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections import Counter, deque
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.servers import Kafka, Postgres

PARTITIONS = 6
TICKS = os.sysconf("SC_CLK_TCK")

# Autovacuum would hit some runs and not others; every run begins with a VACUUM instead. The servers of our tests, and so
# this one, have wal_level=logical: every participant of every scene pays for that.
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

# A procedure, because many small transactions would take long from here. Where there are many, none waits for the disk.
# The place is one before the last commit and behind all others. One taken afterwards would be behind whatever the server
# itself may have written meanwhile, and who reads the log for rows may never say that it has come so far.
DEFINE_FILL = """\
CREATE OR REPLACE PROCEDURE pg_temp.fill(
    entity_type text, rows integer, entities integer, payload integer, size integer, INOUT place text)
LANGUAGE plpgsql AS $$
BEGIN
    FOR head IN 0 .. rows - 1 BY size LOOP
        PERFORM set_config('synchronous_commit', 'off', true) WHERE size < rows;
        INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)
        SELECT entity_type, 'order-' || n % entities, 'order.placed',
               (rpad('{"n":' || n || ',"text":"', payload - 2, 'x') || '"}')::json
        FROM generate_series(head, least(head + size, rows) - 1) AS n;
        place := pg_current_wal_insert_lsn();
        COMMIT;
    END LOOP;
END
$$"""
FILL = "CALL pg_temp.fill(%(entity_type)s, %(rows)s, %(entities)s, %(payload)s, %(size)s, NULL)"

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

# What a reader of the write-ahead log needs. The server does not notice at once that the other side of a slot is gone.
END_SENDERS = """\
SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database() AND active"""
DROP_SLOTS = """\
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database() AND NOT active"""
SLOTS = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
PUBLICATIONS = "SELECT quote_ident(pubname) FROM pg_publication"
FORGET_SLOTS = "TRUNCATE postrider.wal, postrider.wal_backlog, postrider.parked"
PUBLISH = "CREATE PUBLICATION bench FOR TABLE public.outbox WITH (publish = 'insert')"
MAKE_SLOT = "SELECT pg_create_logical_replication_slot('bench', 'pgoutput')"
SETTLED = "SELECT confirmed > %s::pg_lsn FROM postrider.wal"


class BenchError(RuntimeError):
    """A measurement that makes no sense: a participant failed, or lost or repeated rows."""


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def write_rows(connection, entity_type, rows, entities, payload, size=None):
    """Rows in transactions of `size`, or all in one. The connection must be in autocommit mode. Returns a place in the log:
    who has read further has seen the last commit."""
    values = {"entity_type": entity_type, "rows": rows, "entities": entities, "payload": payload}
    connection.execute(DEFINE_FILL)
    return connection.execute(FILL, {**values, "size": size or max(rows, 1)}).fetchone()[0]


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

    def failure(self):
        tail = self.log.read_text(errors="replace")[-2000:]
        return BenchError(f"{self.name} ended with status {self.process.returncode}\n{tail}")

    def check(self):
        if self.process.poll() is not None:
            raise self.failure()

    def kill(self):
        """It has no time to put anything in order."""
        self.process.kill()
        self.process.wait()

    def cpu_seconds(self):
        self.check()
        return cpu_seconds(self.pid)

    def peak_rss_mb(self):
        self.check()
        return self._kilobytes("VmHWM") * 1024 / 1e6

    def _kilobytes(self, field):
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
        raise BenchError(f"/proc has no {field}")


class Receiver(Participant):
    """A participant that ends by itself."""

    def wait(self, timeout=300):
        """Waits for its end. Returns when that was, its CPU seconds, its peak RSS in MB, and how many bytes it wrote."""
        deadline = time.monotonic() + timeout
        peak = 0
        descriptor = os.pidfd_open(self.pid)
        try:
            while not select.select([descriptor], [], [], 0.04)[0]:
                # A process that has ended has no memory any more, even while we have not asked for its status.
                with contextlib.suppress(BenchError):
                    peak = max(peak, self._kilobytes("VmHWM"))
                if time.monotonic() > deadline:
                    raise BenchError(f"{self.name} did not end in {timeout} s")
            ended = time.time()
        finally:
            os.close(descriptor)
        cpu = cpu_seconds(self.pid)
        counts = dict(line.split(": ") for line in Path(f"/proc/{self.pid}/io").read_text().splitlines())
        if self.process.wait() != 0:
            raise self.failure()
        return ended, cpu, peak * 1024 / 1e6, int(counts["wchar"])


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

    def fill(self, entity_type, rows, entities, payload, size=None):
        """Rows of different entities, interleaved, in an otherwise empty table that is as tidy as it gets. Returns what
        write_rows does."""
        self.empty()
        place = self.insert(entity_type, rows, entities, payload, size)
        self.observer.execute("VACUUM ANALYZE public.outbox")
        self.observer.execute("CHECKPOINT")
        return place

    def insert(self, entity_type, rows, entities, payload, size=None):
        return write_rows(self.observer, entity_type, rows, entities, payload, size)

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

    @contextlib.contextmanager
    def tailed(self, published):
        """A replication slot for the reader `wal`: what is written from here on is in it. Gives a function that starts one
        node. Afterwards there is none: it would keep the log of all others."""
        file = self.settings("bench-wal", {"reader": "wal", "published": published})
        self.empty()
        try:
            init(self.postrider, file)
            yield lambda: self.run_postrider(file, f"postrider with wal, published: {published}")
        finally:
            self._forget_slots()

    @contextlib.contextmanager
    def received(self):
        """The same for pg_recvlogical, which throws away what it gets. The function takes the place where it ends."""
        command = [self.pg.bin / "pg_recvlogical", "--dbname", self.database, "--slot", "bench", "--start", "--no-loop",
                   "--option", "proto_version=1", "--option", "publication_names=bench", "--file", "/dev/null"]
        self.empty()
        try:
            self.observer.execute(PUBLISH)
            self.observer.execute(MAKE_SLOT)
            yield lambda end: Receiver(
                "pg_recvlogical", [*command, "--endpos", end], self.folder / "pg_recvlogical.log")
        finally:
            self._forget_slots()

    def _forget_slots(self):
        deadline = time.monotonic() + 30
        while self.observer.execute(SLOTS).fetchone()[0] > 0:
            if time.monotonic() > deadline:
                raise BenchError("a replication slot could not be dropped")
            self.observer.execute(END_SENDERS)
            self.observer.execute(DROP_SLOTS)
            time.sleep(0.02)
        for publication, in self.observer.execute(PUBLICATIONS).fetchall():
            self.observer.execute(f"DROP PUBLICATION {publication}")
        self.observer.execute(FORGET_SLOTS)
        self.empty()

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

    def last_message_at(self, topic):
        """When the broker took the last one."""
        return max(info.timestamp for info in self._offsets(topic, OffsetSpec.max_timestamp())) / 1000

    def numbers(self, topic):
        """How often the topic has each row, by the number in its payload."""
        seen, open_partitions = Counter(), set(range(PARTITIONS))
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": "bench", "enable.auto.commit": False,
                             "enable.partition.eof": True, "log_level": 0})
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
            while open_partitions:
                messages = consumer.consume(5000, 10)
                if not messages:
                    raise BenchError(f"could not read {topic} to its end")
                open_partitions -= {message.partition() for message in messages if message.error()}
                seen.update(json.loads(message.value())["n"] for message in messages if not message.error())
        finally:
            consumer.close()
        return seen

    def postgres_cpu_seconds(self):
        """CPU time of the server without what our own questions cost."""
        return self.pg.cpu_seconds() - cpu_seconds(self.observer.info.backend_pid)

    def wait_until_published(self, topic, rows, participant, timeout=300):
        """Waits until the topic holds so many rows; returns how many it holds, and a place in the log shortly before."""
        places = deque(maxlen=4)
        deadline = time.monotonic() + timeout
        while True:
            places.append(self.log_place())
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
        ended = self.wait_until_deleted(since, participant, timeout=60)
        self.check_published(topic, rows, participant)
        return ended

    def wait_until_deleted(self, since, participant, timeout):
        """Waits until the table is empty; returns when the last row was deleted, which was after the place `since` in the log."""
        deadline = time.monotonic() + timeout
        while not self.is_empty():
            participant.check()
            if time.monotonic() > deadline:
                raise BenchError(f"{participant.name} did not delete all rows in {timeout} s")
            time.sleep(0.04)
        return self._last_delete(since)

    def log_place(self):
        return self.observer.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()[0]

    def wait_until_settled(self, end, participant, timeout=300):
        """Waits until the reader `wal` has written down that everything is published that was committed up to `end`, and
        the transaction after it."""
        deadline = time.monotonic() + timeout
        while not self.observer.execute(SETTLED, (end,)).fetchone()[0]:
            participant.check()
            if time.monotonic() > deadline:
                raise BenchError(f"{participant.name} did not settle all rows in {timeout} s")
            time.sleep(0.04)

    def check_published(self, topic, rows, participant):
        seen = self.published(topic)
        if seen != rows:
            raise BenchError(f"{participant.name} published {seen} records for {rows} rows")

    def _last_delete(self, since):
        # A commit that waits for the disk, so that the log can be read to its end.
        self.observer.execute("SELECT pg_logical_emit_message(true, 'bench', 'end')")
        found = self.observer.execute(LAST_DELETE, {"since": since}).fetchone()[0]
        if found is None:
            raise BenchError("the write-ahead log holds no DELETE")
        return found
