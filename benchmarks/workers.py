"""Runs of several processes: the memory of a server, and the speed of a round that two workers share.

    python benchmarks/workers.py

The server is `seedbus server` with HiSo, a million coordinates and twenty clients. Its baseline is an idle Python
process that has loaded the libraries that the server needs. Workers compute rounds of the scenario of `rounds.py`
with a cohort of twenty on the small CNN, or on scikit-learn's digits if Fashion-MNIST is not available.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from rows import Row, Skip

AIM_MB, AIM_WORKERS = 100, 1.7
ROUNDS, PATIENCE_S = 20, 120.0
LIBRARIES = "import numpy, zmq, msgpack, pydantic, yaml, typer, sqlite3, structlog; input('.')"
SERVED = """
name: served
task: {name: quadratic, dimension: 1000000}
algorithm: {name: hiso, perturbations: 2}
participation: {clients: 20, cohort: 5}
evaluation: {every: 1000}
stop: {rounds: 100000}
"""


def resident_mb(process: subprocess.Popen[bytes]) -> float:
    """Return the peak memory of a process, in 10⁶ bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024 / 1e6


def libraries_mb() -> float:
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", LIBRARIES], **pipes) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        found = resident_mb(process)
        process.communicate(b"\n")
    return found


def server_mb() -> float:
    """Return the peak memory of a server after ROUNDS rounds, in 10⁶ bytes."""
    with tempfile.TemporaryDirectory() as place:
        file, folder, endpoint = Path(place) / "served.yaml", Path(place) / "run", f"ipc://{place}/hub"
        file.write_text(SERVED)
        command, quiet = [sys.executable, "-m", "seedbus"], {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        options: dict[str, Any] = quiet | {"start_new_session": True}
        server = subprocess.Popen([*command, "server", file, "--bind", endpoint, "--out", folder], **options)
        client = subprocess.Popen([*command, "client", "--connect", endpoint, "--quiet"], **options)
        try:
            _wait(lambda: server.poll() is not None or _rounds(folder / "log.jsonl") >= ROUNDS)
            assert server.poll() is None, f"the server ended with {server.returncode}"
            return resident_mb(server)
        finally:
            for process in (client, server):
                process.kill()
                process.wait()


def _rounds(log: Path) -> int:
    return log.read_text().count('"event": "round"') if log.exists() else 0


def _wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"no {ROUNDS} rounds in {PATIENCE_S:.0f} s")
        time.sleep(0.05)


def document(task: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Return the scenario that workers share."""
    return {
        "name": "workers",
        "task": task,
        "algorithm": {"name": "decomfl", "perturbations": 10},
        "participation": {"clients": 100, "cohort": 20},
        "evaluation": {"every": rounds},
        "stop": {"rounds": rounds},
    }


def a_round(workers: int, rounds: int, task: dict[str, Any]) -> float:
    """Return the median wall time of a round, in milliseconds."""
    from zeromq import Stopwatch

    from seedbus.scenarios.running.run import run
    from seedbus.scenarios.schema.loading import validate
    from seedbus.scenarios.transports.placement import Placement

    stopwatch = Stopwatch(time.perf_counter)
    with tempfile.TemporaryDirectory() as folder:
        scenario = validate(document(task, rounds), "a benchmark")
        run(scenario, Path(folder) / "run", observer=stopwatch, placement=Placement("tcp", workers))
    return 1e3 * statistics.median(after - before for before, after in pairwise(stopwatch.closed[2:]))


def rows(is_quick: bool) -> Iterator[Row | Skip]:
    if Path("/proc/self/status").exists():
        yield Row("server: memory at most", "MB", server_mb(), libraries_mb(), "libraries", measure="most", aim=AIM_MB)
    else:
        yield Skip("server: memory is read from /proc, which this system lacks.")
    cores = os.cpu_count() or 1
    if cores < 2:
        yield Skip("workers: two of them need two cores.")
        return
    rounds, turns = (10, 1) if is_quick else (20, 3)
    task: dict[str, Any] = {"name": "fashion-mnist", "model": "mnist-cnn", "batch_size": 32}
    if not _is_there(task):
        task = {"name": "digits", "model": "cnn", "batch_size": 32}
    found = [[a_round(workers, rounds, task) for workers in (1, 2)] for _ in range(turns)]
    one, two = (min(column) for column in zip(*found, strict=True))
    name = f"workers: a round of {task['name']} on 2"
    yield Row(name, "ms", two, one, "--workers 1", one / 2, "half of it", "faster", AIM_WORKERS)


def _is_there(task: dict[str, Any]) -> bool:
    from seedbus.models.errors import DataError
    from seedbus.scenarios.running.prepare import bind
    from seedbus.scenarios.schema.loading import validate

    try:
        bind(validate(document(task, ROUNDS), "a benchmark"))
    except DataError:
        return False
    return True


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for row in rows(is_quick=False):
        print("   ".join(row.cells()) if isinstance(row, Row) else row.why)


if __name__ == "__main__":
    main()
