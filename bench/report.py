"""The results as a table for people, with the project's targets beside them."""

from . import claims, drain, latency, lean, poison, readers, sinks, wal
from .lab import READERS

# Where a figure stands in the results, what it must not fall below or exceed. What was not measured has no targets.
TARGETS = [
    ("speed, 200 bytes: postrider / bare pipeline", ("drain", 0, "ratios", "a/c"), ">=", 0.85),
    ("speed, 200 bytes: postrider / plain loop", ("drain", 0, "ratios", "a/b"), ">=", 1.0),
    ("speed, 1 KiB: postrider / bare pipeline", ("drain", 1, "ratios", "a/c"), ">=", 0.85),
    ("speed, 1 KiB: postrider / plain loop", ("drain", 1, "ratios", "a/b"), ">=", 1.0),
    ("peak RSS with 200 bytes, MB", ("drain", 0, "summary", "a", "peak_rss_mb"), "<=", 40),
    ("peak RSS with 1 KiB, MB", ("drain", 1, "summary", "a", "peak_rss_mb"), "<=", 40),
    ("latency p50: postrider / plain loop", ("latency", "ratios", "a/b p50"), "<=", 2),
    ("latency p99: postrider / plain loop", ("latency", "ratios", "a/b p99"), "<=", 3),
    ("cost of a row: many waiting / few waiting", ("backlog", "ratio"), "<=", 1.15),
    *((f"speed: {reader} / bare pipeline", ("readers", "ratios", reader), ">=", wanted)
      for reader, wanted in readers.WANTED.items()),
    *((f"speed: {reader}, 8 workers on 2 nodes / 4 on 1", ("readers", "two_nodes", "ratios", reader), ">=",
       readers.WANTED_OF_TWO) for reader in READERS),
    *((f"cost of a claim: {reader}, many waiting / few waiting", ("claims", "ratios", reader), "<=", claims.WANTED_RATIO)
      for reader in READERS),
    *((f"a claim behind {claims.LOCKED} locked entities: {reader}, ms", ("claims", "found_ms", reader, "in_front"), "<=",
       claims.WANTED_MS) for reader in READERS),
    ("speed, transactions of 1,000: wal, published: keep / pg_recvlogical",
     ("wal", "parts", 0, "ratios", "wal-keep", wal.RECEIVER), ">=", wal.WANTED_OF_RECEIVER),
    ("peak RSS of wal, the most of all runs, MB", ("wal", "peak_rss_mb"), "<=", wal.WANTED_MB),
    ("latency p50: wal / advisory", ("wal", "latency", "ratios", "wal/advisory p50"), "<=", 1.0),
    ("latency p99: wal / advisory", ("wal", "latency", "ratios", "wal/advisory p99"), "<=", 1.0),
    ("rows/s at the end / at the beginning, old snapshot: partitions", ("lean", "ratios", "partitions"), ">=",
     lean.WANTED_RATIO),
    ("a claim at the end, old snapshot: delete, ms", ("lean", "summary", "delete", "claim_ms_end"), "<=",
     lean.WANTED_CLAIM_MS),
    ("repeats after a kill of wal, the most of all runs", ("wal", "repeats", "most"), "<=", wal.IN_FLIGHT),
    *((f"p99 of others: {poison.TITLES[name]} / none", ("poison", "ratios", f"{name} p99"), "<=", poison.WANTED_RATIO)
      for name in ("default", "quick")),
    *((f"speed: sink {name} / bare loop", ("sinks", "ratios", name), ">=", sinks.wanted(name)) for name in sinks.TARGETS),
]


def find(results, path):
    """The figure, or None where it was not measured."""
    for step in path:
        results = results.get(step) if isinstance(results, dict) else results[step]
        if results is None:
            return None
    return results


def judge(results):
    """The targets that these results have something to say about."""
    judged = []
    for name, path, relation, target in TARGETS:
        value = find(results, path)
        if value is None:
            continue
        met = value["median"] >= target if relation == ">=" else value["median"] <= target
        judged.append({"target": name, "relation": relation, "wanted": target, "value": value, "met": met})
    return judged


def number(value):
    """Three digits that matter."""
    if value == 0:
        return "0"
    if abs(value) >= 10_000:
        return f"{value / 1000:.0f} k"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(figure):
    if figure["min"] == figure["max"]:
        return number(figure["median"])
    return f"{number(figure['median'])} ({number(figure['min'])}–{number(figure['max'])})"


def table(heading, rows):
    """Columns as wide as they need to be; the first one to the left."""
    widths = [max(len(row[i]) for row in [heading, *rows]) for i in range(len(heading))]
    lines = []
    for row in [heading, *rows]:
        cells = [cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))]
        lines.append("  " + "   ".join(cells).rstrip())
    return lines


def show_drain(parts):
    for part in parts:
        yield (f"Draining {part['rows']:,} rows of {part['payload_bytes']} bytes, {part['entities']:,} entities; "
               "CPU seconds are for 100,000 rows")
        heading = ("", "rows/s", "relay CPU s", "PostgreSQL CPU s", "peak RSS MB", "first message ms")
        yield from table(heading, [
            (f"({letter}) {drain.PARTICIPANTS[letter][0]}", *(spread(of[figure]) for figure in drain.FIGURES))
            for letter, of in part["summary"].items()])
        yield "  " + ",  ".join(f"{name} {spread(value)}" for name, value in part["ratios"].items())
        yield ""


def show_latency(results, titles=None):
    titles = titles or {letter: f"({letter}) {of[0]}" for letter, of in latency.PARTICIPANTS.items()}
    yield f"From commit to consumer at {results['rows_per_s']} rows/s, {results['seconds']} s"
    heading = ("", "p50 ms", "p95 ms", "p99 ms", "relay CPU %", "PostgreSQL CPU %")
    yield from table(heading, [
        (titles[name], *(spread(figure) for figure in of.values())) for name, of in results["summary"].items()])
    yield "  " + ",  ".join(f"{name} {spread(value)}" for name, value in results["ratios"].items())
    yield ""


def show_backlog(results):
    yield f"Cost of a row for postrider, over {results['rows']:,} rows"
    heading = ("rows waiting", "CPU µs", "relay µs", "PostgreSQL sessions µs", "rows/s")
    yield from table(heading, [
        (f"{results[side]:,}", *(spread(figure) for figure in of.values())) for side, of in results["summary"].items()])
    yield f"  many/few {spread(results['ratio'])}"
    yield ""


def show_readers(results):
    yield (f"Draining {results['rows']:,} rows of {results['payload_bytes']} bytes, {results['entities']:,} entities, "
           "with each reader; CPU seconds are for 100,000 rows")
    heading = ("", "rows/s", "/ bare pipeline", "relay CPU s", "PostgreSQL CPU s", "peak RSS MB", "first message ms")
    yield from table(heading, [
        (readers.title(name), spread(of["rows_per_s"]), spread(results["ratios"][name]) if name in results["ratios"] else "",
         *(spread(of[figure]) for figure in readers.FIGURES[1:]))
        for name, of in results["summary"].items()])
    yield ""
    yield "The same on one node and on two"
    heading = ("", *(f"rows/s, {nodes * readers.WORKERS} workers on {nodes}" for nodes in readers.NODES), "ratio")
    two = results["two_nodes"]
    yield from table(heading, [
        (name, *(spread(of[nodes]) for nodes in readers.NODES), spread(two["ratios"][name]))
        for name, of in two["summary"].items()])
    yield ""


def show_claims(results):
    waiting = results["waiting"]
    yield (f"What a claim of {results['rows']} rows costs the server, ms; and a claim of {results['rows_to_find']} out of "
           f"{waiting['many']:,} while others hold {results['locked']} entities")
    heading = ("", *(f"{rows:,} waiting" for rows in waiting.values()), "ratio", "begins in front of them",
               "begins elsewhere")
    yield from table(heading, [
        (name, *(spread(of[side]) for side in waiting), spread(results["ratios"][name]),
         *(spread(found) if found else "–" for found in results["found_ms"][name].values()))
        for name, of in results["summary"].items()])
    yield ""


def show_wal(results):
    for part in results["parts"]:
        yield (f"Draining {part['rows']:,} rows of {part['payload_bytes']} bytes, {part['entities']:,} entities, written in "
               f"transactions of {part['transaction_rows']:,}; CPU seconds are for 100,000 rows")
        heading = ("", "rows/s", f"/ {wal.RECEIVER}", f"/ {wal.POLLER}", "relay CPU s", "PostgreSQL CPU s", "peak RSS MB")
        yield from table(heading, [
            (wal.PARTICIPANTS[name], spread(of["rows_per_s"]),
             *("" if other == name else spread(figure) for other, figure in part["ratios"][name].items()),
             *(spread(of[figure]) for figure in wal.FIGURES[1:]))
            for name, of in part["summary"].items()])
        yield ""
    yield from show_latency(results["latency"], wal.PARTICIPANTS)
    repeats = results["repeats"]
    yield (f"Killed while {repeats['rows']:,} rows were published, in transactions of {repeats['transaction_rows']:,}; at most "
           f"{repeats['in_flight']:,} are in flight")
    yield from table(("", "in the topic before", "repeats"), [
        (wal.PARTICIPANTS[name], *(spread(figure) for figure in of.values())) for name, of in repeats["summary"].items()])
    yield ""


def show_poison(results):
    yield (f"From commit to consumer at {results['rows_per_s']} rows/s of {results['entities']:,} entities, "
           f"{results['seconds']} s, without the poisoned one")
    heading = ("", "p50 ms", "p95 ms", "p99 ms", "relay CPU %", "PostgreSQL CPU %", "refusals")
    yield from table(heading, [
        (poison.TITLES[name], *(spread(figure) for figure in of.values())) for name, of in results["summary"].items()])
    yield "  " + ",  ".join(f"{name} / none {spread(value)}" for name, value in results["ratios"].items())
    yield ""


def show_lean(results):
    yield (f"{results['rows_per_s']:,} rows/s for {results['seconds']} s while a session keeps an old snapshot: the first and "
           "the last quarter of that time")
    heading = ("", "rows/s", "at the end", "ratio", "claim ms", "at the end", "dead rows", "rows waiting",
               "PostgreSQL CPU %", "at the end")
    yield from table(heading, [
        (lean.PARTICIPANTS[name], spread(of["rows_per_s_begin"]), spread(of["rows_per_s_end"]), spread(results["ratios"][name]),
         *(spread(of[figure]) for figure in lean.FIGURES[2:]))
        for name, of in results["summary"].items()])
    yield ""


def show_sinks(results):
    yield (f"Draining rows of {results['payload_bytes']} bytes, {results['entities']:,} entities, into each sink; CPU seconds of "
           "the process, for 100,000 rows")
    heading = ("", "rows/s", "CPU s", "bare loop rows/s", "CPU s", "ratio")
    yield from table(heading, [
        (name, *(spread(of[participant][figure]) for participant in (sinks.RELAY, sinks.BARE) for figure in sinks.FIGURES),
         spread(results["ratios"][name]))
        for name, of in results["summary"].items()])
    yield ""


def show_targets(judged):
    yield "Targets"
    sign = {">=": "≥", "<=": "≤"}
    yield from table(("", "wanted", "measured", ""), [
        (row["target"], f"{sign[row['relation']]} {row['wanted']}", spread(row["value"]), "pass" if row["met"] else "MISS")
        for row in judged])


SCENES = {"drain": show_drain, "latency": show_latency, "backlog": show_backlog, "readers": show_readers,
          "claims": show_claims, "wal": show_wal, "poison": show_poison, "lean": show_lean,
          "sinks": show_sinks}


def show(results):
    """The whole report as lines."""
    rounds = results["rounds"]
    yield f"{f'Median of {rounds} rounds (lowest–highest)' if rounds > 1 else 'One round'}, {results['machine']}"
    if results["quick"]:
        yield "Quick: short runs, of which the start of each process is a large part. Indicative only."
    yield ""
    for name, lines in SCENES.items():
        if name in results:
            yield from lines(results[name])
    yield from show_targets(results["targets"])
