"""How fast each reader empties a full outbox, beside the bare pipeline; and whether a second node gets in its way.

A reader's two runs of a round, with four workers in one process and with eight in two, follow each other directly: the
one with one node is also what is compared with the bare pipeline.
"""

from .drain import ENTITIES, PARTICIPANTS, drain, drain_once, rotated
from .lab import READERS
from .stats import ratio, summary

BARE = "c"                              # in drain.PARTICIPANTS
PAYLOAD = 200
NODES = (1, 2)
WORKERS = 4                             # of a node, by default
FIGURES = ("rows_per_s", "relay_cpu", "postgres_cpu", "peak_rss_mb", "first_message_ms")

# What a reader must reach of the bare pipeline's speed, and with two nodes of its own with one.
WANTED = {
    "advisory": 0.85,
    "lease": 0.6,
    "skip_locked": 0.7,
    "skip_locked-entity": 0.5,
    "shards": 0.95,
    "dispatcher": 0.9,
}
WANTED_OF_TWO = 0.95


def title(participant):
    return PARTICIPANTS[participant][0] if participant == BARE else participant


def drain_by(lab, participant, nodes, rows):
    if participant == BARE:
        return drain_once(lab, BARE, rows, PAYLOAD)
    with lab.reader(participant, nodes) as start:
        return {"participant": participant, **drain(lab, rows, PAYLOAD, lambda topic: start())}


def run(lab, plan, progress):
    rows = 50_000 if plan.quick else 500_000
    participants = [BARE, *(plan.readers or READERS)]
    for participant in participants:
        progress(f"readers: warming up, {title(participant)}")
        drain_by(lab, participant, 1, rows // 5)
    runs = []
    for number in range(plan.rounds):
        # Each participant is the first one as often as the others, and so is each number of nodes.
        for participant in rotated(participants, number):
            for nodes in [1] if participant == BARE else rotated(list(NODES), number):
                progress(f"readers: {rows:,} rows, round {number + 1} of {plan.rounds}, {title(participant)}"
                         + (f", {nodes * WORKERS} workers on {nodes}" if participant != BARE else ""))
                runs.append({"round": number, "nodes": nodes, **drain_by(lab, participant, nodes, rows)})
    return results(rows, participants, runs)


def results(rows, participants, runs):
    def of(participant, nodes):
        return sorted((run for run in runs if (run["participant"], run["nodes"]) == (participant, nodes)),
                      key=lambda run: run["round"])

    def speed(participant, nodes):
        return [run["rows_per_s"] for run in of(participant, nodes)]

    readers = [participant for participant in participants if participant != BARE]
    return {
        "rows": rows,
        "entities": ENTITIES,
        "payload_bytes": PAYLOAD,
        "summary": {participant: {figure: summary([run[figure] for run in of(participant, 1)]) for figure in FIGURES}
                    for participant in participants},
        "ratios": {reader: ratio(speed(reader, 1), speed(BARE, 1)) for reader in readers},
        "two_nodes": {
            "summary": {reader: {nodes: summary(speed(reader, nodes)) for nodes in NODES} for reader in readers},
            "ratios": {reader: ratio(speed(reader, 2), speed(reader, 1)) for reader in readers},
        },
        "runs": runs,
    }
