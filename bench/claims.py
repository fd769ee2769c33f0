"""What one claim costs the server when few rows wait and when very many do, and when others hold what stands in front.

Two databases of one server, one with few rows and one with many, are claimed from in turn, so that whatever slows the
machine slows both. We claim ourselves, in the way of a reader's worker and with its own statements, which the server's log
shows when a relay prepares them. Nothing is published, each claim is given back, and nobody else is at work.

Time is what pg_stat_statements adds up for our role: executing the statements of a claim, and sending the rows.
"""

import contextlib
import re
import statistics
import tempfile
import time
from pathlib import Path

import psycopg
from psycopg import sql

from tests.servers import Postgres

from .lab import READERS, BenchError, Participant, init, write_rows, write_settings
from .stats import summary

ROWS_PER_ENTITY = 5
PAYLOAD = 200
ROWS = 500                              # of a claim whose cost is compared
ROWS_TO_FIND = 100                      # and of one that others stand in the way of: `batch_size`
ENTITY_MAX_ROWS = 1000                  # the setting's default
LOCKED = 800                            # entities
REACH = 300                             # entities that a walk looks at: REACH_FIRST in src/read/walk.c
SHARDS_OF_A_WORKER = 4                  # of 16, with four workers
ROLE = "claimer"

WANTED_RATIO = 1.15
WANTED_MS = 5

# The tables stay in memory: a claim is measured, not a disk.
POSTGRES_SETTINGS = {
    "shared_buffers": "640MB", "max_wal_size": "4GB", "autovacuum": "off", "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "top", "pg_stat_statements.track_utility": "off"}

# What a worker's session has: pg_apply_reader_settings() in src/pg/conn.c.
SESSION = {
    "search_path": "pg_catalog", "synchronous_commit": "off", "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off",
    "enable_bitmapscan": "off", "max_parallel_workers_per_gather": "0", "jit": "off"}

PREPARED = re.compile(r" ms  parse (postrider_\w+): (.*)$", re.MULTILINE)

FIRST_ENTITIES = f"(SELECT o.entity_id AS e FROM public.outbox o GROUP BY 1 ORDER BY 1 LIMIT {LOCKED}) f"
LOCK_ENTITIES = f"""\
SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(f.e, 'public.outbox'::regclass::oid::bigint))
FROM {FIRST_ENTITIES}"""
LOCK_THEIR_ROWS = f"SELECT FROM public.outbox o WHERE o.entity_id IN (SELECT f.e FROM {FIRST_ENTITIES}) FOR UPDATE"
LOCK_FIRST_ROWS = f"SELECT FROM public.outbox o ORDER BY o.id LIMIT {LOCKED * ROWS_PER_ENTITY} FOR UPDATE"
CLAIM_ENTITIES = f"""\
INSERT INTO postrider.claim (outbox, entity, node, worker, token, expires_at)
SELECT (SELECT min(id) FROM postrider.outbox), f.e, 0, 0, 0, now() + interval '1 hour' FROM {FIRST_ENTITIES}"""


def sizes(quick):
    """(rows that wait on each side, claims of a round)"""
    return {"few": 10_000, "many": 100_000 if quick else 1_000_000}, 12 if quick else 60


# ---- How a worker claims. `run(statement, *parameters)` gives the rows of the answer; each returns those of the claim.


class Walk:
    """Entity by entity. `between` are the reader's statements between the claim and the rows, `more` its own parameters."""

    def __init__(self, between=(), more=()):
        self.between = between
        self.more = more
        self.begin()

    def begin(self, elsewhere=False):
        self.hand = None
        self.elsewhere = elsewhere

    def claim(self, run, rows):
        entities = rows // ROWS_PER_ENTITY
        elsewhere, got_nothing = self.elsewhere, True
        while got_nothing:              # as a worker does: elsewhere, when all that it could reach is taken
            claimed = run("postrider_claim", self.hand, elsewhere, entities, "{}", REACH, *self.more)
            self.hand = claimed[0][6]
            elsewhere, got_nothing = True, claimed[0][0] is None
        for statement in self.between:
            run(statement, rows, ENTITY_MAX_ROWS)
        return run("postrider_read", rows, ENTITY_MAX_ROWS)


class Take:
    """Row by row, from the lowest on."""

    def __init__(self):
        self.begin()

    def begin(self):
        self.place = None

    def claim(self, run, rows):
        taken = run("postrider_take", rows) if self.place is None else run("postrider_take_on", rows, self.place)
        if taken:
            self.place = taken[-1][-2]
        return taken


class Pass:
    """Page by page of some parts, all of it below the horizon. At work the horizon is looked for once in 50 ms, and here with
    each page."""

    def __init__(self, parts):
        self.parts = parts
        self.begin()

    def begin(self):
        self.horizon = self.places = None

    def claim(self, run, rows):
        numbers = array(range(self.parts))
        if self.places is None:
            self.horizon = array(run("postrider_highest")[0])
            self.places = [None] * self.parts
            run("postrider_writers")
            page = run("postrider_first", numbers, None, rows // self.parts, self.horizon)
        else:
            run("postrider_higher", self.horizon)
            run("postrider_writers")
            page = run("postrider_next", numbers, array(self.places), rows // self.parts, self.horizon)
        for row in page:
            self.places[row[-2]] = row[-4]
        return page


def array(values):
    return "{" + ",".join("NULL" if value is None else str(value) for value in values) + "}"


# How a worker of each reader claims, and what others do that stand in its way: statements of a transaction that stays open,
# or is committed where the claim itself is a row. Who reads what is his alone meets nobody.
PROTOCOLS = {
    "advisory": (lambda: Walk(more=("{}", "1")), [LOCK_ENTITIES]),
    "lease": (lambda: Walk(more=(1, 1, 0, 30_000, "{}")), [CLAIM_ENTITIES, "COMMIT"]),
    "skip_locked": (Take, [LOCK_FIRST_ROWS]),
    "skip_locked-entity": (lambda: Walk(between=("postrider_lock", "postrider_keep")), [LOCK_ENTITIES, LOCK_THEIR_ROWS]),
    "shards": (lambda: Pass(SHARDS_OF_A_WORKER), None),
    "dispatcher": (lambda: Pass(1), None),
}


class Claimer:
    """A worker's session on one side, for one reader after the other."""

    def __init__(self, server, database, statements):
        self.statements = statements
        self.session = psycopg.connect(server.dsn(database, ROLE), autocommit=True, cursor_factory=psycopg.RawCursor)
        for name, value in SESSION.items():
            self.session.execute("SELECT pg_catalog.set_config($1, $2, false)", (name, value))
        self.watcher = server.connect()

    def begin(self, reader, **how):
        self.reader = reader
        self.protocol = PROTOCOLS[reader][0]()
        self.protocol.begin(**how)

    def _spent_ms(self):
        return self.watcher.execute(
            "SELECT coalesce(sum(total_exec_time), 0) FROM pg_stat_statements WHERE userid = %s::regrole",
            (ROLE,)).fetchone()[0]

    def text(self, statement):
        try:
            return self.statements[self.reader][statement]
        except KeyError:
            raise BenchError(f"the reader {self.reader} has no statement {statement}: see PROTOCOLS in claims.py") from None

    def _run(self, statement, *parameters):
        texts = [None if value is None else str(value) for value in parameters]
        try:
            cursor = self.session.execute(self.text(statement), texts, prepare=True, binary=True)
        except psycopg.Error as error:
            raise BenchError(f"{statement} of the reader {self.reader}: {error}") from None
        return cursor.fetchall() if cursor.description else []

    def _plain(self, text):
        """Past psycopg, which forgets what it has prepared when it sees a ROLLBACK."""
        self.session.pgconn.exec_(text.encode())

    def _give_back(self):
        self._plain("ROLLBACK")
        self._plain("SELECT pg_advisory_unlock_all()")

    def claim(self, rows):
        """Milliseconds, and how many rows it got."""
        self._plain("BEGIN")
        before = self._spent_ms()
        got = self.protocol.claim(self._run, rows)
        self._plain("SHOW port")        # a statement is counted when its portal closes, which is when the next one comes
        spent = self._spent_ms() - before
        self._give_back()
        return spent, len(got)

    def plans(self, rows):
        """EXPLAIN of each statement of the second claim, and of settling what it got, as lines."""
        steps = []

        def record(statement, *parameters):
            steps.append((statement, parameters))
            return self._run(statement, *parameters)

        self._plain("BEGIN")
        self.protocol.claim(self._run, rows)
        self._give_back()
        self._plain("BEGIN")
        got = self.protocol.claim(record, rows)
        self._give_back()
        tids = "{" + ",".join(f'"{tid}"' for tid in (self._tid(row[-1]) for row in got)) + "}"
        marks = (len(got), 1) if "$4" in self.text("postrider_settle") else ()
        steps.append(("postrider_settle", (tids, array(row[0] for row in got), *marks)))
        return {steps[number][0]: self._explain(steps[:number], *steps[number]) for number in range(len(steps))}

    def _explain(self, before, statement, parameters):
        """In a transaction of its own, after the statements that come before it."""
        values = sql.SQL(", ").join(sql.Literal(None if value is None else str(value)) for value in parameters)
        question = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) EXECUTE explained")
        if parameters:
            question += sql.SQL("({})").format(values)
        self._plain(f"PREPARE explained AS {self.text(statement)}")
        self._plain("BEGIN")
        for step, its_parameters in before:
            self._run(step, *its_parameters)
        lines = [line for line, in self.session.execute(question.as_string(self.session)).fetchall()]
        self._give_back()
        self._plain("DEALLOCATE explained")
        return lines

    @staticmethod
    def _tid(value):
        """A tid in binary: block and line."""
        return f"({int.from_bytes(value[:4])},{int.from_bytes(value[4:])})" if isinstance(value, bytes) else value

    def close(self):
        self.session.close()
        self.watcher.close()


# ---- Preparing


def fill(connection, rows):
    write_rows(connection, "order", rows, rows // ROWS_PER_ENTITY, PAYLOAD)
    connection.execute("VACUUM ANALYZE public.outbox")
    connection.execute("CREATE EXTENSION pg_prewarm")
    connection.execute("SELECT pg_prewarm(oid) FROM pg_class WHERE oid = 'public.outbox'::regclass OR oid IN "
                       "(SELECT indexrelid FROM pg_index WHERE indrelid = 'public.outbox'::regclass)")


def statements_of(server, postrider, settings, connection):
    """The texts of a reader's statements for this database, by name: what a relay prepares on an empty table."""
    database = connection.info.dbname
    connection.execute(sql.SQL("ALTER DATABASE {} SET log_min_duration_statement = 0").format(sql.Identifier(database)))
    seen = len(server.log_text())
    try:
        with Participant("postrider", [postrider, "run", "-c", settings], settings.with_suffix(".log")) as relay:
            deadline = time.monotonic() + 20
            while "relay.ready" not in relay.log.read_text():
                relay.check()
                if time.monotonic() > deadline:
                    raise BenchError("postrider was not ready within 20 s")
                time.sleep(0.05)
    finally:
        connection.execute(sql.SQL("ALTER DATABASE {} RESET log_min_duration_statement").format(sql.Identifier(database)))
    statements = dict(PREPARED.findall(server.log_text()[seen:]))
    # No row is scheduled here, and then a worker sends statements in their untimed form, where they have one.
    return {name: statements.get(f"{name}_untimed", text) for name, text in statements.items()}


def prepare(stack, server, folder, postrider, readers, side, rows):
    """A database with so many rows, and who claims from it."""
    database = server.createdb(side)
    connection = stack.enter_context(server.connect(side))
    statements = {}
    for reader in readers:
        sink = {"type": "stdout", "path": "/dev/null"}
        settings = write_settings(folder / f"{side}.yaml", database, sink, side, READERS[reader])
        init(postrider, settings)
        statements[reader] = statements_of(server, postrider, settings, connection)
    fill(connection, rows)
    claimer = Claimer(server, side, statements)
    stack.callback(claimer.close)
    return claimer


# ---- Measuring


def compare(claimers, reader, claims):
    """Medians of as many claims on each side, in turn. Where the few rows are at their end, both begin again."""
    samples = {side: [] for side in claimers}
    for claimer in claimers.values():
        claimer.begin(reader)
    while len(samples["few"]) < claims:
        pair = {side: claimer.claim(ROWS) for side, claimer in claimers.items()}
        if all(got == ROWS for _, got in pair.values()):
            for side, (spent, _) in pair.items():
                samples[side].append(spent)
        elif len(samples["few"]) == 0:
            raise BenchError(f"{reader}: a claim of {ROWS} rows got {pair}")
        else:
            for claimer in claimers.values():
                claimer.begin(reader)
    return {side: statistics.median(values) for side, values in samples.items()}


def find_work(server, claimer, reader, claims):
    """Milliseconds of a claim that begins in front of what others hold, and of one that begins as a new worker's does."""
    def median(**how):
        samples = []
        for _ in range(claims):
            claimer.begin(reader, **how)
            spent, got = claimer.claim(ROWS_TO_FIND)
            if got == 0:                # it may be less than was asked for: some random places are among what others hold
                raise BenchError(f"{reader}: a claim of {ROWS_TO_FIND} rows got {got} behind {LOCKED} locked entities")
            samples.append(spent)
        return statistics.median(samples)

    _, others = PROTOCOLS[reader]
    if others is None:
        return {}
    with server.connect("many", autocommit=False) as connection:
        for statement in others:
            connection.execute(statement)
        try:
            found = {"in_front": median()}
            if isinstance(claimer.protocol, Walk):
                found["elsewhere"] = median(elsewhere=True)
        finally:
            connection.rollback()
            connection.execute("DELETE FROM postrider.claim")
            connection.commit()
    return found


def run(lab, plan, progress):
    waiting, claims = sizes(plan.quick)
    readers = list(plan.readers or READERS)
    runs = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="postrider-claims-")))
        server = stack.enter_context(Postgres(settings=POSTGRES_SETTINGS))
        with server.connect() as connection:
            connection.execute("CREATE EXTENSION pg_stat_statements")
            connection.execute(f"CREATE ROLE {ROLE} SUPERUSER LOGIN")
        claimers = {}
        for side, rows in waiting.items():
            progress(f"claims: filling an outbox with {rows:,} rows")
            claimers[side] = prepare(stack, server, folder, lab.postrider, readers, side, rows)
        for number in range(plan.rounds):
            for reader in readers:
                progress(f"claims: round {number + 1} of {plan.rounds}, {reader}")
                runs.append({"round": number, "reader": reader, "ms": compare(claimers, reader, claims),
                             "found_ms": find_work(server, claimers["many"], reader, claims)})
        plans = {}
        for reader in readers:
            progress(f"claims: plans, {reader}")
            with server.connect("many") as connection:
                connection.execute("VACUUM public.outbox, postrider.claim")
            claimers["many"].begin(reader)
            plans[reader] = claimers["many"].plans(ROWS)
    return results(waiting, readers, runs, plans)


def results(waiting, readers, runs, plans):
    of = {reader: [run for run in runs if run["reader"] == reader] for reader in readers}

    def found(reader, how):
        values = [run["found_ms"][how] for run in of[reader] if how in run["found_ms"]]
        return summary(values) if values else None

    return {
        "waiting": waiting,
        "rows": ROWS,
        "rows_to_find": ROWS_TO_FIND,
        "locked": LOCKED,
        "summary": {reader: {side: summary([run["ms"][side] for run in of[reader]]) for side in waiting} for reader in readers},
        "ratios": {reader: summary([run["ms"]["many"] / run["ms"]["few"] for run in of[reader]]) for reader in readers},
        "found_ms": {reader: {how: found(reader, how) for how in ("in_front", "elsewhere")} for reader in readers},
        "runs": runs,
        "plans": plans,
    }
