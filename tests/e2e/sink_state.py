"""What a node says of its sink, and what trouble with a sink must not do."""

import time

from tests.e2e.relay import wait_until


def sink_state(database):
    """What the only node says of its only sink; None before its first heartbeat."""
    rows = database.execute("SELECT state #> '{outboxes,0,sinks,0}' FROM postrider.node")
    return rows[0][0] if rows else None


def wait_until_away(database, kind, *fragments):
    """Waits until the sink's breaker is open; kind and reason must be these. Any kind where it is None."""
    def look():
        state = sink_state(database)
        return state if state and state["open_since"] else None

    state = wait_until(look, 60, "the sink is away")
    assert kind in (None, state["kind"]), state
    assert all(part in state["reason"] for part in fragments), state
    return state


def wait_until_there(database):
    wait_until(lambda: sink_state(database)["open_since"] is None, 60, "the sink is there")


def nothing_is_blamed(database):
    """No row is held back."""
    return database.value("SELECT count(*) FROM postrider.retry") == 0


def nothing_is_counted(database):
    """A row may be held back until somebody mends a setting, but that is no attempt of its own."""
    return database.value("SELECT coalesce(max(attempts), 0) FROM postrider.retry") == 0


def expect_quiet(relay, seconds=5):
    """While it waits for another server, a relay neither floods its log nor keeps a processor busy."""
    lines, cpu = len(relay.log_lines()), relay.cpu_seconds()
    time.sleep(seconds)
    assert relay.running
    assert len(relay.log_lines()) - lines < 30, "\n".join(relay.log_lines()[lines:])
    assert relay.cpu_seconds() - cpu < 0.1 * seconds
