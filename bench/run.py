#!/usr/bin/env python3
"""Measures postrider beside the plain loop and a bare pipeline, on a real PostgreSQL and a real Kafka of its own.

`./dev bench` builds what is needed and calls this. README.md beside it says what is measured, and how.
"""

import argparse
import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from bench import backlog, claims, drain, latency, lean, poison, readers, report, sinks, wal  # noqa: E402
from bench.lab import READERS, BenchError, Lab  # noqa: E402
from tests.servers import ServerError, ServerMissing, exit_on_signals  # noqa: E402

SCENES = {"drain": drain, "latency": latency, "backlog": backlog, "readers": readers, "claims": claims, "wal": wal,
          "poison": poison, "lean": lean, "sinks": sinks}
UNASKED = ("drain", "latency", "backlog")


@dataclasses.dataclass
class Plan:
    """What a scene is told about its measurement."""

    rounds: int
    quick: bool
    readers: list[str] | None           # only these; None: all


def arguments():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("--scene", choices=SCENES, action="append",
                        help=f"only this one; may be given again (default: {', '.join(UNASKED)})")
    parser.add_argument("--reader", choices=READERS, action="append",
                        help="in the scenes readers and claims only this one; may be given again (default: all)")
    parser.add_argument("--rounds", type=positive, help="how often each measurement is made (default: 3, with --quick 1)")
    parser.add_argument("--quick", action="store_true", help="fewer rows, less than a minute in all, less to rely on")
    parser.add_argument("--json", type=Path, metavar="FILE",
                        help="where the results go (default: bench.json beside the program)")
    return parser.parse_args()


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


class Progress:
    """What is being done: on a terminal one line that changes, elsewhere a line each."""

    def __init__(self, stream=sys.stderr):
        self.stream = stream
        self.live = stream.isatty()
        self.began = time.monotonic()

    def __call__(self, text):
        line = f"{time.monotonic() - self.began:4.0f} s  {text}"
        self.stream.write(f"\r\033[K{line[:shutil.get_terminal_size().columns - 1]}" if self.live else f"{line}\n")
        self.stream.flush()

    def clear(self):
        if self.live:
            self.stream.write("\r\033[K")
            self.stream.flush()


def machine():
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{os.cpu_count()} cores of {model}, Linux {platform.release()}"


def build_peers(folder):
    done = subprocess.run(["meson", "compile", "-C", folder, "peers"], capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"could not build what postrider is compared with:\n{done.stdout[-3000:]}{done.stderr}")
    return folder / "bench"


def measure(options, postrider, progress):
    plan = Plan(options.rounds or (1 if options.quick else 3), options.quick, options.reader)
    results = {"machine": machine(), "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
               "quick": plan.quick, "rounds": plan.rounds}
    progress("building what postrider is compared with")
    peers = build_peers(postrider.parent)
    progress("starting PostgreSQL and Kafka")
    with Lab(postrider, peers) as lab:
        for name, scene in SCENES.items():
            if name in (options.scene or UNASKED):
                results[name] = scene.run(lab, plan, progress)
        progress("stopping PostgreSQL and Kafka")
    results["targets"] = report.judge(results)
    return results


def main():
    options = arguments()
    exit_on_signals()
    postrider = Path(os.environ.get("POSTRIDER_BIN") or ROOT / "build" / "postrider").resolve()
    if not postrider.exists():
        sys.exit(f"{postrider} is not there; ./dev build makes it")
    progress = Progress()
    try:
        results = measure(options, postrider, progress)
    except (BenchError, ServerError, ServerMissing) as error:
        progress.clear()
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        progress.clear()
        sys.exit(130)
    progress.clear()
    print("\n".join(report.show(results)))
    target = options.json or postrider.parent / "bench.json"
    target.write_text(json.dumps(results, indent=2) + "\n")
    print(f"\nEvery run is in {target}.")


if __name__ == "__main__":
    main()
