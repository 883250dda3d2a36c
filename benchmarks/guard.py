"""Regression check: the results of honest runs must not change by a bit when the code changes.

    python benchmarks/guard.py --check                 compare with guard.json; exit code 1 if a cell differs
    python benchmarks/guard.py --check --only tcp lag-peer     only these runs
    python benchmarks/guard.py --write                 replace guard.json: only when bits are meant to change
    PYTHONPATH=/another/checkout.links python benchmarks/guard.py --check      check another checkout

The checkout is imported from PYTHONPATH, so this script and its table can check an older or a newer one. The script
uses only `seedbus.load`, `seedbus.run`, `seedbus.replay`, the command line and the files of a run's folder, so code may
be rearranged without changing it.

The runs are in `guard_runs.py`. The cells of each are: the digest of the final model and of the model halfway (rebuilt
from the journal), the hashes of the ledger and of the metrics, bytes up and down, messages by kind, refusals, counts of
faults, the number of rounds, and when the run ended. Runs with `numpy` losses have the same cells on every processor.
Runs with `torch` losses do not: their digests and metrics are compared only if processor and versions are those of the
table. All other cells are always compared.
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

import numpy as np
from guard_runs import BASE, Document, Way, runs, write_data

from seedbus.scenarios.reporting.ran import processor

Cells = dict[str, Any]

TABLE = Path(__file__).with_name("guard.json")
OF_PROCESSOR = ("digest", "halfway", "metrics")
"""The cells that depend on the processor if torch computes the losses."""


def cells(changes: Document, way: Way) -> Cells:
    """Carry out a run and return its cells."""
    document = BASE | changes
    with TemporaryDirectory(prefix="seedbus-guard-") as root:
        file, folder = Path(root) / "guard.yaml", Path(root) / "run"
        write_data(Path(root))
        os.environ["SEEDBUS_DATA"] = root
        file.write_text(json.dumps(document), encoding="utf-8")
        way(file, folder)
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
        "vendor": processor("vendor_id"),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def differences(found: Cells, known: Cells, is_same_processor: bool) -> list[str]:
    """Return a line for each cell that has changed."""
    skipped = OF_PROCESSOR if known.get("losses") == "torch" and not is_same_processor else ()
    names = [name for name in dict.fromkeys([*known, *found]) if name not in skipped]
    return [
        f"{name}: {json.dumps(known.get(name))} → {json.dumps(found.get(name))}"
        for name in names
        if known.get(name) != found.get(name)
    ]


def measure(changes: Document, way: Way) -> Cells:
    """Return the cells of a run, or a cell with the error if it failed."""
    try:
        return cells(changes, way)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def write(table: dict[str, Cells], of: dict[str, str]) -> None:
    """Write the table, one line for each run."""
    lines = [f" {json.dumps(name)}: {json.dumps(found)}" for name, found in sorted(table.items())]
    TABLE.write_text(f'{{"processor": {json.dumps(of)},\n"runs": {{\n' + ",\n".join(lines) + "\n}}\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with guard.json (the default)")
    parser.add_argument("--write", action="store_true", help="write guard.json anew")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these runs alone")
    options = parser.parse_args()
    chosen = runs()
    strangers = [name for name in options.only or [] if name not in chosen]
    if strangers:
        parser.error(f"there is no run {strangers[0]}; the runs are {', '.join(chosen)}")
    if options.only:
        chosen = {name: chosen[name] for name in options.only}
    kept = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {"processor": {}, "runs": {}}
    here, table = surroundings(), dict(kept["runs"]) if options.only else {}
    of_torch = [name for name, (changes, _) in chosen.items() if has_torch_losses(BASE | changes)]
    if options.write and options.only and of_torch and here != kept["processor"]:
        parser.error(f"{of_torch[0]} has torch losses, and the table is another processor's; write all runs anew")
    is_same, began, wrong = here == kept["processor"], time.monotonic(), 0
    if not is_same and not options.write:
        print(f"another processor or version than the table's ({here}, not {kept['processor']}):")
        print(f"of runs with torch losses, {', '.join(OF_PROCESSOR)} are not compared")
    for name, (changes, way) in chosen.items():
        start = time.monotonic()
        table[name] = found = measure(changes, way)
        missing = ["not in the table"] if name not in kept["runs"] else []
        differing = missing or differences(found, kept["runs"][name], is_same)
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
        write(table, kept["processor"] if options.only else here)
    return 1 if wrong else 0


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main())
