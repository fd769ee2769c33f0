"""Another destination is another setting: stop, change it, start. Rows that wait meanwhile, and those that are being written,
are neither lost nor out of order over both destinations together."""

import time
from collections import Counter

import pytest

from tests.e2e.checker import check
from tests.e2e.ledger import Writers
from tests.e2e.relay import settings

SWITCHES = [("stdout", "queue"), ("queue", "redis"), ("redis", "kafka"), ("kafka", "queue"), ("queue", "postgres")]


@pytest.fixture
def run_into(database, start_relay):
    def run(place):
        return start_relay(settings(database.dsn, place.sink(), poll_interval="1s",
                                    **({"route": place.route} if place.route else {})))

    return run


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("before, after", SWITCHES)
def test_a_switch_with_rows_pending_loses_and_reorders_nothing(database, brokers, run_into, before, after, how):
    """There and back: before, after, before. A relay that is killed leaves rows that both may have."""
    one, other = (Seen(brokers(name).fresh()) for name in (before, after))
    entities = database.entities(200)
    database.write_backlog(50)
    log, runs = [], []
    with Writers(database.dsn, entities, threads=3, pause=0.002):
        for seen in (one, other, one):
            relay = run_into(seen.place)
            time.sleep(0.7)
            if how == "stop":
                assert relay.stop() == 0
            else:
                relay.kill9()
            runs.append(seen.news())
            log += runs[-1]
            time.sleep(0.2)
    assert database.pending() > 0 and all(runs), [len(run) for run in runs]
    relay = run_into(other.place)
    database.wait_until_empty(60)
    assert relay.stop() == 0
    log += one.news() + other.news()
    report = check(database.ledger(), log)
    assert not report.violations(ignore=("duplicates",) if how == "kill" else ()), str(report)


class Seen:
    """A place, and how many messages of each entity were seen there: the order of those of different ones means nothing."""

    def __init__(self, place):
        self.place = place
        self.counts = Counter()

    def news(self):
        """What came since the last time."""
        passed, new = Counter(), []
        for message in self.place.arrived():
            arrival = message.arrival()
            passed[arrival.entity] += 1
            if passed[arrival.entity] > self.counts[arrival.entity]:
                new.append(arrival)
        self.counts = passed
        return new
