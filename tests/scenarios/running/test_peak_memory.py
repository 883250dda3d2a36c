"""How much memory a process has had, whoever started it."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = "from seedbus.scenarios.running.limits import peak_memory; print(peak_memory())"
LARGE_PARENT = """
import subprocess, sys
held = b"x" * 2**31
print(subprocess.run([sys.executable, "-c", sys.argv[1]], capture_output=True, text=True, check=True).stdout)
"""


@pytest.mark.slow
def test_the_memory_of_the_process_that_started_this_one_is_not_counted() -> None:
    done = subprocess.run([sys.executable, "-c", LARGE_PARENT, CHILD], capture_output=True, text=True, check=True)
    assert 2**20 < int(done.stdout) < 2**31
