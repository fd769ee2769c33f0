"""RabbitMQ from Debian: one node with a plain and a TLS listener, and a user of its own."""

import os
import shutil
import subprocess

from .certificates import make_certificates
from .common import Server, ServerError, ServerMissing, as_user, free_port, unprivileged_user

# Debian's commands on the PATH are a wrapper that changes the user; these are the scripts behind it.
SCRIPTS = "/usr/lib/rabbitmq/bin"


class Epmd(Server):
    """Where Erlang's nodes find each other. A node would start one by itself, and leave it behind."""

    name = "epmd"

    def __init__(self, user):
        super().__init__()
        self.user = user

    def prepare(self):
        self.port = free_port()

    def command(self):
        return ["epmd", "-port", self.port, "-address", "127.0.0.1"]


class RabbitMQ(Server):
    """A broker with the user `username` and its `password`; its certificate names localhost and no address.

    `settings` go into rabbitmq.conf. `ctl` runs rabbitmqctl.
    """

    name = "RabbitMQ"
    ready_within = 60
    username, password = "relay", "relay-secret"

    def __init__(self, settings=None):
        super().__init__()
        self.settings = settings or {}
        self.user = unprivileged_user()
        self.epmd = None

    def prepare(self):
        if not os.path.exists(f"{SCRIPTS}/rabbitmq-server"):
            raise ServerMissing("rabbitmq-server is not installed (Debian package rabbitmq-server)")
        self.port, self.tls_port, self.dist_port = free_port(), free_port(), free_port()
        self.node = f"postrider{self.port}@localhost"
        self.epmd = Epmd(self.user).start()
        self.certificates = make_certificates(self.workdir, names="DNS:localhost")
        self.certificates.key.chmod(0o644)      # another user may run the server, and nothing else has this key
        self.home = self.workdir / "home"
        self.home.mkdir()
        if self.user:
            shutil.chown(self.home, self.user.pw_uid, self.user.pw_gid)
        (self.workdir / "plugins").write_text("[].\n")
        self._write_settings()

    def _write_settings(self):
        settings = {
            "listeners.tcp.1": f"127.0.0.1:{self.port}",
            "listeners.ssl.1": f"127.0.0.1:{self.tls_port}",
            "ssl_options.cacertfile": self.certificates.ca,
            "ssl_options.certfile": self.certificates.certificate,
            "ssl_options.keyfile": self.certificates.key,
            "ssl_options.verify": "verify_none",
            "default_user": self.username,
            "default_pass": self.password,
            "disk_free_limit.absolute": "1MB",
            "log.console": "true",
            "log.console.level": "info",
            "log.file": "false",
            **self.settings,
        }
        (self.workdir / "rabbitmq.conf").write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))

    def command(self):
        return [f"{SCRIPTS}/rabbitmq-server"]

    def environment(self):
        return {
            "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin",
            "LANG": "C.UTF-8",
            "HOME": str(self.home),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.dist_port),
            "RABBITMQ_MNESIA_BASE": str(self.home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.home / "log"),
            "RABBITMQ_PID_FILE": str(self.home / "pid"),
            "RABBITMQ_CONFIG_FILE": str(self.workdir / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(self.workdir / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.workdir / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none",
            "ERL_EPMD_PORT": str(self.epmd.port),
            "RUNNING_UNDER_SYSTEMD": "true",            # no shell between us and the server
        }

    def is_ready(self):
        # The log is new at each start: see _spawn.
        return "Server startup complete" in self.log_text()

    def _spawn(self):
        if self.log_file.exists():
            self.log_file.rename(self.workdir / "log.previous")
        super()._spawn()

    def ctl(self, *arguments):
        """Runs rabbitmqctl on this node; returns what it says."""
        done = subprocess.run([f"{SCRIPTS}/rabbitmqctl", "-q", "-n", self.node, *map(str, arguments)], cwd=self.home,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                              env=self.environment(), **as_user(self.user))
        if done.returncode != 0:
            raise ServerError(f"rabbitmqctl {' '.join(map(str, arguments))} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def close(self):
        super().close()
        if self.epmd:
            self.epmd.close()
