"""NATS with JetStream: plain, with a user, with a token, over TLS."""

import json
import os
import shutil

from .common import Server, ServerMissing, free_port


class Nats(Server):
    """`authorization` is that section of its settings: {"user": …, "password": …}, {"token": …} or {"users": [...]}.

    `certificates` (tests.servers.certificates) make it speak TLS and nothing else. `settings` go into its file as they are.
    """

    name = "NATS"

    def __init__(self, authorization=None, certificates=None, settings=None):
        super().__init__()
        self.authorization = authorization
        self.certificates = certificates
        self.settings = settings or {}

    def prepare(self):
        # Debian has it in /usr/sbin, which is not on everybody's PATH.
        self.binary = shutil.which("nats-server", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if not self.binary:
            raise ServerMissing("nats-server is not installed (Debian package nats-server)")
        self.port = free_port()

    def command(self):
        settings = {"host": "127.0.0.1", "port": self.port, "jetstream": {"store_dir": str(self.workdir / "streams")},
                    **self.settings}
        if self.authorization:
            settings["authorization"] = self.authorization
        if self.certificates:
            settings["tls"] = {"cert_file": str(self.certificates.certificate), "key_file": str(self.certificates.key)}
        file = self.workdir / "nats.conf"
        file.write_text(json.dumps(settings, indent=2))     # its own language takes JSON
        return [self.binary, "-c", file]

    def url(self, host="127.0.0.1", port=None):
        return f"nats://{host}:{port or self.port}"
