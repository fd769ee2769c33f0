"""One run: writers, nodes and faults for some seconds; then quiet, drained, compared."""

import csv
import json
import os
import random
import shutil
import time
import traceback
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial

from tests.chaos import judge, slot
from tests.chaos.faults import FAULTS, for_sink
from tests.chaos.nodes import Fleet
from tests.chaos.readers import READERS
from tests.e2e import ledger
from tests.e2e.checker import Report, check
from tests.e2e.consume import read_topic
from tests.e2e.recovery import LATE, Fault, recoveries, summary
from tests.e2e.relay import postrider, write_config
from tests.e2e.scene import Database, dropped

ENTITIES, WRITERS, PAUSE = 300, 4, 0.005        # some hundred rows per second
BURSTS, BURST = 0.01, (10, 100)                 # of all transactions; rows of one entity
LINGER = (None, 30, 200)                        # milliseconds: much is under way with Kafka's client when faults strike
                                                # (the last is too slow for the small pages of a backlog)
QUIET = (0.3, 2.5)                              # seconds between faults
TWO_AT_ONCE = 0.25                              # how often a second fault joins
WARM_WITHIN, DRAINED_WITHIN = 10, 120
TABLE_ONLY = {"reader": "advisory"}             # whose installation leaves the table and nothing else


@dataclass(frozen=True)
class Plan:
    """What identifies a run and repeats it."""

    reader: str
    sink: str
    postgres: int
    seconds: float
    seed: int
    nodes: int = 3
    faults: tuple = None

    @property
    def name(self):
        clean = "-" + "+".join(self.faults) if self.faults else ""
        return f"{self.reader}-{self.sink}-{self.postgres}-{self.seed}{clean}"

    @property
    def command(self):
        faults = f" --faults {','.join(self.faults)}" if self.faults else ""
        return (f"./dev chaos --reader {self.reader} --sink {self.sink} --postgres {self.postgres}"
                f" --seconds {self.seconds:g} --seed {self.seed} --nodes {self.nodes}{faults}")

    def chance(self):
        """The same plan has the same faults. Another reader, sink or version has others under the same seed."""
        return random.Random(f"{self.seed} {self.reader} {self.sink} {self.postgres}")


@dataclass
class Result:
    plan: Plan
    rows: int = 0
    faults: list = field(default_factory=list)          # of Fault
    recoveries: list = field(default_factory=list)      # seconds, one for each of them; empty when the run broke off
    counts: dict = field(default_factory=Report().counts)   # what the checker counted
    after_freeze: dict = field(default_factory=dict)    # of these, what is left by a freeze
    farthest: dict = field(default_factory=dict)        # the longest distance of a duplicate
    drained: float = 0.0                                # seconds
    refused: int = 0                                    # rows that a sink refused, as the nodes say
    failures: list = field(default_factory=list)        # of nodes, or of the run itself
    violations: dict = field(default_factory=dict)
    evidence: str = None

    @property
    def passed(self):
        return not self.violations and not self.failures

    def kinds(self):
        return Counter(kind for fault in self.faults for kind in fault.kind.split("+"))

    def felt(self):
        """Each fault with its recovery."""
        return list(zip(self.faults, self.recoveries, strict=True)) if self.recoveries else []

    def as_json(self):
        return {**asdict(self), "faults": [fault._asdict() for fault in self.faults], "command": self.plan.command,
                "recovery": summary(self.felt()), "passed": self.passed}


class Scene:
    """What faults may touch, and the diary of what happened."""

    def __init__(self, stage, plan, folder):
        self.plan = plan
        self.reader = READERS[plan.reader]
        self.folder = folder
        self.nodes = plan.nodes
        self.chance = plan.chance()
        self.linger = self.chance.choice(LINGER[:2] if self.reader.backlog else LINGER)
        self.diary = []
        self.frozen = []
        self.writers = None
        self.kafka = self.way_to_kafka = self.topic = None
        self.way_to_postgres = partial(stage.way_to_postgres, plan.postgres)
        self.database = Database(stage.postgres(plan.postgres), f"chaos_{os.getpid()}_{time.monotonic_ns()}")
        if plan.sink == "kafka":
            self.kafka, self.way_to_kafka = stage.kafka(), stage.way_to_kafka()
            # The broker's own clock says when a record arrived; a producer's would say when it was sent.
            limit = {"max.message.bytes": str(len(ledger.POISON) - 100_000)} if self.reader.poison else {}
            self.topic = self.kafka.create_topic(
                self.database.name, config={"message.timestamp.type": "LogAppendTime", **limit})
        self.fleet = Fleet(folder, self.settings, plan.nodes, self.tell)
        self.init = write_config(folder / "init.yaml", self.settings("init", "-"))
        self._create_table()

    def _create_table(self):
        """With what the reader needs, unless there is a backlog to be written before."""
        config = self.init
        if self.reader.backlog:
            config = write_config(self.folder / "table.yaml", self.settings("init", "-", TABLE_ONLY))
        done = postrider("init", "-c", config)
        assert done.returncode == 0, done.stderr

    def refuse_poison(self):
        """The event store does it as Kafka does: this row, and no other."""
        self.database.execute("ALTER TABLE postrider.event ADD CHECK (payload ->> 'poison' IS NULL)")

    def tell(self, text):
        self.diary.append(f"{time.time():.3f} {text}")

    def settings(self, node, relay, reader=None):
        sinks = {"kafka": self._kafka_sink, "postgres": lambda: {"type": "postgres"}}
        route = {"headers": {"relay": relay}} | ({"topic": self.topic} if self.topic else {})
        return {
            "node": node,
            "log": {"level": "info", "format": "json"},
            "database": {
                "url": f"postgresql://postgres@127.0.0.1:{self.way_to_postgres(node).port}/{self.database.name}",
                "idle_session_timeout": "2s"},
            "outboxes": {"orders": {
                "table": "public.outbox", "poll_interval": "1s", "sinks": [sinks[self.plan.sink]()], "route": route,
                **(reader or self.reader.settings)}},
        }

    def _kafka_sink(self):
        properties = {} if self.linger is None else {"properties": {"linger.ms": str(self.linger)}}
        return {"type": "kafka", "brokers": f"127.0.0.1:{self.way_to_kafka.port}", **properties}

    def log(self):
        """What arrived, read past the proxies."""
        if self.topic:
            return ledger.arrivals(read_topic(self.kafka, self.topic, timeout=120))
        with self.database.connect() as connection:
            return ledger.event_store(connection, ordered=False)    # the checker judges order


def run(stage, plan, keep, keep_all=False):
    """Runs a plan. The folder with everything that explains a failure stays below `keep` when there is one."""
    folder = keep / f"{plan.name}-{os.getpid()}-{time.monotonic_ns() // 1000000}"
    folder.mkdir(parents=True)
    stage.mend()
    scene = Scene(stage, plan, folder)
    result, evidence = Result(plan), None
    try:
        evidence = _play(scene, result)
    except Exception as error:
        scene.tell(traceback.format_exc())
        result.failures.append(f"the run broke off: {error!r}")
    finally:
        scene.fleet.close()
        stage.mend()
        dropped(scene.database)
    if result.passed and not keep_all:
        shutil.rmtree(folder)
    else:
        _keep_evidence(scene, result, evidence)
    return result


def _play(scene, result):
    entities = scene.database.entities(ENTITIES)
    scene.database.write_backlog(scene.reader.backlog)
    scene.refuse_poison()
    scene.writers = ledger.Writers(
        scene.database.dsn, entities, threads=WRITERS, pause=PAUSE, write=partial(_write, scene.reader.poison), patient=True)
    with scene.writers:
        if scene.reader.backlog:
            slot.install(scene, scene.init)
            scene.tell(f"{slot.backlog(scene)} rows are from before the slot")
        scene.fleet.start()
        if not scene.reader.backlog:
            _warm_up(scene)
        _strike_at_random(scene, result.faults)
        time.sleep(1)
    result.drained = _drain(scene)
    if scene.reader.loses_slot:
        slot.lose(scene)
    else:
        scene.fleet.stop()
    return _compare(scene, result)


def _write(poison, connection, entity, late):
    if random.random() < poison:
        ledger.write_poison(connection, entity)
    elif random.random() < BURSTS:
        ledger.write_burst(connection, entity, random.randint(*BURST))
    else:
        ledger.write_one(connection, entity, late)


# ---- Faults ---------------------------------------------------------------------------------------------------------

def _strike_at_random(scene, done):
    """Faults in random order with quiet times between, each kind once before any comes again."""
    plan, chance, deck = scene.plan, scene.chance, []
    names = for_sink(plan.sink, plan.faults)
    end = time.monotonic() + plan.seconds
    while time.monotonic() < end:
        chosen = [_draw(scene, deck, names, chance)]
        if chance.random() < TWO_AT_ONCE:
            second = _draw(scene, deck, names, chance)
            if FAULTS[second].touches != FAULTS[chosen[0]].touches:
                chosen.append(second)
            else:
                deck.append(second)
        done.append(_strike(scene, chosen, chance))
        time.sleep(chance.uniform(*QUIET))
        scene.fleet.look_after()


def _warm_up(scene):
    """Waits until rows pass quickly: a broker that has just been started is slow at first."""
    begin = time.monotonic()
    with scene.database.connect() as connection:
        while time.monotonic() - begin < WARM_WITHIN:
            time.sleep(0.5)
            age = connection.execute("SELECT extract(epoch FROM clock_timestamp() - min(l.at))::float8"
                                     " FROM public.outbox o JOIN public.ledger l USING (message_id)").fetchone()[0]
            if (age or 0.0) < LATE / 2:
                return


def _draw(scene, deck, names, chance):
    while True:
        if not deck:
            deck += chance.sample(names, len(names))
        name = deck.pop()
        if FAULTS[name].when(scene):
            return name


def _strike(scene, names, chance):
    """Does these faults at once; returns when all of them are over."""
    meets = judge.BACKLOG if scene.reader.backlog and slot.backlog(scene) else ""
    kind, begin = "+".join(sorted(names)), time.time()
    scene.tell(f"{kind} begins" + f" and meets the {meets}" * bool(meets))
    active = [[begin, name, FAULTS[name].act(scene, chance)] for name in names]
    since = begin
    while active:
        active.sort(key=lambda step: step[0])
        wake, name, steps = active[0]
        time.sleep(max(0.0, wake - time.time()))
        try:
            active[0][0] = time.time() + next(steps)
        except StopIteration:
            active.pop(0)
            scene.tell(f"{name} is over")
            if FAULTS[name].since == "end":
                since = time.time()
    return Fault(kind, begin, time.time(), since, meets)


# ---- The end --------------------------------------------------------------------------------------------------------

def _drain(scene):
    """Everything that is committed must be published and settled in a bounded time; returns how long it took."""
    begin = time.monotonic()
    scene.tell("drains")
    with scene.database.connect() as connection:
        while connection.execute("SELECT EXISTS (SELECT FROM public.outbox)").fetchone()[0]:
            scene.fleet.look_after()
            if time.monotonic() - begin > DRAINED_WITHIN:
                scene.fleet.fail(f"the outbox was not empty {DRAINED_WITHIN} s after the last fault")
                break
            time.sleep(0.1)
    scene.tell("is drained")
    return time.monotonic() - begin


def _compare(scene, result):
    """Fills the result; returns what it is derived from."""
    with scene.database.connect() as connection:
        committed, remains = ledger.read(connection), ledger.remains(connection)
    log = scene.log()
    report = check(committed, log, remains)
    result.rows = len(committed)
    result.counts = report.counts()
    result.recoveries = recoveries(committed, log, result.faults)
    result.after_freeze = {name: len(found) for name, found in judge.after_freeze(report, scene.frozen).items()}
    if report.duplicates:
        result.farthest = {"records": max(repeat.records for repeat in report.duplicates),
                           "seconds": max(repeat.seconds for repeat in report.duplicates)}
    result.refused = sum(path.read_text(errors="replace").count('"row.refused"') for path in scene.folder.glob("*.log"))
    result.failures += (scene.fleet.failures + judge.shortcomings(result.faults, scene.reader.backlog)
                        + judge.unpoisoned(scene.reader.poison, remains))
    result.violations = judge.violations(
        report, scene.frozen, result.kinds(), scene.reader.ordered)
    return committed, log, report


def _keep_evidence(scene, result, evidence):
    """Beside the nodes' settings and logs, which are in the folder already."""
    folder = scene.folder
    result.evidence = str(folder)
    (folder / "result.json").write_text(json.dumps(result.as_json(), indent=1, default=str) + "\n")
    (folder / "diary.txt").write_text("\n".join(scene.diary) + "\n")
    (folder / "frozen.json").write_text(json.dumps([freeze._asdict() for freeze in scene.frozen], indent=1) + "\n")
    for server in filter(None, (scene.database.server, scene.kafka)):
        shutil.copy(server.log_file, folder / f"{server.name.replace(' ', '-').lower()}.log")
    if evidence:
        committed, log, report = evidence
        _write_table(folder / "ledger.csv", committed)
        _write_table(folder / "log.csv", log)
        (folder / "report.txt").write_text("".join(
            f"{name}: {len(getattr(report, name))}\n" + "".join(f"    {it}\n" for it in getattr(report, name)[:200])
            for name in report.violations()))


def _write_table(path, rows):
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        if rows:
            table.writerow(rows[0]._fields)
        table.writerows(rows)
