"""What a row costs when few rows wait and when very many do.

Both sides publish the same number of rows, of entities that have five rows each. With few, 10,000 rows are written again
and again to a relay that keeps running; with many, a relay works on a table of two million until it has published as many.
The cost is CPU time of the relay and of the database sessions it has: not time, which depends on who else is busy, nor the
CPU time of the whole server, of which the rows' insertion is a part.
"""

import time

from .lab import BenchError, cpu_seconds
from .stats import ratio, summary

ROWS_PER_ENTITY = 5
PAYLOAD = 200
FIGURES = ("cpu_us_per_row", "relay_us_per_row", "postgres_us_per_row", "rows_per_s")
SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'postrider%'"


def sizes(quick):
    """(few, many, rows to publish on either side)"""
    return (10_000, 200_000, 100_000) if quick else (10_000, 2_000_000, 500_000)


def run(lab, plan, progress):
    rounds, quick = plan.rounds, plan.quick
    few, many, rows = sizes(quick)
    runs = []
    for number in range(rounds):
        for side, measure in (("few", with_few), ("many", with_many)):
            waiting = few if side == "few" else many
            progress(f"backlog: {waiting:,} rows waiting, round {number + 1} of {rounds}, postrider")
            runs.append({"round": number, "side": side, **measure(lab, waiting, rows)})
    of = {side: [run for run in runs if run["side"] == side] for side in ("few", "many")}
    return {
        "few": few,
        "many": many,
        "rows": rows,
        "summary": {side: {figure: summary([run[figure] for run in of[side]]) for figure in FIGURES} for side in of},
        "ratio": ratio(*([run["cpu_us_per_row"] for run in of[side]] for side in ("many", "few"))),
        "runs": runs,
    }


class Meter:
    """CPU time of a relay and its sessions from now on. Sessions must be there already."""

    def __init__(self, lab, participant):
        self.participant = participant
        self.sessions = [row[0] for row in lab.observer.execute(SESSIONS)]
        if not self.sessions:
            raise BenchError("postrider has no session in pg_stat_activity")
        self.began = time.monotonic()
        self.relay = participant.cpu_seconds()
        self.postgres = self._postgres()

    def _postgres(self):
        try:
            return sum(cpu_seconds(pid) for pid in self.sessions)
        except FileNotFoundError:
            raise BenchError("a database session of postrider ended while it was measured") from None

    def figures(self, rows, seconds=None):
        relay = self.participant.cpu_seconds() - self.relay
        postgres = self._postgres() - self.postgres
        return {
            "cpu_us_per_row": (relay + postgres) * 1e6 / rows,
            "relay_us_per_row": relay * 1e6 / rows,
            "postgres_us_per_row": postgres * 1e6 / rows,
            "rows_per_s": rows / (seconds or time.monotonic() - self.began),
        }


def with_few(lab, waiting, rows):
    with lab.topic() as (entity_type, topic):
        lab.fill(entity_type, waiting, waiting // ROWS_PER_ENTITY, PAYLOAD)
        with lab.run_postrider() as participant:
            # The first ones warm the relay up, as the head of the long queue does on the other side.
            published = waiting
            lab.wait_until_drained(topic, published, participant)
            meter = Meter(lab, participant)
            seconds = 0
            for _ in range(rows // waiting):
                lab.observer.execute("VACUUM (TRUNCATE false) public.outbox")
                lab.insert(entity_type, waiting, waiting // ROWS_PER_ENTITY, PAYLOAD)
                began = time.time()
                published += waiting
                seconds += lab.wait_until_drained(topic, published, participant) - began
            return meter.figures(rows, seconds)


def with_many(lab, waiting, rows):
    with lab.topic() as (entity_type, topic):
        lab.fill(entity_type, waiting, waiting // ROWS_PER_ENTITY, PAYLOAD)
        with lab.run_postrider() as participant:
            before, _ = lab.wait_until_published(topic, 10_000, participant)
            meter = Meter(lab, participant)
            seen, _ = lab.wait_until_published(topic, before + rows, participant)
            figures = meter.figures(seen - before)
        lab.empty()
        return figures
