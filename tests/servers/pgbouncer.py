"""PgBouncer in front of a Postgres server."""

import contextlib
import os
import shutil

import psycopg

from .common import Server, ServerMissing, free_port, unprivileged_user


class PgBouncer(Server):
    """A pooler for all databases of `postgres`; `pool_mode` is "transaction" or "session".

    `users` may log in, without passwords. `settings` go into its [pgbouncer] section.
    """

    name = "PgBouncer"

    def __init__(self, postgres, pool_mode="transaction", settings=None, users=("postgres",)):
        super().__init__()
        self.postgres = postgres
        self.settings = {"pool_mode": pool_mode, **(settings or {})}
        self.users = users
        self.user = unprivileged_user()

    def prepare(self):
        # Debian has it in /usr/sbin, which is not on everybody's PATH.
        self.binary = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if not self.binary:
            raise ServerMissing("pgbouncer is not installed (Debian package pgbouncer)")
        self.port = free_port()
        (self.workdir / "users.txt").write_text("".join(f'"{name}" ""\n' for name in self.users))

    def command(self):
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": self.workdir / "users.txt",
            "admin_users": "postgres",
            **self.settings,
        }
        ini = self.workdir / "pgbouncer.ini"
        ini.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.postgres.port}\n\n[pgbouncer]\n"
            + "".join(f"{key} = {value}\n" for key, value in settings.items()))
        return [self.binary, ini]

    def is_ready(self):
        with contextlib.suppress(psycopg.OperationalError), self.admin():
            return True
        return False

    def dsn(self, dbname="postgres", user="postgres"):
        return f"postgresql://{user}@127.0.0.1:{self.port}/{dbname}"

    def admin(self):
        """A connection to its console, for SHOW POOLS, KILL and the like."""
        return psycopg.connect(self.dsn("pgbouncer"), autocommit=True, cursor_factory=psycopg.ClientCursor, connect_timeout=2)
