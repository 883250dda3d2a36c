"""A run that stops anywhere and is resumed ends like one that never stopped: same digests, ledger and metrics."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from power_cuts import PowerCut, cut_power
from processes import kill, seedbus
from worlds import HISO, lossy, outcome, reopened, scenario

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import Entry
from seedbus.bus import Bus, Kind, Ledger
from seedbus.bus.in_flight import InFlightMessage
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False])
def test_a_checkpoint_knows_of_all_segments_that_a_round_has_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    what = lossy(faults=[{"fault": "duplicate", "probability": 1.0, "copies": 40}], stop={"rounds": 4})
    whole = outcome(run(what, tmp_path / "whole"))
    monkeypatch.setattr("seedbus.bus.ledger._FEW_ROWS", 100)
    monkeypatch.setattr("seedbus.agents.launcher.Ledger", partial(Ledger, segment_rows=210))
    with monkeypatch.context() as patch:
        cut_power(patch, Journal, "append", 3, before=before)
        patch.setattr("seedbus.agents.launcher._ServerRun.tidy", lambda self: None)
        with pytest.raises(PowerCut):
            run(what, tmp_path / "cut")
    with closing(Journal.open(tmp_path / "cut", for_writing=False)) as journal:
        known = journal.segments()
    found = len(list((tmp_path / "cut" / "messages").glob("*.parquet")))
    assert known >= 3 and (found > known + 1 if before else found == known)
    assert outcome(run(what, tmp_path / "cut", resume=True)) == whole


def test_a_run_that_ends_before_its_first_round_and_is_cut_off_then_keeps_its_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = scenario(stop={"rounds": 20, "target": {"metric": "loss", "value": 1e9, "direction": "below"}})
    whole = run(what, tmp_path / "whole")
    assert whole.summary["rounds"] == 0 and len(whole.metrics) == 1
    with monkeypatch.context() as patch:
        cut_power(patch, Journal, "finish", 1, before=False)
        patch.setattr("seedbus.agents.launcher._ServerRun.tidy", lambda self: None)
        with pytest.raises(PowerCut):
            run(what, tmp_path / "cut")
    assert outcome(run(what, tmp_path / "cut", resume=True)) == outcome(whole)


def test_every_commit_is_durable_before_anybody_hears_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durable, watched, append, depart = [0], Counter[Kind](), Journal.append, Bus._depart

    def note(self: Journal, entry: Entry) -> None:
        append(self, entry)
        durable[0] = entry.version

    def watch(self: Bus, flight: InFlightMessage) -> None:
        watched[flight.key[0]] += 1
        assert flight.base <= durable[0]
        depart(self, flight)

    monkeypatch.setattr(Journal, "append", note)
    monkeypatch.setattr(Bus, "_depart", watch)
    assert run(scenario(), tmp_path / "run").summary["version"] == 20
    assert set(watched) == {Kind.PLAN, Kind.REPORT, Kind.COMMIT, Kind.EVALUATION} and watched[Kind.REPORT] == 60


_SCRIPT = """
import sys
from functools import partial
from pathlib import Path
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.running.run import run
folder = Path(sys.argv[2])
run(load(sys.argv[1]), folder, resume=(folder / "journal.sqlite").exists())
"""


def _is_killed(process: subprocess.Popen[str], log: Path, how: signal.Signals, lines: int) -> bool:
    """Kill a process once its log has grown by so many lines. Returns False if it ends before."""
    before = len(_lines(log))
    while process.poll() is None:
        if len(_lines(log)) - before >= lines:
            kill(process.pid, how)
            return process.wait() != 0
        time.sleep(0.001)
    return False


def _lines(log: Path) -> list[bytes]:
    return log.read_bytes().splitlines() if log.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "after_lines"), [pytest.param(signal.SIGKILL, 60, marks=pytest.mark.soak), (signal.SIGINT, 97)]
)
def test_a_process_killed_at_any_moment_and_resumed_ends_alike(
    tmp_path: Path, how: signal.Signals, after_lines: int
) -> None:
    what = lossy(algorithm=HISO, stop={"rounds": 300})
    file, folder, kills = _write(tmp_path, what), tmp_path / "killed", 0
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = partial(seedbus, "-c", _SCRIPT, file, folder, **quiet)
    while _is_killed(process := started(), folder / "log.jsonl", how, after_lines + kills):
        kills += 1
    assert process.returncode == 0 and kills > 1
    whole = run(what, tmp_path / "whole")
    assert outcome(run(what, folder, resume=True)) == outcome(whole)


def _write(folder: Path, what: Scenario) -> Path:
    import yaml

    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(what.resolved()))
    return path


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["seedbus", "selftest", "x0"])
def test_a_build_whose_bits_would_differ_neither_resumes_nor_replays(tmp_path: Path, name: str) -> None:
    another = "0123456789abcdef"
    whole = run(scenario(), tmp_path / "run").digest
    own = _facts(tmp_path / "run")
    reopened(tmp_path / "run", {name: another})
    with pytest.raises(RunFolderError, match=rf"begun with {name} {another}( \(.+\))?, and this is {name} {own[name]}"):
        replay(tmp_path / "run")
    with pytest.raises(RunFolderError, match=rf"begun with {name} {another}( \(.+\))?, and this is {name} {own[name]}"):
        run(scenario(), tmp_path / "run", resume=True)
    journal = Journal.open(tmp_path / "run")
    journal.note(own)
    journal.close()
    assert run(scenario(), tmp_path / "run", resume=True).digest == whole, "the attempt has changed nothing"


def _facts(folder: Path) -> dict[str, str]:
    journal = Journal.open(folder, for_writing=False)
    try:
        return {name: journal.facts()[name] for name in ("seedbus", "selftest", "x0")}
    finally:
        journal.close()
