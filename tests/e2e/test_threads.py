"""The build with the thread sanitizer under load: not one report."""

import os
import time

import pytest

from tests.e2e.checker import expect_exactly_once
from tests.e2e.ledger import Writers
from tests.e2e.relay import TSAN_BINARY, settings
from tests.e2e.scene import missing


@pytest.fixture
def tsan_binary():
    if not os.access(TSAN_BINARY, os.X_OK):
        missing(f"{TSAN_BINARY} is not built")
    return TSAN_BINARY


@pytest.mark.parametrize("sink", [{"type": "stdout"}, {"type": "postgres"}], ids=lambda sink: sink["type"])
def test_workers_race_for_nothing(database, start_relay, tsan_binary, sink):
    entities = database.entities(40)
    relay = start_relay(settings(database.dsn, sink, poll_interval="200ms"), binary=tsan_binary,
                        environment={"TSAN_OPTIONS": "halt_on_error=0 exitcode=66 report_signal_unsafe=0"})
    with Writers(database.dsn, entities, threads=3, pause=0.001):
        time.sleep(3)
    database.wait_until_empty(timeout=60)
    code = relay.stop()
    assert "ThreadSanitizer" not in relay.log_text(), relay.log_text()[-8000:]
    assert code == 0
    if sink["type"] == "postgres":
        expect_exactly_once(database.ledger(), database.event_store())
    else:
        assert len(relay.out_file.read_text().splitlines()) == len(database.ledger())
