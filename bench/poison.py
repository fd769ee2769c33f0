"""What one row that is refused again and again does to everybody else: latency of 999 entities while the first row of the
thousandth is too large for its topic, beside the same without it."""

import random

from . import latency
from .drain import rotated
from .lab import BenchError
from .stats import ratio, summary

# The row is read again with each attempt, and refused. Quick retries are as many as anybody would ask for.
FAILURES = {
    "without": None,
    "default": {},
    "quick": {"first_delay": "50ms", "max_delay": "50ms", "max_retries": 1_000_000},
}
TITLES = {
    "without": "no poisoned entity",
    "default": "one, tried again with the default delays",
    "quick": "one, tried again every 50 ms",
}
BYTES = 2_000_000                       # twice what a topic takes
FIGURES = (*latency.FIGURES, "attempts")
WANTED_RATIO = 1.1
INSERT = "INSERT INTO public.outbox (entity_type, entity_id, event_type, payload) VALUES (%s, 'order-0', 'order.placed', %s)"
ATTEMPTS = "SELECT coalesce(max(attempts), 0) FROM postrider.retry"


def duration(plan):
    return 4 if plan.quick else 20


def run(lab, plan, progress):
    seconds = duration(plan)
    runs = []
    for number in range(plan.rounds):
        for name in rotated(list(FAILURES), number):
            progress(f"poison: {latency.RATE} rows/s for {seconds} s, round {number + 1} of {plan.rounds}, {TITLES[name]}")
            runs.append({"round": number, "participant": name, **measure(lab, seconds, name)})
    of = {name: sorted((run for run in runs if run["participant"] == name), key=lambda run: run["round"])
          for name in FAILURES}
    return {
        "rows_per_s": latency.RATE,
        "seconds": seconds,
        "entities": latency.ENTITIES,
        "summary": {name: {figure: summary([run[figure] for run in of[name]]) for figure in FIGURES} for name in FAILURES},
        "ratios": {f"{name} p{percent}": ratio(*([run[f"p{percent}_ms"] for run in of[which]]
                                                 for which in (name, "without")))
                   for name in FAILURES if name != "without" for percent in (50, 99)},
        "runs": runs,
    }


def measure(lab, seconds, name):
    """One run. Rows of the poisoned entity are not measured, in either case."""
    failure = FAILURES[name]
    settings = lab.settings(f"bench-{name}", {"failure": failure} if failure else None)
    try:
        measured = latency.measure(
            lab, seconds, lambda topic: lab.run_postrider(settings),
            before=None if failure is None else lambda entity_type: poison(lab, entity_type),
            arrives=None if failure is None else is_other, counts=is_other)
        attempts = lab.observer.execute(ATTEMPTS).fetchone()[0]
    finally:
        lab.observer.execute("TRUNCATE postrider.retry")
    if (attempts > 0) != (failure is not None):
        raise BenchError(f"a row was refused {attempts} times, with {TITLES[name]}")
    return {**measured, "attempts": attempts}


def poison(lab, entity_type):
    """It cannot be compressed much, so that reading it costs what its size says."""
    text = random.Random(0).randbytes(BYTES // 2).hex()
    lab.observer.execute(INSERT, (entity_type, f'{{"n": -1, "text": "{text}"}}'))


def is_other(number):
    return number % latency.ENTITIES != 0
