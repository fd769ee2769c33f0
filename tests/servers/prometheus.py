"""Prometheus from Debian, which scrapes one or several relays."""

import contextlib
import json
import shutil
import urllib.error
import urllib.parse
import urllib.request

from .common import Server, ServerMissing, free_port


class Prometheus(Server):
    """Scrapes `targets` (host:port) every 200 ms, with the token of `token_file` where there is one."""

    name = "Prometheus"

    def __init__(self, targets, token_file=None):
        super().__init__()
        self.targets = targets
        self.token_file = token_file

    def prepare(self):
        self.binary = shutil.which("prometheus")
        if not self.binary:
            raise ServerMissing("prometheus is not installed (Debian package prometheus)")
        self.port = free_port()
        job = {"job_name": "postrider", "static_configs": [{"targets": self.targets}]}
        if self.token_file:
            job["authorization"] = {"credentials_file": str(self.token_file)}
        settings = {"global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"}, "scrape_configs": [job]}
        (self.workdir / "prometheus.yml").write_text(json.dumps(settings))

    def command(self):
        return [self.binary, f"--config.file={self.workdir}/prometheus.yml", f"--storage.tsdb.path={self.workdir}/data",
                f"--web.listen-address=127.0.0.1:{self.port}"]

    def is_ready(self):
        with contextlib.suppress(urllib.error.URLError, OSError):
            return self._get("/-/ready").status == 200
        return False

    def query(self, expression):
        """An instant query: a list of (labels, value)."""
        answer = json.load(self._get("/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
        assert answer["status"] == "success", answer
        return [(entry["metric"], float(entry["value"][1])) for entry in answer["data"]["result"]]

    def _get(self, path):
        return urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10)
