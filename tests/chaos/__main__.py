"""python -m tests.chaos: runs postrider under faults and proves that nothing is lost and order holds.

Each combination of reader, sink and PostgreSQL is a run of its own. The seed decides which faults come when, so a run
that failed can be repeated; the clock and the machine have a say too, so it may take more than one try.
"""

import argparse
import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

from tests.chaos import tables
from tests.chaos.faults import CLEAN, FAULTS, for_sink
from tests.chaos.readers import READERS, known
from tests.chaos.run import Plan, run
from tests.chaos.stage import Stage
from tests.servers import ServerMissing, exit_on_signals, servers_required

SINKS = ("kafka", "postgres")
VERSIONS = (15, 18)
KEEP = Path(__file__).resolve().parents[2] / "build-chaos"
OVERHEAD = 4.0      # seconds that a run takes beside its faults, about: start, drain, compare
SHORTEST = 3.0


def main():
    exit_on_signals()
    options = parse()
    built = known()
    chosen = options.reader or built
    unknown = [name for name in chosen if name not in built]
    if unknown:
        sys.exit(f"this build has no reader {', '.join(unknown)}; it has {', '.join(built)}")
    plans = all_plans(options, chosen)
    print(f"{len(plans)} run{'s' * (len(plans) != 1)}, seed {options.seed}\n\n{tables.heading()}", flush=True)
    try:
        with Stage() as stage:
            results = [play(stage, plan, options) for plan in timed(plans, options)]
    except ServerMissing as error:
        if servers_required():
            raise
        print(f"left out: {error}")
        return
    print("\n" + tables.totals(results))
    if options.json:
        text = json.dumps([result.as_json() for result in results], indent=1, default=str)
        Path(options.json).write_text(text + "\n")
    sys.exit(0 if all(result.passed for result in results) else 1)


def play(stage, plan, options):
    result = run(stage, plan, Path(options.keep), options.keep_all)
    print(tables.line(result), flush=True)
    if not result.passed:
        print(tables.failure(result), flush=True)
    return result


def all_plans(options, chosen):
    if options.bounded:
        return bounded_plans(options, chosen)
    return [Plan(reader, sink, version, options.seconds, options.seed, options.nodes, options.faults)
            for reader in chosen for sink in options.sink or SINKS for version in options.postgres or VERSIONS]


def bounded_plans(options, chosen):
    """Every reader with every sink on every version, and clean restarts of each, in about the seconds given.

    Runs are short, so the faults of a sink are dealt out among its versions: each reader meets most of them.
    """
    runs = []
    for place, reader in enumerate(chosen):
        version = VERSIONS[place % len(VERSIONS)]
        if READERS[reader].variant:
            runs.append((reader, "kafka", version, None))
            continue
        for sink in SINKS:
            faults = for_sink(sink)
            random.Random(f"{options.seed} {reader} {sink}").shuffle(faults)
            hands = [tuple(faults[place::len(VERSIONS)]) for place in range(len(VERSIONS))]
            runs += [(reader, sink, *dealt) for dealt in zip(VERSIONS, hands, strict=True)]
        runs.append((reader, "kafka", version, tuple(sorted(CLEAN))))
    return [Plan(reader, sink, version, 0, options.seed, options.nodes, faults)
            for reader, sink, version, faults in runs]


def timed(plans, options):
    """In a bounded set runs share the time that is left: a restart of a broker may take longer than all else."""
    end = time.monotonic() + (options.bounded or 0)
    for done, plan in enumerate(plans):
        share = (end - time.monotonic()) / (len(plans) - done) - OVERHEAD
        yield replace(plan, seconds=round(max(SHORTEST, share), 1)) if options.bounded else plan


def parse():
    parser = argparse.ArgumentParser(prog="./dev chaos",
                                     description="Runs postrider under faults and checks what arrived.")
    parser.add_argument("--reader", type=names, help=f"of {', '.join(READERS)}; all that the build has")
    parser.add_argument("--sink", type=names_of(SINKS), help="kafka, postgres; both")
    parser.add_argument("--postgres", type=versions, help="15, 18; both")
    parser.add_argument("--seconds", type=float, default=30, help="of faults in each run; 30")
    parser.add_argument("--bounded", type=float, metavar="SECONDS",
                        help="instead: every reader, sink and version, and clean restarts, in so long altogether")
    parser.add_argument("--seed", type=int, default=random.randrange(1000000), help="some number; one of its own")
    parser.add_argument("--nodes", type=int, default=3, help="postrider processes at the start; 3")
    parser.add_argument("--faults", type=names_of(FAULTS), help=f"of {', '.join(FAULTS)}; all")
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured")
    parser.add_argument("--keep", metavar="FOLDER", default=KEEP,
                        help="where the evidence of failures stays; build-chaos")
    parser.add_argument("--keep-all", action="store_true", help="keep the folders of runs that passed, too")
    return parser.parse_args()


def names(text):
    return tuple(text.split(","))


def names_of(allowed):
    def parse_names(text):
        unknown = [name for name in names(text) if name not in allowed]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is not one of {', '.join(allowed)}")
        return names(text)

    return parse_names


def versions(text):
    return tuple(int(name) for name in names_of([str(version) for version in VERSIONS])(text))


main()
