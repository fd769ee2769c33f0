"""What is done to a running system. Each fault is a generator that yields how many seconds to wait before it goes on.

A fault leaves everything running again when it ends, except that `join` and `leave` change the number of nodes.
"""

import time
from typing import Callable, NamedTuple

import psycopg


class Frozen(NamedTuple):
    """From when to when a node did not run."""

    node: str
    begin: float
    end: float


def kill(scene, chance):
    node = chance.choice(scene.fleet.nodes)
    node.kill()
    yield chance.uniform(0.1, 2.5)
    node.start()


def freeze(scene, chance):
    node, begin = chance.choice(scene.fleet.nodes), time.time()
    node.freeze()
    yield scene.reader.lease + chance.uniform(0.3, 2.5)
    node.thaw()
    scene.frozen.append(Frozen(node.name, begin, time.time()))


def terminate(scene, chance):
    """All sessions of the nodes, or some of them."""
    share = chance.choice((1.0, 0.5))
    try:
        with scene.database.connect(connect_timeout=2) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name LIKE 'postrider%%' AND random() < %s", (share,))
    except psycopg.OperationalError:
        pass    # the server has just been stopped by a fault at the same time: it has ended them
    yield 0


def restart_postgres_fast(scene, chance):
    yield from _restart_postgres(scene, chance, "fast")


def restart_postgres_immediate(scene, chance):
    yield from _restart_postgres(scene, chance, "immediate")


def _restart_postgres(scene, chance, mode):
    scene.database.server.stop(mode)
    yield chance.uniform(0.0, 1.5)
    scene.database.server.start()


def restart_kafka(scene, chance):
    """Writers go on slowly meanwhile: a broker needs seconds of processor time to start, which they would take."""
    pause, scene.writers.pause = scene.writers.pause, 10 * scene.writers.pause
    if chance.random() < 0.5:
        scene.kafka.kill()
    else:
        scene.kafka.stop()
    yield chance.uniform(0.0, 1.0)
    scene.kafka.start()
    scene.writers.pause = pause


def cut_postgres(scene, chance):
    yield from _cut(scene, _ways_to_postgres(scene, chance), chance)


def cut_kafka(scene, chance):
    yield from _cut(scene, [scene.way_to_kafka], chance)


def _cut(scene, proxies, chance):
    """Connections end in order, by a reset, or without a word: then nothing comes through until both give up."""
    how = chance.choice(("cut", "reset", "silence"))
    for proxy in proxies:
        getattr(proxy, how)()
    yield scene.reader.lease + 1.0 if how == "silence" else 1.0
    for proxy in proxies:
        proxy.mend()


def delay_postgres(scene, chance):
    yield from _delay(_ways_to_postgres(scene, chance), chance)


def delay_kafka(scene, chance):
    yield from _delay([scene.way_to_kafka], chance)


def _delay(proxies, chance):
    milliseconds, jitter = chance.randrange(200, 500), chance.choice((0, 100))
    for proxy in proxies:
        proxy.delay(milliseconds, jitter)
    yield 2.0
    for proxy in proxies:
        proxy.mend()


def _ways_to_postgres(scene, chance):
    """Those of all nodes, or of one, so that the others take over while it may still reach the broker."""
    nodes = chance.choice((scene.fleet.nodes, [chance.choice(scene.fleet.nodes)]))
    return [scene.way_to_postgres(node.name) for node in nodes]


def join(scene, chance):
    node = scene.fleet.add()
    while not node.ready:
        scene.fleet.look_after()
        yield 0.05


def leave(scene, chance):
    node = chance.choice(scene.fleet.nodes)
    node.start_to_leave()
    while not node.has_left:
        yield 0.05
    scene.fleet.remove(node)


def rolling(scene, chance):
    for node in list(scene.fleet.nodes):
        node.start_to_leave()
        while not node.has_left:
            yield 0.05
        node.start()
        while not node.ready:
            scene.fleet.look_after()
            yield 0.05
        yield chance.uniform(0.0, 0.3)


def room_for_one_more(scene):
    return len(scene.fleet.nodes) < scene.nodes + 2


def more_than_one(scene):
    return len(scene.fleet.nodes) > max(1, scene.nodes - 1)


def always(scene):
    return True


BLOW, OUTAGE = "begin", "end"       # from which moment recovery counts


class Kind(NamedTuple):
    """`touches` is what it acts upon: two faults at once touch different things. `sink` is the only one it is for."""

    act: Callable
    since: str
    touches: str
    sink: str = None
    when: Callable = always


FAULTS = {
    "kill": Kind(kill, BLOW, "nodes"),
    "freeze": Kind(freeze, BLOW, "nodes"),
    "join": Kind(join, BLOW, "nodes", when=room_for_one_more),
    "leave": Kind(leave, BLOW, "nodes", when=more_than_one),
    "rolling": Kind(rolling, OUTAGE, "nodes"),
    "terminate": Kind(terminate, BLOW, "postgres"),
    "postgres-fast": Kind(restart_postgres_fast, OUTAGE, "postgres"),
    "postgres-immediate": Kind(restart_postgres_immediate, OUTAGE, "postgres"),
    "cut-postgres": Kind(cut_postgres, OUTAGE, "postgres"),
    "delay-postgres": Kind(delay_postgres, OUTAGE, "postgres"),
    "kafka": Kind(restart_kafka, OUTAGE, "kafka", sink="kafka"),
    "cut-kafka": Kind(cut_kafka, OUTAGE, "kafka", sink="kafka"),
    "delay-kafka": Kind(delay_kafka, OUTAGE, "kafka", sink="kafka"),
}
CLEAN = frozenset(("join", "leave", "rolling"))     # nothing breaks: not even a repeat is allowed


def for_sink(sink, names=None):
    """The faults that a run with this sink can have, of those that are asked for."""
    return [name for name in names or FAULTS if FAULTS[name].sink in (None, sink)]
