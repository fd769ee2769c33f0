#!/usr/bin/env python3
"""Shows postrider at work: a small shop writes orders to its outbox, the relay carries them on, and we watch.

Everything runs on this machine in temporary folders and is gone afterwards. `./dev demo` builds what is needed and calls
this.
"""

import argparse
import collections
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from tests.servers import Kafka, Postgres, ServerError, ServerMissing, exit_on_signals  # noqa: E402
from tools.demo_shop import Shop, ShopError  # noqa: E402

TOPIC = "outbox.event.order"
PARTITIONS = 6
START_SECONDS = 30
DRAIN_SECONDS = 30
PR_SET_PDEATHSIG = 1

CONFIG = """\
node: demo
database:
  url: {database}
outboxes:
  orders:
    table: public.outbox
    sinks:
      - {sink}
"""

class DemoError(RuntimeError):
    """Something that ends the demonstration; the message is for the user."""


class EventStore:
    """What has arrived in the event store of the same database."""

    name = "the event store postrider.event"
    # Events of transactions that were still open when we looked last have lower positions than the last one we saw.
    LOOK_BACK = 5000
    NEW = """\
SELECT message_id::text, extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8
FROM postrider.event WHERE position > (SELECT coalesce(max(position), 0) - %s FROM postrider.event)"""
    ALL = "SELECT entity_id, message_id::text FROM postrider.event ORDER BY position"

    def __init__(self, connection):
        self.connection = connection
        self.seen = set()

    def arrivals(self):
        """(message id, time of arrival) of what came since the last call."""
        rows = [row for row in self.connection.execute(self.NEW, (self.LOOK_BACK,)) if row[0] not in self.seen]
        self.seen.update(message_id for message_id, _ in rows)
        return rows

    def everything(self):
        return self.connection.execute(self.ALL).fetchall()

    def close(self):
        pass


class KafkaTopic:
    """What has arrived in Kafka, as an independent consumer sees it."""

    name = f"Kafka topic {TOPIC}"

    def __init__(self, brokers):
        self.consumer = Consumer({
            "bootstrap.servers": brokers, "group.id": "demo", "enable.auto.commit": False, "fetch.wait.max.ms": 50})
        self.consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        self.records = []  # (order, message id), as consumed
        self.fresh = collections.deque()
        self.stopping = False
        self.thread = threading.Thread(target=self._consume, daemon=True)
        self.thread.start()

    def _consume(self):
        while not self.stopping:
            message = self.consumer.poll(0.2)
            now = time.time()
            if message is None or message.error():
                continue
            message_id = dict(message.headers() or [])["id"].decode()
            self.records.append((message.key().decode(), message_id))
            self.fresh.append((message_id, now))

    def arrivals(self):
        return [self.fresh.popleft() for _ in range(len(self.fresh))]

    def everything(self):
        return self.records

    def close(self):
        self.stopping = True
        self.thread.join()
        self.consumer.close()


class Relay:
    """A running postrider."""

    def __init__(self, program, config, log):
        self.log = log
        with open(log, "wb") as output:
            # A session of its own: Ctrl-C in the terminal is for us, and we stop the relay when the rows are out.
            self.process = subprocess.Popen(
                [program, "run", "-c", config], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL))

    def wait_until_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while "relay.ready" not in self.log.read_text():
            self.check()
            if time.monotonic() > deadline:
                raise DemoError(f"postrider was not ready within {START_SECONDS} s:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.02)

    def check(self):
        if self.process.poll() is not None:
            raise DemoError(f"postrider ended with status {self.process.returncode}:\n{self.log.read_text()[-3000:]}")

    def stop(self):
        """Asks for a clean stop; the exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self):
        self.process.kill()
        self.process.wait()


class Watch:
    """Joins what was committed with what arrived, and shows it: a live line on a terminal, else a line now and then."""

    WINDOW = 5  # seconds that the live figures look back
    COMMITTED = """\
SELECT extract(epoch FROM pg_xact_commit_timestamp(x))::float8
FROM unnest(%s::xid[]) WITH ORDINALITY AS t (x, n) ORDER BY n"""

    def __init__(self, shop, sink, connection):
        self.shop = shop
        self.sink = sink
        self.connection = connection
        self.waiting = []          # arrivals whose commit our own thread has not noted yet
        self.arrived = 0
        self.latencies = []
        self.recent = collections.deque()  # (time of arrival, latency)
        self.live = sys.stdout.isatty()
        self.start()

    def start(self):
        """Figures count from here on."""
        self.latencies.clear()
        self.recent.clear()
        self.began = self.shown = time.monotonic()

    def look(self):
        arrivals = self.waiting + self.sink.arrivals()
        known = [(message_id, at) for message_id, at in arrivals if message_id in self.shop.transaction_of]
        self.waiting = [arrival for arrival in arrivals if arrival[0] not in self.shop.transaction_of]
        if not known:
            return
        self.arrived += len(known)
        transactions = [self.shop.transaction_of[message_id] for message_id, _ in known]
        commits = self.connection.execute(self.COMMITTED, (transactions,)).fetchall()
        for (_, at), (committed,) in zip(known, commits, strict=True):
            self.latencies.append((at - committed) * 1000)
            self.recent.append((at, self.latencies[-1]))

    def show(self):
        every = 0.5 if self.live else 5
        now = time.monotonic()
        if now - self.shown < every:
            return
        self.shown = now
        while self.recent and self.recent[0][0] < time.time() - self.WINDOW:
            self.recent.popleft()
        rate = len(self.recent) / max(every, min(self.WINDOW, now - self.began))
        pending = self.connection.execute("SELECT count(*) FROM public.outbox").fetchone()[0]
        line = (f"{now - self.began:4.0f} s  published {rate:,.0f}/s  pending {pending:,}  latency "
                f"{quantiles([latency for _, latency in self.recent])}")
        if self.live:
            line = f"\r\033[K{line[:shutil.get_terminal_size().columns - 1]}"
        print(line, end="" if self.live else "\n", flush=True)

    def clear(self):
        if self.live:
            print("\r\033[K", end="", flush=True)


def quantiles(latencies):
    if not latencies:
        return "–"
    ordered = sorted(latencies)
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.99))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"


def compare(committed, arrived):
    """What is wrong with the records, as sentences; nothing when each arrived once and in order."""
    by_order = collections.defaultdict(list)
    for order, message_id in arrived:
        by_order[order].append(message_id)
    lost = repeated = unknown = disordered = 0
    for order in committed.keys() | by_order.keys():
        wanted, got = committed.get(order, []), by_order.get(order, [])
        first_of = list(dict.fromkeys(got))
        lost += len(set(wanted) - set(got))
        unknown += len(set(got) - set(wanted))
        repeated += len(got) - len(first_of)
        kept = set(first_of)
        disordered += [message_id for message_id in wanted if message_id in kept] != [
            message_id for message_id in first_of if message_id in set(wanted)]
    found = ((lost, "rows never arrived"), (repeated, "records arrived again"), (unknown, "records belong to no row"),
             (disordered, "orders have events in another order than they were committed"))
    return [f"{number:,} {what}" for number, what in found if number]


def arguments():
    def positive(text):
        value = float(text)
        if not 0 < value <= 1e6:
            raise argparse.ArgumentTypeError("must be above 0")
        return value

    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__)
    parser.add_argument("--kafka", action="store_true", help="publish to a real Apache Kafka instead of the event store")
    parser.add_argument("--seconds", type=positive, metavar="N", help="end by itself after so long (default: until Ctrl-C)")
    parser.add_argument("--rate", type=positive, metavar="R", default=200, help="rows written per second (default: 200)")
    return parser.parse_args()


def say(text):
    print(text, flush=True)


def prepare(stack, options, program):
    """Servers, outbox and relay. Whatever has been started when something fails is stopped by the stack."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="postrider-demo-")))
    say("starting PostgreSQL")
    pg = stack.enter_context(Postgres(settings={"track_commit_timestamp": "on"}))
    database = pg.createdb("shop")
    connection = stack.enter_context(pg.connect("shop"))
    sink = "type: postgres"
    if options.kafka:
        say("starting Apache Kafka")
        kafka = stack.enter_context(Kafka())
        kafka.create_topic(TOPIC, PARTITIONS)
        sink = f"{{type: kafka, brokers: '{kafka.bootstrap}'}}"
    config = folder / "postrider.yaml"
    config.write_text(CONFIG.format(database=database, sink=sink))

    connection.execute("CREATE TABLE public.customer_order (id text PRIMARY KEY, customer text NOT NULL, status text NOT NULL)")
    say("creating the outbox: postrider init")
    done = subprocess.run([program, "init", "-c", config], capture_output=True, text=True)
    if done.returncode != 0:
        raise DemoError(f"postrider init ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    relay = Relay(program, config, folder / "postrider.log")
    stack.callback(relay.kill)
    relay.wait_until_ready()

    arrived = KafkaTopic(kafka.bootstrap) if options.kafka else EventStore(connection)
    stack.callback(arrived.close)
    say(f"postrider is running; its settings are in {config}")
    if options.kafka:
        say(f"watch the messages:  kcat -C -b {kafka.bootstrap} -t {TOPIC} -f '%k  %h  %s\\n'")
    else:
        say(f"watch the events:  watch -n 1 \"psql {database} -c 'TABLE postrider.event ORDER BY position DESC LIMIT 5'\"")
    return database, connection, relay, arrived


def write_and_watch(watch, relay, shop, seconds):
    """Until the time is over or Ctrl-C."""
    try:
        while not shop.stopping.is_set() and (not seconds or time.monotonic() - watch.began < seconds):
            relay.check()
            watch.look()
            watch.show()
            time.sleep(0.1)
    except KeyboardInterrupt:
        pass
    finally:
        watch.clear()


def wait_for_arrivals(watch, relay, shop):
    """Waits until what was written has arrived, or until it is clear that it does not."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while watch.arrived < shop.written and time.monotonic() < deadline:
        relay.check()
        watch.look()
        time.sleep(0.02)


def summarise(watch, relay_status, shop):
    """Prints how it went; the exit status."""
    problems = compare(shop.events_of, watch.sink.everything())
    if relay_status != 0:
        problems.append("postrider did not stop" if relay_status is None else f"postrider ended with status {relay_status}")
    say(f"{shop.written:,} rows of {len(shop.events_of):,} orders were committed; commit to sink {quantiles(watch.latencies)}")
    if problems:
        say(f"In {watch.sink.name}: " + "; ".join(problems) + ".")
        return 1
    say(f"All of them are in {watch.sink.name}: each once, and in order for each order.")
    return 0


def demonstrate(options, program):
    with contextlib.ExitStack() as stack:
        database, connection, relay, arrived = prepare(stack, options, program)
        shop = Shop(database, options.rate)
        watch = Watch(shop, arrived, connection)
        # Connections to a broker are made for the first message, and that takes a moment which the figures leave out.
        shop.write_first()
        wait_for_arrivals(watch, relay, shop)

        say(f"writing {options.rate:g} rows per second; Ctrl-C ends the demonstration\n")
        stack.callback(shop.stopping.set)
        shop.open()
        watch.start()
        write_and_watch(watch, relay, shop, options.seconds)
        shop.close()
        wait_for_arrivals(watch, relay, shop)
        return summarise(watch, relay.stop(), shop)


def main():
    options = arguments()
    exit_on_signals()
    program = os.environ.get("POSTRIDER_BIN") or str(ROOT / "build" / "postrider")
    if not os.path.exists(program):
        sys.exit(f"{program} is not there; ./dev build makes it")
    try:
        sys.exit(demonstrate(options, program))
    except (DemoError, ShopError, ServerError, ServerMissing) as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        say("\nstopped")
        sys.exit(130)


if __name__ == "__main__":
    main()
