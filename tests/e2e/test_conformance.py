"""What every sink does, each against its real server and looked at by an independent client.

A sink joins by a class in tests/e2e/destinations and a line there. What is special about one sink has tests of its own.
"""

import json
import os
import time

import pytest

from tests.e2e.checker import check
from tests.e2e.destinations import DESTINATIONS, opened
from tests.e2e.ledger import Writers
from tests.e2e.relay import postrider, settings, wait_until
from tests.e2e.scene import started
from tests.e2e.sink_state import (
    expect_quiet, nothing_is_blamed, nothing_is_counted, sink_state, wait_until_away, wait_until_there)
from tests.servers import Toxiproxy

FIVE_MB = 5_000_000
NOT_THE_PASSWORD = "not-the-password"
BYTES_TO_PAYLOAD = "ALTER TABLE public.outbox ALTER payload TYPE bytea USING convert_to(payload::text, 'UTF8')"


@pytest.fixture(scope="module", params=DESTINATIONS, ids=lambda kind: kind.name + kind.variant)
def destination(request, tmp_path_factory):
    """All tests of one destination follow each other, and its server ends before that of the next one starts."""
    made = opened(request.param, tmp_path_factory.mktemp(request.param.name))
    yield made
    made.close()


@pytest.fixture(scope="module")
def toxiproxy():
    server = started(Toxiproxy())
    yield server
    server.close()


@pytest.fixture
def place(destination):
    yield destination.fresh()
    destination.recover()


@pytest.fixture
def proxy(destination, toxiproxy):
    destination.must_have("a proxy")
    way = destination.proxy(toxiproxy)
    yield way
    way.close()


@pytest.fixture
def relay_to(database, start_relay):
    """Starts a relay with four workers (the default) to a sink."""

    def start(sink, route, wait=True):
        content = settings(database.dsn, sink, poll_interval="1s", **({"route": route} if route else {}))
        return start_relay(content | {"stop_timeout": "10s"}, wait=wait)

    return start


def expect_delivered(destination, database, place, ignore=()):
    """What the application committed is what arrived: nothing lost or made up, order kept, nothing repeated."""
    ledger = database.ledger()
    report = check(ledger, [message.arrival() for message in place.received(len(ledger))])
    disorder = () if destination.keeps_order else ("disorder", "gaps")
    assert not report.violations(ignore=(*ignore, *disorder)), str(report)


def by_key(messages):
    return {message.key.decode(): message for message in messages}


# ---- Messages ---------------------------------------------------------------------------------------------------------

@pytest.mark.timeout(400)
def test_rows_of_many_entities_arrive_once_and_in_order(destination, place, database, relay_to):
    database.entities(2000)
    database.write_backlog(10)
    relay = relay_to(place.sink(), place.route)
    database.wait_until_empty(destination.patience)
    assert relay.stop() == 0
    expect_delivered(destination, database, place)


def test_keys_headers_and_bytes_arrive_as_they_were(place, database, relay_to):
    database.execute(BYTES_TO_PAYLOAD)
    bodies = {"every byte": bytes(range(256)), "none": b"", "zeros": b"\0" * 9, "no JSON": "grüße, {".encode()}
    relay = relay_to(place.sink(), place.route)
    for name, body in bodies.items():
        database.insert(f"{name} ü", body, headers='{"tenant": "acme", "city": "Zürich"}')
    database.wait_until_empty()
    messages = place.received(len(bodies))
    assert relay.stop() == 0
    assert {key: message.value for key, message in by_key(messages).items()} == {
        f"{name} ü": body for name, body in bodies.items()}
    assert len({message.id for message in messages}) == len(bodies)
    for message in messages:
        assert message.headers.items() >= {"tenant": "acme", "city": "Zürich"}.items()


def test_five_megabytes_pass_or_are_refused_clearly(destination, place, database, relay_to):
    """Where the other side has a limit, what is below it passes, and what is above holds back its own entity only."""
    database.execute(BYTES_TO_PAYLOAD)
    large, passes = os.urandom(FIVE_MB), destination.limit is None
    relay = relay_to(place.sink(), place.route)
    number = database.insert("large", large)
    database.insert("small", os.urandom(100 if passes else destination.limit // 2))
    if passes:
        database.wait_until_empty()
        assert by_key(place.received(2))["large"].value == large
    else:
        relay.wait_for("row.refused", id=str(number), kind="rejected")
        wait_until(lambda: database.pending() == 1, what="the other row gone")
        assert set(by_key(place.received(1))) == {"small"}
    assert relay.stop() == 0


def test_a_row_that_the_server_refuses_holds_only_its_entity(destination, place, database, relay_to):
    """It comes in a batch with others, and when it is gone its entity goes on."""
    destination.must_have("refusing")
    refusal = place.refusing()
    database.insert("held", '{"n": 1}')
    poison = database.insert("held", **refusal.row)
    database.insert("held", '{"n": 3}')
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                     " SELECT 'order', 'free-' || n, 'changed', '{}' FROM generate_series(1, 300) n")
    relay = relay_to(refusal.sink, place.route)
    relay.wait_for("row.refused", id=str(poison), kind="rejected")
    wait_until(lambda: database.pending() == 2, 30, "all but the held entity gone")
    database.insert("free-1", '{"n": 2}')
    wait_until(lambda: database.pending() == 2, what="all but the held entity gone again")
    assert by_key(place.received(302))["held"].value == b'{"n": 1}'
    assert database.value("SELECT attempts FROM postrider.retry WHERE entity = 'held'") >= 1
    assert len(relay.events("row.refused", id=str(poison))) < 10
    assert "xxxx" not in relay.log_text(), "a payload in the log"
    database.execute("DELETE FROM public.outbox WHERE id = %s", (poison,))
    database.wait_until_empty(40)
    assert relay.stop() == 0
    held = [message.value for message in place.received(303) if message.key == b"held"]
    assert list(dict.fromkeys(held)) == [b'{"n": 1}', b'{"n": 3}']


# ---- The server is away, or the way to it -----------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_server_that_goes_away_is_shown_and_waited_for(destination, place, database, relay_to, how):
    destination.must_have("a server")
    entities = database.entities(40)
    relay = relay_to(place.sink(), place.route)
    with Writers(database.dsn, entities, threads=3, pause=0.002):
        time.sleep(1)
        getattr(destination.server, how)()
        state = wait_until_away(database, "transport")
        time.sleep(1)
        assert sink_state(database)["open_since"] == state["open_since"]
        assert nothing_is_blamed(database)
        shown = postrider("status", "-c", relay.config).stdout
        assert f"sink {destination.name} of orders on node 1: away since {state['open_since']}: " in shown
        shown = json.loads(postrider("status", "--json", "-c", relay.config).stdout)
        assert shown["nodes"][0]["outboxes"][0]["sinks"][0]["open_since"] == state["open_since"]
        destination.server.start()
        time.sleep(0.5)
    database.wait_until_empty(60)
    wait_until_there(database)
    assert "away" not in postrider("status", "-c", relay.config).stdout
    assert nothing_is_blamed(database)
    assert relay.stop() == 0
    expect_delivered(destination, database, place, ignore=("duplicates",))


def test_connections_that_are_slow_cut_or_silent_cost_no_row_and_no_order(destination, place, database, relay_to, proxy):
    entities = database.entities(40)
    relay = relay_to(place.sink(proxy.port), place.route)
    with Writers(database.dsn, entities, threads=3, pause=0.002):
        for blow in (proxy.cut, proxy.reset, proxy.silence):
            time.sleep(0.7)
            proxy.delay(200, jitter=100)    # so that there is always something on its way
            time.sleep(0.7)
            blow()
            time.sleep(1)
            assert database.pending() > 0, "rows have found another way"
            proxy.mend()
    database.wait_until_empty(60)
    assert nothing_is_blamed(database)
    assert relay.stop() == 0
    expect_delivered(destination, database, place, ignore=("duplicates",))


@pytest.mark.timeout(400)
def test_a_slow_server_costs_no_memory(destination, place, database, relay_to, proxy):
    """More waits than the relay may have in memory, and nearly nothing gets through; then it does."""
    rows, limit_mb = 60_000, 100
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload) SELECT 'order', n %% 5000,"
                     " 'changed', json_build_object('text', repeat('x', 1900)) FROM generate_series(1, %s) n", (rows,))
    proxy.poison("bandwidth", rate=200)     # KB per second
    relay = relay_to(place.sink(proxy.port), place.route, wait=False)
    time.sleep(5)
    assert database.pending() > rows / 2
    assert relay.peak_rss_mb() < limit_mb
    proxy.mend()
    database.wait_until_empty(destination.patience)
    assert relay.peak_rss_mb() < limit_mb
    assert relay.stop() == 0
    assert len({message.id for message in place.received(rows)}) == rows


@pytest.mark.timeout(400)
def test_a_clean_stop_in_the_middle_repeats_nothing(destination, place, database, relay_to):
    entities, each = 500, 100
    database.entities(entities)
    database.write_backlog(each)
    left = []
    for _ in range(5):
        assert relay_to(place.sink(), place.route).stop() == 0
        left.append(database.pending())
    assert any(0 < count < entities * each for count in left), f"no stop came in the middle: {left}"
    last = relay_to(place.sink(), place.route)
    database.wait_until_empty(destination.patience)
    assert last.stop() == 0
    expect_delivered(destination, database, place)


# ---- Settings that somebody must mend ---------------------------------------------------------------------------------

def expect_waiting(destination, relay, database, *fragments, kind=None):
    """Refused as a whole: it is shown why, no row is blamed, nothing spins, and no secret is told."""
    wait_until_away(database, kind, *fragments)
    expect_quiet(relay, 3)
    assert database.pending() == 1
    assert nothing_is_counted(database)
    assert destination.holds_back_when_refused or nothing_is_blamed(database)
    shown = postrider("status", "-c", relay.config).stdout
    assert ": away since " in shown
    assert NOT_THE_PASSWORD not in shown + relay.log_text()


def test_a_wrong_password_is_shown_and_no_row_is_blamed(destination, place, database, relay_to):
    destination.must_have("a password")
    database.insert("a")
    relay = relay_to(place.wrong_password(NOT_THE_PASSWORD), place.route, wait=False)
    expect_waiting(destination, relay, database, kind="auth")


def test_a_destination_that_is_not_there_is_named_and_waited_for(destination, place, database, relay_to):
    destination.must_have("missing")
    target = place.missing()
    relay = relay_to(target.sink, target.route)
    for number in range(1, 4):
        database.insert("a", f'{{"n": {number}}}')
    relay.wait_for_warning(target.name)
    time.sleep(1)
    assert database.pending() == 3
    assert nothing_is_counted(database)
    target.create()
    database.wait_until_empty(30)
    assert relay.stop() == 0
    values = [message.value for message in place.received(3)]
    assert list(dict.fromkeys(values)) == [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}']


def test_tls_is_verified_and_a_user_logs_in(destination, place, database, relay_to):
    destination.must_have("tls")
    entities = database.entities(20)
    relay = relay_to(place.tls(), place.route)
    with Writers(database.dsn, entities, threads=2):
        time.sleep(0.5)
    database.wait_until_empty()
    assert relay.stop() == 0
    expect_delivered(destination, database, place)


def test_a_server_with_another_name_in_its_certificate_is_refused(destination, place, database, relay_to):
    destination.must_have("tls")
    database.insert("a")
    relay = relay_to(place.tls_wrong_name(), place.route, wait=False)
    expect_waiting(destination, relay, database, "certificate")
    assert place.received(0) == []
