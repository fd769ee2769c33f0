"""Results as text: a line for each run, and what all of them say together."""

from tests.chaos.readers import READERS
from tests.e2e.recovery import summary

COLUMNS = (     # heading, width, text of a result
    ("reader", -19, lambda r: r.plan.reader),
    ("sink", -9, lambda r: r.plan.sink),
    ("pg", 2, lambda r: r.plan.postgres),
    ("seed", 7, lambda r: r.plan.seed),
    ("rows", 7, lambda r: r.rows),
    ("faults", 6, lambda r: sum(r.kinds().values())),
    ("lost", 5, lambda r: r.counts["lost"] + r.counts["waiting"]),
    ("phantom", 7, lambda r: r.counts["phantom"]),
    ("disorder", 8, lambda r: of_order(r, "disorder")),
    ("overlap", 7, lambda r: of_order(r, "overlap")),
    ("echoes", 6, lambda r: of_order(r, "echoes")),
    ("repeats", 7, lambda r: r.counts["duplicates"]),
    ("farthest", 8, lambda r: f"{r.farthest['seconds']:.1f} s" if r.farthest else "-"),
    ("drained", 7, lambda r: f"{r.drained:.1f} s"),
    ("worst recovery", -30, lambda r: worst(r)),
    ("verdict", -7, lambda r: "ok" if r.passed else "FAILED"),
)


def heading():
    return " ".join(f"{name:{'<' if width < 0 else '>'}{abs(width)}}" for name, width, _ in COLUMNS)


def line(result):
    return " ".join(f"{str(text(result)):{'<' if width < 0 else '>'}{abs(width)}}" for _, width, text in COLUMNS)


def of_order(result, name):
    """Says nothing where no order is kept."""
    return result.counts[name] if READERS[result.plan.reader].ordered else "-"


def worst(result):
    if not result.recoveries:
        return "-"
    seconds, kind = max((recovery, fault.kind) for fault, recovery in result.felt())
    return f"{seconds:.1f} s {kind}"


def failure(result):
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(result.kinds().items()))
    wrong = [f"{name} {count}" for name, count in result.violations.items()] + result.failures
    return (f"    {'; '.join(wrong)}\n    faults: {faults}\n"
            f"    evidence: {result.evidence}\n    again: {result.plan.command}")


def totals(results):
    """Recovery by kind of fault, what freezes left, and the sum of everything."""
    felt = [pair for result in results for pair in result.felt()]
    alone = summary((fault, seconds) for fault, seconds in felt if "+" not in fault.kind)
    pairs = summary((fault._replace(kind="two at once"), seconds) for fault, seconds in felt if "+" in fault.kind)
    rows = [("fault", "times", "median", "longest recovery")]
    rows += [(kind, count, f"{middle:.1f} s", f"{longest:.1f} s")
             for kind, (count, middle, longest) in [*alone.items(), *pairs.items()]]
    text = "\n".join(f"{kind:<20} {count:>5} {middle:>8} {longest:>17}" for kind, count, middle, longest in rows)
    return f"{text}\n\n{freezes(results)}{sums(results)}"


def freezes(results):
    """What only fencing at the broker could prevent, for each reader that was frozen."""
    readers = {}
    for result in results:
        if result.kinds()["freeze"] and READERS[result.plan.reader].ordered:
            sums_of = readers.setdefault(result.plan.reader, {"freezes": 0, "disorder": 0, "overlap": 0})
            sums_of["freezes"] += result.kinds()["freeze"]
            for name, count in result.after_freeze.items():
                sums_of[name] += count
    return "".join(
        f"{it['freezes']} freezes of {reader} left {it['disorder']} out of order, {it['overlap']} overlaps\n"
        for reader, it in sorted(readers.items()))


def sums(results):
    rows = sum(result.rows for result in results)
    faults = sum(sum(result.kinds().values()) for result in results)
    failed = sum(not result.passed for result in results)
    return f"{len(results)} runs, {rows} rows, {faults} faults: {failed or 'none'} failed"
