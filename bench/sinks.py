"""How fast a full outbox gets empty into each sink, beside a bare loop: the same client library and the same messages, made up
in memory and only sent.

Servers are those of the conformance suite, one kind at a time, so that none pays for another. The sink stdout has no client
library and nothing to compare.
"""

import contextlib
import tempfile
from pathlib import Path

from tests.e2e import destinations

from .drain import rotated
from .lab import Receiver, write_settings
from .stats import ratio, summary

ENTITIES = 20_000
PAYLOAD = 200
RELAY, BARE = "postrider", "bare loop"
FIGURES = ("rows_per_s", "cpu")
ENTITY_TYPE = "order"

SLOW = {"rabbitmq": 2, "sqs": 20, "webhook": 10}        # servers that get so many times fewer rows

# What a sink must reach of the bare loop's speed.
WANTED, WANTED_OF_KAFKA = 0.5, 0.8

# Where the bare loop sends to, as its arguments. Rows are routed to the same topic; RabbitMQ's queue is bound for order.*.
TARGETS = {
    "kafka": lambda place, sink: {"address": sink["brokers"], "topic": place.topic},
    "nats": lambda place, sink: {"address": sink["servers"], "topic": place.subject},
    "postgres": lambda place, sink: {"address": sink["url"], "topic": sink["table"]},
    "queue": lambda place, sink: {"address": sink["url"], "topic": place.route["topic"]},
    "rabbitmq": lambda place, sink: {"address": sink["hosts"], "exchange": sink["exchange"], "topic": "order.placed",
                                     "user": sink["user"], "password": place.server.password},
    "redis": lambda place, sink: {"address": sink["address"], "topic": place.stream},
    "sqs": lambda place, sink: {"address": sink["endpoint"], "topic": place.url},
    "webhook": lambda place, sink: {"address": place.server.url("/any/"), "topic": "order"},
}


def wanted(name):
    return WANTED_OF_KAFKA if name == "kafka" else WANTED


@contextlib.contextmanager
def destination(name):
    kind = next(kind for kind in destinations.DESTINATIONS if kind.name == name)
    with tempfile.TemporaryDirectory(prefix="postrider-bench-") as folder, \
            contextlib.closing(kind(Path(folder))) as opened:
        yield opened


def drain(lab, name, place, rows):
    """By postrider: from the start of its process to the last row deleted."""
    route = {"topic": TARGETS[name](place, place.sink())["topic"]}
    settings = write_settings(lab.folder / "sink.yaml", lab.database, place.sink(), outbox={"route": route})
    lab.fill(ENTITY_TYPE, rows, ENTITIES, PAYLOAD)
    place_in_log = lab.log_place()
    with lab.run_postrider(settings) as participant:
        ended = lab.wait_until_deleted(place_in_log, participant, timeout=300)
        cpu = participant.cpu_seconds()
    return {"participant": RELAY, "rows_per_s": rows / (ended - participant.started), "cpu": cpu * 100_000 / rows}


def send(lab, name, place, rows):
    """By the bare loop: from the start of its process to its end."""
    target = TARGETS[name](place, place.sink()) | {"rows": rows, "entities": ENTITIES, "payload": PAYLOAD}
    arguments = [part for option, value in target.items() for part in (f"--{option}", value)]
    with Receiver(BARE, [lab.peers / "bare_send", name, *arguments], lab.folder / "bare_send.log") as sender:
        ended, cpu, _, _ = sender.wait()
    return {"participant": BARE, "rows_per_s": rows / (ended - sender.started), "cpu": cpu * 100_000 / rows}


def run(lab, plan, progress):
    runs = []
    for name in TARGETS:
        rows = (20_000 if plan.quick else 200_000) // SLOW.get(name, 1)
        with destination(name) as opened:
            measure = {RELAY: lambda: drain(lab, name, opened.fresh(), rows),
                       BARE: lambda: send(lab, name, opened.fresh(), rows)}
            progress(f"sinks: warming up, {name}")
            for participant in measure:
                measure[participant]()
            for number in range(plan.rounds):
                for participant in rotated(list(measure), number):
                    progress(f"sinks: {rows:,} rows, round {number + 1} of {plan.rounds}, {name}, {participant}")
                    runs.append({"round": number, "sink": name, "rows": rows, **measure[participant]()})
    return results(runs)


def results(runs):
    def figures(name, participant, figure):
        return [run[figure] for run in sorted(runs, key=lambda run: run["round"])
                if (run["sink"], run["participant"]) == (name, participant)]

    return {
        "entities": ENTITIES,
        "payload_bytes": PAYLOAD,
        "summary": {name: {participant: {figure: summary(figures(name, participant, figure)) for figure in FIGURES}
                           for participant in (RELAY, BARE)} for name in TARGETS},
        "ratios": {name: ratio(figures(name, RELAY, "rows_per_s"), figures(name, BARE, "rows_per_s")) for name in TARGETS},
        "runs": runs,
    }
