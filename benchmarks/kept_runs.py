"""The finished runs of studies of hours, packed, so that another machine goes on with them.

    python benchmarks/kept_runs.py --pack studies figures/NAME    # docs/kept/NAME.jsonl.xz, a line a run
    python benchmarks/kept_runs.py --unpack studies               # puts all that are kept into a folder of studies
    seedbus study figures/NAME --out studies                      # and the study goes on

A line has a run's key, results, evaluations and costs, and what was measured of its final model; not its messages or
its model. Once a study is whole, `claims.py --keep` has its figures, and its file here can go.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seedbus.scenarios.run_folder import RESULTS
from seedbus.studies.study.cells import plan_of
from seedbus.studies.study.figures_file import NAME, RunFigures
from seedbus.studies.study.pool import Pool
from seedbus.studies.study.runs import Run
from seedbus.studies.study.schema import RUNS
from seedbus.studies.study.store import Store, StoredRun
from seedbus.studies.study.study import Conduct

KEPT = Path(__file__).resolve().parent.parent / "docs" / "kept"


def runs_of(name: str, folder: Path) -> Iterator[StoredRun]:
    """Yield the finished runs of a study, its trials first."""
    plan, store = plan_of(name), Store(folder)
    conduct = Conduct(plan, store, Pool(0), is_idle=True)
    results = conduct.run()
    found = [run for batch in conduct.batches for run in batch]
    found += [StoredRun(each.run.scenario, each.run.folder) for row in results.members.values() for each in row]
    yield from {run.folder: run for run in found if run.is_finished}.values()


def packed(stored: StoredRun) -> dict[str, Any]:
    """Return what is kept of a finished run."""
    run = Run.read(stored.folder)
    figures = RunFigures(run.scenario.resolved(), run.lines, run.passes, run.caught_up)
    results = json.loads((stored.folder / RESULTS).read_text(encoding="utf-8"))
    return {"key": stored.folder.name, "results": results, "figures": figures.json(), "measured": stored.measured()}


def pack(name: str, folder: Path, kept: Path = KEPT) -> int:
    """Keep the finished runs of a study; return their number."""
    lines = [json.dumps(packed(stored), separators=(",", ":")) for stored in runs_of(name, folder)]
    kept.mkdir(parents=True, exist_ok=True)
    path = kept / f"{name.rpartition('/')[2]}.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))
    return len(lines)


def unpack(folder: Path, kept: Path = KEPT) -> int:
    """Put all kept runs that a folder of studies does not have into it; return their number."""
    count = 0
    for path in sorted(kept.glob("*.jsonl.xz")):
        for line in lzma.decompress(path.read_bytes()).decode().splitlines():
            run = json.loads(line)
            place = folder / RUNS / run["key"]
            if not (place / RESULTS).exists():
                place.mkdir(parents=True, exist_ok=True)
                (place / NAME).write_text(json.dumps(run["figures"]), encoding="utf-8")
                if run["measured"]:
                    place.with_name(f"{place.name}.json").write_text(json.dumps(run["measured"]), encoding="utf-8")
                (place / RESULTS).write_text(json.dumps(run["results"]), encoding="utf-8")  # last: now it is finished
                count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", nargs="+", metavar=("STUDIES", "NAME"), help="a folder of studies, and names")
    parser.add_argument("--unpack", type=Path, metavar="STUDIES", help="a folder of studies")
    asked = parser.parse_args()
    if asked.pack:
        folder, *names = asked.pack
        for name in names:
            print(f"{name}: {pack(name, Path(folder))} runs kept")
    if asked.unpack:
        print(f"{unpack(asked.unpack)} runs put into {asked.unpack}")


if __name__ == "__main__":
    main()
