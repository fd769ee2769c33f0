"""What the service manager is told: ready, alive, stopping."""

import os
import socket
import time

import pytest

from tests.e2e.relay import settings


class NotifySocket:
    """The service manager's end of sd_notify."""

    def __init__(self, path):
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        os.chmod(self.path, 0o777)
        self.heard = []

    def wait_for(self, line, timeout, times=1):
        """Waits until a line was heard so many times in all."""
        deadline = time.monotonic() + timeout
        while self.heard.count(line) < times:
            left = deadline - time.monotonic()
            assert left > 0, f"{line} heard {self.heard.count(line)} times of {times}; all: {self.heard}"
            self.socket.settimeout(left)
            try:
                self.heard += self.socket.recv(4096).decode().splitlines()
            except TimeoutError:
                pass


@pytest.fixture
def notify(tmp_path):
    listener = NotifySocket(tmp_path / "notify")
    yield listener
    listener.socket.close()


def test_the_service_manager_hears_ready_alive_and_stopping(database, start_relay, notify):
    relay = start_relay(settings(database.dsn, {"type": "stdout"}), environment={
        "NOTIFY_SOCKET": notify.path, "WATCHDOG_USEC": "1000000"})
    notify.wait_for("READY=1", 5)
    notify.wait_for("WATCHDOG=1", 5, times=3)
    assert relay.stop() == 0
    notify.wait_for("STOPPING=1", 5)
    assert notify.heard.index("READY=1") < notify.heard.index("STOPPING=1")


def test_ready_is_not_told_before_the_database_is_there(fragile_database, start_relay, notify):
    """Later it may go away again: waiting for it is no reason for the watchdog to bite."""
    fragile_database.server.stop()
    start_relay(settings(fragile_database.dsn, {"type": "stdout"}), wait=False, environment={
        "NOTIFY_SOCKET": notify.path, "WATCHDOG_USEC": "1000000"})
    with pytest.raises(AssertionError):
        notify.wait_for("READY=1", 2)
    fragile_database.server.start()
    notify.wait_for("READY=1", 20)
    fragile_database.server.stop()
    notify.wait_for("WATCHDOG=1", 6, times=notify.heard.count("WATCHDOG=1") + 4)
