"""Runs that a release began and stopped half-way, kept so that later releases go on with them.

`python tests/support/release_runs.py` keeps those of the present version as `data/runs-VERSION.tar.xz`. It is part of a
release; what is kept is never made anew.
"""

from __future__ import annotations

import io
import lzma
import sqlite3
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from owners import own_scenario, own_tables
from power_cuts import PowerCut, cut_power
from worlds import DECOMFL, HISO, scenario

from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement
from seedbus.versions import version

DATA = Path(__file__).parent / "data"
ROUNDS = 12  # that a kept run has closed, of twenty
_ROUGH: dict[str, Any] = {
    "faults": [{"fault": "drop", "probability": 0.2}, {"fault": "churn", "stays": 3.0, "away": 1.0}],
    "participation": {"clients": 8, "cohort": 3, "deadline_s": 0.5},
    "task": {"name": "quadratic", "dimension": 40},
}
_LATE = {"participation": _ROUGH["participation"] | {"late": {"max_staleness": 3}}}
_LAG = {"snapshot_after_commits": 3, "chunk_bytes": 128, "window": 4}


def release_scenarios() -> dict[str, Scenario]:
    """Return the scenarios of the kept runs: each has other parts in its journal."""
    dense = {"name": "scaffold", "learning_rate": 0.1, "local_steps": 2}
    return {
        "hiso": scenario(**_ROUGH, algorithm=HISO, lag=_LAG),
        "late": scenario(**_ROUGH | _LATE, algorithm=DECOMFL),
        "dense": scenario(**_ROUGH, algorithm=dense),
        "owners": load(own_scenario(stop={"rounds": 20})),
    }


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the runs of a release into a folder."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


def resumed(name: str, folder: Path, owners: Path) -> Results:
    """Go on with a kept run, or begin one if there is none; owners: a folder for tables of owners."""
    own_tables(owners)
    placement = Placement("memory", own=str(owners / "*/*.csv") if name == "owners" else "")
    return run(release_scenarios()[name], folder, resume=(folder / FILE).exists(), placement=placement, page=False)


def keep(release: str, archive: Path) -> None:
    """Run each scenario until its power is cut, and pack what is there."""
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr("seedbus.agents.launcher._ServerRun.tidy", lambda self: None)
        for name in release_scenarios():
            with patch.context() as cut, pytest.raises(PowerCut):
                cut_power(cut, Journal, "append", ROUNDS, before=False)
                resumed(name, Path(place, name), Path(place, "tables"))
            with closing(Journal.open(Path(place, name))) as journal:
                journal.note({"seedbus": release})  # which is released as the version that this is
            with closing(sqlite3.connect(Path(place, name, FILE))) as database:
                database.executescript("PRAGMA wal_checkpoint(TRUNCATE); VACUUM")
        with lzma.open(archive, "wb") as packed, tarfile.open(fileobj=packed, mode="w") as files:
            for path in sorted(Path(place).rglob("*")):
                if path.is_file() and path.stat().st_size and path.suffix not in (".csv", ".jsonl"):
                    member = tarfile.TarInfo(str(path.relative_to(place)))
                    member.size = path.stat().st_size
                    files.addfile(member, io.BytesIO(path.read_bytes()))


if __name__ == "__main__":
    of = version("seedbus").partition(".dev")[0]
    keep(of, DATA / f"runs-{of}.tar.xz")
