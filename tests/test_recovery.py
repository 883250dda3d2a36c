"""A run that stops anywhere and is resumed ends like one that never stopped: same digests, ledger and metrics."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from worlds import DECOMFL, HISO, lossy, outcome, scenario

from seedbus.agents.journal import Entry, Journal
from seedbus.agents.server import Server
from seedbus.bus import Bus, Ledger
from seedbus.scenarios.run import run
from seedbus.scenarios.schema import Scenario


class _Power(BaseException):
    """The plug is pulled: nothing after it runs, not even what was meant to."""


def _cut(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, at: int, *, before: bool) -> None:
    """Pull the plug at the `at`-th call of a method, before or after it does its work."""
    original, calls = getattr(owner, name), [0]

    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == at and before:
            raise _Power
        result = original(self, *arguments, **options)
        if calls[0] == at:
            raise _Power
        return result

    monkeypatch.setattr(owner, name, method)


POINTS = [
    *((Journal, "append", at, before) for at in (1, 2, 7, 20) for before in (True, False)),
    *((Bus, "send", at, before) for at in (1, 2, 5, 40, 77, 130) for before in (True, False)),
    *((Server, "_publish", at, before) for at in (1, 8, 20) for before in (True,)),
    *((Ledger, "write_segment", at, before) for at in (1, 2) for before in (True, False)),
    *((Journal, "finish", 1, before) for before in (True, False)),
]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("whole")
    return {
        algorithm["name"]: outcome(run(lossy(algorithm=algorithm), folder / algorithm["name"]))
        for algorithm in (DECOMFL, HISO)
    }


@pytest.mark.parametrize("algorithm", [DECOMFL, HISO], ids=lambda algorithm: str(algorithm["name"]))
@pytest.mark.parametrize(("owner", "name", "at", "before"), POINTS)
def test_a_run_cut_off_anywhere_and_resumed_ends_alike(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    algorithm: dict[str, Any],
    owner: type,
    name: str,
    at: int,
    before: bool,
    uninterrupted: dict[str, Any],
) -> None:
    monkeypatch.setattr("seedbus.agents.launcher.Ledger", partial(Ledger, segment_rows=40))
    what, whole = lossy(algorithm=algorithm), uninterrupted[str(algorithm["name"])]
    with monkeypatch.context() as patch:
        _cut(patch, owner, name, at, before=before)
        patch.setattr("seedbus.agents.launcher._Crew.tidy", lambda self: None)  # a process without power tidies nothing
        with pytest.raises(_Power):
            run(what, tmp_path / "cut")
    assert outcome(run(what, tmp_path / "cut", resume=True)) == whole


def test_a_run_cut_off_again_and_again_ends_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what = lossy(algorithm=HISO)
    whole = outcome(run(what, tmp_path / "whole"))
    cuts, resume = 0, False
    while True:
        with monkeypatch.context() as patch:
            _cut(patch, Journal, "append", 3, before=cuts % 2 == 0)
            try:
                results = run(what, tmp_path / "cut", resume=resume)
                break
            except _Power:
                cuts, resume = cuts + 1, True
    assert cuts > 5
    assert outcome(results) == whole


def test_every_commit_is_durable_before_anybody_hears_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durable, append, send = [0], Journal.append, Bus.send

    def note(self: Journal, entry: Entry) -> None:
        append(self, entry)
        durable[0] = entry.version

    def watch(self: Bus, envelope: Any, *arguments: Any, **options: Any) -> None:
        assert envelope.base <= durable[0]
        send(self, envelope, *arguments, **options)

    monkeypatch.setattr(Journal, "append", note)
    monkeypatch.setattr(Bus, "send", watch)
    assert run(scenario(), tmp_path / "run").summary["version"] == 20


_SCRIPT = """
import sys
from functools import partial
from pathlib import Path
from seedbus.scenarios.loading import load
from seedbus.scenarios.run import run
folder = Path(sys.argv[2])
run(load(sys.argv[1]), folder, resume=(folder / "journal.sqlite").exists())
"""


def _start(file: Path, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _SCRIPT, str(file), str(folder)], stderr=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_process_killed_at_any_moment_and_resumed_ends_alike(tmp_path: Path, how: signal.Signals) -> None:
    what = lossy(algorithm=HISO, stop={"rounds": 300})
    file = _write(tmp_path, what)
    whole = outcome(run(what, tmp_path / "whole"))
    for number in range(4):
        folder, kills, patience = tmp_path / str(number), 0, 1.5 + 0.37 * number
        while True:
            process = _start(file, folder)
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                process.send_signal(how)
                process.wait()
                kills, patience = kills + 1, patience + 0.7
                continue
            assert process.returncode == 0
            break
        assert kills
        assert outcome(run(what, folder, resume=True)) == whole


def _write(folder: Path, what: Scenario) -> Path:
    import yaml

    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(what.resolved()))
    return path


def test_a_resumed_run_of_another_scenario_is_refused_with_the_field_that_differs(tmp_path: Path) -> None:
    from seedbus.agents.errors import RunFolderError

    run(scenario(), tmp_path / "run")
    os.unlink(tmp_path / "run" / "results.json")
    with pytest.raises(RunFolderError, match=r"algorithm.momentum is 0.5 there and 0.9 here"):
        run(scenario(algorithm=DECOMFL | {"momentum": 0.9}), tmp_path / "run", resume=True)


@pytest.mark.parametrize("name", ["seedbus", "selftest", "x0"])
def test_a_build_whose_bits_would_differ_neither_resumes_nor_replays(tmp_path: Path, name: str) -> None:
    from seedbus.agents.errors import RunFolderError
    from seedbus.scenarios.replay import replay

    run(scenario(), tmp_path / "run")
    journal = Journal.open(tmp_path / "run")
    journal.note({name: "another"})
    journal.close()
    with pytest.raises(RunFolderError, match=rf"begun with {name} another, and this is {name} "):
        replay(tmp_path / "run")
    journal = Journal.open(tmp_path / "run")
    journal._database.execute("DELETE FROM facts WHERE name = 'outcome'")
    journal._database.commit()
    journal.close()
    os.unlink(tmp_path / "run" / "results.json")
    with pytest.raises(RunFolderError, match=rf"begun with {name} another"):
        run(scenario(), tmp_path / "run", resume=True)
