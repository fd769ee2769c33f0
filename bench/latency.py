"""How long a row takes from its commit to a consumer, while 500 rows per second are written one by one.

Writer and consumer are processes of their own, so that neither waits for the other's interpreter.
"""

import json
import multiprocessing
import threading
import time

import psycopg
from confluent_kafka import Consumer, TopicPartition

from .lab import PARTITIONS, BenchError
from .stats import percentile, ratio, summary

RATE = 500
WARM_UP_SECONDS = 2
WRITERS = 4
ENTITIES = 1000
PERCENTILES = (50, 95, 99)
FIGURES = (*(f"p{percent}_ms" for percent in PERCENTILES), "relay_cpu_percent", "postgres_cpu_percent")
INSERT = "INSERT INTO public.outbox (entity_type, entity_id, event_type, payload) VALUES (%s, %s, 'order.placed', %s)"

# As in drain.py. One worker: four of them would ask the table four times each millisecond.
PARTICIPANTS = {
    "a": ("postrider", None, ()),
    "b": ("plain loop, a poll each millisecond", "plain_loop", ("--workers", 1, "--poll-us", 1000)),
}


def duration(plan):
    return 4 if plan.quick else 15


def run(lab, plan, progress):
    rounds, seconds = plan.rounds, duration(plan)
    letters = list(PARTICIPANTS)
    runs = []
    for number in range(rounds):
        for letter in letters if number % 2 == 0 else reversed(letters):
            progress(f"latency: {RATE} rows/s for {seconds} s, round {number + 1} of {rounds}, {PARTICIPANTS[letter][0]}")
            runs.append({"round": number, "participant": letter,
                         **measure(lab, seconds, lambda topic: start(lab, letter, topic))})
    by_letter = {letter: [run for run in runs if run["participant"] == letter] for letter in letters}
    return {
        "rows_per_s": RATE,
        "seconds": seconds,
        "summary": {letter: {figure: summary([run[figure] for run in of]) for figure in FIGURES}
                    for letter, of in by_letter.items()},
        "ratios": {f"a/b p{percent}": ratio(*([run[f"p{percent}_ms"] for run in by_letter[letter]] for letter in letters))
                   for percent in PERCENTILES},
        "runs": runs,
    }


def start(lab, letter, topic):
    _, program, arguments = PARTICIPANTS[letter]
    return lab.run_peer(program, topic, *arguments) if program else lab.run_postrider()


def measure(lab, seconds, start, before=None, arrives=None, counts=None):
    """One run on a new topic, by whom `start` starts for it. `before` may write more rows before that; `arrives` and
    `counts` say of a row's number whether it is to arrive, and whether it is measured."""
    spawn = multiprocessing.get_context("spawn")
    written_rows = RATE * (WARM_UP_SECONDS + seconds)
    rows = len(list(filter(arrives, range(written_rows)))) if arrives else written_rows
    with lab.topic() as (entity_type, topic):
        lab.fill(entity_type, 0, 1, 200)
        if before:
            before(entity_type)
        with start(topic) as participant:
            ours, theirs = spawn.Pipe()
            consumer = spawn.Process(target=consume, args=(lab.kafka.bootstrap, topic, rows, theirs), daemon=True)
            consumer.start()
            receive(ours, consumer, participant, 30)
            time.sleep(0.5)
            cpu = participant.cpu_seconds(), lab.postgres_cpu_seconds(), time.monotonic()
            with spawn.Pool(1) as pool:
                written = pool.apply(write, (lab.database, entity_type, written_rows))
            arrived = receive(ours, consumer, participant, 30)
            elapsed = time.monotonic() - cpu[2]
            used = participant.cpu_seconds() - cpu[0], lab.postgres_cpu_seconds() - cpu[1]
            consumer.join()
            lab.check_published(topic, rows, participant)
    measured = [n for n in range(RATE * WARM_UP_SECONDS, written_rows) if not counts or counts(n)]
    since_return = [(arrived[n] - written[n][1]) / 1e6 for n in measured]
    since_commit = [(arrived[n] - written[n][0]) / 1e6 for n in measured]
    return {
        **{f"p{percent}_ms": percentile(since_return, percent) for percent in PERCENTILES},
        **{f"p{percent}_ms_with_commit": percentile(since_commit, percent) for percent in PERCENTILES},
        "relay_cpu_percent": 100 * used[0] / elapsed,
        "postgres_cpu_percent": 100 * used[1] / elapsed,
    }


def receive(pipe, process, participant, seconds):
    deadline = time.monotonic() + seconds
    while not pipe.poll(0.2):
        participant.check()
        if not process.is_alive() or time.monotonic() > deadline:
            raise BenchError(f"{participant.name}: not every row reached the consumer")
    return pipe.recv()


def consume(brokers, topic, rows, pipe):
    """Sends True when it is listening, then a dictionary from the number of each row to its time of arrival."""
    consumer = Consumer({
        "bootstrap.servers": brokers, "group.id": "bench", "enable.auto.commit": False, "fetch.wait.max.ms": 50,
        "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    listening = set()
    arrived = {}
    while len(arrived) < rows:
        message = consumer.poll(1)
        now = time.time_ns()
        if message is None:
            continue
        if message.error():
            # The end of a partition: from here on new records come as soon as they are there.
            if len(listening) < PARTITIONS:
                listening.add(message.partition())
                if len(listening) == PARTITIONS:
                    pipe.send(True)
            continue
        arrived.setdefault(json.loads(message.value())["n"], now)
    pipe.send(arrived)
    consumer.close()


def write(database, entity_type, rows):
    """Commits rows at the rate; returns for each the times just before COMMIT was sent and just after it returned."""
    stamps = [None] * rows
    begin = time.monotonic() + 0.1

    def work(first):
        with psycopg.connect(database) as connection:
            for number in range(first, rows, WRITERS):
                time.sleep(max(0, begin + number / RATE - time.monotonic()))
                payload = json.dumps({"n": number, "text": "x" * 180})
                connection.execute(INSERT, (entity_type, f"order-{number % ENTITIES}", payload))
                before = time.time_ns()
                connection.commit()
                stamps[number] = before, time.time_ns()

    threads = [threading.Thread(target=work, args=(first,)) for first in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return stamps
