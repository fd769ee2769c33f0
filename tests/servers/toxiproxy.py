"""Toxiproxy: connections that are cut, reset, silent or slow, from Go's module proxy."""

import contextlib
import json
import urllib.error
import urllib.request

from .common import Server, ServerError, cached, free_port
from .golang import run_go

VERSION = "2.5.0"       # builds with Go 1.17 and later, so with Debian 12's
MODULE = f"github.com/Shopify/toxiproxy/v2/cmd/server@v{VERSION}"
DIRECTIONS = ("upstream", "downstream")


class Toxiproxy(Server):
    """A server for any number of proxies (see proxy)."""

    name = "Toxiproxy"

    def prepare(self):
        self.binary = fetch() / "server"
        self.port = free_port()

    def command(self):
        return [self.binary, "-host", "127.0.0.1", "-port", self.port]

    def is_ready(self):
        with contextlib.suppress(OSError):
            self.call("GET", "/version")
            return True
        return False

    def proxy(self, name, upstream_port, port=None):
        """A proxy from `port` on loopback (a free one unless told) to `upstream_port`."""
        return Proxy(self, name, port or free_port(), upstream_port)

    def call(self, method, path, body=None):
        """One request to its API; returns the answer, None when that is empty."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method)
        # Loopback: a proxy for the web that the environment names is not meant.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=10) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise ServerError(f"Toxiproxy refused {method} {path}: {error.read().decode(errors='replace')}") from None
        return json.loads(text) if text.startswith((b"{", b"[")) else None


class Door(Server):
    """The only way to another server, which can be stopped and killed in its place, and it would not notice."""

    name = "the door"

    def __init__(self, upstream_port):
        super().__init__()
        self.upstream_port = upstream_port

    def prepare(self):
        self.binary = fetch() / "server"
        self.port, self.api_port = free_port(), free_port()

    def command(self):
        proxies = self.workdir / "proxies.json"
        proxies.write_text(json.dumps([{
            "name": "door", "listen": f"127.0.0.1:{self.port}", "upstream": f"127.0.0.1:{self.upstream_port}",
            "enabled": True}]))
        return [self.binary, "-host", "127.0.0.1", "-port", self.api_port, "-config", proxies]


class Proxy:
    """One way to a server: `port` leads there, unless it is cut or poisoned."""

    def __init__(self, toxiproxy, name, port, upstream_port):
        self.toxiproxy = toxiproxy
        self.name = name
        self.port = port
        toxiproxy.call("POST", "/proxies", {
            "name": name, "listen": f"127.0.0.1:{port}", "upstream": f"127.0.0.1:{upstream_port}", "enabled": True})

    def close(self):
        self.toxiproxy.call("DELETE", f"/proxies/{self.name}")

    def cut(self):
        """Ends all connections and takes no new ones."""
        self.toxiproxy.call("POST", f"/proxies/{self.name}", {"enabled": False})

    def reset(self):
        """Like cut, but both sides see a reset instead of an orderly end."""
        self.poison("reset_peer", timeout=0)
        self.cut()

    def mend(self):
        """Healthy again: without toxics, and open."""
        for toxic in self.toxiproxy.call("GET", f"/proxies/{self.name}/toxics"):
            self.toxiproxy.call("DELETE", f"/proxies/{self.name}/toxics/{toxic['name']}")
        self.toxiproxy.call("POST", f"/proxies/{self.name}", {"enabled": True})

    def delay(self, milliseconds, jitter=0):
        """Each way takes half of it longer."""
        self.poison("latency", latency=milliseconds // 2, jitter=jitter // 2)

    def silence(self):
        """Connections stay open and nothing comes through."""
        self.poison("timeout", timeout=0)

    def poison(self, kind, **attributes):
        """Adds a toxic in both directions; it acts on the connections that are open, too."""
        for direction in DIRECTIONS:
            self.toxiproxy.call("POST", f"/proxies/{self.name}/toxics", {
                "name": f"{kind}_{direction}", "type": kind, "stream": direction, "attributes": attributes})


def fetch():
    """The folder with the program in the cache, built when it is not there yet."""
    return cached(f"toxiproxy-{VERSION}", _build)


def _build(folder):
    print(f"building Toxiproxy {VERSION}", flush=True)
    run_go(folder, "install", MODULE)
