"""The finished runs of studies of hours, packed, so that another machine goes on with them.

    python benchmarks/kept_runs.py --pack studies figures/NAME    # docs/kept/NAME.jsonl.xz, a line a run
    python benchmarks/kept_runs.py --unpack studies               # puts all that are kept into a folder of studies
    seedbus study figures/NAME --out studies                      # and the study goes on

A line has a run's results, evaluations and costs, and what was measured of its final model; not its messages or
its model. Once a study is whole, `claims.py --keep` has its figures, and its file here can go.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seedbus.scenarios.run_folder import RESULTS
from seedbus.scenarios.schema.loading import validate
from seedbus.studies.study.cells import plan_of
from seedbus.studies.study.figures_file import NAME, RunFigures
from seedbus.studies.study.pool import Pool
from seedbus.studies.study.runs import Run
from seedbus.studies.study.schema import RUNS
from seedbus.studies.study.store import Store, StoredRun, key
from seedbus.studies.study.study import Conduct

KEPT = Path(__file__).resolve().parent.parent / "docs" / "kept"


def runs_of(name: str, folder: Path) -> Iterator[StoredRun]:
    """Yield the finished runs of a study, its trials first."""
    conduct = Conduct(plan_of(name), Store(folder), Pool(0), is_idle=True)
    results = conduct.run()
    found = [run for batch in conduct.batches for run in batch]
    found += [StoredRun(each.run.scenario, each.run.folder) for row in results.members.values() for each in row]
    yield from {run.folder: run for run in found if run.is_finished}.values()


@contextmanager
def with_keys_of_now(folder: Path) -> Iterator[Path]:
    """Yield a folder of studies in which each finished run of another stands under the key that this version gives it.

    A scenario with a field more has another key, even if what it computes is the same.
    """
    with TemporaryDirectory() as made:
        runs = Path(made, RUNS)
        runs.mkdir()
        for results in sorted((folder / RUNS).glob(f"*/{RESULTS}")):
            run = Run.read(results.parent)
            place = runs / key(run.scenario)
            place.symlink_to(results.parent.resolve())
            measured = results.parent.with_name(f"{results.parent.name}.json")
            if measured.exists():
                place.with_name(f"{place.name}.json").write_bytes(measured.read_bytes())
        yield Path(made)


def packed(stored: StoredRun) -> dict[str, Any]:
    """Return what is kept of a finished run."""
    run = Run.read(stored.folder)
    figures = RunFigures(run.scenario.resolved(), run.lines, run.passes, run.caught_up)
    results = json.loads((stored.folder / RESULTS).read_text(encoding="utf-8"))
    return {"results": results, "figures": figures.json(), "measured": stored.measured()}


def pack(name: str, folder: Path, kept: Path = KEPT) -> int:
    """Keep the finished runs of a study; return their number."""
    with with_keys_of_now(folder) as current:
        lines = [json.dumps(packed(stored), separators=(",", ":")) for stored in runs_of(name, current)]
    kept.mkdir(parents=True, exist_ok=True)
    path = kept / f"{Path(name).stem}.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))
    return len(lines)


def unpack(folder: Path, kept: Path = KEPT) -> int:
    """Put all kept runs that a folder of studies does not have into it; return their number."""
    count = 0
    for path in sorted(kept.glob("*.jsonl.xz")):
        for line in lzma.decompress(path.read_bytes()).decode().splitlines():
            run = json.loads(line)
            place = Store(folder).stored(validate(run["figures"]["fields"], str(path), is_kept=True)).folder
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
