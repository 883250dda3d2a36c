"""Start-up time: of `seedbus --help`, and until the first round of the quickstart is closed, cold and warm.

    python benchmarks/startup.py

CPU time of a process from its start, the best of several; on an idle machine wall time is the same but for waiting for
the disk. *Cold* starts with an empty folder of compiled Numba kernels, as before `make install` or a first run. The
baselines are processes that only load what is needed: the interpreter alone, or torch, Numba and the small libraries
that a run imports.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rows import Row

AIM_HELP_S, AIM_WARM_S, AIM_COLD_S = 0.5, 5.0, 20.0
LOADED = "import torch, numba, pydantic, rich.progress, structlog, yaml"
FIRST = """
import os, sys
from pathlib import Path
from seedbus.agents.observer import NullObserver
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.running.run import run

class First(NullObserver):
    def round_closed(self, closed, now_ns, bytes_so_far):
        os._exit(0)

run(load("quickstart"), Path(sys.argv[1]) / "run", observer=First())
"""


def seconds(*arguments: str, **environment: str) -> float:
    """Return the CPU seconds of a Python process. Raises `CalledProcessError`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *arguments]
    subprocess.run(command, env=os.environ | environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_round(repeats: int, *, is_cold: bool) -> float:
    """Return the CPU seconds until the quickstart's first round is closed, the best of the repeats."""
    best = float("inf")
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            kernels = {"NUMBA_CACHE_DIR": str(Path(folder) / "kernels")} if is_cold else {}
            best = min(best, seconds("-c", FIRST, folder, **kernels))
    return best


def imported(module: str, *arguments: str) -> int:
    """Return how many modules of a package a Python process imports."""
    command = [sys.executable, "-X", "importtime", *arguments]
    report = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    names = [line.rpartition("|")[2].strip() for line in report.splitlines()]
    return sum(name.split(".")[0] == module for name in names)


def rows(is_quick: bool) -> Iterator[Row]:
    repeats = 3 if is_quick else 7
    bare, shown = (
        min(seconds(*arguments) for _ in range(repeats)) for arguments in (("-c", "pass"), ("-m", "seedbus", "--help"))
    )
    yield Row("start: seedbus --help", "s", shown, bare, "python alone", measure="most", aim=AIM_HELP_S)
    torchs = imported("torch", "-m", "seedbus", "--help")
    yield Row("start: what --help imports of torch", "modules", torchs, measure="most", aim=0)
    first_round(1, is_cold=False)  # fills the folder of compiled kernels if it is empty
    loaded = min(seconds("-c", LOADED) for _ in range(repeats))
    for name, is_cold, aim in (("warm", False, AIM_WARM_S), ("cold", True, AIM_COLD_S)):
        ours = first_round(1 if is_cold and is_quick else 3, is_cold=is_cold)
        title = f"start: first round of the quickstart, {name}"
        yield Row(title, "s", ours, loaded, "imports", loaded, "imports", "most", aim)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for row in rows(is_quick=False):
        print("   ".join(row.cells()))


if __name__ == "__main__":
    main()
