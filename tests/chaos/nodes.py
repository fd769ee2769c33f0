"""Several postrider processes that come, go, die and freeze."""

import time

from tests.e2e.relay import Relay

READY_WITHIN, STOP_WITHIN = 60, 60


class Node:
    """One place in the fleet. Each start is a new life: a process and a log of its own, under the same name.

    Numbers of claims begin anew with each life, so the header `relay` begins with the life's number in the fleet.
    """

    def __init__(self, fleet, name):
        self.fleet = fleet
        self.name = name
        self.relay = None
        self.wanted = False     # it should be running, so that an end of its own is a failure
        self.frozen = False

    def start(self):
        self.fleet.lives += 1
        content = self.fleet.settings(self.name, f"{self.fleet.lives}:{{postrider_relay}}")
        self.relay = Relay(self.fleet.folder, content)
        self.relay.start(wait=False)
        self.wanted = True
        self.fleet.tell(f"{self.name} starts as {self.relay.name}")

    @property
    def ready(self):
        return self.wanted and bool(self.relay.events("relay.ready"))

    def kill(self):
        self.wanted = False
        self.relay.kill9()

    def freeze(self):
        self.frozen = True
        self.relay.freeze()

    def thaw(self):
        self.frozen = False
        if self.relay.running:
            self.relay.thaw()

    def start_to_leave(self):
        self.wanted = False
        self.relay.stop_asked = time.monotonic()
        self.relay.process.terminate()

    @property
    def has_left(self):
        """True when a stop has ended; one that takes too long or ends badly is a failure of the run."""
        if not self.relay.running:
            if self.relay.process.returncode != 0:
                self.fleet.fail(f"{self.relay.name} ended with {self.relay.process.returncode} when asked to stop")
            return True
        if time.monotonic() - self.relay.stop_asked > STOP_WITHIN:
            self.fleet.fail(f"{self.relay.name} did not stop within {STOP_WITHIN} s")
            self.relay.kill9()
            return True
        return False


class Fleet:
    """All nodes of a run. `settings(name, relay)` makes the configuration of one; `tell` is for the run's diary."""

    def __init__(self, folder, settings, count, tell):
        self.folder = folder
        self.settings = settings
        self.count = count
        self.tell = tell
        self.nodes = []
        self.failures = []
        self.lives = 0

    def fail(self, text):
        self.tell(f"FAILED: {text}")
        self.failures.append(text)

    def start(self):
        for _ in range(self.count):
            self.add()
        self.wait_until_ready()

    def add(self):
        node = Node(self, f"node-{1 + max([int(node.name[5:]) for node in self.nodes], default=0)}")
        self.nodes.append(node)
        node.start()
        return node

    def remove(self, node):
        self.nodes.remove(node)

    def wait_until_ready(self):
        deadline = time.monotonic() + READY_WITHIN
        while not all(node.ready for node in self.nodes):
            self.look_after()
            if time.monotonic() > deadline:
                late = [node.relay.name for node in self.nodes if not node.ready]
                self.fail(f"{', '.join(late)} not ready within {READY_WITHIN} s")
                return
            time.sleep(0.05)

    def look_after(self):
        """A node that ended by itself is a failure; it is started again so that the run goes on."""
        for node in self.nodes:
            if node.wanted and not node.relay.running:
                self.fail(f"{node.relay.name} ended by itself with {node.relay.process.returncode}")
                node.start()
                time.sleep(0.2)

    def stop(self):
        """All of them cleanly."""
        self.look_after()
        for node in self.nodes:
            node.start_to_leave()
        while not all([node.has_left for node in self.nodes]):
            time.sleep(0.05)

    def close(self):
        for node in self.nodes:
            if node.relay.running:
                node.relay.kill9()
