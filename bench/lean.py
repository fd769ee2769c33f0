"""Does it stay as fast while nothing can be vacuumed? 2,000 rows/s, and beside them a session with an old snapshot.

Deleted rows stay in the table and its indexes as long as somebody may still look at them, and who claims rows has to pass
over them. Each participant has a database of its own, so that none inherits what another left behind.

The time of a claim is what pg_stat_statements adds up for it: what the server needs, without the network and the relay.
"""

import contextlib
import threading
import time

import psycopg

from tests.servers import Postgres

from .lab import POSTGRES_SETTINGS, BenchError, Participant, init, write_settings
from .stats import ratio, summary

RATE = 2000
TRANSACTION_ROWS = 20
ENTITIES = 10_000
PAYLOAD = 200
LOOP = "loop"                           # the plain loop
WANTED_RATIO = 0.9                      # published at the end, of what was published at the beginning
WANTED_CLAIM_MS = 5

PARTICIPANTS = {
    "delete": "postrider, published: delete",
    "mark": "postrider, published: mark",
    "archive": "postrider, published: archive",
    "partitions": "postrider, published: partitions",
    LOOP: "plain loop",
}
FIGURES = ("rows_per_s_begin", "rows_per_s_end", "claim_ms_begin", "claim_ms_end", "dead_rows", "waiting",
           "postgres_cpu_begin", "postgres_cpu_end")
SETTINGS = {**POSTGRES_SETTINGS, "shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track_utility": "off"}

INSERT = """\
INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)
SELECT %(entity_type)s, 'order-' || n %% %(entities)s, 'order.placed',
       (rpad('{"n":' || n || ',"text":"', %(payload)s - 2, 'x') || '"}')::json
FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(rows)s - 1) AS n"""
# Statistics come late; what the pages hold is what has to be passed over.
DEAD_ROWS = """\
SELECT coalesce(sum(t.dead_tuple_count), 0)::bigint
FROM pg_class c CROSS JOIN LATERAL pgstattuple(c.oid) t
WHERE c.relkind = 'r' AND (c.oid = 'public.outbox'::regclass
                           OR c.oid IN (SELECT relid FROM pg_partition_tree('public.outbox')))"""
# How many claims there were, and what they and reading their rows took.
CLAIMS = """\
SELECT coalesce(sum(calls) FILTER (WHERE query NOT LIKE '%postrider.claim%WITH ORDINALITY c(e, n)%'
                                      OR query LIKE 'WITH %'), 0)::bigint,
       coalesce(sum(total_exec_time), 0)
FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (query LIKE 'WITH RECURSIVE hand(h)%' OR query LIKE 'WITH front(e, n, due)%'
       OR query LIKE 'SELECT %postrider.claim%WITH ORDINALITY c(e, n)%' OR query LIKE 'SELECT %FOR UPDATE SKIP LOCKED')"""


def run(lab, plan, progress):
    seconds = 20 if plan.quick else 180
    runs = []
    with Postgres(settings=SETTINGS) as pg:
        for number in range(plan.rounds):
            for name, title in PARTICIPANTS.items():
                progress(f"lean: {RATE:,} rows/s for {seconds} s, round {number + 1} of {plan.rounds}, {title}")
                runs.append({"round": number, "participant": name, **measure(lab, pg, name, seconds, plan.quick)})

    def of(name, figure):
        return [run[figure] for run in runs if run["participant"] == name]

    return {
        "rows_per_s": RATE,
        "seconds": seconds,
        "summary": {name: {figure: summary(of(name, figure)) for figure in FIGURES} for name in PARTICIPANTS},
        "ratios": {name: ratio(of(name, "rows_per_s_end"), of(name, "rows_per_s_begin")) for name in PARTICIPANTS},
        "runs": runs,
    }


# ---- One run ----------------------------------------------------------------------------------------------------------

def measure(lab, pg, name, seconds, quick):
    """What happens in the first and in the last quarter of the time."""
    dbname = f"lean_{name}_{time.monotonic_ns()}"
    database = pg.createdb(dbname)
    with lab.topic() as (entity_type, topic), pg.connect(dbname) as observer, old_snapshot(database):
        observer.execute("CREATE EXTENSION pgstattuple; CREATE EXTENSION pg_stat_statements")
        with start(lab, name, database, topic, quick) as participant:
            samples = watch(lab, pg, observer, participant, Writer(database, entity_type), topic, seconds)
            dead = observer.execute(DEAD_ROWS).fetchone()[0]
    waiting = samples[-1]["written"] - samples[-1]["published"]
    with pg.connect() as connection:
        connection.execute(f'DROP DATABASE "{dbname}" WITH (FORCE)')
    return {**figures(samples), "dead_rows": dead, "waiting": max(waiting, 0), "samples": samples}


@contextlib.contextmanager
def old_snapshot(database):
    """A session that has looked at something once, before all else, and does not end: a report, a forgotten console."""
    with psycopg.connect(database) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT pg_current_xact_id()")
        yield


def start(lab, name, database, topic, quick):
    file = lab.folder / f"lean-{name}.yaml"
    outbox = {} if name == LOOP else {"published": name}
    if quick:
        outbox["partitions"] = {"rows": 10_000}
    write_settings(file, database, {"type": "kafka", "brokers": lab.kafka.bootstrap}, "bench", outbox)
    init(lab.postrider, file)
    command = [lab.postrider, "run", "-c", file] if name != LOOP else [
        lab.peers / "plain_loop", "--database", database, "--brokers", lab.kafka.bootstrap, "--topic", topic]
    return Participant(PARTICIPANTS[name], command, file.with_suffix(".log"))


class Writer:
    """Writes at the rate, as far as the server lets it."""

    def __init__(self, database, entity_type):
        self.database = database
        self.values = {"entity_type": entity_type, "entities": ENTITIES, "payload": PAYLOAD, "rows": TRANSACTION_ROWS}
        self.written = 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.stopping.set()
        self.thread.join()

    def _work(self):
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            began = time.monotonic()
            while not self.stopping.is_set():
                connection.execute(INSERT, {**self.values, "first": self.written})
                self.written += TRANSACTION_ROWS
                time.sleep(max(0, began + self.written / RATE - time.monotonic()))


def watch(lab, pg, observer, participant, writer, topic, seconds):
    """A sample each second: what was written and published by then, and what the server has used, for claims and in all."""
    samples = []
    with writer:
        began = time.monotonic()
        while not samples or samples[-1]["at"] < seconds:
            time.sleep(max(0, began + len(samples) - time.monotonic()))
            participant.check()
            claims, claims_ms = observer.execute(CLAIMS).fetchone()
            samples.append({
                "at": time.monotonic() - began, "written": writer.written, "published": lab.published(topic),
                "postgres_cpu": pg.cpu_seconds(), "claims": claims, "claims_ms": claims_ms})
    return samples


def figures(samples):
    quarter = len(samples) // 4
    result = {}
    for side, first, last in (("begin", samples[1], samples[1 + quarter]), ("end", samples[-1 - quarter], samples[-1])):
        def grown(figure):
            return last[figure] - first[figure]

        if grown("claims") == 0:
            raise BenchError("no claim in a quarter of the time")
        result |= {
            f"rows_per_s_{side}": grown("published") / grown("at"),
            f"claim_ms_{side}": grown("claims_ms") / grown("claims"),
            f"postgres_cpu_{side}": 100 * grown("postgres_cpu") / grown("at"),
        }
    return result
