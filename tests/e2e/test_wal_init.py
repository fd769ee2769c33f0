"""What the reader `wal` needs in a database: how `init` makes it, and what `check` finds wrong with it."""

import shutil
import signal
import struct
import subprocess
import threading
from pathlib import Path

import pytest

from tests.e2e.relay import BINARY, clean_environment, postrider, settings, wait_until, write_config
from tests.e2e.scene import dropped, missing, new_database, started
from tests.servers import PgBouncer, Postgres
from tests.servers.common import free_port

every_postgres = pytest.mark.parametrize("pg", [15, 18], indirect=True)
PUBLICATION = "postrider_orders"
FIX = "      fix: "


def slot_of(database):
    """Slots belong to the whole server, and a test only to its database."""
    return f"postrider_{database.name}"


def wal_settings(database, dsn=None, wal=None, **options):
    wal = {"slot": slot_of(database), **(wal or {})}
    return settings(
        dsn or database.dsn, {"type": "stdout"}, **{"reader": "wal", "wal": wal, "route": {"topic": "t"}, **options})


@pytest.fixture
def run(product, tmp_path):
    """Runs a command with these settings."""
    return lambda command, content, *flags, **options: postrider(
        command, "-c", write_config(tmp_path / "wal.yaml", content), *flags, **options)


@pytest.fixture
def init(run):
    """Runs `init` with these settings, which must work; returns what it says."""
    def succeed(content, *flags):
        done = run("init", content, *flags)
        assert done.returncode == 0, done.stderr
        return done.stdout
    return succeed


@pytest.fixture
def ready(empty_database, init):
    """A database with everything that the reader needs."""
    init(wal_settings(empty_database))
    return empty_database


@pytest.fixture
def special(request, servers):
    """A database on a server with settings of its own."""
    made = []

    def make(version=15, **options):
        key = ("special", version, *sorted(options.items()))
        server = servers.get(key, lambda: Postgres(version, {"fsync": "off", **options}))
        made.append(new_database(server))
        return made[-1]

    yield make
    for database in made:
        dropped(database)


def slots(database):
    return database.execute(
        "SELECT slot_name, plugin, temporary FROM pg_replication_slots WHERE database = current_database()")


def about_slot(database, what):
    return database.value(f"SELECT {what} FROM pg_replication_slots WHERE slot_name = %s", (slot_of(database),))


def backlog(database):
    return [row[0] for row in database.execute("SELECT id FROM postrider.wal_backlog ORDER BY n")]


def remembered(database):
    return database.execute("SELECT slot, publication, system_identifier, timeline, confirmed::text FROM postrider.wal")


def streamed(database, publication=PUBLICATION):
    """Ids of the inserts in the slot's stream: the first column of each, which stays there."""
    changes = database.execute(
        "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
        " 'publication_names', %s)", (slot_of(database), f'"{publication}"'))
    ids = []
    for (data,) in changes:
        if data[:1] == b"I":
            length = struct.unpack_from(">I", data, 9)[0]
            ids.append(data[13:13 + length].decode())
    return ids


def refused(done, *fragments):
    assert done.returncode == 1, done.stdout + done.stderr
    told = done.stdout + done.stderr
    for fragment in fragments:
        assert fragment in told, told


# ---- what init makes ------------------------------------------------------------------------------------------------

@every_postgres
def test_init_makes_publication_slot_and_memory_once(empty_database, init, run):
    said = init(wal_settings(empty_database))
    lines = said.splitlines()
    created = [line for line in lines if "publication" in line or "replication slot" in line]
    assert created == [f"created the publication {PUBLICATION} for public.outbox",
                       f"created the replication slot {slot_of(empty_database)} for public.outbox"]
    assert empty_database.execute(
        "SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot FROM pg_publication WHERE pubname = %s",
        (PUBLICATION,)) == [(True, False, False, False, True)]
    assert slots(empty_database) == [(slot_of(empty_database), "pgoutput", False)]
    system, timeline = empty_database.execute(
        "SELECT system_identifier::text, timeline_id FROM pg_control_system(), pg_control_checkpoint()")[0]
    confirmed = about_slot(empty_database, "confirmed_flush_lsn::text")
    assert remembered(empty_database) == [(slot_of(empty_database), PUBLICATION, system, timeline, confirmed)]
    assert backlog(empty_database) == []
    before = remembered(empty_database), slots(empty_database)
    assert "nothing to do" in init(wal_settings(empty_database))
    assert (remembered(empty_database), slots(empty_database)) == before
    checked = run("check", wal_settings(empty_database))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"publication {PUBLICATION} and slot {slot_of(empty_database)} are right" in checked.stdout
    assert "max_slot_wal_keep_size = -1" in checked.stdout
    assert "\nwarn" not in checked.stdout, checked.stdout


@pytest.mark.parametrize("pg", [18], indirect=True)
def test_slots_survive_a_failover_where_the_server_can_do_that(ready):
    assert about_slot(ready, "failover")


def test_names_come_from_the_outbox(empty_database, init):
    init(settings(empty_database.dsn, {"type": "stdout"}, outbox="some-orders", reader="wal"))
    assert remembered(empty_database)[0][:2] == ("postrider_some_orders", "postrider_some_orders")
    assert slots(empty_database)[0][0] == "postrider_some_orders"


@every_postgres
def test_strange_names_are_quoted(empty_database, init, run):
    empty_database.execute(
        "CREATE TABLE public.\"My 'Box\" (\"The \"\"Id\" uuid PRIMARY KEY, who text NOT NULL, what bytea)")
    empty_database.execute("INSERT INTO public.\"My 'Box\" VALUES (gen_random_uuid(), 'a', 'x')")
    content = wal_settings(
        empty_database, wal={"publication": "we\"ird 'name, one"}, table="public.\"My 'Box\"",
        columns={"id": 'The "Id', "entity_id": "who", "payload": "what"})
    init(content)
    assert len(backlog(empty_database)) == 1
    assert remembered(empty_database)[0][1] == "we\"ird 'name, one"
    assert "nothing to do" in init(content)
    checked = run("check", content)
    assert checked.returncode == 0, checked.stdout


def test_a_name_that_no_slot_can_have_is_refused(empty_database, run):
    refused(run("init", wal_settings(empty_database, wal={"slot": "Not-A-Slot"})), "Not-A-Slot")
    assert slots(empty_database) == []


@every_postgres
def test_a_partitioned_table_is_published_under_its_own_name(empty_database, init, run):
    empty_database.execute(
        "CREATE TABLE public.parts (id bigint NOT NULL, entity_id text NOT NULL, payload json) PARTITION BY RANGE (id);"
        "CREATE TABLE public.part_1 PARTITION OF public.parts FOR VALUES FROM (0) TO (100);"
        "CREATE INDEX ON public.parts (id); CREATE INDEX ON public.parts (entity_id, id)")
    content = wal_settings(empty_database, table="public.parts")
    empty_database.execute("INSERT INTO public.parts VALUES (2, 'a', '{}'), (1, 'a', '{}')")
    init(content)
    empty_database.execute("INSERT INTO public.parts VALUES (3, 'a', '{}')")
    assert (backlog(empty_database), streamed(empty_database)) == (["1", "2"], ["3"])
    assert run("check", content).returncode == 0
    empty_database.execute(f"ALTER PUBLICATION {PUBLICATION} SET (publish_via_partition_root = false)")
    refused(run("check", content), "publishes partitions of public.parts under their own names", "postrider init")
    assert "publish_via_partition_root" in init(content)
    assert run("check", content).returncode == 0


def test_a_flag_names_the_reader(empty_database, init, run):
    content = settings(empty_database.dsn, {"type": "stdout"}, wal={"slot": slot_of(empty_database)})
    assert "replication slot" not in init(content)
    assert "created the replication slot" in init(content, "--reader", "wal")
    wrong = run("init", content, "--reader", "wall")
    assert wrong.returncode == 2 and "wal" in wrong.stderr, wrong.stderr


def test_flags_that_mean_nothing_are_refused(ready, run):
    beside = ("--existing", "public.outbox")
    for flags in ((*beside, "--recreate-slot"), (*beside, "--reader", "wal"), ("--print-sql", "--recreate-slot")):
        done = run("init", wal_settings(ready), *flags)
        assert done.returncode == 2 and done.stderr, flags
    done = run("init", wal_settings(ready, reader="advisory"), "--recreate-slot")
    assert done.returncode == 2 and "no outbox" in done.stderr
    assert len(slots(ready)) == 1


# ---- rows from before the slot --------------------------------------------------------------------------------------

@every_postgres
def test_rows_from_before_are_listed_in_order(empty_database, init):
    init(settings(empty_database.dsn, {"type": "stdout"}))
    numbers = [empty_database.insert(f"e{number % 3}") for number in range(20)]
    assert "listed 20 rows" in init(wal_settings(empty_database))
    assert backlog(empty_database) == [str(number) for number in numbers]
    later = empty_database.insert("e0")
    assert streamed(empty_database) == [str(later)]
    assert "nothing to do" in init(wal_settings(empty_database))


@every_postgres
def test_every_row_is_in_the_list_or_in_the_stream_while_others_write(empty_database, init):
    init(settings(empty_database.dsn, {"type": "stdout"}))
    over = threading.Event()

    def write(number):
        with empty_database.connect(autocommit=False) as connection:
            while not over.is_set():
                connection.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type, payload)"
                                   " SELECT 'order', %s, 'changed', '{}' FROM generate_series(1, 3)", (str(number),))
                if over.wait(0.003 * number):
                    connection.rollback()
                    break
                connection.commit()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    try:
        wait_until(lambda: empty_database.pending() > 50, what="some rows")
        before = empty_database.pending()
        init(wal_settings(empty_database))
        wait_until(lambda: empty_database.pending() > 2 * before, what="more rows")
    finally:
        over.set()
        for writer in writers:
            writer.join()
    listed, following = backlog(empty_database), streamed(empty_database)
    committed = [str(row[0]) for row in empty_database.execute("SELECT id FROM public.outbox ORDER BY id")]
    assert len(listed) >= before and following
    assert sorted(listed + following, key=int) == committed


def test_the_list_follows_the_column_of_order(empty_database, init):
    empty_database.execute(
        "CREATE TABLE public.mine (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), at bigint NOT NULL,"
        " entity_id text NOT NULL, payload json)")
    empty_database.execute("INSERT INTO public.mine (at, entity_id) SELECT 1000 - n, 'a' FROM generate_series(1, 50) n")
    init(wal_settings(empty_database, table="public.mine", order_by="at"))
    assert backlog(empty_database) == [
        str(row[0]) for row in empty_database.execute("SELECT id FROM public.mine ORDER BY at")]


# ---- when something ends in the middle ------------------------------------------------------------------------------

@every_postgres
def test_a_slot_that_was_left_behind_is_made_again(ready, init, run):
    number = ready.insert("a")
    ready.execute("DELETE FROM postrider.wal")
    refused(run("check", wal_settings(ready)), "postrider.wal does not know it", "postrider init")
    said = init(wal_settings(ready))
    assert f"dropped the replication slot {slot_of(ready)}, which an init that did not end had left behind" in said
    assert (backlog(ready), streamed(ready)) == ([str(number)], [])
    assert len(remembered(ready)) == 1


@every_postgres
def test_an_init_that_is_killed_while_it_waits_for_transactions_is_repeated(empty_database, init, tmp_path):
    init(settings(empty_database.dsn, {"type": "stdout"}))
    config = write_config(tmp_path / "killed.yaml", wal_settings(empty_database))
    with empty_database.connect(autocommit=False) as writer:
        writer.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type) VALUES ('order', 'a', 'new')")
        killed = subprocess.Popen([BINARY, "init", "-c", config], env=clean_environment(), stdout=subprocess.DEVNULL)
        wait_until(lambda: slots(empty_database), what="a slot in the making")
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        writer.commit()
    wait_until(lambda: not empty_database.value(
        "SELECT count(*) FROM pg_replication_slots WHERE active AND database = current_database()"), what="its end")
    assert remembered(empty_database) == []
    assert "created the replication slot" in init(wal_settings(empty_database))
    assert len(backlog(empty_database)) == 1 and len(slots(empty_database)) == 1


def test_a_list_that_fails_leaves_no_slot(empty_database, init, run):
    init(settings(empty_database.dsn, {"type": "stdout"}))
    empty_database.insert("a")
    empty_database.execute("ALTER TABLE postrider.wal_backlog ADD CHECK (n < 0)")
    refused(run("init", wal_settings(empty_database)), "could not list the rows from before the replication slot")
    assert (slots(empty_database), remembered(empty_database), backlog(empty_database)) == ([], [], [])


def test_two_inits_at_once_make_one_slot(empty_database, init, tmp_path):
    init(settings(empty_database.dsn, {"type": "stdout"}))
    empty_database.insert("a")
    config = write_config(tmp_path / "both.yaml", wal_settings(empty_database))
    both = [subprocess.Popen([BINARY, "init", "-c", config], env=clean_environment(), stdout=subprocess.PIPE, text=True)
            for _ in range(2)]
    said = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(text.count("created the replication slot") for text in said) == 1, said
    assert not any("dropped" in text for text in said), said
    assert len(slots(empty_database)) == 1 and len(backlog(empty_database)) == 1


# ---- a slot is never made anew behind anybody's back ----------------------------------------------------------------

@every_postgres
def test_a_slot_that_is_gone_is_made_anew_only_with_consent(ready, init, run):
    parked, number = ready.insert("a"), ready.insert("a")
    ready.execute("INSERT INTO postrider.parked (outbox, entity, row_id, is_message, names, fields)"
                  " SELECT id, 'a', %s, false, '{id}', ARRAY['x'::bytea] FROM postrider.outbox", (str(parked),))
    ready.execute("SELECT pg_drop_replication_slot(%s)", (slot_of(ready),))
    for command in ("init", "check"):
        refused(run(command, wal_settings(ready)), f"replication slot {slot_of(ready)} is gone",
                "postrider init --recreate-slot")
    assert slots(ready) == []
    assert "created the replication slot" in init(wal_settings(ready), "--recreate-slot")
    assert backlog(ready) == [str(number)]
    assert ready.value("SELECT count(*) FROM postrider.parked") == 1
    assert run("check", wal_settings(ready)).returncode == 0


def test_consent_makes_a_slot_anew_that_is_well(ready, init):
    before = remembered(ready)
    number = ready.insert("a")
    said = init(wal_settings(ready), "--recreate-slot")
    assert f"dropped the replication slot {slot_of(ready)}\n" in said and "listed 1 rows" in said
    assert (backlog(ready), streamed(ready)) == ([str(number)], [])
    assert remembered(ready) != before


@pytest.mark.parametrize("version", [15, 18])
def test_a_slot_that_the_server_gave_up_is_made_anew_only_with_consent(special, init, run, version):
    database = special(version, max_slot_wal_keep_size="1MB")
    content = wal_settings(database)
    init(content)
    checked = run("check", content)
    assert checked.returncode == 0 and "before wal.budget warns" in checked.stdout, checked.stdout
    with database.connect() as connection:
        for _ in range(4):
            connection.execute("SELECT pg_logical_emit_message(false, 'test', 'x')")
            connection.execute("SELECT pg_switch_wal()")
        connection.execute("CHECKPOINT")
    assert about_slot(database, "wal_status") == "lost"
    for command in ("init", "check"):
        refused(run(command, content), "the server has given up replication slot", "wal_removed", "--recreate-slot")
    number = database.insert("a")
    init(content, "--recreate-slot")
    assert backlog(database) == [str(number)]
    assert run("check", content).returncode == 0


def recv_logical(database):
    """A stranger who reads from a slot."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_recvlogical"))
    binary = shutil.which("pg_recvlogical") or (found and found[-1])
    if not binary:
        missing("pg_recvlogical is not installed")
    return subprocess.Popen(
        [binary, "-d", database.dsn, "--slot", slot_of(database), "--start", "-f", "-", "-o", "proto_version=1", "-o",
         f"publication_names={PUBLICATION}"], stdout=subprocess.DEVNULL, env=clean_environment())


def test_a_slot_that_somebody_reads_stays(ready, run):
    reader = recv_logical(ready)
    try:
        wait_until(lambda: about_slot(ready, "active"), what="a reader")
        refused(run("init", wal_settings(ready), "--recreate-slot"), "in use by process", "pg_recvlogical", "stop it")
        assert "nothing to do" in run("init", wal_settings(ready)).stdout
    finally:
        reader.terminate()
        reader.wait()
    assert len(slots(ready)) == len(remembered(ready)) == 1


@every_postgres
def test_slots_of_others_stay(empty_database, init, run):
    name = f"theirs_{empty_database.name}"
    content = wal_settings(empty_database, wal={"slot": name})
    init(wal_settings(empty_database, reader="advisory"))
    empty_database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
    refused(run("init", content), "nothing says that it is postrider's", "wal.slot")
    assert slots(empty_database) == [(name, "pgoutput", False)]
    init(content, "--recreate-slot")
    assert remembered(empty_database)[0][0] == name


def test_a_slot_of_another_kind_stays(empty_database, run):
    empty_database.execute("SELECT pg_create_physical_replication_slot(%s)", (slot_of(empty_database),))
    try:
        for flags in ((), ("--recreate-slot",)):
            refused(run("init", wal_settings(empty_database), *flags), "is a physical slot", "wal.slot")
        refused(run("check", wal_settings(empty_database)), "postrider.wal does not know it")
    finally:
        empty_database.execute("SELECT pg_drop_replication_slot(%s)", (slot_of(empty_database),))


@every_postgres
def test_a_copy_of_a_database_does_not_touch_the_slot_of_the_original(pg, ready, init, run):
    other = new_database(pg)
    try:
        with pg.connect() as connection:
            connection.execute(f'DROP DATABASE "{other.name}"')
            connection.execute(f'CREATE DATABASE "{other.name}" TEMPLATE "{ready.name}"')
        content = wal_settings(ready, dsn=other.dsn)
        for flags in ((), ("--recreate-slot",)):
            refused(run("init", content, *flags), f"of database {ready.name}", "wal.slot")
        content = wal_settings(other)
        refused(run("init", content), f"is read from replication slot {slot_of(ready)}", "--recreate-slot")
        init(content, "--recreate-slot")
        assert slots(other)[0][0] == slot_of(other) and slots(ready)[0][0] == slot_of(ready)
    finally:
        dropped(other)


# ---- the server -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("version", [15, 18])
def test_a_server_that_does_not_write_what_we_need(special, run, version):
    database = special(version, wal_level="replica")
    refused(run("init", wal_settings(database)), "wal_level is replica", "ALTER SYSTEM SET wal_level = logical")
    refused(run("check", wal_settings(database)), "wal_level is replica", FIX + "ALTER SYSTEM SET wal_level = logical")
    assert remembered(database) == []


@pytest.mark.parametrize("version", [15, 18])
def test_a_server_without_room_for_a_slot(special, init, run, version):
    database = special(version, max_replication_slots=1)
    taken = f"taken_{database.name}"
    database.execute("SELECT pg_create_physical_replication_slot(%s)", (taken,))
    try:
        for command in ("init", "check"):
            refused(run(command, wal_settings(database)), "all 1 replication slots of the server are taken",
                    "max_replication_slots")
    finally:
        database.execute("SELECT pg_drop_replication_slot(%s)", (taken,))
    init(wal_settings(database))
    assert run("check", wal_settings(database)).returncode == 0


def test_a_server_without_wal_senders(special, run):
    database = special(15, max_wal_senders=0)
    refused(run("init", wal_settings(database)), "WAL senders", "max_wal_senders")


def test_a_timeout_for_idle_slots_is_worth_a_look(special, init, run):
    database = special(18, idle_replication_slot_timeout="1h")
    init(wal_settings(database))
    checked = run("check", wal_settings(database))
    assert checked.returncode == 0 and "idle_replication_slot_timeout is 1h" in checked.stdout, checked.stdout


# ---- roles ----------------------------------------------------------------------------------------------------------

@pytest.fixture
def owner(empty_database):
    """A role that owns the database, and is no superuser."""
    name = f"owner_{empty_database.name}"
    empty_database.execute(f"CREATE ROLE {name} LOGIN")
    empty_database.execute(f'ALTER DATABASE "{empty_database.name}" OWNER TO {name}')
    return name


@every_postgres
def test_init_says_which_right_its_own_role_lacks(empty_database, owner, init, run):
    content = wal_settings(empty_database, dsn=empty_database.server.dsn(empty_database.name, owner))
    refused(run("init", content), f"role {owner} may not follow replication slots", f"ALTER ROLE {owner} REPLICATION;")
    refused(run("check", content), FIX + f"ALTER ROLE {owner} REPLICATION;")
    assert slots(empty_database) == []
    empty_database.execute(f"ALTER ROLE {owner} REPLICATION;")
    init(content)
    assert run("check", content).returncode == 0


def test_init_says_what_a_publication_needs(empty_database, owner, init, run):
    content = wal_settings(empty_database, dsn=empty_database.server.dsn(empty_database.name, owner))
    init(wal_settings(empty_database, dsn=content["database"]["url"], reader="advisory"))
    empty_database.execute("ALTER TABLE public.outbox OWNER TO postgres")
    refused(run("init", content), "be the owner of the table")


@every_postgres
def test_init_gives_a_role_what_it_needs(ready, init, run):
    role = f"relay_{ready.name}"
    ready.execute(f"CREATE ROLE {role} LOGIN")
    content = wal_settings(ready, dsn=ready.server.dsn(ready.name, role))
    said = init(wal_settings(ready), "--role", role)
    assert f"let {role} follow replication slots" in said
    assert ready.value("SELECT rolreplication AND NOT rolsuper FROM pg_roles WHERE rolname = %s", (role,))
    assert "nothing to do" in init(wal_settings(ready), "--role", role)
    checked = run("check", content)
    assert checked.returncode == 0, checked.stdout
    for privilege, relation in (("SELECT", "wal"), ("DELETE", "wal_backlog"), ("UPDATE", "parked")):
        ready.execute(f"REVOKE {privilege} ON postrider.{relation} FROM {role}")
        refused(run("check", content), f"lacks {privilege} ON postrider.{relation}\n", f"--role {role}")
        init(wal_settings(ready), "--role", role)
    ready.execute(f"ALTER ROLE {role} NOREPLICATION")
    refused(run("check", content), f"role {role} may not follow replication slots", f"ALTER ROLE {role} REPLICATION;")


def test_init_says_what_a_superuser_has_to_run(empty_database, owner, init):
    role = f"relay_{empty_database.name}"
    empty_database.execute(f"CREATE ROLE {role} LOGIN")
    empty_database.execute(f"ALTER ROLE {owner} REPLICATION")
    content = wal_settings(empty_database, dsn=empty_database.server.dsn(empty_database.name, owner))
    for _ in range(2):
        assert f"a superuser has to run: ALTER ROLE {role} REPLICATION;" in init(content, "--role", role)
    assert not empty_database.value("SELECT rolreplication FROM pg_roles WHERE rolname = %s", (role,))


# ---- what check finds -----------------------------------------------------------------------------------------------

# What is done to the database, what is said of it, and whether `init` alone mends it.
BROKEN_PUBLICATIONS = {
    "missing": ("DROP PUBLICATION {p}", "there is no publication {p}", True),
    "no table": ("ALTER PUBLICATION {p} DROP TABLE public.outbox", "publication {p} lacks the table public.outbox",
                 True),
    "no inserts": ("ALTER PUBLICATION {p} SET (publish = 'delete')", "publication {p} publishes no inserts", True),
    "few columns": ("ALTER PUBLICATION {p} SET TABLE public.outbox (id, entity_id, message_id)",
                    "does not publish payload, entity_type, event_type, headers, topic, created_at, traceparent,"
                    " scheduled_for of", False),
}


@pytest.mark.parametrize("name", BROKEN_PUBLICATIONS)
@every_postgres
def test_check_finds_what_a_publication_lacks(ready, init, run, name):
    sql, told, mended = BROKEN_PUBLICATIONS[name]
    ready.execute(sql.format(p=PUBLICATION))
    refused(run("check", wal_settings(ready)), told.format(p=PUBLICATION), FIX)
    ran = run("run", wal_settings(ready))
    assert ran.returncode == 78 and told.format(p=PUBLICATION) in ran.stderr, ran.stderr
    said = run("init", wal_settings(ready))
    assert said.returncode == 0, said.stderr
    assert ("attention: rows of public.outbox that were written before this" in said.stdout) == mended
    assert run("check", wal_settings(ready)).returncode == (0 if mended else 1)


WORTH_A_LOOK = {
    "filter": ("ALTER PUBLICATION {p} SET TABLE public.outbox WHERE (id > 5)", "has a filter for public.outbox"),
    "other actions": ("ALTER PUBLICATION {p} SET (publish = 'insert, delete')", "publishes delete besides inserts"),
    "no index": ("ALTER TABLE public.outbox DROP CONSTRAINT outbox_pkey",
                 "no index of public.outbox begins with the id"),
}


@pytest.mark.parametrize("name", WORTH_A_LOOK)
def test_check_tells_what_is_worth_a_look(ready, run, name):
    sql, told = WORTH_A_LOOK[name]
    ready.execute(sql.format(p=PUBLICATION))
    checked = run("check", wal_settings(ready))
    assert checked.returncode == 0 and told in checked.stdout, checked.stdout


def test_rows_that_are_kept_need_no_index(ready, run):
    ready.execute("ALTER TABLE public.outbox DROP CONSTRAINT outbox_pkey")
    assert "begins with the id" not in run("check", wal_settings(ready, published="keep")).stdout


def test_a_publication_of_others_keeps_what_it_has(empty_database, init, run):
    empty_database.execute("CREATE TABLE public.theirs (id int PRIMARY KEY)")
    empty_database.execute(
        f"CREATE PUBLICATION {PUBLICATION} FOR TABLE public.theirs WITH (publish = 'update, delete')")
    said = init(wal_settings(empty_database))
    assert f"added public.outbox to the publication {PUBLICATION}" in said and "attention" not in said
    assert empty_database.execute("SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication") == [
        (True, True, True, False)]
    assert empty_database.execute("SELECT tablename FROM pg_publication_tables ORDER BY 1") == [
        ("outbox",), ("theirs",)]
    assert run("check", wal_settings(empty_database)).returncode == 0


@every_postgres
def test_a_publication_of_all_tables_will_do(empty_database, init, run):
    empty_database.execute(f"CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES WITH (publish = 'insert')")
    assert "publication" not in init(wal_settings(empty_database)).replace("replication", "")
    assert run("check", wal_settings(empty_database)).returncode == 0


# What is done to slot or memory, and what is said of it.
BROKEN_STATES = {
    "another server": ("UPDATE postrider.wal SET system_identifier = '1'", "the slot was read from server 1"),
    "an older timeline": ("UPDATE postrider.wal SET timeline = 9", "timeline 9 was read already"),
    "a log that ends early": (
        "UPDATE postrider.wal SET confirmed = 'FFFF/0'", "before FFFF/0 that was already published"),
    "a slot made anew": (
        "SELECT pg_drop_replication_slot('{s}'), pg_create_logical_replication_slot('{s}', 'pgoutput')",
        "it was made anew"),
    "a slot that moved": (
        "SELECT pg_logical_emit_message(false, 'x', 'x'),"
        " pg_replication_slot_advance('{s}', pg_current_wal_insert_lsn())",
        "somebody else has read from it"),
    "another slot": ("UPDATE postrider.wal SET slot = 'other'", "is read from replication slot other"),
    "another publication": ("UPDATE postrider.wal SET publication = 'other'", "was made for publication other"),
}


@pytest.mark.parametrize("name", BROKEN_STATES)
@every_postgres
def test_check_finds_a_slot_that_cannot_be_read_on(ready, init, run, name):
    sql, told = BROKEN_STATES[name]
    ready.execute(sql.format(s=slot_of(ready)))
    refused(run("check", wal_settings(ready)), told, "postrider init --recreate-slot")
    ran = run("run", wal_settings(ready))
    assert ran.returncode == 78 and told in ran.stderr, ran.stderr
    if name != "another slot":
        init(wal_settings(ready), "--recreate-slot")
        assert run("check", wal_settings(ready)).returncode == 0


def test_a_newer_timeline_is_a_failover(ready, run):
    ready.execute("UPDATE postrider.wal SET timeline = 0")
    assert run("check", wal_settings(ready)).returncode == 0


class Replica(Postgres):
    """A copy of a server that is down, and follows it when it is up again."""

    def __init__(self, primary, dbname):
        super().__init__(primary.version, {
            "fsync": "off", "primary_conninfo": f"host=127.0.0.1 port={primary.port} user=postgres dbname={dbname}",
            "primary_slot_name": "replica", "hot_standby_feedback": "on", "sync_replication_slots": "on",
            "wal_retrieve_retry_interval": "500ms"})
        self.primary = primary

    def prepare(self):
        super().prepare()
        shutil.rmtree(self.data)
        shutil.copytree(self.primary.data, self.data)
        for slot in (self.data / "pg_replslot").iterdir():
            shutil.rmtree(slot)
        (self.data / "standby.signal").touch()
        self._give_to_user(self.data)
        self.data.chmod(0o700)


@pytest.fixture
def promoted(product, init):
    """What `ready` is, on a replica that took over from its primary, with the slot that the server carried there."""
    primary = started(Postgres(18, {"fsync": "off"}))
    replica = None
    try:
        database = new_database(primary)
        init(wal_settings(database))
        database.execute("SELECT pg_create_physical_replication_slot('replica')")
        primary.stop()
        replica = started(Replica(primary, database.name))
        primary.start()

        def carried():
            """The slot is carried over when it has moved past where the replica began."""
            database.execute("SELECT pg_log_standby_snapshot()")
            database.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_flush_lsn())", (slot_of(database),))
            database.execute("UPDATE postrider.wal SET confirmed = pg_current_wal_insert_lsn()")
            with replica.connect(database.name) as connection:
                return connection.execute("SELECT FROM pg_replication_slots WHERE synced AND NOT temporary").fetchall()

        wait_until(carried, timeout=60, what="the slot on the replica", pause=0.3)
        level = "SELECT bool_and(replay_lsn = pg_current_wal_lsn()) FROM pg_stat_replication"
        wait_until(lambda: database.value(level), what="a replica that has all")
        primary.stop("immediate")
        database.server = replica
        database.execute("SELECT pg_promote()")
        database.dsn = replica.dsn(database.name)
        yield database
    finally:
        for server in (replica, primary):
            if server:
                server.close()


def test_a_promoted_replica_is_read_on_and_nobody_goes_back(promoted, run):
    assert run("check", wal_settings(promoted)).returncode == 0
    # A replica may have had the slot's newest place, and not our row of it.
    promoted.execute("UPDATE postrider.wal SET confirmed = '0/100'")
    assert run("check", wal_settings(promoted)).returncode == 0
    promoted.execute("UPDATE postrider.wal SET timeline = 2")
    refused(run("check", wal_settings(promoted)), "it was made anew", "--recreate-slot")
    promoted.execute("UPDATE postrider.wal SET timeline = 3")
    refused(run("check", wal_settings(promoted)), "a primary from before a failover")
    promoted.execute("SELECT pg_drop_replication_slot(%s)", (slot_of(promoted),))
    refused(run("check", wal_settings(promoted)), "failed over without it")


@every_postgres
def test_check_warns_of_log_above_the_budget(ready, run):
    with ready.connect() as connection:
        for _ in range(3):
            connection.execute("SELECT pg_logical_emit_message(false, 'test', 'x')")
            connection.execute("SELECT pg_switch_wal()")
    checked = run("check", wal_settings(ready, wal={"budget": "16MiB"}))
    assert checked.returncode == 0
    assert "of log for slot" in checked.stdout and "wal.budget is 16 MB" in checked.stdout, checked.stdout
    assert "wal.budget is" not in run("check", wal_settings(ready)).stdout


def test_check_opens_no_replication_connection(special, init, run):
    """It may be run where replication is not let in, and takes no sender from anybody."""
    database = special(15, max_wal_senders=1)
    init(wal_settings(database))
    reader = recv_logical(database)
    try:
        wait_until(lambda: database.value("SELECT count(*) FROM pg_stat_get_wal_senders()") == 1, what="a reader")
        checked = run("check", wal_settings(database))
        assert checked.returncode == 0, checked.stdout
    finally:
        reader.terminate()
        reader.wait()


# ---- SQL for somebody else, and poolers -----------------------------------------------------------------------------

@every_postgres
def test_the_printed_sql_makes_the_publication(empty_database, init, run):
    printed = run("init", wal_settings(empty_database), "--print-sql")
    assert printed.returncode == 0, printed.stderr
    assert "-- Outbox orders: its reader, wal, needs a replication slot" in printed.stdout
    for _ in range(2):
        done = subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", empty_database.dsn], input=printed.stdout,
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert empty_database.value("SELECT count(*) FROM pg_publication WHERE pubname = %s", (PUBLICATION,)) == 1
    assert slots(empty_database) == []
    created = f"created the replication slot {slot_of(empty_database)} for public.outbox\n"
    assert init(wal_settings(empty_database)) == created


def test_printing_sql_for_a_slot_needs_no_database(product, run):
    content = settings(f"postgresql://127.0.0.1:{free_port()}/none", {"type": "stdout"})
    printed = run("init", content, "--print-sql", "--reader", "wal", "--role", "relay")
    assert printed.returncode == 0, printed.stderr
    assert f"postrider.publish('\"public\".\"outbox\"'::pg_catalog.regclass, '{PUBLICATION}')" in printed.stdout
    assert "postrider.grant_replication('relay')" in printed.stdout
    assert "needs a replication slot" not in run("init", content, "--print-sql").stdout


@pytest.mark.parametrize("mode, options", [("transaction", {}), ("session", {"pooler": "session"})])
def test_a_pooler_in_between_is_named(empty_database, run, mode, options):
    pooler = started(PgBouncer(empty_database.server, mode))
    try:
        content = wal_settings(empty_database)
        content["database"] = {"url": pooler.dsn(empty_database.name), **options}
        refused(run("init", content), "a pooler stands before the database", "connect to PostgreSQL itself")
        assert slots(empty_database) == []
    finally:
        pooler.close()
