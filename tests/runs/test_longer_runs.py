"""A run that ended goes on for more rounds, and ends like one that had them from its beginning."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from power_cuts import PowerCut, cut_power
from worlds import DECOMFL, HISO, outcome, scenario

import seedbus
from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.bus import Ledger
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement

CROWD = {"clients": 8, "cohort": 6, "deadline_s": 4.0}
AWAY = {"fault": "crash", "fraction": 0.5, "at_round": 2, "for_rounds": 8}
SECONDS = {"distribution": "exponential", "mean": 2.0}
TOP = {"kind": "top-k", "fraction": 0.2}
WHOLE = {
    **{"name": "decomfl", "arithmetic": "integer", "precision": "int32"},
    **{"perturbations": 3, "learning_rate": 0.01},
}
WORLDS: dict[str, dict[str, Any]] = {
    "lossy": {"faults": [{"fault": "drop", "probability": 0.3}], "participation": CROWD},
    "hiso-lagging": {"algorithm": HISO, "lag": {"snapshot_after_commits": 3}, "faults": [AWAY], "participation": CROWD},
    "stream": {"algorithm": WHOLE, "participation": {"mode": "stream", **CROWD}},
    "fedavg-memory": {"algorithm": {"name": "fedavg", "compression": TOP, "error_feedback": True}},
    "scaffold": {"algorithm": {"name": "scaffold"}},
    "secure-private": {
        "algorithm": WHOLE,
        "participation": {**CROWD, "quorum": 2},
        "secure_aggregation": {},
        "privacy": {"clip": 64, "noise_multiplier": 1.0},
    },
    "crashes": {"faults": [{"fault": "server-crash", "at_round": 6, "phase": "publishing"}], "participation": CROWD},
    "churn": {"faults": [{"fault": "churn", "stays": SECONDS, "away": SECONDS}], "participation": CROWD},
}


def of(name: str, rounds: int, **changes: Any) -> Scenario:
    return scenario(**({"stop": {"rounds": rounds}} | WORLDS[name] | changes))


@pytest.mark.few(3)
@pytest.mark.parametrize("name", WORLDS)
def test_a_run_that_goes_on_for_more_rounds_ends_like_one_that_had_them(name: str, tmp_path: Path) -> None:
    whole = run(of(name, 17), tmp_path / "whole")
    first = run(of(name, 7), tmp_path / "longer")
    assert first.summary["rounds"] == 7 and first.metrics["round"].tolist() == [0, 4, 6]
    longer = run(of(name, 17), tmp_path / "longer", resume=True)
    assert outcome(longer) == outcome(whole)
    assert longer.metrics["round"].tolist() == [0, 4, 9, 14, 16]
    assert replay(tmp_path / "longer").digest == whole.digest
    assert seedbus.Results.read(tmp_path / "longer").summary == longer.summary
    assert run(of(name, 17), tmp_path / "longer", resume=True).summary == longer.summary


@pytest.mark.parametrize(("name", "rounds"), [("lossy", 17), ("churn", 17), ("lossy", None)])
def test_a_run_that_its_clock_ended_goes_on_for_more_of_its_time(name: str, rounds: int | None, tmp_path: Path) -> None:
    def lasting(seconds: float | None) -> Scenario:
        return of(name, 17, stop={"rounds": rounds if seconds else 17, "simulated_s": seconds})

    first, rest = run(lasting(3), tmp_path / "longer"), {}
    for seconds in (6, None):
        rest[seconds] = run(lasting(seconds), tmp_path / "longer", resume=True)
        assert outcome(rest[seconds]) == outcome(run(lasting(seconds), tmp_path / f"whole-{seconds}"))
    assert 0 < first.summary["rounds"] < rest[6].summary["rounds"] < rest[None].summary["rounds"] == 17
    assert run(lasting(None), tmp_path / "longer", resume=True).summary == rest[None].summary


def test_a_run_that_was_stopped_gets_another_number_of_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rounds in (9, 15):  # fewer and more than it had
        with monkeypatch.context() as patch:
            cut_power(patch, Journal, "append", 8, before=False)
            with pytest.raises(PowerCut):
                run(of("lossy", 12), tmp_path / f"cut-{rounds}")
        longer = run(of("lossy", rounds), tmp_path / f"cut-{rounds}", resume=True)
        assert outcome(longer) == outcome(run(of("lossy", rounds), tmp_path / f"whole-{rounds}"))


@pytest.mark.parametrize(("owner", "name", "before"), [(Journal, "reopen", True), (Journal, "reopen", False)])
def test_a_run_that_is_cut_off_while_its_end_is_taken_back_goes_on(
    owner: type, name: str, before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(of("lossy", 7), tmp_path / "cut")
    with monkeypatch.context() as patch:
        cut_power(patch, owner, name, 1, before=before)
        with pytest.raises(PowerCut):
            run(of("lossy", 12), tmp_path / "cut", resume=True)
    if before:  # it is the finished run that it was
        assert run(of("lossy", 7), tmp_path / "cut", resume=True).summary["rounds"] == 7
    longer = run(of("lossy", 12), tmp_path / "cut", resume=True)
    assert outcome(longer) == outcome(run(of("lossy", 12), tmp_path / "whole"))


def test_files_of_the_ledger_that_the_last_round_has_filled_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = outcome(run(of("lossy", 8), tmp_path / "whole"))
    monkeypatch.setattr("seedbus.agents.launcher.Ledger", partial(Ledger, segment_rows=20))
    for rounds in range(2, 9):
        longer = run(of("lossy", rounds), tmp_path / "longer", resume=rounds > 2)
    assert outcome(longer) == whole


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_run_goes_on_for_more_rounds_in_other_processes(tmp_path: Path) -> None:
    whole = run(of("hiso-lagging", 14), tmp_path / "whole")
    run(of("hiso-lagging", 7), tmp_path / "longer")
    longer = run(of("hiso-lagging", 14), tmp_path / "longer", resume=True, placement=Placement("tcp", workers=2))
    assert outcome(longer)[1] == outcome(whole)[1] and longer.digest == whole.digest


def test_a_run_that_would_end_where_it_did_or_has_these_rounds_is_refused(tmp_path: Path) -> None:
    met = {"target": {"metric": "loss", "value": 1e9, "direction": "below"}}
    run(of("lossy", 20, stop={"rounds": 20, **met}), tmp_path / "met")
    with pytest.raises(
        RunFolderError, match=r"stop.rounds is 30, and it would end at the same place with more rounds: "
    ):
        run(of("lossy", 30, stop={"rounds": 30, **met}), tmp_path / "met", resume=True)
    with pytest.raises(RunFolderError, match=r"stop.simulated_s is null there and 6.0 here; expected null"):
        run(of("lossy", 20, stop={"rounds": 20, **met, "simulated_s": 6}), tmp_path / "met", resume=True)
    timed: dict[float, Scenario] = {
        seconds: of("lossy", 20, stop={"rounds": 20, "simulated_s": seconds}) for seconds in (2, 6, 1e6, 2e6)
    }
    run(timed[6], tmp_path / "timed")
    for what, sentence in (
        (timed[2], "stop.simulated_s is 6.0 there and 2.0 here; expected 6 or more, or null"),
        (
            of("lossy", 30, stop={"rounds": 30, "simulated_s": 6}),
            "same place with more rounds: .* have passed",
        ),
    ):
        with pytest.raises(RunFolderError, match=sentence):
            run(what, tmp_path / "timed", resume=True)
    run(timed[1e6], tmp_path / "timed", resume=True)
    same = "stop.simulated_s is 2000000.0, and it would end at the same place with more time: all 20 rounds are done"
    with pytest.raises(RunFolderError, match=same):
        run(timed[2e6], tmp_path / "timed", resume=True)
    first = run(of("lossy", 7), tmp_path / "run")
    with pytest.raises(RunFolderError, match=r"stop.rounds is 5, and 7 rounds of it are done already; expected more"):
        run(of("lossy", 5), tmp_path / "run", resume=True)
    with pytest.raises(RunFolderError, match=r"algorithm.momentum is 0.5 there and 0.9 here"):
        run(of("lossy", 9, algorithm=DECOMFL | {"momentum": 0.9}), tmp_path / "run", resume=True)
    assert run(of("lossy", 7), tmp_path / "run", resume=True).summary == first.summary
    with closing(Journal.open(tmp_path / "run")) as journal:
        journal.reopen({"outcome": journal.facts()["outcome"]})  # as one that ended in an older version
    with pytest.raises(
        RunFolderError, match=r"it has ended after 7 in a way that cannot be taken back; expected a new"
    ):
        run(of("lossy", 9), tmp_path / "run", resume=True)


@pytest.mark.slow
def test_a_finished_run_that_is_refused_remains_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits: dict[str, Any] = {"task": {"name": "digits", "model": "softmax"}, "participation": {"clients": 4}}
    first = run(scenario(**digits, stop={"rounds": 2}), tmp_path / "run")
    for fact, value in (("seedbus", "0.1"), ("x0", "00"), ("device", "torch")):
        with closing(Journal.open(tmp_path / "run")) as journal:
            before = journal.facts().get(fact)
            journal.note({fact: value})
        with pytest.raises(RunFolderError, match=rf"it was begun (with|on) {fact if before else value}"):
            run(scenario(**digits, stop={"rounds": 3}), tmp_path / "run", resume=True)
        with closing(Journal.open(tmp_path / "run")) as journal:
            journal.note({fact: before or "cpu"})
        assert run(scenario(**digits, stop={"rounds": 2}), tmp_path / "run", resume=True).summary == first.summary
    for change in ("UPDATE known SET version = version + 1", "UPDATE metrics SET line = replace(line, '1', '2')"):
        damaged = Path(shutil.copytree(tmp_path / "run", tmp_path / change.split()[1]))
        with closing(sqlite3.connect(damaged / FILE)) as database, database:
            database.execute(change)
        with pytest.raises(JournalDamaged, match="the checkpoint does not verify; its first 2 rounds are sound"):
            run(scenario(**digits, stop={"rounds": 3}), damaged, resume=True)
        assert (damaged / "results.json").exists()


def test_a_run_without_a_server_is_computed_anew_instead(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"topology": {"graph": "ring"}, "algorithm": WHOLE, "participation": {"clients": 4}}
    run(scenario(**fields, stop={"rounds": 3}), tmp_path / "gossip")
    with pytest.raises(RunFolderError, match=r"stop.rounds is 3 there and 4 here"):
        run(scenario(**fields, stop={"rounds": 4}), tmp_path / "gossip", resume=True)
