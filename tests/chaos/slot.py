"""What a reader with a replication slot meets beside faults: rows from before its slot, and a slot that vanishes."""

import subprocess
import time

import psycopg

from tests.e2e.relay import postrider, wait_until
from tests.e2e.scene import END_READERS

INIT_WITHIN, KILLED_WITHIN = 30, 0.4    # seconds; the second is about how long an init takes
DROP_WITHIN, END_WITHIN = 10, 30
WRONG_SETTINGS = 78


# ---- The beginning --------------------------------------------------------------------------------------------------

def install(scene, config):
    """Makes the slot while writers write: what they commit meanwhile is in the list of rows or in the log, not in both.

    Now and then it is killed in the middle, and begun again.
    """
    for _ in range(scene.chance.randrange(3)):
        seconds = scene.chance.uniform(0, KILLED_WITHIN)
        try:
            postrider("init", "-c", config, timeout=seconds)
        except subprocess.TimeoutExpired:
            scene.tell(f"init was killed after {seconds:.3f} s")

    def install_at_last():
        # The server may take a moment to see that who was killed is gone, and until then the slot is in use.
        done = postrider("init", "-c", config)
        scene.tell(f"init: {done.returncode} {done.stdout} {done.stderr}")
        return done.returncode == 0

    wait_until(install_at_last, INIT_WITHIN, "an init that works", pause=0.2)


def backlog(scene):
    """How many rows from before the slot are not published yet."""
    return scene.database.value("SELECT count(*) FROM postrider.wal_backlog")


# ---- The end --------------------------------------------------------------------------------------------------------

def lose(scene):
    """Somebody drops the slot. All nodes must end and say why, and nobody may make another one."""
    slot = scene.database.value("SELECT slot FROM postrider.wal")
    for node in scene.fleet.nodes:
        node.wanted = False
    with scene.database.connect() as connection:
        wait_until(lambda: _drop(connection, scene.database, slot), DROP_WITHIN, "the end of the slot", pause=0.005)
        scene.tell(f"{slot} is dropped")
        deadline = time.monotonic() + END_WITHIN
        for node in scene.fleet.nodes:
            _expect_end(scene, node, slot, deadline)
        if connection.execute("SELECT FROM pg_replication_slots WHERE slot_name = %s", (slot,)).fetchall():
            scene.fleet.fail(f"somebody has made the slot {slot} anew")


def _drop(connection, database, slot):
    """Whether it is gone. Who reads from it is back soon, so this may take several tries."""
    connection.execute(END_READERS, (database.name,))
    try:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    except psycopg.errors.ObjectInUse:
        return False
    return True


def _expect_end(scene, node, slot, deadline):
    relay = node.relay
    while relay.running and time.monotonic() < deadline:
        time.sleep(0.02)
    if relay.running:
        scene.fleet.fail(f"{relay.name} goes on without its slot")
        return
    if relay.process.returncode != WRONG_SETTINGS:
        scene.fleet.fail(f"{relay.name} ended with {relay.process.returncode} when its slot was gone")
    if not any(slot in event["error"] and "--recreate-slot" in event.get("hint", "")
               for event in relay.events("relay.failed")):
        scene.fleet.fail(f"{relay.name} does not say that its slot is gone, and what to do")
