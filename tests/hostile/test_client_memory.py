"""The memory limit that a client's user sets, which the system enforces."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from fake_server import FakeServer, offering
from processes import seedbus

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA holds mapped memory on Linux alone")


@pytest.mark.slow
def test_a_scenario_that_takes_more_memory_than_its_estimate_ends_in_a_sentence() -> None:
    """A quadratic of 2 · 10⁸ coordinates: the estimate is 0.8 GB, and it uses several such vectors."""
    scenario = {"task": {"name": "quadratic", "dimension": 200_000_000}}
    with FakeServer(offering(scenario)) as server:
        process = seedbus("client", "--connect", server.endpoint, "--max-memory", "1GiB", cold=True)
        peak = 0
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(
                peak, int([*status.partition("VmRSS:")[2].split(), "0"][0]) * 1024
            )  # no such line once it has ended
            time.sleep(0.02)
        _, stderr = process.communicate()
    assert process.returncode == 3, stderr
    assert "found no memory for" in stderr and "Traceback" not in stderr
    assert server.farewells == [b"memory"]
    assert peak < 2**30 + 300 * 2**20
