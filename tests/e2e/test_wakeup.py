"""A row in an idle system leaves at once; when wake-ups fail it still leaves within the poll interval."""

import time

import pytest

from tests.e2e.relay import kafka_settings, wait_until

LISTENERS = "application_name LIKE 'postrider%listen%' AND datname = current_database()"


def seconds_until_out(database, entity="a", timeout=40):
    """Inserts a row and returns how long it took to leave; the row is settled after the broker has it."""
    with database.connect() as connection:
        begin = time.monotonic()
        connection.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                           " VALUES ('order', %s, 'changed', '{}')", (entity,))
        wait_until(lambda: connection.execute("SELECT NOT EXISTS (SELECT FROM public.outbox)").fetchone()[0],
                   timeout, "an empty outbox", pause=0.005)
        return time.monotonic() - begin


@pytest.mark.parametrize("pg", [15, 18], indirect=True)
@pytest.mark.parametrize("wakeup", ["armed", "always"])
def test_a_row_in_an_idle_system_leaves_at_once(database, kafka, topic, start_relay, wakeup):
    relay = start_relay(kafka_settings(database, kafka, topic, wakeup=wakeup, poll_interval="30s"))
    seconds_until_out(database)     # the first record to a topic may have to wait for the broker
    for idle in (0.1, 0.5, 2):
        time.sleep(idle)
        assert seconds_until_out(database) < 1
    assert relay.stop() == 0


def test_a_busy_system_sends_no_notifications(database, kafka, topic, start_relay):
    """Armed: while rows keep coming nobody sleeps, so nobody needs to be woken."""
    relay = start_relay(kafka_settings(database, kafka, topic, wakeup="armed", poll_interval="30s"))
    with database.connect() as listener, database.connect() as writer:
        listener.execute("LISTEN postrider")
        # Transactions inside the server: what keeps the system busy must not depend on how fast a client is.
        writer.execute("DO $$ BEGIN FOR n IN 1..20000 LOOP INSERT INTO public.outbox (entity_type, entity_id, event_type,"
                       " payload) VALUES ('order', 'e' || n % 50, 'changed', '{}'); COMMIT; END LOOP; END $$")
        heard = sum(1 for _ in listener.notifies(timeout=0.2))
    database.wait_until_empty()
    assert heard < 5000, heard
    assert relay.stop() == 0


def test_two_idle_relays_are_woken_as_one(database, kafka, topic, start_relay):
    relays = [start_relay(kafka_settings(database, kafka, topic, poll_interval="30s")) for _ in range(2)]
    seconds_until_out(database)
    time.sleep(2)
    for entity in ("a", "b", "c"):
        assert seconds_until_out(database, entity) < 1
    assert relays[0].stop() == 0
    time.sleep(1)
    assert seconds_until_out(database) < 1
    assert relays[1].stop() == 0


def test_without_wake_ups_the_poll_interval_holds(database, kafka, topic, start_relay):
    relay = start_relay(kafka_settings(database, kafka, topic, wakeup="off", poll_interval="1s"))
    seconds_until_out(database)
    time.sleep(2)
    assert seconds_until_out(database) < 1.5
    assert not database.execute(f"SELECT pid FROM pg_stat_activity WHERE {LISTENERS}")
    assert relay.stop() == 0


def test_a_dead_listener_delays_rows_to_the_poll_interval_and_comes_back(database, kafka, topic, start_relay):
    relay = start_relay(kafka_settings(database, kafka, topic, poll_interval="1s"))
    seconds_until_out(database)
    time.sleep(1)
    killed = database.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {LISTENERS}")
    assert killed == [(True,)]
    assert seconds_until_out(database) < 2
    relay.wait_for("wakeup.lost")
    wait_until(lambda: database.execute(
        f"SELECT pid FROM pg_stat_activity WHERE {LISTENERS}"), 15, "a new listener")
    time.sleep(2)
    assert seconds_until_out(database) < 0.9
    assert (len(relay.events("wakeup.lost")), len(relay.events("wakeup.back"))) == (1, 1)
    assert relay.stop() == 0


def test_a_missing_trigger_delays_rows_to_the_poll_interval_and_is_told_once(database, kafka, topic, start_relay):
    database.execute("DROP TRIGGER postrider_ring ON public.outbox")
    relay = start_relay(kafka_settings(database, kafka, topic, poll_interval="1s"))
    seconds_until_out(database)
    for _ in range(3):
        time.sleep(1)
        assert seconds_until_out(database) < 2
    assert len(relay.events("wakeup.unavailable")) == 1
    assert relay.stop() == 0


def test_a_writer_without_rights_in_the_schema_can_insert(database, kafka, topic, start_relay):
    """The trigger must not ask writers for more than INSERT on the table."""
    role = f"writer_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN")
    database.execute(f"GRANT INSERT ON public.outbox TO {role}")
    relay = start_relay(kafka_settings(database, kafka, topic, poll_interval="30s"))
    time.sleep(1)
    for _ in range(2):
        with database.connect(user=role) as writer:
            writer.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type) VALUES ('o', 'a', 'x')")
        database.wait_until_empty(timeout=5)
        time.sleep(1)
    assert relay.stop() == 0
