"""Deliberately broken relays through the same checker as the product: it must see them fail."""

import time

import pytest

from tests.e2e import broken_relay
from tests.e2e.checker import Remains, check, expect_exactly_once, expect_in_order
from tests.e2e.ledger import Writers

OUTBOX = """
CREATE TABLE public.outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message_id uuid NOT NULL DEFAULT gen_random_uuid(),
    entity_type text NOT NULL, entity_id text NOT NULL, event_type text NOT NULL, payload json);
CREATE INDEX ON public.outbox (entity_id, id);
"""
KILLS = {"kills": 0.02}
ONE_WORKER = {"workers": 1}


@pytest.fixture
def scene(empty_database):
    """A database with an outbox, and writers for a few busy entities."""
    empty_database.execute(OUTBOX)
    entities = empty_database.entities(30)
    return empty_database, Writers(empty_database.dsn, entities, threads=4, pause=0.001, late=0.002)


def remains(database):
    return Remains(frozenset(row[0] for row in database.execute("SELECT message_id::text FROM public.outbox")))


@pytest.mark.parametrize("claim, violation", [
    (broken_relay.lock_and_read_at_once, "duplicates"),
    (broken_relay.lock_rows, "disorder"),
    (broken_relay.lock_rows, "overlap"),
])
def test_the_checker_sees_a_broken_claim_fail(scene, claim, violation):
    database, writers = scene
    deadline = time.monotonic() + 20
    with writers, broken_relay.ListRelay(database.dsn, claim) as relay:
        while time.monotonic() < deadline:
            time.sleep(0.5)
            log = list(relay.log)
            if violation in check(database.ledger(), log).violations(ignore=("lost",)):
                return
    pytest.fail(f"{len(relay.log)} rows published, and the checker saw no {violation}")


@pytest.mark.parametrize("claim, options, violation", [
    (broken_relay.follow_a_cursor(keep=False), ONE_WORKER, "lost"),
    (broken_relay.follow_a_cursor(keep=True), ONE_WORKER, "waiting"),
    (broken_relay.settle_first, KILLS, "lost"),
], ids=["cursor", "cursor that keeps", "settle first"])
def test_the_checker_sees_rows_that_never_arrive(scene, claim, options, violation):
    """What is missing is known only when nobody writes any more and the relay has had time to look again."""
    database, writers = scene
    with broken_relay.ListRelay(database.dsn, claim, **options) as relay:
        with writers:
            time.sleep(4)
        time.sleep(1)
    assert len(relay.log) > 300
    assert violation in check(database.ledger(), relay.log, remains(database)).violations()


def test_lock_first_and_read_with_a_new_snapshot_passes_in_the_same_setting(scene):
    database, writers = scene
    with broken_relay.ListRelay(database.dsn, broken_relay.lock_then_read) as relay:
        with writers:
            time.sleep(6)
        database.wait_until_empty()
    assert len(relay.log) > 500
    expect_exactly_once(database.ledger(), relay.log)


def test_settling_after_the_acknowledgement_survives_the_same_kills(scene):
    database, writers = scene
    with broken_relay.ListRelay(database.dsn, broken_relay.lock_then_read, **KILLS) as relay:
        with writers:
            time.sleep(4)
        database.wait_until_empty()
    report = expect_in_order(database.ledger(), relay.log)
    assert report.duplicates, "no worker was killed between publishing and settling"
