"""A stage for commands that act while nodes run: an outbox read in any way, whose rows go to the event store."""

import json
import subprocess
import threading

from tests.e2e.relay import BINARY, postrider, settings, wait_until, write_config

READERS = {
    "advisory": {"reader": "advisory"},
    "lease": {"reader": "lease", "lease": "3s"},
    "skip_locked": {"reader": "skip_locked"},
    "skip_locked-ordered": {"reader": "skip_locked", "order": "entity"},
    "shards": {"reader": "shards", "lease": "3s"},
    "dispatcher": {"reader": "dispatcher"},
    "wal": {"reader": "wal"},
}
ORDERED = [name for name in READERS if name != "skip_locked"]
LONG = "60s"        # so that only a wake-up can be the reason when something happens soon


class Stage:
    """Settings for one outbox, installed; starts nodes, runs commands, and reads what arrived."""

    def __init__(self, database, folder, start_relay, reader="advisory", dsn=None, **options):
        self.database, self.start_relay = database, start_relay
        self.reader = reader
        options = {"workers": 2, "poll_interval": LONG, **READERS[reader], **options}
        if reader == "wal":
            options["wal"] = {"slot": f"postrider_{database.name}", "sender_timeout": "3s", **options.get("wal", {})}
        sink = {"type": "postgres", "url": database.dsn} if dsn else {"type": "postgres"}
        self.content = settings(dsn or database.dsn, sink, **options)
        self.content["node"] = "somewhere"
        self.config = write_config(folder / "steering.yaml", self.content)
        done = self.run("init")
        assert done.returncode == 0, done.stderr

    def node(self):
        return self.start_relay(self.content)

    def run(self, *arguments, stdin=None):
        return postrider(*arguments, "-c", self.config, stdin=stdin)

    def done(self, *arguments):
        """Runs a command that must work; returns its output."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def json(self, *arguments):
        return json.loads(self.done(*arguments, "--json"))

    def insert(self, entity, n, **columns):
        return self.database.insert(entity, json.dumps({"n": n, **columns.pop("payload", {})}), **columns)

    def insert_together(self, entity, numbers):
        """In one transaction: whoever claims the first has them all."""
        self.database.execute(
            "INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
            " SELECT 'order', %s, 'changed', json_build_object('n', n) FROM unnest(%s::int[]) n",
            (entity, list(numbers)))

    def arrived(self, entity):
        """The numbers of an entity's events in the order in which they were stored."""
        return [row[0] for row in self.database.execute(
            "SELECT (payload->>'n')::int FROM postrider.event WHERE entity_id = %s ORDER BY position", (entity,))]

    def count(self):
        return self.database.value("SELECT count(*) FROM postrider.event")

    def wait_for(self, entity, numbers, timeout=10):
        """Waits until so much of an entity has arrived as there are numbers, and compares."""
        wait_until(lambda: len(self.arrived(entity)) >= len(numbers), timeout, f"{numbers} of {entity}")
        assert self.arrived(entity) == numbers

    def refuse(self, *numbers):
        """From now on the event store refuses these numbers, and nothing else."""
        self.database.execute("ALTER TABLE postrider.event DROP CONSTRAINT IF EXISTS taste")
        if numbers:
            listed = ",".join(map(str, numbers))
            self.database.execute("ALTER TABLE postrider.event ADD CONSTRAINT taste"
                                  f" CHECK ((payload->>'n')::int <> ALL ('{{{listed}}}'::int[])) NOT VALID")

    def entry(self, entity):
        rows = self.database.execute("SELECT row_id, attempts, blocked_at IS NOT NULL FROM postrider.retry"
                                     " WHERE entity = %s", (entity,))
        return rows[0] if rows else None

    def block(self, entity, row):
        """As the policy `block` leaves an entity whose row was refused for the last time."""
        self.database.execute(
            "INSERT INTO postrider.retry (outbox, entity, row_id, attempts, kind, error, retry_at, blocked_at)"
            " VALUES (1, %s, %s, 11, 'rejected', 'the store does not like it', now() + interval '100 years', now())"
            " ON CONFLICT (outbox, entity) DO UPDATE SET row_id = excluded.row_id, attempts = excluded.attempts,"
            " retry_at = excluded.retry_at, blocked_at = excluded.blocked_at, error = excluded.error",
            (entity, str(row)))

    def bury(self, row, error="the store does not like it", kind="rejected", age="0", passed=False):
        """As the policy `dead_letter` leaves a row that was refused for the last time; returns the letter's number."""
        return self.database.value(
            "WITH gone AS (DELETE FROM public.outbox o WHERE o.id = %s RETURNING o.*)"
            " INSERT INTO postrider.dead_letter (outbox, entity, row_id, message_id, entity_type, event_type, topic,"
            "   attempts, kind, error, first_failed_at, died_at, passed_at, row)"
            " SELECT 1, g.entity_id, g.id::text, g.message_id::text, g.entity_type, g.event_type, 'topic', 11, %s, %s,"
            "   now() - %s::interval, now() - %s::interval, CASE WHEN %s THEN now() END, row_to_json(g) FROM gone g"
            " RETURNING id", (row, kind, error, age, age, passed))


class Stream:
    """Rows of some entities, numbered from 1, written one after the other until the end of the block."""

    def __init__(self, stage, entities=8, pause=0.004):
        self.stage, self.pause = stage, pause
        self.written = {f"s{number}": 0 for number in range(entities)}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._write)

    def _write(self):
        with self.stage.database.connect() as connection:
            while not self.over.wait(self.pause):
                for entity in self.written:
                    n = self.written[entity] + 1
                    connection.execute(
                        "INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                        " VALUES ('order', %s, 'changed', %s)", (entity, json.dumps({"n": n})))
                    self.written[entity] = n

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def check(self, ordered=True):
        """Everything that was written arrived once, and in order."""
        for entity, count in self.written.items():
            arrived = self.stage.arrived(entity)
            assert (arrived if ordered else sorted(arrived)) == list(range(1, count + 1)), entity


def in_terminal(stage, *arguments, answer=""):
    """Runs a command with a terminal of its own; returns its exit code and all that the terminal showed."""
    command = " ".join(f"'{part}'" for part in (BINARY, *arguments, "-c", stage.config))
    done = subprocess.run(["script", "-qec", command, "/dev/null"], input=answer, capture_output=True, text=True,
                          timeout=60)
    return done.returncode, done.stdout
