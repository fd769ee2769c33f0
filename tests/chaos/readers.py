"""Which readers are put through it, with which settings. A new one needs a row."""

import re
from typing import NamedTuple

from tests.e2e.relay import postrider


class Reader(NamedTuple):
    """`settings` are those of the outbox. Without `ordered` only loss and phantoms are judged.

    A `variant` of another row has one run instead of all in the bounded set. `lease` is how many seconds a node keeps
    what it has when it says nothing. With `backlog`, that many rows of each entity are written before the reader is
    installed, and faults strike while they are published. With `loses_slot`, its replication slot is dropped at the
    end. `poison` is the share of transactions with a row that no sink takes, which becomes a dead letter.
    """

    settings: dict
    ordered: bool = True
    variant: bool = False
    lease: float = 2.0
    backlog: int = 0
    loses_slot: bool = False
    poison: float = 0.0


# Leases are short, like the idle timeout of sessions, so that a freeze outlasts them soon.
WAL = {"reader": "wal", "wal": {"sender_timeout": "3s"}}
SMALL_PAGES = {"batch_size": 50, "batch_max": 50}       # so that a backlog lasts for some faults
DEAD_LETTERS = {"failure": {"then": "dead_letter", "max_retries": 1, "first_delay": "100ms"}}
POISON = 0.01
READERS = {
    "advisory": Reader({"reader": "advisory"}),
    "lease": Reader({"reader": "lease", "lease": "2s"}),
    "skip_locked": Reader({"reader": "skip_locked"}, ordered=False),
    "skip_locked-entity": Reader({"reader": "skip_locked", "order": "entity"}),
    "shards": Reader({"reader": "shards", "lease": "2s"}),
    "shards-rendezvous": Reader(
        {"reader": "shards", "lease": "2s", "shards": {"assignment": "rendezvous"}}, variant=True),
    "shards-id": Reader({"reader": "shards", "lease": "2s", "shards": {"key": "id"}}, ordered=False, variant=True),
    "dispatcher": Reader({"reader": "dispatcher"}),
    "wal": Reader(WAL, lease=3.0),
    "advisory-poison": Reader({"reader": "advisory"} | DEAD_LETTERS, variant=True, poison=POISON),
    "lease-poison": Reader({"reader": "lease", "lease": "2s"} | DEAD_LETTERS, variant=True, poison=POISON),
    "dispatcher-poison": Reader({"reader": "dispatcher"} | DEAD_LETTERS, variant=True, poison=POISON),
    "wal-poison": Reader(WAL | DEAD_LETTERS, variant=True, lease=3.0, poison=POISON),
    "wal-backlog": Reader(WAL | SMALL_PAGES, variant=True, lease=3.0, backlog=100, loses_slot=True),
}


def known():
    """The names of the rows whose reader this build has."""
    text = postrider("--version").stdout
    section = re.search(r"^readers:\n((?:  .*\n)+)", text, re.MULTILINE)
    built = set(re.findall(r"^  (\S+)", section.group(1), re.MULTILINE))
    return [name for name, reader in READERS.items() if reader.settings["reader"] in built]
