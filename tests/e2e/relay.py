"""The product as its users meet it: a configuration file, a process, its log and its signals."""

import ctypes
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("POSTRIDER_BIN") or ROOT / "build" / "postrider")
TSAN_BINARY = Path(os.environ.get("POSTRIDER_TSAN_BIN") or ROOT / "build-tsan" / "postrider")
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)


def clean_environment(extra=None):
    """The environment without anything that could reach the product's settings or libpq by accident."""
    kept = {name: value for name, value in os.environ.items()
            if not re.match(r"PG|AWS_|POSTRIDER_|OUTBOX_|NOTIFY_SOCKET|WATCHDOG_", name)}
    return kept | (extra or {})


def settings(dsn, *sinks, outbox="orders", table="public.outbox", **options):
    """Settings for one outbox; `options` are those of the outbox."""
    return {
        "log": {"level": "info", "format": "json"},
        "database": {"url": dsn},
        "outboxes": {outbox: {"table": table, "sinks": list(sinks), **options}},
    }


def kafka_settings(database, server, topic, **options):
    """Settings for one outbox that goes to a topic; polls often, so that a lost wake-up costs a test little."""
    sink = {"type": "kafka", "brokers": server.bootstrap}
    return settings(database.dsn, sink, **{"poll_interval": "1s", "route": {"topic": topic}, **options})


def write_config(path, content):
    """Writes settings given as text, or as a dictionary (JSON is YAML)."""
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2) + "\n")
    return path


def wait_until(condition, timeout=20, what="the condition", pause=0.02):
    """Waits for something true and returns it."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what} did not come true within {timeout} s"
        time.sleep(pause)


def postrider(*arguments, environment=None, timeout=30, binary=None, stdin=None):
    """Runs a command to its end; stdout, stderr and returncode as subprocess gives them."""
    return subprocess.run(
        [str(part) for part in (binary or BINARY, *arguments)], input=stdin or "", capture_output=True, text=True,
        timeout=timeout, env=clean_environment(environment), cwd="/")


class Relay:
    """One `postrider run`. Its log goes to a file of its own in `folder`."""

    count = 0

    def __init__(self, folder, content, environment=None, flags=(), binary=None):
        Relay.count += 1
        self.name = f"relay-{Relay.count}"
        self.config = write_config(folder / f"{self.name}.yaml", content)
        self.log_file = folder / f"{self.name}.log"
        self.out_file = folder / f"{self.name}.out"
        self.environment = clean_environment(environment)
        self.command = [str(part) for part in (binary or BINARY, "run", "-c", self.config, *flags)]
        self.process = None

    def start(self, wait=True, timeout=20):
        """Starts the process; unless told otherwise, returns when it is ready."""
        parent = os.getpid()

        def die_with_parent():
            _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
            if os.getppid() != parent:
                os._exit(1)

        with open(self.log_file, "ab") as log, open(self.out_file, "ab") as out:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, cwd="/", env=self.environment,
                start_new_session=True, preexec_fn=die_with_parent)
        if wait:
            self.wait_for("relay.ready", timeout)
        return self

    @property
    def pid(self):
        return self.process.pid

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    # ---- The log ----------------------------------------------------------------------------------------------------

    def log_text(self):
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def log_lines(self):
        return self.log_text().splitlines()

    def events(self, name=None, **fields):
        """The parsed lines of the log, with that event name and those fields where given."""
        found = []
        for line in self.log_lines():
            try:
                event = json.loads(line)
            except ValueError:
                continue    # the last line may be half written; a message before the log was set up is text
            if (name is None or event.get("event") == name) and fields.items() <= event.items():
                found.append(event)
        return found

    def warnings(self, *fragments):
        """Warnings and errors whose line contains all of the fragments."""
        return [event for event in self.events() if event["level"] in ("warn", "error")
                and all(str(part).lower() in json.dumps(event).lower() for part in fragments)]

    def wait_for(self, name, timeout=20, **fields):
        """Waits for an event in the log and returns it; fails at once when the process has ended without it."""

        return self._wait_for(lambda: self.events(name, **fields), f"{name} {fields or ''}", timeout)

    def wait_for_warning(self, *fragments, timeout=20):
        return self._wait_for(lambda: self.warnings(*fragments), f"a warning with {fragments}", timeout)

    def _wait_for(self, find, what, timeout):
        def look():
            running = self.running      # before the log is read: its last line is written before the end
            found = find()
            assert found or running, f"{self.name} ended with {self.process.poll()} without {what} in its log"
            return found

        return wait_until(look, timeout, f"{what} in the log of {self.name}")[0]

    # ---- The end ----------------------------------------------------------------------------------------------------

    def send(self, number):
        self.process.send_signal(number)

    def stop(self, number=signal.SIGTERM, timeout=30):
        """Asks for a clean stop and returns the exit code."""
        if self.running:
            self.send(number)
        return self.wait(timeout)

    def wait(self, timeout=30):
        """Waits for the end and returns the exit code."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {timeout} s") from None

    def kill9(self):
        self.process.kill()
        self.process.wait()

    def freeze(self):
        self.send(signal.SIGSTOP)

    def thaw(self):
        self.send(signal.SIGCONT)

    # ---- What it costs ----------------------------------------------------------------------------------------------

    def peak_rss_mb(self):
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) / 1024

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def command_line(self):
        return Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
