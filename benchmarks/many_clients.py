"""Many clients as whole runs: the time of a round by its cohort, the processor time of a client, and peak memories.

    python benchmarks/many_clients.py [--rounds 6]

Runs of the null task with DeComFL (P = 5), each in processes of its own: 10,000 and 100,000 clients over tcp in two
workers, and 1,000,000 clients in memory of whom half are away at first and which leave and return all the time. A
round's time is between two lines of the run's log; the first round, in which each client is new, is left out. Linux
only: processor times and peaks (VmHWM) are those in /proc of the run's process and of all that it started, looked at
ten times a second, so rounds of less than a second say nothing of a client's time. Beside it stands what the model of
docs/cost.md says of one process, in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scale import CHURN

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from processes import started_by

from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.yaml_text import dump

COHORTS = (10, 100, 1_000, 10_000)
PLACES: list[tuple[str, int, tuple[int, ...], list[dict[str, Any]], list[str]]] = [
    ("tcp, 2 workers", 10_000, COHORTS, [], ["--workers", "2"]),
    ("tcp, 2 workers", 100_000, (100_000,), [], ["--workers", "2"]),
    ("memory, churn", 1_000_000, COHORTS, [CHURN], []),
]
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Measured(NamedTuple):
    """Of one run: seconds until the first round closes; of the rounds after it; peaks of its processes in MB."""

    start_s: float
    rounds_ms: list[float]
    client_us: float
    """Processor time of all processes in these rounds, over the clients asked."""
    peaks_mb: list[float]


def measure(clients: int, cohort: int, faults: list[dict[str, Any]], options: list[str], rounds: int) -> Measured:
    """Run it in processes of its own, and look at them until the end."""
    document = {
        "name": "many",
        "task": {"name": "null"},
        "algorithm": {"name": "decomfl", "perturbations": 5},
        "participation": {"clients": clients, "cohort": cohort},
        "network": {"latency": {"distribution": "exponential", "mean": 0.1}},
        "faults": faults,
        "evaluation": {"every": rounds},
        "stop": {"rounds": rounds},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "many.yaml").write_text(dump(validate(document, "many").resolved()))
        scenario, out = str(folder / "many.yaml"), str(folder / "run")
        command = [sys.executable, "-m", "seedbus", "run", scenario, "-q", "--out", out, *options]
        began_s = time.time()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        peaks: dict[int, float] = {}
        spent: dict[int, float] = {}
        looked_s, spent_s = [began_s], [0.0]
        while process.poll() is None:
            for pid in _descendants(process.pid):
                peaks[pid] = max(peaks.get(pid, 0.0), _peak_mb(pid))
                spent[pid] = max(spent.get(pid, 0.0), _spent_s(pid))
            looked_s.append(time.time())
            spent_s.append(sum(spent.values()))
            time.sleep(0.1)
        assert process.returncode == 0, f"exit code {process.returncode}"
        lines = [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text().splitlines()]
    closed_s = [datetime.fromisoformat(each["timestamp"]).timestamp() for each in lines if each["event"] == "round"]
    times = [1e3 * (after - before) for before, after in pairwise(closed_s)]
    first_s, last_s = np.interp([closed_s[0], closed_s[-1]], looked_s, spent_s)
    client_us = 1e6 * (last_s - first_s) / (len(times) * cohort)
    return Measured(closed_s[0] - began_s, times, float(client_us), sorted(peaks.values(), reverse=True))


def _descendants(pid: int) -> list[int]:
    with suppress(OSError):
        found: list[int] = started_by(pid)
        return found
    return []


def _peak_mb(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def _spent_s(pid: int) -> float:
    with suppress(OSError):
        user, system = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return TICK_S * (int(user) + int(system))
    return 0.0


def predicted_us(cohort: int) -> float:
    """Return what docs/cost.md says of a client and round: two messages, and its part of the round itself."""
    page = (Path(__file__).resolve().parent.parent / "docs" / "cost.md").read_text()
    (message_us,) = re.findall(r"\| a message \| ([\d.]+) µs", page)
    (round_ms,) = re.findall(r"\| a round \| ([\d.]+) ms", page)
    return 2 * float(message_us) + 1e3 * float(round_ms) / cohort


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    rounds = parser.parse_args().rounds
    print(f"{rounds} rounds; {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} at the beginning\n")
    print(
        "| clients | where | cohort | first round closed after | a round: median, fastest | CPU of a client | peaks |"
    )
    print("|---|---|---|---|---|---|---|")
    for where, clients, cohorts, faults, options in PLACES:
        for cohort in cohorts:
            found = measure(clients, cohort, faults, options, rounds)
            times = found.rounds_ms
            cpu = f"{found.client_us:,.0f} µs, model {predicted_us(cohort):,.0f}" if min(times) >= 1e3 else ""
            memory = ", ".join(f"{peak:,.0f} MB" for peak in found.peaks_mb if peak >= 50)  # others hold a pipe open
            print(
                f"| {clients:,} | {where} | {cohort:,} | {found.start_s:.1f} s"
                f" | {statistics.median(times):,.0f} ms, {min(times):,.0f} ms | {cpu} | {memory} |",
                flush=True,
            )
    print(f"\nload at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
