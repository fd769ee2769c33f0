"""PostgreSQL: Debian's version 15 (or what the distribution has), and 18 from Maven."""

import contextlib
import os
import platform
import re
import shutil
import signal
import subprocess
import tarfile
import zipfile
from pathlib import Path

import psycopg

from .common import Server, ServerMissing, as_user, cached, free_port, maven, unprivileged_user

VERSION_18 = "18.6.0"

DEFAULTS = {
    "wal_level": "logical",
    "max_connections": 100,
    "max_wal_senders": 20,
    "max_replication_slots": 20,
    "log_line_prefix": "%m [%p] %a ",
}


class Postgres(Server):
    """A PostgreSQL server with one superuser `postgres` and no passwords.

    `version` is 15 (or the distribution's, where it has no 15) or 18; `settings` go into postgresql.conf, over DEFAULTS,
    and are read again at each start.
    """

    orphan_signal = signal.SIGQUIT  # an immediate shutdown takes the backends along; a kill would leave them for a while

    def __init__(self, version=15, settings=None):
        super().__init__()
        self.version = version
        self.name = f"PostgreSQL {version}"
        self.settings = {**DEFAULTS, **(settings or {})}
        self.user = unprivileged_user()
        self.bin = None

    def prepare(self):
        self.bin = self._find_binaries()
        self.port = free_port()
        self.socket_dir = self.workdir / "socket"
        self.data = self.workdir / "data"
        template = cached(self._template_name(), self._initdb)
        shutil.copytree(template / "data", self.data)
        with open(self.data / "postgresql.conf", "a") as conf:
            conf.write("include 'test.conf'\n")
        self.socket_dir.mkdir()
        self._give_to_user(self.data)
        self._give_to_user(self.socket_dir)
        self.data.chmod(0o700)

    def command(self):
        settings = {
            "listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": self.socket_dir, **self.settings}
        lines = [f"{key} = '{str(value).replace(chr(39), chr(39) * 2)}'\n" for key, value in settings.items()]
        (self.data / "test.conf").write_text("".join(lines))
        return [self.bin / "postgres", "-D", self.data]

    def is_ready(self):
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.dsn(), connect_timeout=2):
            return True
        return False

    def stop(self, mode="fast"):
        """Stops as pg_ctl would: `fast` rolls back what is open, `immediate` is a crash, `smart` waits for clients."""
        signals = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
        super().stop(signals[mode])

    def kill(self):
        """A crash of the whole server. SIGKILL to the postmaster alone would leave its backends working for a while."""
        self.stop("immediate")

    def restart(self, mode="fast"):
        self.stop(mode)
        return self.start()

    def dsn(self, dbname="postgres", user="postgres"):
        return f"postgresql://{user}@127.0.0.1:{self.port}/{dbname}"

    def connect(self, dbname="postgres", **options):
        """A psycopg connection in autocommit mode, unless told otherwise."""
        return psycopg.connect(self.dsn(dbname), **{"autocommit": True, **options})

    def createdb(self, name):
        """Creates a database and returns its DSN."""
        with self.connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.dsn(name)

    def add_file(self, name, text):
        """A file in the data folder that only the server's user may read."""
        path = self.data / name
        path.touch(0o600)
        path.write_text(text)
        self._give_to_user(path)

    def cpu_seconds(self):
        """CPU time of the server since its start: the postmaster, its living children, and those that have ended."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                # Fields after the command name in parentheses, from the third of proc(5): state, parent, …
                fields = stat.read_text().rpartition(")")[2].split()
                utime, stime, ended_utime, ended_stime = map(int, fields[11:15])
                if int(stat.parent.name) == self.pid:
                    ticks += utime + stime + ended_utime + ended_stime
                elif int(fields[1]) == self.pid:
                    ticks += utime + stime
        return ticks / os.sysconf("SC_CLK_TCK")

    def _find_binaries(self):
        if self.version == 18:
            return self._reachable(fetch_18()) / "bin"
        found = {int(path.parent.parent.name): path.parent for path in Path("/usr/lib/postgresql").glob("[0-9]*/bin/initdb")}
        if not found:
            raise ServerMissing("no PostgreSQL server in /usr/lib/postgresql (Debian package postgresql)")
        return found.get(self.version) or found[max(found)]

    def _reachable(self, tree):
        """The tree itself, or a copy of it where the server's user may not look into root's cache."""
        if not self.user:
            return tree

        def link_or_copy(source, target):
            try:
                os.link(source, target)
            except OSError:
                shutil.copy2(source, target)

        return Path(shutil.copytree(tree, self.workdir / "pg", symlinks=True, copy_function=link_or_copy))

    def _template_name(self):
        text = subprocess.run([self.bin / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
        return "initdb-" + re.search(r"\d[\d.]*", text).group()

    def _initdb(self, template):
        """Fills the template, from which new data folders are copied: faster than another initdb."""
        made = self.workdir / "initdb"
        made.mkdir()
        self._give_to_user(made)
        done = subprocess.run(
            [self.bin / "initdb", "--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "-D", made],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/", **as_user(self.user))
        if done.returncode != 0:
            raise ServerMissing(f"initdb of {self.name} failed:\n{done.stdout}{done.stderr}")
        shutil.move(made, template / "data")

    def _give_to_user(self, tree):
        if self.user:
            for path in [tree, *tree.rglob("*")]:
                os.chown(path, self.user.pw_uid, self.user.pw_gid, follow_symlinks=False)


def fetch_18():
    """The folder with PostgreSQL 18 in the cache, downloaded when it is not there yet."""
    return cached(f"postgresql-{VERSION_18}", _download_18)


def _download_18(folder):
    print(f"fetching PostgreSQL {VERSION_18}", flush=True)
    machine = {"x86_64": "amd64", "aarch64": "arm64v8"}.get(platform.machine(), platform.machine())
    artifact = f"io.zonky.test.postgres:embedded-postgres-binaries-linux-{machine}:{VERSION_18}"
    maven("copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
    jar = next(folder.glob("*.jar"))
    with zipfile.ZipFile(jar) as archive:
        inner = next(name for name in archive.namelist() if name.endswith(".txz"))
        with archive.open(inner) as packed, tarfile.open(fileobj=packed, mode="r:xz") as tree:
            tree.extraction_filter = getattr(tarfile, "data_filter", None)  # older Pythons have no filters
            tree.extractall(folder)
    jar.unlink()
