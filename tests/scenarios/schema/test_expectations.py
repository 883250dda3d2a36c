"""`expect:` in a scenario: accepted fields, measured values, and runs that miss their expectations."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import HISO, go, lossy, scenario, stop_after

from seedbus.agents.refusals import Reason
from seedbus.agents.secure.stages import REFUSALS
from seedbus.agents.server.stopping import Progress, Stop
from seedbus.algorithms.contract import DECLINES
from seedbus.models.task import TASKS, Task
from seedbus.models.tasks.null import Null
from seedbus.models.tasks.quadratic import Quadratic
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.closing_table import closing_table
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.run_folder import scenario_of
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.expectations import FIGURES, Bounds, judged, known_names

ROOT = Path(__file__).resolve().parents[3]
MET: dict[str, Any] = {"rounds": {"at_least": 6, "at_most": 6}, "loss": {"at_most": 1e9}, "refused": {"at_most": 0}}
MISSED: dict[str, Any] = {"gap": {"at_least": 1e9}, "heard_share": {"at_least": 0.1}}


def small(**changes: Any) -> Any:
    return scenario(stop={"rounds": 6}, evaluation={"every": 2}, **changes)


def test_verified_replicas_are_counted_by_the_reports_that_were_compared(tmp_path: Path) -> None:
    expect = {"verified_x": {"at_least": 1}, "verified_hessian": {"at_least": 1}}
    results = go(tmp_path / "run", lossy(algorithm=HISO, verify_every=3, expect=expect))
    messages = results.messages
    is_compared = (messages["kind"] == "REPORT") & (messages["fate"] == "DELIVERED") & (messages["digest_bytes"] > 0)
    counts = {name: each["found"] for name, each in results.expectations.items()}
    assert counts == dict.fromkeys(expect, is_compared.sum()) and 0 < is_compared.sum() < len(messages) / 6
    digests = {name: digest.hex() for name, digest in replay(results.folder).replica.digests().items()}
    assert results.summary["digests"] == digests and set(digests) == {"x", "hessian"}


def test_a_metric_of_the_algorithm_may_be_expected() -> None:
    expect = {"hessian_cv": {"at_most": 9}, "hessian_mean_ema": {"at_least": 0}}
    assert set(small(algorithm=HISO, expect=expect).expect) == set(expect)
    with pytest.raises(ScenarioError, match=r"expect\.hessian_cv: nothing of that name"):
        small(expect=expect)


@pytest.mark.parametrize(
    "task", [Null(), Quadratic(), TASKS.all()["digits"](name="digits")], ids=lambda task: str(task.name)
)
def test_a_task_measures_what_it_says_that_it_measures(task: Task) -> None:
    what = scenario(task={"name": task.name})
    problem = what.task.bind(seed=1, clients=8, partition=what.partition)
    assert tuple(problem.evaluate(problem.x0(), "test")) == task.metrics
    assert what.metrics == [*task.metrics, *what.algorithm.diagnostics(what.algorithm.replica(problem.x0()))]


def test_every_figure_is_found_in_the_summary_of_every_run(tmp_path: Path) -> None:
    everything = {name: {"at_least": -1e300} for name in [*known_names(["loss", "gap"]), "refused_late", "refused_x0"]}
    results = go(tmp_path / "run", lossy(expect=everything))
    assert list(results.expectations) == list(everything) and results.missed == []
    values = {name: each["found"] for name, each in results.expectations.items()}
    summary = results.summary
    assert values["commits"] == summary["version"] > 0 and values["rounds"] == 20
    assert values["bytes"] == summary["traffic"]["up"]["bytes"] + summary["traffic"]["down"]["bytes"]
    assert values["bytes_per_client"] == values["bytes"] / 8
    assert values["replayed"] == summary["traffic"]["replayed"] > 0 == values["snapshots"]
    assert values["refused"] == sum(sum(each.values()) for each in summary["refusals"].values())
    assert values["refused_late"] == sum(summary["refusals"]["late"].values()) > 0 == values["refused_x0"]
    assert values["gap"] == summary["metrics"]["gap"] == results.metrics["gap"].iloc[-1]
    assert all(isinstance(value, int | float) for value in values.values())


def test_what_is_expected_of_an_average_is_what_stops_a_run(tmp_path: Path) -> None:
    target = {"metric": "gap", "value": 0.0, "direction": "below"}
    results = go(
        tmp_path / "run",
        scenario(stop={"rounds": 12, "target": target}, evaluation={"every": 2}, expect={"gap_ema": {"at_most": 1}}),
    )
    assert results.expectations["gap_ema"]["found"] == results.metrics["gap_ema"].iloc[-1]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12))
def test_an_average_is_that_of_the_metrics_lines(values: list[float]) -> None:
    from seedbus.agents.messages import Evaluation

    progress, stop = Progress(), Stop(rounds=1)
    measured = [Evaluation(round, 0, {"accuracy": value}) for round, value in enumerate(values)]
    lines = [progress.measured(each, stop, 0) for each in measured]
    found = judged({"accuracy_ema": Bounds(at_least=0)}, {}, lines)
    assert found["accuracy_ema"]["found"] == lines[-1]["accuracy_ema"]


@pytest.mark.parametrize(
    ("bounds", "found", "is_met"),
    [
        (Bounds(at_least=1), 1, True),
        (Bounds(at_least=1), 0.999, False),
        (Bounds(at_most=1), 1, True),
        (Bounds(at_most=1), 1.001, False),
        (Bounds(at_least=1, at_most=2), 1.5, True),
        (Bounds(at_least=1, at_most=2), 3, False),
        (Bounds(at_least=-1e300), None, False),
    ],
)
def test_bounds_include_their_ends_and_never_what_is_not_finite(bounds: Bounds, found: Any, is_met: bool) -> None:
    assert bounds.holds(found) is is_met
    line = {"round": 0, "version": 0, "loss": found}
    assert judged({"loss": bounds}, {}, [line])["loss"]["is_met"] is is_met
    assert judged({"loss_ema": bounds}, {}, [line])["loss_ema"]["is_met"] is is_met


def test_a_metric_that_was_never_measured_is_missed() -> None:
    assert judged({"loss": Bounds(at_most=1)}, {}, [])["loss"] == {
        "at_least": None, "at_most": 1.0, "found": None, "is_met": False,
    }  # fmt: skip


def test_results_and_table_say_what_was_expected_and_found(tmp_path: Path) -> None:
    results = go(tmp_path / "run", small(expect=MET | MISSED))
    assert results.missed == ["gap"] and Results.read(results.folder).expectations == results.expectations
    names, values = ([str(cell) for cell in column.cells] for column in closing_table(results.summary).columns)
    shown = dict(zip(names, values, strict=True))
    assert shown["✓ rounds"] == "6, expected ≥ 6 and ≤ 6" and shown["✓ refused"] == "0, expected ≤ 0"
    assert shown["✗ gap"].endswith("expected ≥ 1,000,000,000")


def test_what_is_expected_is_no_part_of_which_run_it_is(tmp_path: Path) -> None:
    results = go(tmp_path / "run", small(expect=MET))
    other = go(tmp_path / "other", small(expect=MISSED))
    assert [results.digest, results.summary["ledger_hash"]] == [other.digest, other.summary["ledger_hash"]]
    again = run(small(expect=MISSED), results.folder, resume=True)
    assert again.expectations == other.expectations and again.missed == ["gap"]
    assert Results.read(results.folder).summary == again.summary
    assert run(small(), results.folder, resume=True).expectations == {}
    first = run(scenario_of(results.folder), results.folder, resume=True)
    assert first.expectations == results.expectations, "alone, a run is held to what it began with"


def test_a_run_that_stopped_is_held_to_what_is_expected_when_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            run(small(expect=MET), tmp_path / "run")
    resumed = run(small(expect=MISSED), tmp_path / "run", resume=True)
    uninterrupted = go(tmp_path / "whole", small(expect=MISSED))
    keys = ("expectations", "participation", "lag", "staleness", "round_times", "digest")
    assert {key: resumed.summary[key] for key in keys} == {key: uninterrupted.summary[key] for key in keys}


def test_what_is_not_finite_is_missed_and_judged_alike_by_a_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seedbus.models.tasks.quadratic import QuadraticProblem

    monkeypatch.setattr(QuadraticProblem, "evaluate", lambda *_: {"loss": np.nan, "gap": np.inf})
    expect = {name: {"at_least": -1e300} for name in ("loss", "gap", "loss_ema", "gap_ema")}
    results = go(tmp_path / "run", small(expect=expect))
    assert results.missed == list(expect)
    assert run(small(expect=expect), results.folder, resume=True).summary == results.summary
    json.loads((results.folder / "results.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.slow
def test_the_reasons_that_may_be_expected_are_those_that_there_are() -> None:
    """The source is searched for every literal reason that refuses a member's message."""
    reasons = {"selftest", "losses", "x0"} | DECLINES | REFUSALS  # names of proofs
    for path in [*(ROOT / "agents").rglob("*.py"), *(ROOT / "algorithms").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                place = {"ReportRefused": 0, "LagsTooFar": 0, "BadSnapshot": 0, "refused": 1}.get(called)
                words = [each.value for each in node.args[place : (place or 0) + 1] if isinstance(each, ast.Constant)]
                reasons |= {str(word) for word in words if place is not None}
            elif isinstance(node, ast.Return) and path.name == "admission.py" and isinstance(node.value, ast.Tuple):
                reasons |= {str(each.value) for each in node.value.elts[:1] if isinstance(each, ast.Constant)}
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
                names = getattr(node.targets[0], "elts", [node.targets[0]])
                if getattr(names[0], "id", "") == "reason" and isinstance(node.value.elts[0], ast.Constant):
                    reasons.add(str(node.value.elts[0].value))
    assert reasons == set(Reason)


def test_without_a_fault_that_falsifies_reports_no_commit_has_false_ones() -> None:
    bounds = {name: Bounds(at_most=0) for name in ("commits_with_false_reports", "commits_beyond_rule")}
    assert [(each["found"], each["is_met"]) for each in judged(bounds, {}, []).values()] == [(0, True)] * 2
    some = judged(bounds, {"liars": {"commits": 5, "median": 1.0, "most": 2, "beyond": 3}}, [])
    assert [(each["found"], each["is_met"]) for each in some.values()] == [(5, False), (3, False)]


def test_the_reference_lists_every_figure() -> None:
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8").partition("### What a run is to reach\n")[2]
    rows = [line.split("|") for line in text.partition("\n#")[0].splitlines() if line.startswith("| `")]
    documented = {row[1].strip(" `"): row[2].strip() for row in rows}
    assert {name: documented.get(name) for name in FIGURES} == {name: figure.what for name, figure in FIGURES.items()}
