"""The C tests of the event store that need a server: run here, where there is one."""

import os
import subprocess

import pytest

from tests.e2e.relay import BINARY, clean_environment
from tests.e2e.scene import missing

TESTS = BINARY.parent / "tests" / "unit" / "test_event_store"


@pytest.mark.parametrize("pg", [15, 18], indirect=True)
def test_the_c_tests_of_the_event_store_pass_on_a_real_server(product, empty_database):
    if not os.access(TESTS, os.X_OK):
        missing(f"{TESTS} is not built")
    done = subprocess.run([TESTS], env=clean_environment({"POSTRIDER_TEST_DSN": empty_database.dsn}), cwd="/",
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SKIPPED" not in done.stdout + done.stderr
