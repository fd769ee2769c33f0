"""/healthz, /readyz, and the server that they come from."""

import contextlib
import ctypes
import os
import socket
import time
from pathlib import Path

import pytest

from tests.e2e.observe import get, get_json, scrape, wait_for_value, watched
from tests.e2e.relay import postrider, wait_until, write_config
from tests.servers import Redis

PTRACE_ATTACH, PTRACE_DETACH, WAIT_FOR_THREADS = 16, 17, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def wait_for_status(port, path, expected, timeout=30):
    return wait_until(lambda: get(port, path)[0] == expected, timeout, f"{path} says {expected}", 0.1)


def reasons(port, path="/readyz"):
    status, body = get_json(port, path)
    assert (status, body["status"]) == ((503, "failing") if body["reasons"] else (200, "ok"))
    return body["reasons"]


# ---- Health ---------------------------------------------------------------------------------------------------------

def test_a_relay_at_work_is_alive_and_ready(database, start_relay):
    content, port = watched(database.dsn, {"type": "stdout"})
    relay = start_relay(content)
    wait_for_status(port, "/readyz", 200)
    assert reasons(port) == reasons(port, "/healthz") == []
    assert relay.stop() == 0
    with pytest.raises(OSError):
        get(port, "/healthz")


def test_a_sink_that_is_away(database, start_relay):
    with Redis() as redis:
        content, port = watched(database.dsn, {"type": "redis", "address": redis.address, "name": "stream"})
        relay = start_relay(content)
        database.insert("a")
        database.wait_until_empty()
        wait_for_value(port, 0, "postrider_sink_breaker_open", sink="stream")
        redis.stop()
        database.insert("b")
        wait_for_value(port, 1, "postrider_sink_breaker_open", sink="stream")
        (reason,) = reasons(port)
        assert (reason["what"], reason["outbox"], reason["name"]) == ("sink", "orders", "stream")
        assert str(redis.port) in reason["reason"]
        assert reasons(port, "/healthz") == []
        redis.start()
        wait_for_status(port, "/readyz", 200)
        database.wait_until_empty()
        assert scrape(port).value("postrider_sink_breaker_open") == 0
        assert relay.stop() == 0


def test_a_database_that_is_away(fragile_database, start_relay):
    content, port = watched(fragile_database.dsn, {"type": "stdout"}, workers=2)
    relay = start_relay(content)
    wait_for_status(port, "/readyz", 200)
    fragile_database.server.stop()
    wait_until(lambda: {"database", "worker"} <= {reason["what"] for reason in reasons(port)}, 20, "both are said")
    assert reasons(port, "/healthz") == []
    fragile_database.server.start()
    wait_for_status(port, "/readyz", 200, 40)
    assert relay.stop() == 0


def test_a_start_that_waits_for_the_database(fragile_database, start_relay):
    fragile_database.server.stop()
    content, port = watched(fragile_database.dsn, {"type": "stdout"})
    relay = start_relay(content, wait=False)
    relay.wait_for("database.unreachable")
    assert [reason["what"] for reason in reasons(port)] == ["start"]
    assert reasons(port, "/healthz") == [] and scrape(port).value("postrider_build_info") == 1
    fragile_database.server.start()
    wait_for_status(port, "/readyz", 200, 40)
    assert relay.stop() == 0


def test_rows_that_wait_too_long(database, start_relay):
    row = database.insert("held")
    database.execute("UPDATE public.outbox SET created_at = now() - interval '1 hour'")
    database.execute("INSERT INTO postrider.retry (outbox, entity, row_id, attempts, kind, error, retry_at) VALUES"
                     " (1, 'held', %s, 3, 'rejected', 'no', now() + interval '1 hour')", (str(row),))
    content, port = watched(database.dsn, {"type": "stdout"}, http={"ready_max_lag": "30m"})
    relay = start_relay(content)
    wait_for_status(port, "/readyz", 503)
    (reason,) = wait_until(lambda: [found for found in [reasons(port)] if [r["what"] for r in found] == ["lag"]], 10)[0]
    assert "30" in reason["reason"] or "1800" in reason["reason"]
    database.execute("DELETE FROM public.outbox")
    wait_for_status(port, "/readyz", 200)
    assert relay.stop() == 0


@contextlib.contextmanager
def frozen_thread(pid, name):
    """Stops one thread of a process, as a debugger does."""
    (thread,) = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()
                 if (task / "comm").read_text().strip() == name]
    if libc.ptrace(PTRACE_ATTACH, thread, None, None) != 0:
        pytest.skip(f"ptrace is not allowed here: {os.strerror(ctypes.get_errno())}")
    os.waitpid(thread, WAIT_FOR_THREADS)
    try:
        yield
    finally:
        libc.ptrace(PTRACE_DETACH, thread, None, None)


def test_a_worker_that_hangs(database, start_relay):
    content, port = watched(database.dsn, {"type": "stdout"}, workers=2, http={"alive_within": "15s"})
    relay = start_relay(content)
    assert reasons(port, "/healthz") == []
    with frozen_thread(relay.pid, "worker-1"):
        wait_for_status(port, "/healthz", 503, 30)
        (reason,) = reasons(port, "/healthz")
        assert (reason["what"], reason["outbox"], reason["name"]) == ("worker", "orders", "1")
        assert "has not turned for 1" in reason["reason"]
    wait_for_status(port, "/healthz", 200)
    assert relay.stop() == 0


# ---- The server -----------------------------------------------------------------------------------------------------

def test_only_what_is_there_and_only_reading(database, start_relay):
    content, port = watched(database.dsn, {"type": "stdout"})
    relay = start_relay(content)
    assert [get(port, path)[0] for path in ("/nowhere", "/", "/metrics/", "/metrics?x=1", "/healthz")] == \
        [404, 404, 404, 200, 200]
    assert [get(port, "/metrics", method)[0] for method in ("POST", "PUT", "DELETE", "OPTIONS")] == [405] * 4
    assert get(port, "/metrics", "HEAD") == (200, "")
    assert get(port, "/metrics", headers={"Host": "evil.example"})[0] == 421
    assert get(port, "/metrics", headers={"Host": f"localhost:{port}"})[0] == 200
    assert get(port, "/metrics", headers={"X-Long": "x" * 9000})[0] == 431
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"nonsense\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")
    assert relay.stop() == 0


def test_clients_that_say_nothing_are_in_nobodys_way(database, start_relay):
    content, port = watched(database.dsn, {"type": "stdout"})
    relay = start_relay(content)
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    try:
        assert get(port, "/metrics")[0] == 200
        fds = len(os.listdir(f"/proc/{relay.pid}/fd"))
        assert scrape(port).value("process_open_fds") < fds + 10 < 120
        time.sleep(6)   # longer than a request may take
        assert silent[-1].recv(1) == b""
        assert len(os.listdir(f"/proc/{relay.pid}/fd")) <= fds - 25
    finally:
        for client in silent:
            client.close()
    assert relay.stop() == 0


def test_a_token_is_asked_for(database, tmp_path, start_relay):
    token = tmp_path / "token"
    token.write_text("first\n")
    content, port = watched(database.dsn, {"type": "stdout"}, http={"token_file": str(token)})
    content["http"]["listen"] = f"0.0.0.0:{port}"
    relay = start_relay(content)

    def status(path, given):
        return get(port, path, headers={"Authorization": f"Bearer {given}", "Host": "relay.example"})[0]

    assert get(port, "/healthz")[0] == 200
    assert [get(port, path)[0] for path in ("/metrics", "/readyz", "/nowhere")] == [401] * 3
    assert (status("/metrics", "first"), status("/metrics", "second"), status("/metrics", "")) == (200, 401, 401)
    token.write_text("second\n")
    assert (status("/metrics", "first"), status("/metrics", "second")) == (401, 200)
    token.unlink()
    assert (status("/metrics", "second"), status("/healthz", "")) == (503, 200)
    assert "second" not in relay.log_text()
    assert relay.stop() == 0


@pytest.mark.parametrize("listen, told", [("0.0.0.0:9187", "http.token_file"), ("relay:9187", "in digits"), ("9187", "in digits")])
def test_settings_that_are_refused(product, tmp_path, listen, told):
    content, _ = watched("postgresql://x@127.0.0.1:1/y", {"type": "stdout"})
    content["http"]["listen"] = listen
    done = postrider("run", "-c", write_config(tmp_path / "p.yaml", content))
    assert done.returncode == 78 and told in done.stderr


def test_a_port_that_is_taken_does_not_stop_the_relay(database, start_relay):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        content, port = watched(database.dsn, {"type": "stdout"}, port=other.getsockname()[1])
        relay = start_relay(content)
        assert "in use" in relay.wait_for("http.failed")["error"]
        database.insert("a")
        database.wait_until_empty()
    relay.wait_for("http.listening")
    assert get(port, "/healthz")[0] == 200
    assert relay.stop() == 0
