"""Redis from Debian: plain, with a password and an ACL user, with TLS, as a replica of another."""

import contextlib
import shutil

import redis

from .certificates import make_certificates
from .common import Server, ServerMissing, free_port


class Redis(Server):
    """A Redis server that keeps what it acknowledged over a restart and a kill (by its append-only file).

    `password` is that of the default user. `users` are lines of ACL rules, such as "relay on >secret ~* +xadd". With `tls`
    it speaks TLS on `tls_port` too, with `certificates` for the name localhost. `replica_of` is another Redis.
    """

    name = "Redis"

    def __init__(self, password=None, users=(), tls=False, replica_of=None, settings=None):
        super().__init__()
        self.password = password
        self.users = users
        self.tls = tls
        self.replica_of = replica_of
        self.settings = settings or {}
        self.tls_port = self.certificates = None

    def prepare(self):
        self.binary = shutil.which("redis-server")
        if not self.binary:
            raise ServerMissing("redis-server is not installed (Debian package redis-server)")
        self.port = free_port()
        if self.tls:
            self.tls_port = free_port()
            self.certificates = make_certificates(self.workdir, names="DNS:localhost")

    def command(self):
        file = self.workdir / "redis.conf"
        file.write_text("".join(f"{key} {value}\n" for key, value in self._lines()))
        return [self.binary, file]

    def is_ready(self):
        with contextlib.suppress(redis.ConnectionError, redis.BusyLoadingError), self.client() as client:
            return client.ping()
        return False

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def client(self, **options):
        """An independent client; answers are bytes."""
        return redis.Redis("127.0.0.1", self.port, password=self.password, socket_timeout=20, **options)

    def promote(self):
        """No longer a replica."""
        with self.client() as client:
            client.replicaof("NO", "ONE")

    def _lines(self):
        yield from {
            "bind": "127.0.0.1", "port": self.port, "dir": self.workdir, "save": '""', "appendonly": "yes",
            "repl-diskless-sync-delay": 0, "repl-ping-replica-period": 1}.items()
        if self.tls:
            yield from {"tls-port": self.tls_port, "tls-auth-clients": "no", "tls-cert-file": self.certificates.certificate,
                        "tls-key-file": self.certificates.key, "tls-ca-cert-file": self.certificates.ca}.items()
        if self.password:
            yield "requirepass", self.password
        for user in self.users:
            yield "user", user
        if self.replica_of:
            yield "replicaof", f"127.0.0.1 {self.replica_of.port}"
        yield from self.settings.items()
