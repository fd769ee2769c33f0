"""The build with the thread sanitizer under load: not one report, with any reader and any sink that is ours alone.

librdkafka is not built for it, so no sink here is Kafka.
"""

import os
import time

import pytest

from tests.e2e.checker import expect_exactly_once
from tests.e2e.ledger import Writers
from tests.e2e.relay import TSAN_BINARY, postrider, settings, wait_until, write_config
from tests.e2e.scene import missing

READERS = {
    "advisory": {"reader": "advisory"},
    "lease": {"reader": "lease", "lease": "3s"},
    "skip_locked": {"reader": "skip_locked"},
    "skip_locked-ordered": {"reader": "skip_locked", "order": "entity"},
    "shards": {"reader": "shards", "lease": "3s"},
    "dispatcher": {"reader": "dispatcher"},
    "wal": {"reader": "wal"},
}


@pytest.fixture
def tsan_binary():
    if not os.access(TSAN_BINARY, os.X_OK):
        missing(f"{TSAN_BINARY} is not built")
    return TSAN_BINARY


@pytest.fixture
def start_watched(start_relay, tsan_binary, tmp_path):
    """Starts a relay of the sanitized build on a database that is prepared for its settings."""
    def start(content):
        done = postrider("init", "-c", write_config(tmp_path / "watched.yaml", content))
        assert done.returncode == 0, done.stderr
        return start_relay(content, binary=tsan_binary,
                           environment={"TSAN_OPTIONS": "halt_on_error=0 exitcode=66 report_signal_unsafe=0"})

    return start


def expect_no_report(relay, code):
    assert "ThreadSanitizer" not in relay.log_text(), relay.log_text()[-8000:]
    assert code == 0


@pytest.mark.parametrize("sink", [{"type": "stdout"}, {"type": "postgres"}], ids=lambda sink: sink["type"])
def test_workers_race_for_nothing(database, start_watched, sink):
    entities = database.entities(40)
    relay = start_watched(settings(database.dsn, sink, poll_interval="200ms"))
    with Writers(database.dsn, entities, threads=3, pause=0.001):
        time.sleep(3)
    database.wait_until_empty(timeout=60)
    expect_no_report(relay, relay.stop())
    if sink["type"] == "postgres":
        expect_exactly_once(database.ledger(), database.event_store())
    else:
        assert len(relay.out_file.read_text().splitlines()) == len(database.ledger())


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_races(database, start_watched, reader):
    """Rows come one by one and in a backlog, sessions are cut, and it is stopped while rows still come."""
    entities = database.entities(40)
    content = settings(database.dsn, {"type": "stdout"}, workers=2, poll_interval="200ms", **READERS[reader])
    relay = start_watched(content | {"heartbeat": "200ms"})
    with Writers(database.dsn, entities, threads=3, pause=0.001):
        time.sleep(2)
        database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                         " WHERE datname = current_database() AND application_name LIKE 'postrider %'")
        time.sleep(2)
        database.write_backlog(50)
        wait_until(lambda: database.pending() < 500, 60, "a backlog that is nearly gone")
        code = relay.stop()
    expect_no_report(relay, code)
    assert len(set(relay.out_file.read_text().splitlines())) + database.pending() >= len(database.ledger())
