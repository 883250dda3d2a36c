"""The server of a scalar-only run holds no model and imports no framework, so its process stays small."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from processes import logged, seedbus, wait_for

from seedbus.agents.journal.journal import Journal

MOST_MB = 100
ROUNDS = 20
SCENARIO = """
name: small
task: {name: quadratic, dimension: 1000000}
algorithm: {name: hiso, perturbations: 2}
participation: {clients: 20, cohort: 5}
evaluation: {every: 1000}
stop: {rounds: 100000}
"""


def resident_mb(process: subprocess.Popen[str]) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1000


def rounds(folder: Path) -> int:
    journal = Journal.open(folder, for_writing=False)
    try:
        return sum(1 for _ in journal.rounds())
    finally:
        journal.close()


@pytest.mark.slow
def test_a_server_stays_under_a_hundred_megabytes(tmp_path: Path) -> None:
    file, folder, bind = tmp_path / "small.yaml", tmp_path / "run", f"ipc://{tmp_path}/hub"
    file.write_text(SCENARIO)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = seedbus("server", file, "--bind", bind, "--out", folder, cold=True, **quiet)
    client = seedbus("client", "--connect", bind, "--quiet", **quiet)
    try:
        wait_for((folder / "journal.sqlite").exists)
        wait_for(lambda: rounds(folder) >= ROUNDS)
        assert server.poll() is None and resident_mb(server) < MOST_MB
    finally:
        for process in (client, server):
            process.kill()
            process.wait()


LONG = """
name: long
task: {name: "null", dimension: 50}
algorithm: {name: decomfl, perturbations: 1}
participation: {clients: 100}
evaluation: {every: 100}
stop: {rounds: 100000}
"""
EARLY, LATE = 300, 1200  # rounds: 60,000 and 240,000 messages
GROWTH_MB = 8


def own_mb(process: subprocess.Popen[str]) -> float:
    """Return a process's memory in MB without the code of libraries."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1000


@pytest.mark.slow
def test_a_server_over_tcp_does_not_grow_with_its_rounds(tmp_path: Path) -> None:
    file, folder = tmp_path / "long.yaml", tmp_path / "run"
    file.write_text(LONG)
    server = seedbus("run", file, "--workers", "1", "--transport", "tcp", "--out", folder, "--quiet", cold=True)
    found = []
    try:
        for count in (EARLY, LATE):
            wait_for(lambda: server.poll() is not None or logged(folder) >= count)  # noqa: B023
            found.append(own_mb(server))
    finally:
        server.kill()
        server.communicate()
    print(f"\na server after {EARLY} and {LATE} rounds of 100 clients: {found[0]:.1f} and {found[1]:.1f} MB")
    assert found[1] - found[0] < GROWTH_MB
