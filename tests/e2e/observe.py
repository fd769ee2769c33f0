"""What a relay shows of itself over HTTP, asked for by an independent client."""

import http.client
import json
import re
import subprocess

from tests.e2e.relay import settings, wait_until
from tests.servers.common import free_port

SAMPLE = re.compile(r'([a-z_]+)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"(?:,|$)')
ESCAPES = {"n": "\n", "\\": "\\", '"': '"'}


def watched(dsn, *sinks, port=None, http=None, **options):
    """Settings of a relay with an HTTP server that reads figures of tables each second; and its port."""
    port = port or free_port()
    content = settings(dsn, *sinks, **options)
    return content | {"http": {"listen": f"127.0.0.1:{port}", "survey_interval": "1s", **(http or {})}}, port


def get(port, path, method="GET", headers=None, timeout=5):
    """Status and text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def get_json(port, path):
    status, text = get(port, path)
    return status, json.loads(text)


def unescape(value):
    return re.sub(r"\\(.)", lambda found: ESCAPES[found[1]], value)


class Scrape:
    """The samples of one answer."""

    def __init__(self, text):
        self.text = text
        self.samples = []
        for line in text.splitlines():
            if not line.startswith("#"):
                name, labels, value = SAMPLE.fullmatch(line).groups()
                pairs = {key: unescape(text) for key, text in LABEL.findall(labels or "")}
                self.samples.append((name, pairs, float(value)))

    def all(self, name, **labels):
        return [(pairs, value) for found, pairs, value in self.samples if found == name and labels.items() <= pairs.items()]

    def value(self, name, **labels):
        """The only sample of that name and these labels; None when there is none."""
        found = self.all(name, **labels)
        assert len(found) <= 1, found
        return found[0][1] if found else None


def scrape(port, **headers):
    status, text = get(port, "/metrics", headers=headers)
    assert status == 200, text
    return Scrape(text)


def wait_for_value(port, expected, name, timeout=20, **labels):
    """Waits until a metric has that value."""
    return wait_until(lambda: scrape(port).value(name, **labels) == expected, timeout, f"{name}{labels} {expected}", 0.1)


def check_by_promtool(text):
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
