"""The commands around `run`: init, check, help, --version."""

import json
import re
import subprocess

import pytest

from tests.e2e.relay import postrider, settings, write_config
from tests.servers.common import free_port

OBJECTS = """
SELECT 'table', n.nspname || '.' || c.relname, a.attname, format_type(a.atttypid, a.atttypmod) || a.attnotnull
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace JOIN pg_attribute a ON a.attrelid = c.oid AND attnum > 0
WHERE nspname IN ('public', 'postrider') AND relkind IN ('r', 'p', 'S', 'i')
UNION ALL
SELECT 'index', schemaname || '.' || tablename, indexname, indexdef FROM pg_indexes
WHERE schemaname IN ('public', 'postrider')
UNION ALL
SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL
SELECT 'function', proname, prosrc, proconfig::text FROM pg_proc WHERE pronamespace = to_regnamespace('postrider')
UNION ALL
SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace IN (to_regnamespace('public'), to_regnamespace('postrider')) AND contype <> 'n'
UNION ALL
SELECT 'migration', version::text, name, checksum::text FROM postrider.migration
ORDER BY 1, 2, 3, 4
"""


@pytest.fixture
def config(product, empty_database, tmp_path):
    return write_config(tmp_path / "postrider.yaml", settings(empty_database.dsn, {"type": "stdout"}))


def psql(database, script):
    return subprocess.run(
        ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", database.dsn], input=script, capture_output=True, text=True)


# ---- init -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("pg", [15, 18], indirect=True)
def test_init_is_idempotent(empty_database, config):
    first = postrider("init", "-c", config)
    assert first.returncode == 0, first.stderr
    assert "public.outbox" in first.stdout
    objects = empty_database.execute(OBJECTS)
    second = postrider("init", "-c", config)
    assert second.returncode == 0, second.stderr
    assert "nothing to do" in second.stdout
    assert empty_database.execute(OBJECTS) == objects


def test_init_makes_the_recommended_table(database):
    columns = database.execute(
        "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute"
        " WHERE attrelid = 'public.outbox'::regclass AND attnum > 0 ORDER BY attnum")
    assert columns == [
        ("id", "bigint", True), ("message_id", "uuid", True), ("entity_type", "text", True),
        ("entity_id", "text", True), ("event_type", "text", True), ("payload", "json", False),
        ("headers", "jsonb", False), ("topic", "text", False), ("traceparent", "text", False),
        ("created_at", "timestamp with time zone", True), ("scheduled_for", "timestamp with time zone", False)]
    indexes = database.execute("SELECT substring(indexdef FROM 'btree (.*)') FROM pg_indexes"
                               " WHERE tablename = 'outbox' AND schemaname = 'public' ORDER BY 1")
    assert [index for index, in indexes] == [
        "(entity_id, id) WHERE (scheduled_for IS NULL)", "(entity_id, scheduled_for) WHERE (scheduled_for IS NOT NULL)",
        "(id)", "(scheduled_for) WHERE (scheduled_for IS NOT NULL)"]


@pytest.mark.parametrize("pg", [15, 18], indirect=True)
def test_the_printed_sql_makes_the_same_objects_and_may_run_twice(pg, empty_database, config, tmp_path):
    printed = postrider("init", "-c", config, "--print-sql")
    assert printed.returncode == 0, printed.stderr
    for _ in range(2):
        done = psql(empty_database, printed.stdout)
        assert done.returncode == 0, done.stderr
    by_hand = empty_database.execute(OBJECTS)
    assert "nothing to do" in postrider("init", "-c", config).stdout
    assert by_hand == empty_database.execute(OBJECTS)

    with empty_database.connect() as connection:
        connection.execute("DROP SCHEMA postrider CASCADE; DROP TABLE public.outbox")
    assert postrider("init", "-c", config).returncode == 0
    assert empty_database.execute(OBJECTS) == by_hand


def test_printing_sql_needs_no_database(product, tmp_path):
    content = settings(f"postgresql://127.0.0.1:{free_port()}/none", {"type": "stdout"})
    printed = postrider("init", "-c", write_config(tmp_path / "postrider.yaml", content), "--print-sql")
    assert printed.returncode == 0, printed.stderr
    assert "CREATE TABLE" in printed.stdout


def test_init_beside_an_existing_table_leaves_it_as_it_is(empty_database, tmp_path, product):
    empty_database.execute("CREATE TABLE public.mine (id uuid PRIMARY KEY, who text NOT NULL, what bytea)")
    empty_database.execute("INSERT INTO public.mine VALUES (gen_random_uuid(), 'a', 'x')")
    columns = "SELECT attname, atttypid, attnotnull FROM pg_attribute WHERE attrelid = 'public.mine'::regclass"
    before = empty_database.execute(columns), empty_database.execute("SELECT * FROM public.mine")
    content = settings(empty_database.dsn, {"type": "stdout"}, table="public.mine",
                       columns={"entity_id": "who", "payload": "what"})
    config = write_config(tmp_path / "postrider.yaml", content)
    done = postrider("init", "-c", config, "--existing", "public.mine")
    assert done.returncode == 0, done.stderr
    assert (empty_database.execute(columns), empty_database.execute("SELECT * FROM public.mine")) == before
    assert empty_database.value("SELECT to_regclass('public.outbox') IS NULL")
    assert "nothing to do" in postrider("init", "-c", config, "--existing", "public.mine").stdout


def test_init_beside_a_table_that_is_not_there_fails_clearly(empty_database, config):
    done = postrider("init", "-c", config, "--existing", "public.nowhere")
    assert done.returncode in (1, 78)
    assert "public.nowhere" in done.stderr
    assert empty_database.value("SELECT to_regclass('public.nowhere') IS NULL")


def test_init_refuses_a_database_that_is_newer_than_the_program(database, tmp_path):
    config = write_config(tmp_path / "postrider.yaml", settings(database.dsn, {"type": "stdout"}))
    checksum = database.value("SELECT checksum FROM postrider.migration LIMIT 1")
    database.execute(
        "INSERT INTO postrider.migration (version, name, checksum) VALUES (9999, 'future', %s)", (checksum,))
    for command in ("init", "run"):
        done = postrider(command, "-c", config)
        assert done.returncode != 0
        assert "newer" in done.stderr and "9999" in done.stderr, done.stderr


def test_init_for_a_role_grants_what_the_relay_needs_and_no_more(database, tmp_path, start_relay):
    role = f"relay_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN")
    content = settings(database.dsn, {"type": "postgres"})
    done = postrider("init", "-c", write_config(tmp_path / "role.yaml", content), "--role", role)
    assert done.returncode == 0, done.stderr
    assert database.execute(
        "SELECT privilege_type FROM information_schema.role_table_grants WHERE grantee = %s"
        " AND table_schema = 'public' ORDER BY 1", (role,)) == [("DELETE",), ("INSERT",), ("SELECT",)]
    content = settings(database.server.dsn(database.name, role), {"type": "postgres"})
    checked = postrider("check", "-c", write_config(tmp_path / "role.yaml", content))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    relay = start_relay(content)
    database.insert("a")
    database.wait_until_empty()
    assert relay.stop() == 0
    assert database.value("SELECT count(*) FROM postrider.event") == 1


# ---- check ----------------------------------------------------------------------------------------------------------

def checked(content, tmp_path, *flags, **options):
    return postrider("check", "-c", write_config(tmp_path / "postrider.yaml", content), *flags, timeout=60, **options)


def test_check_is_content_with_a_good_system(database, kafka, topic, tmp_path):
    sinks = {"type": "kafka", "brokers": kafka.bootstrap}, {"type": "postgres"}
    done = checked(settings(database.dsn, *sinks, route={"topic": topic}), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search("^(warn|fail)", done.stdout, re.M), done.stdout


BROKEN = {
    "no schema": ("DROP SCHEMA postrider CASCADE", {}, "postrider init"),
    "no table": ("DROP TABLE public.outbox", {}, "postrider init"),
    "no column": ("ALTER TABLE public.outbox DROP payload", {}, "payload"),
    "no index": ("DROP INDEX public.{index}", {}, "CREATE INDEX CONCURRENTLY"),
    "no trigger": ("DROP TRIGGER postrider_ring ON public.outbox", {}, "postrider init"),
    "nullable entity": ("ALTER TABLE public.outbox ALTER entity_id DROP NOT NULL", {}, "SET NOT NULL"),
    "nullable id": ("ALTER TABLE public.outbox DROP CONSTRAINT outbox_pkey, ALTER id DROP IDENTITY,"
                    " ALTER id DROP NOT NULL", {}, "SET NOT NULL"),
    "sequence with a cache": ("ALTER SEQUENCE public.outbox_id_seq CACHE 20", {}, "CACHE 1"),
    "random order": ("", {"order_by": "message_id"}, "order"),
}
ONLY_WARNS = {"no index", "no trigger", "nullable entity", "sequence with a cache", "random order"}


@pytest.mark.parametrize("name", BROKEN)
def test_check_names_each_fault_and_its_remedy(database, tmp_path, name):
    sql, options, remedy = BROKEN[name]
    if sql:
        index = database.execute("SELECT indexname FROM pg_indexes WHERE indexdef LIKE '%(entity_id, id)%'")
        database.execute(sql.format(index=index[0][0]))
    done = checked(settings(database.dsn, {"type": "stdout"}, **options), tmp_path)
    assert done.returncode == (0 if name in ONLY_WARNS else 1), done.stdout + done.stderr
    assert remedy in done.stdout, done.stdout


def test_check_says_how_to_grant_what_is_missing(database, tmp_path):
    """Whoever does what stands behind each "fix:" is done in the end."""
    role = f"weak_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN")
    content = settings(database.server.dsn(database.name, role), {"type": "postgres"})
    for _ in range(5):      # some faults show only when others are mended
        done = checked(content, tmp_path)
        if done.returncode == 0:
            return
        follow(re.findall(r"fix: (.*)", done.stdout), database, tmp_path)
    pytest.fail(done.stdout)


@pytest.mark.parametrize("privilege, relation", [
    ("SELECT", "sharding"), ("UPDATE", "node"), ("DELETE", "claim"), ("INSERT", "shard"), ("DELETE", "shard_member"),
    ("UPDATE", "retry")])
def test_check_misses_each_right_in_our_own_schema(database, tmp_path, privilege, relation):
    role = f"weak_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN")
    owner = write_config(tmp_path / "owner.yaml", settings(database.dsn, {"type": "stdout"}))
    assert postrider("init", "-c", owner, "--role", role).returncode == 0
    content = settings(database.server.dsn(database.name, role), {"type": "stdout"})
    assert checked(content, tmp_path).returncode == 0
    database.execute(f"REVOKE {privilege} ON postrider.{relation} FROM {role}")
    done = checked(content, tmp_path)
    assert done.returncode == 1
    assert f"lacks {privilege} ON postrider.{relation}\n" in done.stdout, done.stdout


def follow(fixes, database, tmp_path):
    """Does what the fixes say: SQL, or `postrider init` with flags."""
    owner = write_config(tmp_path / "owner.yaml", settings(database.dsn, {"type": "postgres"}))
    for fix in fixes:
        command = re.search(r"`postrider (init .*?)`|^postrider (init .*)", fix)
        if command:
            done = postrider(*(command[1] or command[2]).split(), "-c", owner)
            assert done.returncode == 0, f"{fix}: {done.stderr}"
        else:
            database.execute(fix)


def test_check_tells_of_servers_that_are_away(database, tmp_path):
    port = free_port()
    broker = checked(settings(database.dsn, {"type": "kafka", "brokers": f"127.0.0.1:{port}"}), tmp_path)
    assert broker.returncode == 1
    assert f"127.0.0.1:{port}" in broker.stdout
    server = checked(settings(f"postgresql://x@127.0.0.1:{port}/y", {"type": "stdout"}), tmp_path)
    assert server.returncode == 1
    assert str(port) in server.stdout + server.stderr


def test_check_tells_of_a_topic_that_does_not_exist(database, kafka, tmp_path):
    content = settings(database.dsn, {"type": "kafka", "brokers": kafka.bootstrap}, route={"topic": "no-such-topic"})
    done = checked(content, tmp_path)
    assert "no-such-topic" in done.stdout
    assert done.returncode == 1


@pytest.mark.parametrize("good", [True, False])
def test_check_speaks_json(database, tmp_path, good):
    table = "public.outbox" if good else "public.nowhere"
    done = checked(settings(database.dsn, {"type": "stdout"}, table=table), tmp_path, "--json")
    assert done.returncode == (0 if good else 1)
    findings = json.loads(done.stdout)
    assert findings
    assert good or "public.nowhere" in json.dumps(findings)


# ---- Secrets --------------------------------------------------------------------------------------------------------

def test_a_password_is_never_shown(database, tmp_path, start_relay):
    """In the URL, in a file, in the environment: not in the output, the log, or the process list."""
    role, secret = f"secret_{database.name}", "hunter2-S3cret"
    database.execute(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD '{secret}'")
    in_url = database.dsn.replace("postgres@", f"{role}:{secret}@")
    (tmp_path / "password").write_text(secret + "\n")
    in_file = settings(database.dsn.replace("postgres@", f"{role}@"), {"type": "stdout"})
    in_file["database"]["password_file"] = str(tmp_path / "password")
    unreachable = in_url.replace(str(database.server.port), str(free_port()))
    for content, environment in (
            (settings(in_url, {"type": "stdout"}), {}),
            (in_file, {}),
            (settings(database.dsn, {"type": "stdout"}), {"POSTRIDER_DATABASE_URL": in_url}),
            (settings(unreachable, {"type": "stdout"}), {}),
            (settings(in_url, {"type": "stdout"}, table="public.nowhere"), {})):
        for command in ("check", "init"):
            done = postrider(command, "-c", write_config(tmp_path / "p.yaml", content), environment=environment)
            assert secret not in done.stdout + done.stderr
    relay = start_relay(settings(in_url, {"type": "stdout"}))
    assert secret not in relay.command_line()
    assert relay.stop() == 0
    assert secret not in relay.log_text() + relay.out_file.read_text()


# ---- help and version -----------------------------------------------------------------------------------------------

def test_version_lists_what_is_compiled_in(product):
    done = postrider("--version")
    assert done.returncode == 0 and done.stderr == ""
    for word in ("postrider", "libpq", "librdkafka", "libyaml", "advisory", "kafka", "postgres", "stdout"):
        assert word in done.stdout


@pytest.mark.parametrize("arguments", [("help",), ("--help",), ("-h",)])
def test_help_lists_the_commands(product, arguments):
    done = postrider(*arguments)
    assert done.returncode == 0 and done.stderr == ""
    for word in ("run", "init", "check", "help", "--config", "--set"):
        assert word in done.stdout


@pytest.mark.parametrize("command", ["run", "init", "check", "help"])
def test_each_command_has_help(product, command):
    for arguments in (("help", command), (command, "--help")):
        done = postrider(*arguments)
        assert done.returncode == 0, done.stderr
        assert command in done.stdout


@pytest.mark.parametrize("arguments, fragment", [
    (("rnu",), "run"), (("run", "--confg", "x"), "--confg"), (("check", "surplus"), "surplus"),
    (("help", "nothing"), "nothing"), (("run", "-c"), "-c"), ((), "help")])
def test_wrong_usage_ends_with_2(product, arguments, fragment):
    done = postrider(*arguments)
    assert done.returncode == 2
    assert fragment in done.stderr + done.stdout
