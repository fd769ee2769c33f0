"""How fast a full outbox gets empty, and what that costs."""

from .stats import ratio, summary

# letter: (name, program or None for postrider, its arguments)
PARTICIPANTS = {
    "a": ("postrider", None, ()),
    "b": ("plain loop, 4 workers", "plain_loop", ("--workers", 4, "--once")),
    "c": ("bare pipeline", "bare_pipeline", ("--once",)),
}
ENTITIES = 20_000
FIGURES = ("rows_per_s", "relay_cpu", "postgres_cpu", "peak_rss_mb", "first_message_ms")


def loads(quick):
    """(rows, bytes of payload) of each part."""
    return [(100_000, 200), (30_000, 1024)] if quick else [(500_000, 200), (100_000, 1024)]


def start(lab, letter, topic):
    _, program, arguments = PARTICIPANTS[letter]
    return lab.run_peer(program, topic, *arguments) if program else lab.run_postrider()


def drain(lab, rows, payload, start):
    """One run on fresh rows and a fresh topic, by whom `start` starts for it. Time counts from the start of the process to
    the last row deleted."""
    with lab.topic() as (entity_type, topic):
        lab.fill(entity_type, rows, ENTITIES, payload)
        postgres_before = lab.postgres_cpu_seconds()
        with start(topic) as participant:
            ended = lab.wait_until_drained(topic, rows, participant)
            relay_cpu = participant.cpu_seconds()
            postgres_cpu = lab.postgres_cpu_seconds() - postgres_before
            peak = participant.peak_rss_mb()
        seconds = ended - participant.started
        return {
            "seconds": seconds,
            "rows_per_s": rows / seconds,
            "relay_cpu": relay_cpu * 100_000 / rows,
            "postgres_cpu": postgres_cpu * 100_000 / rows,
            "peak_rss_mb": peak,
            "first_message_ms": (lab.first_message_at(topic) - participant.started) * 1000,
        }


def drain_once(lab, letter, rows, payload):
    return {"participant": letter, **drain(lab, rows, payload, lambda topic: start(lab, letter, topic))}


def rotated(letters, by):
    return letters[by % len(letters):] + letters[:by % len(letters)]


def run(lab, plan, progress):
    rounds, quick = plan.rounds, plan.quick
    letters = list(PARTICIPANTS)
    parts = []
    for letter in letters:
        progress(f"drain: warming up, {PARTICIPANTS[letter][0]}")
        drain_once(lab, letter, 30_000 if quick else 200_000, 200)
    for rows, payload in loads(quick):
        runs = []
        for number in range(rounds):
            # Each participant is the first one as often as the others.
            for letter in rotated(letters, number):
                progress(f"drain: {rows:,} rows of {payload} bytes, round {number + 1} of {rounds}, {PARTICIPANTS[letter][0]}")
                runs.append({"round": number, **drain_once(lab, letter, rows, payload)})
        parts.append(part(rows, payload, runs))
    return parts


def part(rows, payload, runs):
    by_letter = {letter: [run for run in runs if run["participant"] == letter] for letter in PARTICIPANTS}
    speed = {letter: [run["rows_per_s"] for run in of] for letter, of in by_letter.items()}
    return {
        "rows": rows,
        "entities": ENTITIES,
        "payload_bytes": payload,
        "summary": {letter: {figure: summary([run[figure] for run in of]) for figure in FIGURES}
                    for letter, of in by_letter.items()},
        "ratios": {"a/b": ratio(speed["a"], speed["b"]), "a/c": ratio(speed["a"], speed["c"])},
        "runs": runs,
    }
