"""`postrider top` on a real terminal and without one."""

import re
import signal
import subprocess
import termios
import time

import pytest

from tests.e2e.relay import BINARY, clean_environment, postrider, settings, wait_until, write_config
from tests.e2e.terminal import Terminal
from tests.servers.common import free_port

ENTERED, LEFT = "\x1b[?1049h", "\x1b[?1049l"
CTRL_C, CTRL_Z = "\x03", "\x1a"


@pytest.fixture
def config(database, tmp_path):
    return write_config(tmp_path / "top.yaml", settings(database.dsn, {"type": "stdout"}))


@pytest.fixture
def watch(product, tmp_path):
    """Starts it on a terminal and waits for the first page."""
    terminals = []

    def start(config, *flags, first="outboxes", **size):
        terminal = Terminal([BINARY, "top", "-c", config, *flags], tmp_path, clean_environment({"TERM": "xterm"}), **size)
        terminals.append(terminal)
        wait_until(lambda: first in "\n".join(terminal.page()), what="the first page")
        return terminal

    yield start
    for terminal in terminals:
        terminal.close()


def figures(terminal, name="orders"):
    """Of an outbox: what waits, and rows in a second."""
    row = re.search(rf"^ +{name} +\S+ +\S+ +(\S+) .* (\S+)$", "\n".join(terminal.page()), re.M)
    return row.groups() if row else None


def assert_given_back(terminal, before):
    assert terminal.shown.count(ENTERED) == terminal.shown.count(LEFT) >= 1
    assert terminal.shown.rstrip().endswith(LEFT)
    assert terminal.attributes() == before


def is_quiet(terminal):
    return not terminal.attributes()[3] & (termios.ECHO | termios.ICANON)


def test_figures_live(database, config, watch, start_relay):
    terminal = watch(config, "--interval", "200ms")
    wait_until(lambda: figures(terminal) == ("0", "0"), what="an idle outbox")
    assert any("no relay runs" in line for line in terminal.page())
    database.execute("INSERT INTO public.outbox (entity_type, entity_id, event_type)"
                     " SELECT 'order', n::text, 'changed' FROM generate_series(1, 5000) AS n")
    wait_until(lambda: figures(terminal)[0] == "5,000", what="5,000 that wait")
    start_relay(settings(database.dsn, {"type": "stdout"}, workers=2) | {"node": "alpha"})
    wait_until(lambda: figures(terminal)[0] == "0", what="none that wait")
    # How high depends on how long six looks take.
    wait_until(lambda: int(figures(terminal)[1].replace(",", "")) > 100, what="a rate")
    assert re.search(r"alpha .* alive .* 2 +[\d,]+$", "\n".join(terminal.page()), re.M), terminal.page()
    wait_until(lambda: figures(terminal)[1] == "0", what="no rate when nothing comes")
    terminal.type("q")
    assert terminal.wait() == 0


@pytest.mark.parametrize("end", ["q", CTRL_C, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_the_terminal_is_given_back(config, product, tmp_path, watch, end):
    probe = Terminal(["sleep", "60"], tmp_path, clean_environment())
    before = probe.attributes()
    probe.close()
    terminal = watch(config)
    assert is_quiet(terminal) and terminal.attributes() != before
    if isinstance(end, str):
        terminal.type("x" + end)
    else:
        terminal.signal(end)
    assert terminal.wait() == 0
    assert_given_back(terminal, before)


def test_sleep_and_wake_up(config, watch):
    terminal = watch(config, "--interval", "200ms")
    terminal.type(CTRL_Z)
    wait_until(terminal.stopped, what="sleep")
    assert terminal.read().endswith(LEFT) and not is_quiet(terminal)
    terminal.signal(signal.SIGCONT)
    wait_until(lambda: terminal.read().count(ENTERED) == 2 and is_quiet(terminal), what="the screen again")
    wait_until(lambda: any("outboxes" in line for line in terminal.page()), what="a page")
    terminal.type("q")
    assert terminal.wait() == 0


def test_it_fits_its_terminal(config, watch):
    terminal = watch(config, "--interval", "1h", rows=30, columns=100)
    assert any(line.endswith("rows/s") for line in terminal.page()) and not any("more lines" in line for line in terminal.page())
    for rows, columns in [(5, 40), (40, 120), (1, 10)]:
        terminal.shown = ""
        terminal.resize(rows, columns)
        # At once, and not with the next look.
        wait_until(lambda: terminal.page()[0], what=f"a page of {rows} rows")
        page = terminal.page()
        assert len(page) <= rows and all(len(line) <= columns for line in page), page
        assert any("  … " in line for line in page) == (rows < 10), page
    terminal.type("q")
    assert terminal.wait() == 0


def test_no_text_of_the_database_reaches_the_terminal_as_a_command(database, config, watch):
    database.execute("INSERT INTO postrider.node (name, version, schema, pid, started_at, heartbeat_at, heartbeat_ms, state)"
                     " VALUES (E'evil\\033]0;title\\007\\u009b2J', '0', 7, 1, now(), now(), 1000, '{}')")
    terminal = watch(config, first="evil")
    assert "evil?]0;title??2J" in "\n".join(terminal.page())
    assert "\x1b]" not in terminal.shown and "\x07" not in terminal.shown and "\x9b" not in terminal.shown


def test_a_database_that_goes_and_comes(fragile_database, tmp_path, watch):
    config = write_config(tmp_path / "top.yaml", settings(fragile_database.dsn, {"type": "stdout"}))
    terminal = watch(config, "--interval", "200ms", columns=200)
    fragile_database.server.stop()
    try:
        wait_until(lambda: any("cannot be read" in line for line in terminal.page()), what="word of it")
        assert figures(terminal), "what was known is still shown"
    finally:
        fragile_database.server.start()
    wait_until(lambda: not any("cannot be read" in line for line in terminal.page()), what="its return")
    terminal.type("q")
    assert terminal.wait() == 0


def test_keys_are_heard_while_the_database_does_not_answer(database, config, watch):
    terminal = watch(config, "--interval", "100ms")
    with database.connect() as connection, connection.transaction():
        connection.execute("LOCK TABLE public.outbox IN ACCESS EXCLUSIVE MODE")
        wait_until(lambda: database.value("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0, what="one that waits")
        began = time.monotonic()
        terminal.type("q")
        assert terminal.wait() == 0 and time.monotonic() - began < 4, "not before the database gives up waiting, after 5 s"


def test_plain_without_a_terminal(config):
    done = postrider("top", "-c", config, "--interval", "100ms", "--count", "3")
    assert done.returncode == 0 and done.stderr == ""
    assert "\x1b" not in done.stdout and done.stdout.count("\noutboxes\n") == 3
    assert "q quits" not in done.stdout


def test_a_reader_that_leaves_ends_it(config, tmp_path):
    process = subprocess.Popen([BINARY, "top", "-c", config, "--interval", "100ms"], stdout=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())
    try:
        process.stdout.readline()
        process.stdout.close()
        process.wait(5)
    finally:
        if process.poll() is None:
            process.kill()


def test_no_database_at_all(product, tmp_path, watch):
    config = write_config(tmp_path / "top.yaml", settings(f"postgresql://x@127.0.0.1:{free_port()}/x", {"type": "stdout"}))
    done = postrider("top", "-c", config)
    assert done.returncode == 1 and "could not connect" in done.stderr and done.stdout == ""
    terminal = watch(config, first="could not connect")
    assert terminal.wait() == 1 and ENTERED not in terminal.shown


@pytest.mark.parametrize("arguments", [("--interval", "1ms"), ("--interval", "soon"), ("--count", "0"), ("surplus",)])
def test_wrong_usage(product, arguments):
    done = postrider("top", *arguments)
    assert done.returncode == 2 and "postrider help top" in done.stderr
