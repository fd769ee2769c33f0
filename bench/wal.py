"""What the reader `wal` makes of a backlog in the write-ahead log, beside `advisory`, which polls the table for the
same rows, and pg_recvlogical, which reads the same log and throws it away; how long a row takes; what a kill repeats.

The rows are written while nobody reads and the slot is there. So a run has its whole work before it when it begins.
"""

from . import latency
from .drain import ENTITIES, rotated
from .lab import BenchError
from .stats import ratio, summary

RECEIVER, POLLER = "pg_recvlogical", "advisory"
PUBLISHED = ("delete", "keep")
# name in the results: title
PARTICIPANTS = {
    **{f"wal-{published}": f"wal, published: {published}" for published in PUBLISHED},
    POLLER: POLLER,
    RECEIVER: RECEIVER,
}
TAILING = {f"wal-{published}": published for published in PUBLISHED}
IN_LATENCY = ("wal-delete", POLLER)
PAYLOAD = 200
FIGURES = ("rows_per_s", "relay_cpu", "postgres_cpu", "peak_rss_mb")

# By default a node has so many workers, and each at most two batches of this size between reading and settling.
WORKERS, BATCH_MAX = 4, 1000
IN_FLIGHT = WORKERS * 2 * BATCH_MAX
KILLED_SIZE = 1000

WANTED_OF_RECEIVER = 1.5                # of its speed, with the first kind of backlog, when rows are kept
WANTED_MB = 40


def loads(quick):
    """(rows, rows in a transaction) of each kind of backlog."""
    return [(100_000, 1000), (20_000, 10), (20_000, 1)] if quick else [(500_000, 1000), (200_000, 10), (200_000, 1)]


def run(lab, plan, progress):
    for name, title in PARTICIPANTS.items():
        progress(f"wal: warming up, {title}")
        drain(lab, name, 20_000 if plan.quick else 100_000, 1000)
    parts = [drain_all(lab, plan, progress, rows, size) for rows, size in loads(plan.quick)]
    peaks = [run["peak_rss_mb"] for part in parts for run in part["runs"] if run["participant"] in TAILING]
    return {
        "parts": parts,
        "peak_rss_mb": summary([max(peaks)]),
        "latency": compare_latency(lab, plan, progress),
        "repeats": count_repeats(lab, plan, progress),
    }


def by_name(runs, names):
    """The runs of each, in the order of rounds."""
    return {name: sorted((run for run in runs if run["participant"] == name), key=lambda run: run["round"])
            for name in names}


def summaries(runs, figures):
    return {name: {figure: summary([run[figure] for run in of]) for figure in figures} for name, of in runs.items()}


# ---- Speed

def drain_all(lab, plan, progress, rows, size):
    runs = []
    for number in range(plan.rounds):
        # Each participant is the first one as often as the others.
        for name in rotated(list(PARTICIPANTS), number):
            progress(f"wal: {rows:,} rows in transactions of {size:,}, round {number + 1} of {plan.rounds}, "
                     f"{PARTICIPANTS[name]}")
            runs.append({"round": number, "participant": name, **drain(lab, name, rows, size)})
    of = by_name(runs, PARTICIPANTS)
    speed = {name: [run["rows_per_s"] for run in of[name]] for name in PARTICIPANTS}
    return {
        "rows": rows,
        "transaction_rows": size,
        "entities": ENTITIES,
        "payload_bytes": PAYLOAD,
        "summary": summaries(of, FIGURES),
        "ratios": {name: {other: ratio(of_name, speed[other]) for other in (RECEIVER, POLLER)}
                   for name, of_name in speed.items()},
        "runs": runs,
    }


def drain(lab, name, rows, size):
    """One run on fresh rows. Time counts from the start of the process to the last row deleted; where rows are kept, to
    the last message in the topic."""
    if name == RECEIVER:
        return receive(lab, rows, size)
    with lab.topic() as (entity_type, topic), reader(lab, name) as start:
        end = lab.fill(entity_type, rows, ENTITIES, PAYLOAD, size)
        postgres_before = lab.postgres_cpu_seconds()
        with start() as participant:
            ended = wait(lab, name, topic, rows, end, participant)
            relay_cpu = participant.cpu_seconds()
            postgres_cpu = lab.postgres_cpu_seconds() - postgres_before
            peak = participant.peak_rss_mb()
        return figures(rows, ended - participant.started, relay_cpu, postgres_cpu, peak)


def reader(lab, name):
    return lab.tailed(TAILING[name]) if name in TAILING else lab.reader(name)


def wait(lab, name, topic, rows, end, participant):
    """Waits until all is done; returns when that was."""
    if TAILING.get(name) != "keep":
        return lab.wait_until_drained(topic, rows, participant)
    lab.wait_until_published(topic, rows, participant)
    lab.wait_until_settled(end, participant)
    lab.check_published(topic, rows, participant)
    return lab.last_message_at(topic)


def receive(lab, rows, size):
    """The time ends with the process, which looks for the place where it has to end."""
    with lab.received() as start:
        end = lab.fill("order", rows, ENTITIES, PAYLOAD, size)
        postgres_before = lab.postgres_cpu_seconds()
        with start(end) as participant:
            ended, cpu, peak, written = participant.wait()
        postgres_cpu = lab.postgres_cpu_seconds() - postgres_before
        # It ends well only behind `end`. But where the publication lacks something, nothing comes, and soon.
        if written < rows * PAYLOAD:
            raise BenchError(f"{RECEIVER} wrote {written} bytes for {rows} rows of {PAYLOAD}")
        return figures(rows, ended - participant.started, cpu, postgres_cpu, peak)


def figures(rows, seconds, relay_cpu, postgres_cpu, peak):
    return {
        "seconds": seconds,
        "rows_per_s": rows / seconds,
        "relay_cpu": relay_cpu * 100_000 / rows,
        "postgres_cpu": postgres_cpu * 100_000 / rows,
        "peak_rss_mb": peak,
    }


# ---- Latency

def compare_latency(lab, plan, progress):
    seconds = latency.duration(plan)
    runs = []
    for number in range(plan.rounds):
        for name in rotated(list(IN_LATENCY), number):
            progress(f"wal: latency at {latency.RATE} rows/s for {seconds} s, round {number + 1} of {plan.rounds}, "
                     f"{PARTICIPANTS[name]}")
            with reader(lab, name) as start:
                measured = latency.measure(lab, seconds, lambda topic: start())
            runs.append({"round": number, "participant": name, **measured})
    of = by_name(runs, IN_LATENCY)
    return {
        "rows_per_s": latency.RATE,
        "seconds": seconds,
        "summary": summaries(of, latency.FIGURES),
        "ratios": {f"wal/{POLLER} p{percent}": ratio(*([run[f"p{percent}_ms"] for run in runs] for runs in of.values()))
                   for percent in latency.PERCENTILES},
        "runs": runs,
    }


# ---- Repeats

def count_repeats(lab, plan, progress):
    rows = 100_000 if plan.quick else 500_000
    runs = []
    for number in range(plan.rounds):
        for name in rotated(list(TAILING), number):
            progress(f"wal: a kill while {rows:,} rows are published, round {number + 1} of {plan.rounds}, "
                     f"{PARTICIPANTS[name]}")
            runs.append({"round": number, "participant": name, **kill(lab, name, rows)})
    return {
        "rows": rows,
        "transaction_rows": KILLED_SIZE,
        "in_flight": IN_FLIGHT,
        "summary": summaries(by_name(runs, TAILING), ("published_before", "repeats")),
        "most": summary([max(run["repeats"] for run in runs)]),
        "runs": runs,
    }


def kill(lab, name, rows):
    """Kills a relay when it has published a quarter, and lets another one do the rest."""
    with lab.topic() as (entity_type, topic), reader(lab, name) as start:
        end = lab.fill(entity_type, rows, ENTITIES, PAYLOAD, KILLED_SIZE)
        with start() as participant:
            lab.wait_until_published(topic, rows // 4, participant)
            participant.kill()
        published = lab.published(topic)
        if published >= rows:
            raise BenchError(f"{participant.name} had published all rows before it was killed")
        with start() as participant:
            lab.wait_until_settled(end, participant)
            if TAILING[name] == "delete" and not lab.is_empty():
                raise BenchError(f"{participant.name} settled all rows, but did not delete them")
        seen = lab.numbers(topic)
        if len(seen) != rows:
            raise BenchError(f"{participant.name} published {len(seen)} of {rows} rows after a kill")
        return {"published_before": published, "repeats": seen.total() - rows}
