"""PgBouncer in between: session mode works when declared, transaction mode is refused with a reason."""

import time

import pytest

from tests.e2e.consume import read_topic
from tests.e2e.relay import kafka_settings, postrider, wait_until, write_config
from tests.e2e.scene import started
from tests.servers import PgBouncer


@pytest.fixture
def pooled(database, kafka, topic):
    """Settings that lead through a PgBouncer in the given mode."""
    poolers = []

    def make(mode, **database_options):
        poolers.append(started(PgBouncer(database.server, mode)))
        content = kafka_settings(database, kafka, topic)
        content["database"] = {"url": poolers[-1].dsn(database.name), **database_options}
        return content

    yield make
    for pooler in poolers:
        pooler.close()


def test_session_mode_works_when_it_is_declared(database, kafka, topic, pooled, start_relay):
    relay = start_relay(pooled("session", pooler="session"))
    for number in range(50):
        database.insert(f"e{number % 5}")
    database.wait_until_empty()
    time.sleep(1)
    database.insert("again")
    database.wait_until_empty()
    assert relay.stop() == 0
    assert len(read_topic(kafka, topic)) == 51


@pytest.mark.parametrize("command", ["run", "check"])
def test_transaction_mode_is_refused_with_a_reason(database, pooled, tmp_path, command):
    config = write_config(tmp_path / "pooled.yaml", pooled("transaction"))
    database.insert("a")
    done = postrider(command, "-c", config)
    assert done.returncode == {"run": 78, "check": 1}[command]
    told = done.stdout + done.stderr
    assert "advisory" in told and "database.pooler" in told, told
    assert database.pending() == 1


def test_sessions_that_the_pooler_ends_cost_nothing(database, kafka, topic, pooled, start_relay):
    relay = start_relay(pooled("session", pooler="session"))
    database.insert("a")
    database.wait_until_empty()
    database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                     " WHERE pid <> pg_backend_pid() AND datname = current_database()")
    database.insert("b")
    database.wait_until_empty()
    wait_until(lambda: len(read_topic(kafka, topic)) == 2)
    assert relay.stop() == 0
