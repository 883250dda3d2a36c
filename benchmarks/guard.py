"""Regression check: the results of honest runs must not change by a bit when the code changes.

    python benchmarks/guard.py --check                 compare with guard.json; exit code 1 if a cell differs
    python benchmarks/guard.py --check --only tcp lag-peer     only these runs
    python benchmarks/guard.py --write                 replace guard.json: only when bits are meant to change
    PYTHONPATH=/another/checkout.links python benchmarks/guard.py --check      check another checkout
    … guard.py --write --table FILE, on the old code, then on the new code guard.py --check --table FILE: another
    processor's digests of torch are compared as well

The checkout is imported from PYTHONPATH, so this script and its table can check an older or a newer one. The script
uses only `seedbus` itself, `seedbus.plugin`, the command line and the files of a run's folder, so that code may be
rearranged without changing it; a test checks its imports.

The runs are in `guard_runs.py`, their data in `guard_data.py`. The cells of each are: the digest of the final model
and of the model halfway (rebuilt from the journal), the hashes of the ledger and of the metrics, bytes up and down,
messages by kind, refusals, counts of faults, the number of rounds, and when the run ended; of a study the digest of
its table; and of four runs the names in the results and in the metrics. Runs with `numpy` losses have the same cells
on every processor. Runs with `torch` losses do not: their digests and metrics are compared only if processor and
versions are those of the table, or of the line if it names its own. All other cells are always compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
from guard_data import write_data, write_texts
from guard_runs import BASE, TEXTS, Document, Way, runs

Cells = dict[str, Any]

TABLE = Path(__file__).with_name("guard.json")
OF_PROCESSOR = ("digest", "halfway", "metrics")
"""The cells that depend on the processor if torch computes the losses."""


def cells(changes: Document, way: Way) -> Cells:
    """Carry out a run and return its cells."""
    document = BASE | changes
    with TemporaryDirectory(prefix="seedbus-guard-") as root, patch.dict(os.environ, SEEDBUS_DATA=root):
        file, folder = Path(root) / "guard.yaml", Path(root) / "run"
        write_data(Path(root))
        if document["task"]["name"] in TEXTS:
            write_texts(Path(root))
        file.write_text(json.dumps(document), encoding="utf-8")
        if (found := way(file, folder)) is not None:
            return found
        summary = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        lines = (folder / "metrics.jsonl").read_bytes()
        halfway = replayed(folder, summary["rounds"])
    traffic = summary["traffic"]
    return {
        "losses": "torch" if has_torch_losses(document) else "numpy",
        "digest": summary["digest"],
        "halfway": halfway,
        "ledger": summary["ledger_hash"],
        "metrics": hashlib.sha256(lines).hexdigest()[:16],
        "rounds": summary["rounds"],
        "version": summary["version"],
        "ends_s": summary["simulated_s"],
        "up": traffic["up"]["bytes"],
        "down": traffic["down"]["bytes"],
        "messages": {kind: found["messages"] for kind, found in traffic["by_kind"].items()},
        "refused": {reason: count for reason, count in summary["refusals"].items() if count},
        "faults": [{name: did for name, did in fault.items() if did} for fault in summary["faults"]],
    }


def has_torch_losses(document: Document) -> bool:
    return document["task"]["name"] not in ("quadratic", "null")


def replayed(folder: Path, rounds: int) -> str:
    """Return the digest of the model after half of the rounds; in a dense run, whose journal has no other, the last."""
    import seedbus

    try:
        return str(seedbus.replay(folder, rounds // 2).digest)
    except Exception:
        return str(seedbus.replay(folder).digest)


def surroundings() -> dict[str, str]:
    """Return what digests depend on if torch computes the losses."""
    import torch

    return {
        "machine": platform.machine(),
        "vendor": _vendor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def _vendor() -> str:
    """Return who made the processor, as Linux says; elsewhere ""."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")


def differences(found: Cells, known: Cells, is_same_processor: bool) -> list[str]:
    """Return a line for each cell that has changed."""
    skipped = OF_PROCESSOR if known.get("losses") == "torch" and not is_same_processor else ()
    known = {name: cell for name, cell in known.items() if name != "processor"}
    names = [name for name in dict.fromkeys([*known, *found]) if name not in skipped]
    return [
        f"{name}: {_change(known.get(name), found.get(name))}" for name in names if known.get(name) != found.get(name)
    ]


def _change(known: Any, found: Any) -> str:
    """Return what has changed of a cell; of two lists, such as names of results, what only one of them has."""
    if isinstance(known, list) and isinstance(found, list):
        one, other = [each for each in known if each not in found], [each for each in found if each not in known]
        known, found = (one, other) if one or other else (known, found)
    return f"{json.dumps(known)} → {json.dumps(found)}"


def measure(changes: Document, way: Way) -> Cells:
    """Return the cells of a run, or a cell with the error if it failed."""
    try:
        return cells(changes, way)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def write(table: dict[str, Cells], of: dict[str, str], file: Path) -> None:
    """Write the table, one line for each run."""
    lines = [f" {json.dumps(name)}: {json.dumps(found)}" for name, found in sorted(table.items())]
    file.write_text(f'{{"processor": {json.dumps(of)},\n"runs": {{\n' + ",\n".join(lines) + "\n}}\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the table (the default)")
    parser.add_argument("--write", action="store_true", help="write the table anew, or the lines of --only")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these runs alone")
    parser.add_argument("--table", type=Path, metavar="FILE", default=TABLE, help="the table; default: guard.json")
    options = parser.parse_args()
    chosen = runs()
    strangers = [name for name in options.only or [] if name not in chosen]
    if strangers:
        parser.error(f"there is no run {strangers[0]}; the runs are {', '.join(chosen)}")
    if options.only:
        chosen = {name: chosen[name] for name in options.only}
    here = surroundings()
    empty: dict[str, Any] = {"processor": here, "runs": {}}
    kept = json.loads(options.table.read_text(encoding="utf-8")) if options.table.is_file() else empty
    table = dict(kept["runs"]) if options.only else {}
    elsewhere = {name: line for name, line in kept["runs"].items() if line.get("processor", kept["processor"]) != here}
    skipped = [name for name in chosen if elsewhere.get(name, {}).get("losses") == "torch"]
    if skipped and not options.write:
        print(f"of {len(skipped)} runs with torch losses, {', '.join(OF_PROCESSOR)} are not compared:")
        print(f"processor and versions are {here}, and the table's are others, such as {kept['processor']}")
    began, wrong = time.monotonic(), 0
    for name, (changes, way) in chosen.items():
        start = time.monotonic()
        table[name] = found = measure(changes, way)
        if found.get("losses") == "torch" and options.only and here != kept["processor"]:
            table[name] = found | {"processor": here}
        missing = ["not in the table"] if name not in kept["runs"] else []
        differing = missing or differences(found, kept["runs"][name], name not in elsewhere)
        if options.write:
            differing = [found["failed"]] if "failed" in found else []
        wrong += bool(differing)
        print(f"{'differs' if differing else 'ok':8}{name:28}{time.monotonic() - start:6.2f} s", flush=True)
        for line in differing:
            print(f"        {line}")
    if not options.only and not options.write:
        for name in sorted(kept["runs"].keys() - chosen.keys()):
            wrong += 1
            print(f"differs {name}: in the table, and no longer among the runs")
    print(f"{len(chosen)} runs in {time.monotonic() - began:.0f} s, {wrong} differ", flush=True)
    if options.write and not wrong:
        write(table, kept["processor"] if options.only else here, options.table)
    return 1 if wrong else 0


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main())
