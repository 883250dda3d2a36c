"""A run whose training diverges ends at the same round everywhere, and all that shows a run says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from worlds import DECOMFL, go, outcome, scenario

import seedbus as package
from seedbus.agents.observer import NullObserver
from seedbus.agents.server.stopping import BARREN
from seedbus.scenarios.errors import Exit, Interrupted
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.run_folder import RESULTS
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.placement import Placement
from seedbus.studies.study.compare import compare
from seedbus.studies.study.remarks import sentences

WORLDS: dict[str, dict[str, Any]] = {
    # float16 cannot hold the scalars any more, so that clients decline
    "refused": {"algorithm": {**DECOMFL, "learning_rate": 1.0, "precision": "float16"}},
    # the first commit makes weights so large that the network's outputs overflow; x is measured after round 5
    "loss": {"algorithm": {**DECOMFL, "learning_rate": 1e20}, "task": {"name": "digits", "model": "cnn"}},
}
FAST = {"latency": {"distribution": "exponential", "mean": 0.002}}


def world(name: str, **changes: Any) -> Scenario:
    return scenario(**(WORLDS[name] | {"stop": {"rounds": 100}} | changes))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: go(folder / name, world(name)) for name in WORLDS}


class Stopper(NullObserver):
    """Stops the run, as Ctrl-C would, after a round."""

    def __init__(self, after: int) -> None:
        self._after = after

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        if closed.round + 1 == self._after:
            raise KeyboardInterrupt


def test_ten_rounds_whose_reports_are_all_refused_end_a_run(ended: dict[str, Results]) -> None:
    results = ended["refused"]
    rounds, commits = results.summary["rounds"], list(results.rounds["has_commit"])
    assert results.training_diverged and not any(commits[-BARREN:])
    assert not commits[6] and commits[-BARREN - 1], "after four such rounds one made a commit: counted anew"
    assert results.summary["reason"] == (
        f"training diverged: no commit in rounds {rounds - 9} to {rounds}, "
        "whose reports were refused as too large or not finite"
    )
    assert replay(results.folder).digest == results.digest


def test_a_loss_that_is_not_finite_ends_a_run_after_one_more_round(ended: dict[str, Results]) -> None:
    results = ended["loss"]
    assert results.summary["reason"] == "training diverged: the loss after round 5 is not a finite number"
    assert results.training_diverged and results.summary["rounds"] == 6
    assert [line["round"] + 1 for line in results.lines[1:] if line["loss"] is None] == [5, 6]


@pytest.mark.parametrize("name", WORLDS)
def test_the_end_is_the_same_over_tcp(ended: dict[str, Results], tmp_path: Path, name: str) -> None:
    assert outcome(go(tmp_path / "run", world(name), placement=Placement("tcp"))) == outcome(ended[name])


@pytest.mark.parametrize(("name", "after"), [("refused", 12), ("loss", 5)])
def test_the_end_is_the_same_in_a_run_that_was_resumed_meanwhile(
    ended: dict[str, Results], tmp_path: Path, name: str, after: int
) -> None:
    with pytest.raises(Interrupted):
        go(tmp_path / "run", world(name), observer=Stopper(after))
    resumed = go(tmp_path / "run", world(name), resume=True)
    assert outcome(resumed) == outcome(ended[name])
    (tmp_path / "run" / RESULTS).unlink()
    assert outcome(go(tmp_path / "run", world(name), resume=True)) == outcome(ended[name]), "the journal knows it too"


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_real_time_ends_at_the_same_round_with_the_same_model(tmp_path: Path, name: str) -> None:
    whole = {"participation": {"clients": 3, "cohort": 3}, "network": FAST}
    simulated = go(tmp_path / "simulated", world(name, **whole))
    real = go(tmp_path / "real", world(name, clock="wall", **whole), placement=Placement("tcp"))
    assert simulated.training_diverged
    for fact in ("reason", "rounds", "version", "digest", "refusals"):
        assert real.summary[fact] == simulated.summary[fact], fact


def test_a_run_continues_all_the_same_if_it_is_told_to(ended: dict[str, Results], tmp_path: Path) -> None:
    results = go(tmp_path / "run", world("refused", stop={"rounds": 30, "diverged": "continue"}))
    assert not results.training_diverged and results.summary["reason"] == "all 30 rounds are done"
    assert results.summary["version"] == ended["refused"].summary["version"]


def test_a_minority_of_liars_ends_no_run(tmp_path: Path) -> None:
    """The quorum of six is never reached: no commit is made, but the reports of five clients are sound."""
    liars = [{"fault": "byzantine", "attack": "nan", "clients": [0, 1, 2]}]
    participation = {"clients": 8, "cohort": 6, "quorum": 6}
    results = go(tmp_path / "run", scenario(faults=liars, participation=participation, stop={"rounds": 15}))
    assert results.summary["version"] == 0 and results.summary["refusals"]["not-finite"]
    assert results.summary["reason"] == "all 15 rounds are done"
    assert results.summary["shortcomings"] == ["no round made a commit: the model is the one that the run began with"]


@pytest.mark.slow
def test_the_commands_say_that_training_diverged_and_exit_12(seedbus: Command, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(dump(world("refused").resolved()))
    said = seedbus("run", "small.yaml", "-q", "--out", "runs/one", "--format", "json")
    assert said.code == Exit.TRAINING_DIVERGED and json.loads(said.out)["training_diverged"]
    seedbus("run", "small.yaml", "-q", "--out", "runs/fine", "--set", "algorithm.learning_rate=0.01")
    again = seedbus("run", "--resume", "runs/one", "-q")
    assert again.code == Exit.TRAINING_DIVERGED and "training diverged: no commit in rounds" in again.out
    assert "✗ training" in again.out and "the model ended worse than it began: loss " in " ".join(again.out.split())
    assert "✗ training" not in seedbus("report", "runs/fine").out
    assert "training-diverged" in seedbus("runs", "runs").out
    assert "training diverged: no commit in rounds" in seedbus("runs", "runs/one").out
    assert "training diverged: no commit in rounds" in (tmp_path / "runs/one/report.html").read_text()
    compared = compare([tmp_path / "runs/one", tmp_path / "runs/fine"], metric="loss")
    assert [row.diverged for row in compared.rows] == [0, 1], "last, whatever its loss"
    assert "decomfl, training diverged" in str(compared)
    reason, worse = (note.removeprefix(f"{tmp_path / 'runs/one'}: ") for note in compared.notes)
    assert reason.startswith("training diverged: ") and worse.startswith("the model ended worse than it began: loss")


@pytest.mark.slow
def test_a_study_tells_of_a_row_that_diverged_and_never_calls_it_better(tmp_path: Path) -> None:
    """FedAvg's first reports are refused, so that its model keeps the loss of x₀, which no tuned row may lose to."""
    base = world("refused", task={"name": "quadratic", "dimension": 300}, stop={"rounds": 40}).resolved()
    absurd = {"algorithm": {"name": "fedavg", "learning_rate": 50.0}}
    worse = {"algorithm": {**DECOMFL, "learning_rate": 0.5}}
    study = {"name": "two", "base": base, "variants": {"worse": worse, "absurd": absurd}, "seeds": [1, 2, 3]}
    found = package.study(study, tmp_path)
    assert found.is_complete and not found.failures and found.diverged == ["absurd"]
    finals = found.table.set_index("row")["final"]
    assert finals["absurd"] < finals["worse"], "its loss is lower, because it was never trained"
    assert not found.compared_by["final"] and found.front == ["worse"]
    said = [each for each in sentences(found) if each.startswith("absurd: ")]
    assert len(said) == 1 and "seed 2: training diverged: no commit in rounds 1 to 10," in said[0]
    assert said[0].endswith("3 of 3 runs diverged, so this row is compared with none")
