"""`dead`: listing dead letters, putting them back where they were, dropping them."""

import json
import time

import pytest

from tests.e2e.relay import wait_until
from tests.e2e.steering import READERS, in_terminal

LETTERS = "SELECT count(*) FROM postrider.dead_letter"


# ---- list and show --------------------------------------------------------------------------------------------------

@pytest.fixture
def some(database, stage):
    """Five letters that differ in everything that filters look at."""
    s = stage()
    for n, (entity, kind, error, event_type, age) in enumerate([
            ("a", "rejected", "Message too large", "created", "3 hours"),
            ("a", "rejected", "no such column", "changed", "0"),
            ("b", "bug", "message too large", "created", "2 hours"), ("b", "rejected", "100% wrong_", "changed", "0"),
            ("c", "rejected", "no such topic", "changed", "0")], 1):
        s.bury(s.insert(entity, n, event_type=event_type), error, kind, age, passed=n == 3)
    return s


@pytest.mark.parametrize("flags, expected", [
    ([], [1, 2, 3, 4, 5]),
    (["--entity", "a"], [1, 2]),
    (["--type", "created"], [1, 3]),
    (["--error", "too LARGE"], [1, 3]),
    (["--error", "100% wrong_"], [4]),
    (["--error", "0_"], []),
    (["--kind", "bug"], [3]),
    (["--since", "1h"], [2, 4, 5]),
    (["--until", "1h"], [1, 3]),
    (["--since", "150m", "--until", "90m"], [3]),
    (["--id", "2,4"], [2, 4]),
    (["3", "5"], [3, 5]),
    (["--entity", "a", "--type", "changed"], [2]),
    (["--outbox", "orders", "--limit", "2"], [1, 2]),
])
def test_filters(some, flags, expected):
    assert [letter["id"] for letter in some.json("dead", "list", *flags)["letters"]] == expected


def test_the_list_is_for_people_and_for_programs(some):
    listed = some.done("dead", "list", "--limit", "3")
    assert "Message too large" in listed and "and 2 more" in listed
    assert "passed: later rows of the entity have gone out since" in listed
    whole = some.json("dead", "list")
    assert whole["count"] == 5
    letter = whole["letters"][2]
    assert letter["passed_at"] and {**letter, "passed_at": 0, "message_id": 0, "first_failed_at": 0, "died_at": 0} == {
        "id": 3, "outbox": "orders", "entity": "b", "row": "3", "message_id": 0, "entity_type": "order",
        "event_type": "created", "topic": "topic", "attempts": 11, "kind": "bug", "error": "message too large",
        "first_failed_at": 0, "died_at": 0, "passed_at": 0}


def test_one_is_shown_with_its_content(some):
    shown = some.done("dead", "show", "3")
    assert "later rows of the entity have gone out since" in shown and '{"n": 3}' in shown
    assert some.json("dead", "show", "4")["content"]["payload"] == {"n": 4}
    done = some.run("dead", "show", "77")
    assert done.returncode == 1 and "there is no dead letter 77" in done.stderr


# ---- retry ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("reader", [name for name in READERS if name != "wal"])
def test_letters_are_put_back_and_published_at_once(database, stage, reader):
    s = stage(reader)
    letters = [s.bury(s.insert("a", n)) for n in (1, 2)] + [s.bury(s.insert("b", 3))]
    s.node()
    for n in range(1, 9):       # until readers that read on have passed the places of the letters
        s.insert("free", n)
        time.sleep(0.1)
    wait_until(lambda: len(s.arrived("free")) == 8)
    done = s.json("dead", "retry", *map(str, letters))
    assert (done["matched"], done["returned"], done["failed"]) == (3, 3, 0)
    s.wait_for("b", [3], timeout=5)
    wait_until(lambda: len(s.arrived("a")) == 2, 5, "both")
    assert reader == "skip_locked" or s.arrived("a") == [1, 2]
    database.wait_until_empty()
    assert database.value(LETTERS) == 0
    wait_until(lambda: database.value("SELECT count(*) FROM postrider.retry") == 0, 5, "no entry left")


def test_a_row_comes_back_as_it_was(database, stage):
    """Its id, every column, every byte of its payload; what the table makes by itself is made anew."""
    s = stage()
    database.execute("ALTER TABLE public.outbox ADD twice int GENERATED ALWAYS AS (length(entity_id) * 2) STORED,"
                     " ADD bytes bytea, ADD price numeric, ADD at timestamp, ADD list text[], ADD \"odd Name\" text")
    row = database.value(
        "INSERT INTO public.outbox (entity_type, entity_id, event_type, payload, headers, bytes, price, at, list,"
        "   \"odd Name\")"
        " VALUES ('order', 'ä', 'x', %s, %s, '\\x00ff', 1.2300, '2026-01-02 03:04:05.678', '{a,\"b c\"}', 'it''s')"
        " RETURNING id",
        ('{ "b" : 1.0 ,\n "a": "\\u00e4 ✓",  "b": 2 }', '{"k": null}'))
    select = "SELECT o.*, o.payload::text FROM public.outbox o"
    before = database.execute(select)
    letter = s.bury(row)
    database.execute("ALTER TABLE public.outbox ADD later text NOT NULL DEFAULT 'new'")
    s.done("dead", "retry", str(letter))
    after = database.execute(select)
    assert after[0][:-2] + after[0][-1:] == before[0]
    assert after[0][-2] == "new"


def test_a_row_that_is_there_already_is_a_clear_error_and_the_others_go_back(database, stage):
    s = stage()
    letters = [s.bury(s.insert("a", n)) for n in (1, 2)]
    database.execute("INSERT INTO public.outbox (id, entity_type, entity_id, event_type) OVERRIDING SYSTEM VALUE"
                     " VALUES (1, 'order', 'a', 'x')")
    done = s.run("dead", "retry", "--all")
    assert done.returncode == 1 and "returned 1 dead letter\n" in done.stdout
    assert f"dead letter {letters[0]}: public.outbox has a row 1 already" in done.stderr
    assert f"postrider dead drop {letters[0]}" in done.stderr
    assert database.execute("SELECT id FROM postrider.dead_letter") == [(letters[0],)]


@pytest.mark.parametrize("reader", ["advisory", "lease", "skip_locked-ordered", "shards", "dispatcher"])
def test_an_entity_that_is_blocked_is_tried_again_from_the_row_that_came_back(database, stage, reader):
    s = stage(reader)
    letter = s.bury(s.insert("a", 1))
    blocking = s.insert("a", 2)
    s.insert("a", 3)
    s.block("a", blocking)
    s.node()
    time.sleep(1)
    assert s.arrived("a") == []
    assert s.json("dead", "retry", str(letter))["waiting"] == 0
    s.wait_for("a", [1, 2, 3], timeout=5)


def test_a_row_behind_the_blocked_one_waits_there(database, stage):
    s = stage()
    blocking = s.insert("a", 1)
    letter = s.bury(s.insert("a", 2))
    s.block("a", blocking)
    s.node()
    done = s.run("dead", "retry", str(letter))
    assert done.returncode == 0 and "1 waits: the entity is held back" in done.stdout
    time.sleep(1)
    assert s.arrived("a") == []
    s.done("entity", "unblock", "a")
    s.wait_for("a", [1, 2])


def test_a_parked_entity_stays_parked(database, stage):
    s = stage()
    letter = s.bury(s.insert("a", 1))
    s.done("entity", "park", "a")
    s.node()
    assert s.json("dead", "retry", str(letter))["waiting"] == 1
    time.sleep(1)
    assert s.arrived("a") == [] and s.json("entity", "show", "a")["state"] == "parked"
    s.done("entity", "unblock", "a")
    s.wait_for("a", [1])


def test_it_says_when_later_rows_have_already_gone(some):
    done = some.run("dead", "retry", "--entity", "b")
    assert done.returncode == 0
    assert "of 1 of them, later rows of the same entity have already gone out: these arrive out of order" in done.stderr
    some.bury(3, passed=True)
    assert some.json("dead", "retry", "--entity", "b")["passed"] == 1


def test_a_dry_run_changes_nothing(database, some):
    done = some.run("dead", "retry", "--all", "--dry-run")
    assert done.returncode == 0 and "would put back 5 dead letters" in done.stdout and "would arrive" in done.stderr
    assert "would drop 2 dead letters" in some.done("dead", "drop", "--entity", "a", "--dry-run")
    assert some.json("dead", "drop", "--all", "--dry-run") == {"matched": 5, "passed": 1, "dry_run": True}
    assert database.value(LETTERS) == 5 and database.pending() == 0


@pytest.mark.parametrize("action", ["retry", "drop"])
def test_a_rate_is_kept(database, stage, action):
    s = stage()
    for n in range(10):
        s.bury(s.insert("a", n))
    began = time.monotonic()
    s.done("dead", action, "--all", "--rate", "10", *(["--yes"] if action == "drop" else []))
    assert time.monotonic() - began >= 0.8
    assert database.value(LETTERS) == 0


def test_a_letter_that_dies_again_meanwhile_is_not_put_back_again(database, stage):
    """What is meant is what was there at the beginning."""
    s = stage()
    for n in range(3):
        s.bury(s.insert("a", n))
    database.execute("CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                     " INSERT INTO postrider.dead_letter (outbox, entity, row_id, attempts, kind, error,"
                     "   first_failed_at, row)"
                     " VALUES (1, 'a', new.id::text, 1, 'rejected', 'again', now(), row_to_json(new));"
                     " RETURN NULL; END $$")
    database.execute("CREATE TRIGGER die BEFORE INSERT ON public.outbox FOR EACH ROW EXECUTE FUNCTION die()")
    assert s.json("dead", "retry", "--all")["returned"] == 3
    assert database.value(LETTERS) == 3


# ---- the reader wal -------------------------------------------------------------------------------------------------

def bury_event(database, n, passed=False):
    """As the policy `dead_letter` leaves an event of the log."""
    return database.value(
        "WITH gone AS (DELETE FROM postrider.parked p"
        "   WHERE (convert_from(p.fields[array_position(p.names, 'payload')], 'UTF8')::json->>'n')::int = %s RETURNING p.*)"
        " INSERT INTO postrider.dead_letter (outbox, entity, row_id, attempts, kind, error, first_failed_at, names,"
        "   fields, is_message)"
        " SELECT g.outbox, g.entity, g.row_id, 11, 'rejected', 'no', now(), g.names, g.fields, g.is_message"
        " FROM gone g RETURNING id", (n,))


def test_events_of_the_log_go_to_the_front_of_their_entity(database, stage):
    s = stage("wal")
    s.refuse(1, 2, 3)
    node = s.node()
    for n in (1, 2, 3, 4):
        s.insert("a", n)
    wait_until(lambda: database.value("SELECT count(*) FROM postrider.parked") == 4, what="all of it put aside")
    assert node.stop() == 0
    letters = [bury_event(database, n) for n in (1, 2)]
    row = database.value("SELECT row_id FROM postrider.parked ORDER BY n LIMIT 1")
    s.block("a", row)
    s.refuse()
    s.node()
    time.sleep(1)
    assert s.arrived("a") == []
    assert s.json("dead", "show", str(letters[0]))["content"]["payload"] == '{"n": 1}'
    s.done("dead", "retry", "--all")
    s.wait_for("a", [1, 2, 3, 4])
    database.wait_until_empty()
    wait_until(lambda: s.entry("a") is None, 5, "no entry left")
    s.insert("a", 5)
    s.wait_for("a", [1, 2, 3, 4, 5])


def test_an_event_of_the_log_comes_back_while_later_ones_flow(database, stage):
    s = stage("wal")
    s.refuse(1)
    s.node()
    s.insert("a", 1)
    wait_until(lambda: database.value("SELECT count(*) FROM postrider.parked") == 1, what="it put aside")
    bury_event(database, 1)
    database.execute("DELETE FROM postrider.retry")
    s.refuse()
    s.done("entity", "unblock", "a")
    s.insert("a", 2)
    s.wait_for("a", [2])
    s.done("dead", "retry", "--all")
    s.wait_for("a", [2, 1], timeout=5)
    s.insert("a", 3)
    s.wait_for("a", [2, 1, 3])
    database.wait_until_empty()


def test_an_event_of_the_log_needs_the_reader_wal(database, stage):
    s = stage()
    database.execute("INSERT INTO postrider.dead_letter (outbox, entity, row_id, attempts, kind, error,"
                     "   first_failed_at, names, fields) VALUES (1, 'a', '1', 1, 'rejected', 'no', now(), '{payload}', '{abc}')")
    done = s.run("dead", "retry", "--all")
    assert done.returncode == 1 and "it came from the log, and outbox orders is read with advisory" in done.stderr
    assert database.value(LETTERS) == 1


# ---- drop -----------------------------------------------------------------------------------------------------------

def test_dropping_wants_a_yes(database, some):
    done = some.run("dead", "drop", "--entity", "a")
    assert done.returncode == 2 and "say --yes" in done.stderr and database.value(LETTERS) == 5
    assert "dropped 2 dead letters" in some.done("dead", "drop", "--entity", "a", "--yes")
    assert some.json("dead", "drop", "3", "--yes")["dropped"] == 1
    assert database.execute("SELECT id FROM postrider.dead_letter ORDER BY 1") == [(4,), (5,)]


def test_on_a_terminal_it_asks(database, some):
    code, shown = in_terminal(some, "dead", "drop", "--all", answer="n\n")
    assert code == 2 and "drop 5 dead letters for good? [y/N]" in shown and database.value(LETTERS) == 5
    code, shown = in_terminal(some, "dead", "drop", "--all", answer="y\n")
    assert code == 0 and database.value(LETTERS) == 0


def test_a_bar_on_a_terminal_only(database, stage):
    s = stage()
    for n in range(12):
        s.bury(s.insert("a", n))
    done = s.run("dead", "retry", "--all", "--rate", "20", "--dry-run")
    assert "[" not in done.stderr
    code, shown = in_terminal(s, "dead", "retry", "--all", "--rate", "20")
    assert code == 0 and "putting back [#" in shown and " of 12" in shown and "returned 12 dead letters" in shown
    for (row,) in database.execute("SELECT id FROM public.outbox"):
        s.bury(row)
    done = s.run("dead", "retry", "--all")
    assert done.stderr == "" and done.stdout == "returned 12 dead letters\n"


# ---- the command line -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("arguments, told", [
    ([], "say what to do with dead letters"),
    (["burn"], "dead cannot burn"),
    (["retry"], "say which dead letters to retry"),
    (["drop"], "say which dead letters to drop"),
    (["retry", "--all", "--entity", "a"], "--all goes without numbers and filters"),
    (["retry", "x"], "dead letters have numbers: x is none"),
    (["list", "--id", "1,x"], "--id takes numbers"),
    (["list", "--limit", "0"], "--limit takes a number from 1"),
    (["list", "--yes"], "--yes does not go with dead list"),
    (["retry", "--all", "--yes"], "--yes does not go with dead retry"),
    (["show"], "say which dead letter to show"),
    (["list", "--since", "yesteryear"], "--since"),
    (["list", "--outbox", "nothing"], "no outbox nothing"),
    (["list", "--eror", "x"], "did you mean --error?"),
])
def test_wrong_command_lines(stage, arguments, told):
    done = stage().run("dead", *arguments)
    assert done.returncode == 2 and told in done.stderr, done.stderr


def test_a_letter_that_is_not_there_is_told(some):
    for action in (["retry", "77"], ["drop", "77", "--yes"]):
        done = some.run("dead", *action)
        assert done.returncode == 1 and "1 of the dead letters that were named are not there" in done.stderr


def test_a_filter_that_nothing_matches_is_no_failure(some):
    assert "returned 0 dead letters" in some.done("dead", "retry", "--entity", "nobody")
    assert "no dead letters" in some.done("dead", "list", "--entity", "nobody")
    assert json.loads(some.done("dead", "drop", "--entity", "nobody", "--yes", "--json"))["dropped"] == 0
