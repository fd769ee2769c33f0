"""What a run must keep to, and what is only measured. Pure functions over the checker's report."""

from tests.chaos.faults import CLEAN

ALWAYS = ("lost", "waiting", "phantom", "unsettled", "held", "buried", "scattered")
ORDERED = ("disorder", "overlap")
BACKLOG = "backlog"     # as the detail of a fault: it struck while rows from before the slot were published
WAKING = 10.0       # seconds after a freeze in which what a node still had on its way may turn up


def node_of(claim):
    """'5:node-1/3/2.77': of worker 3 of node-1, which was the fifth process of the run."""
    return claim.partition(":")[2].partition("/")[0]


def follows_a_freeze(time, claims, frozen):
    """Whether a node that was frozen at that time or shortly before has to do with it."""
    nodes = {node_of(claim) for claim in claims if claim}
    return any(freeze.begin <= time <= freeze.end + WAKING and (not nodes or freeze.node in nodes) for freeze in frozen)


def after_freeze(report, frozen):
    """Of each kind that only fencing could prevent, those that a freeze explains: name → list."""
    involved = {
        "disorder": lambda it: (it.arrival.time, (it.arrival.claim, it.by.claim)),
        "overlap": lambda it: (it.outer.time, it.claims),
    }
    return {name: [it for it in getattr(report, name) if follows_a_freeze(*facts(it), frozen)]
            for name, facts in involved.items()}


def violations(report, frozen, kinds, ordered):
    """What is wrong with a run: name → how many. `kinds` are the faults that it had."""
    excused = after_freeze(report, frozen)
    wrong = {name: len(getattr(report, name)) for name in ALWAYS}
    if ordered:
        wrong |= {name: len(getattr(report, name)) - len(excused[name]) for name in ORDERED}
    if CLEAN.issuperset(kinds):
        wrong["duplicates"] = len(report.duplicates)
    return {name: count for name, count in wrong.items() if count}


def shortcomings(faults, backlog):
    """Why a run proves nothing of what it is for."""
    if backlog and not any(fault.detail == BACKLOG for fault in faults):
        return ["all rows from before the slot were published before the first fault"]
    return []


def unpoisoned(poison, remains):
    """The same, of a run with poison."""
    return ["not one row was given up"] if poison and not remains.dead else []
