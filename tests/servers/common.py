"""What all servers share: folders, ports, starting, waiting, stopping, and never leaving anything behind."""

import atexit
import contextlib
import ctypes
import fcntl
import hashlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path

PR_SET_PDEATHSIG = 1
MAVEN_DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"

_libc = ctypes.CDLL(None)
_servers = weakref.WeakSet()
_ports_given = set()


class ServerError(RuntimeError):
    """A server did not start or stop as it should; the message ends with the tail of its log."""


class ServerMissing(RuntimeError):
    """A server is not installed and could not be fetched. A test may skip on it unless servers_required()."""


def servers_required():
    """True where a missing server is a failure: in CI, and wherever ./dev could install everything."""
    return os.environ.get("POSTRIDER_REQUIRE_SERVERS") == "1"


def exit_on_signals():
    """Lets SIGTERM and SIGHUP end the program like sys.exit, so that context managers and atexit clean up."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda signum, frame: sys.exit(128 + signum))


def cache_dir():
    """The folder for everything downloaded; the same as in ./dev."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(os.environ.get("POSTRIDER_CACHE") or Path(base) / "postrider")
    path.mkdir(parents=True, exist_ok=True)
    return path


def cached(name, fill):
    """The folder `name` in the cache. When it is missing, fill(folder) makes it: one process at a time, wholly or not at all."""
    final = cache_dir() / name
    if final.exists():
        return final
    with open(cache_dir() / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if final.exists():
            return final
        unfinished = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=cache_dir()))
        try:
            fill(unfinished)
            unfinished.chmod(0o755)
            return unfinished.rename(final)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def maven(goal, *arguments):
    """Runs one goal of Maven's dependency plugin, with checksums enforced."""
    if not shutil.which("mvn"):
        raise ServerMissing("mvn is not installed (Debian package maven)")
    command = ["mvn", "-B", "-q", "-C", f"-Dmaven.repo.local={cache_dir() / 'm2'}", f"{MAVEN_DEPENDENCY_PLUGIN}:{goal}"]
    done = subprocess.run([*command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise ServerMissing(f"mvn {goal} {' '.join(arguments)} failed:\n{(done.stdout + done.stderr)[-2000:]}")


def maven_jars(pom):
    """The folder in the cache with the jars that a pom names; the name of the file is <what>-pom.xml."""
    what = pom.name.removesuffix("-pom.xml")

    def download(folder):
        print(f"fetching {what} from Maven", flush=True)
        maven("copy-dependencies", "-f", str(pom), f"-DoutputDirectory={folder}")

    return cached(f"{what}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}", download)


def free_port():
    """A port on 127.0.0.1 that nobody listens on.

    It lies below the range for outgoing connections: otherwise a client that tries to reach a stopped server could
    be given the server's own port, connect to itself, and keep the server from coming back.
    """
    for _ in range(1000):
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _ports_given:
            _ports_given.add(port)
            return port
    raise ServerError("could not find a free port on 127.0.0.1")


def unprivileged_user():
    """Who runs a server that refuses root: `postgres` or `nobody` when we are root, else None for ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerMissing("no user `postgres` or `nobody` to run a server that refuses root")


def as_user(user):
    """The arguments for subprocess that switch to `user`; none when it is None."""
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}


class Server:
    """One child process in one temporary folder.

    A subclass sets `name` and implements prepare() (once, fills self.workdir) and command(); it may narrow is_ready().
    A server dies with the thread that started it, so start servers from a thread that lives long enough.
    """

    name = "server"
    ready_within = 30
    stop_within = 30
    stop_signal = signal.SIGTERM
    orphan_signal = signal.SIGKILL  # sent by the kernel when our process dies without cleaning up
    user = None

    def __init__(self):
        self.workdir = None
        self.process = None
        self.port = None
        _servers.add(self)

    def prepare(self):
        raise NotImplementedError

    def command(self):
        raise NotImplementedError

    def environment(self):
        return None

    def is_ready(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    @property
    def pid(self):
        return self.process.pid if self.process else None

    @property
    def log_file(self):
        return self.workdir / "log"

    def log_text(self):
        return self.log_file.read_text(errors="replace") if self.workdir and self.log_file.exists() else ""

    def start(self):
        """Starts, the first time on a new folder, and returns self when the server answers."""
        if self.process:
            raise ServerError(f"{self.name} is already running")
        try:
            if not self.workdir:
                self.workdir = Path(tempfile.mkdtemp(prefix="postrider-"))
                self.workdir.chmod(0o711)  # another user may run the server
                self.prepare()
            self._spawn()
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def stop(self, signum=None):
        """Stops and keeps the data. Does nothing when the server is not running."""
        if not self.process:
            return
        if self.process.poll() is None:
            self.process.send_signal(signum or self.stop_signal)
        try:
            self.process.wait(self.stop_within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise ServerError(f"{self.name} did not stop within {self.stop_within} s\n{self._log_tail()}") from None
        finally:
            if self.process.returncode is not None:
                self.process = None

    def kill(self):
        """Ends the process at once, as a crash would; the data stays."""
        self.stop(signal.SIGKILL)

    def restart(self):
        self.stop()
        return self.start()

    def close(self):
        """Stops and removes the folder. May be called at any time and more than once."""
        try:
            self.stop()
        finally:
            if self.workdir and not self.process:
                shutil.rmtree(self.workdir, ignore_errors=True)
                self.workdir = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *exception):
        self.close()

    def _spawn(self):
        parent = os.getpid()

        def die_with_parent():
            _libc.prctl(PR_SET_PDEATHSIG, int(self.orphan_signal))
            if os.getppid() != parent:
                os._exit(1)

        # A session of its own: Ctrl-C in the terminal is for us, and we stop the servers in our order.
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(
                [str(part) for part in self.command()],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.workdir, env=self.environment(),
                start_new_session=True, preexec_fn=die_with_parent, **as_user(self.user))

    def _wait_until_ready(self):
        deadline = time.monotonic() + self.ready_within
        while not self.is_ready():
            if self.process.poll() is not None:
                raise ServerError(f"{self.name} ended with status {self.process.returncode}\n{self._log_tail()}")
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} was not ready within {self.ready_within} s\n{self._log_tail()}")
            time.sleep(0.02)

    def _log_tail(self, lines=30):
        tail = "\n".join(self.log_text().splitlines()[-lines:])
        return f"--- end of the log of {self.name} ---\n{tail}"


@atexit.register
def _close_all():
    for server in list(_servers):
        with contextlib.suppress(Exception):
            server.close()
