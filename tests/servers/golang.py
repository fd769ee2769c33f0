"""Programs in Go: modules come from Go's proxy, checked against their sums; only the program stays in the cache."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from .common import ServerMissing, cache_dir, cached

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def fetch_example(name="consumers"):
    """The consumer in Go of examples/consumers or examples/queue, built when it is not there yet as it is now."""
    example = EXAMPLES / name / "go"
    source = b"".join(path.read_bytes() for path in sorted(example.iterdir()) if path.name.startswith("go.")
                      or path.suffix == ".go")

    def build(folder):
        print("building the example of a consumer in Go", flush=True)
        run_go(folder, "build", "-trimpath", "-o", folder / "consumer", ".", cwd=example)

    return cached(f"consumer-{hashlib.sha256(source).hexdigest()[:12]}", build) / "consumer"


def fetch_examples():
    for name in ("consumers", "queue"):
        fetch_example(name)


def run_go(folder, *arguments, cwd=None):
    """Runs go, with `folder` as the place for what it installs; nothing else of it is left."""
    if not shutil.which("go"):
        raise ServerMissing("go is not installed (Debian package golang-go)")
    scratch = cache_dir() / "go"
    # Module files are made read-only unless told otherwise, and then a plain rm -r of the cache fails.
    environment = os.environ | {
        "GOPATH": str(scratch), "GOCACHE": str(scratch / "build"), "GOBIN": str(folder), "GOTOOLCHAIN": "local",
        "GOFLAGS": os.environ.get("GOFLAGS", "") + " -modcacherw", "CGO_ENABLED": "0"}
    environment.pop("GOMODCACHE", None)
    command = ["go", *map(str, arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=cwd or folder,
                          env=environment)
    if done.returncode != 0:
        raise ServerMissing(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    shutil.rmtree(scratch, ignore_errors=True)
