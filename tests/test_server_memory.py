"""A server of a scalar run holds no model, and needs no framework: its process stays small while the run goes on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from processes import seedbus, wait_for

from seedbus.agents.journal import Journal

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


def test_a_server_stays_under_a_hundred_megabytes(tmp_path: Path) -> None:
    file, folder, bind = tmp_path / "small.yaml", tmp_path / "run", f"ipc://{tmp_path}/hub"
    file.write_text(SCENARIO)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = seedbus("server", file, "--bind", bind, "--out", folder, **quiet)
    client = seedbus("client", "--connect", bind, "--quiet", **quiet)
    try:
        wait_for((folder / "journal.sqlite").exists, 60)
        wait_for(lambda: rounds(folder) >= ROUNDS, 120)
        assert server.poll() is None and resident_mb(server) < MOST_MB
    finally:
        for process in (client, server):
            process.kill()
            process.wait()
