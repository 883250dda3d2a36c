"""One table of all figures, each with a plain baseline from the same run, a limit and an aim.

    python benchmarks/bench.py [--quick] [--only replay rounds] [--json FILE]

Every part runs in a process of its own, with one thread for torch, one part after another. Within a part the contenders
take turns, and the best turn of each counts. Figures that cannot be measured here are listed below the table.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rows import HEADS, Row, Skip

from seedbus.versions import processor

PARTS = ("startup", "replay", "rounds", "bus", "zeromq", "workers", "scale", "memory", "gpu")  # each has `rows`
WIDE = 190  # columns where there is no terminal
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

Found = Row | Skip


def child(part: str, is_quick: bool) -> None:
    """Measure a part; print a line of JSON for each row as soon as it is known."""
    for found in importlib.import_module(part).rows(is_quick):
        print(json.dumps({"row" if isinstance(found, Row) else "skip": asdict(found)}), flush=True)


def measured(part: str, is_quick: bool) -> Iterator[Found]:
    """Yield the rows of a part as they come; if the part fails, the last is a Skip with the error."""
    command = [sys.executable, __file__, "--part", part, *(["--quick"] if is_quick else [])]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, env=os.environ | ONE_THREAD, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert process.stdout is not None
        with process:
            for line in process.stdout:
                yield from parsed(line)
        errors.seek(0)
        last = (errors.read().strip().splitlines() or ["it said nothing"])[-1]
    if process.returncode:
        yield Skip(f"{part}: failed ({last})")


def parsed(line: str) -> Iterator[Found]:
    """Yield the row of a line that `child` printed; nothing for any other line."""
    if line.startswith('{"row": '):
        yield Row(**json.loads(line)["row"])
    elif line.startswith('{"skip": '):
        yield Skip(**json.loads(line)["skip"])


def gathered(parts: Sequence[str], is_quick: bool) -> Iterator[Found]:
    """Yield all rows; show on stderr what is being measured, on a terminal in one line that changes."""
    console, began = Console(stderr=True), time.monotonic()
    with Status("", console=console) as status:
        for count, part in enumerate(parts, 1):
            _say(console, status, f"{part} ({count} of {len(parts)})")
            for each in measured(part, is_quick):
                latest = each.name if isinstance(each, Row) else each.why
                _say(console, status, f"{part} ({count} of {len(parts)}), {time.monotonic() - began:.0f} s: {latest}")
                yield each


def _say(console: Console, status: Status, line: str) -> None:
    if console.is_terminal:
        status.update(line)
    else:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def table(rows: Sequence[Row]) -> Table:
    drawn = Table(*HEADS, title="less is better in every unit; ratios are of one run", title_justify="left")
    for row in rows:
        style = {None: "", True: "green", False: "red"}[row.is_met]
        *cells, met = row.cells()
        drawn.add_row(*cells, f"[{style}]{met}[/]" if style else met)
    return drawn


def machine() -> dict[str, Any]:
    """Return what the figures depend on: processor, versions and load."""
    import numba
    import numpy
    import torch

    versions = {each.__name__: each.__version__ for each in (numpy, numba, torch)}
    busy = {"load": os.getloadavg()} if hasattr(os, "getloadavg") else {}
    return {"processor": processor(), "cores": os.cpu_count(), "python": platform.python_version()} | versions | busy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer turns and rounds: some five minutes")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="some parts only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.part:
        child(asked.part, asked.quick)
        return
    before, began = machine(), time.monotonic()
    shown = Console(width=None if sys.stdout.isatty() else WIDE)
    found: list[Found] = []
    try:
        for each in gathered(asked.only, asked.quick):
            found.append(each)
    except KeyboardInterrupt:
        found.append(Skip("the rest: failed (stopped by Ctrl-C)"))
    rows, skips = [each for each in found if isinstance(each, Row)], [each for each in found if isinstance(each, Skip)]
    shown.print(table(rows))
    for skip in skips:
        shown.print(f"not measured: {skip.why}", markup=False, highlight=False)
    seconds = time.monotonic() - began
    shown.print(f"{before['processor']}, {before['cores']} cores, load {before.get('load')}; {seconds:.0f} s")
    if asked.json:
        told = {"machine": before, "quick": asked.quick, "seconds": seconds}
        told |= {"rows": [row.told() for row in rows], "skipped": [skip.why for skip in skips]}
        asked.json.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(any(": failed (" in skip.why for skip in skips))


if __name__ == "__main__":
    main()
