"""docs/sinks.md: its examples are settings that the program takes, and every sink of this build has a section."""

import re

import pytest

from tests.e2e.relay import ROOT, postrider, write_config
from tests.servers.certificates import make_certificates

PAGE = (ROOT / "docs" / "sinks.md").read_text()
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
WRONG_SETTINGS = 78
SECRETS = {"webhook-secrets": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"}    # others may be anything


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_is_valid(product, tmp_path, number):
    """Nobody is there to connect to, which is another error than wrong settings."""
    text = re.sub(r"[\w-]+\.example\.com:\d+|127\.0\.0\.1:\d+", "127.0.0.1:1", EXAMPLES[number])
    text = text.replace("https://hooks.example.com", "https://127.0.0.1:1")
    text = text.replace("- type: sqs\n", "- type: sqs\n        endpoint: https://127.0.0.1:1\n")  # not to AWS itself
    text = text.replace("/etc/postrider", str(tmp_path)).replace("/var/lib/postrider", str(tmp_path))
    authority = make_certificates(tmp_path).ca.read_text()
    for name in set(re.findall(rf"{re.escape(str(tmp_path))}/([\w.-]+)", text)):
        (tmp_path / name).write_text(authority if name.endswith(".pem") else SECRETS.get(name, "secret"))
    done = postrider("check", "-c", write_config(tmp_path / "example.yaml", text), timeout=60)
    assert done.returncode != WRONG_SETTINGS, done.stderr


def test_every_sink_has_a_section_and_a_row(product):
    listed = postrider("--version").stdout.partition("\nsinks:\n")[2]
    sinks = re.findall(r"^ +(\w+)", listed, re.M)
    assert "stdout" in sinks, listed
    for sink in sinks:
        assert f"\n## {sink}\n" in PAGE and f"\n| [`{sink}`](#{sink})" in PAGE, sink
