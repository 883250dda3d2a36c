"""What a run did not achieve: whether training fell apart, by values alone and in whole runs, and its exit code."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from worlds import go, scenario

from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.shortcomings import shortcomings
from seedbus.scenarios.schema.yaml_text import dump

LOSSES = [2.3, 1.0, 0.5, 0.6]
FALLS = {
    "accuracy": ({"accuracy": [0.10, 0.60, 0.83, 0.16]}, "accuracy 0.16 at the end, and 0.83 after round 20"),
    "slowly": ({"accuracy": [0.50, 0.92, 0.80, 0.62]}, "accuracy 0.62 at the end, and 0.92 after round 10"),
    "loss": ({"loss": [2.3, 0.5, 0.4, 1.9]}, "loss 1.9 at the end, and 0.4 after round 20"),
    "loss beside an accuracy that holds": (
        {"accuracy": [0.1, 0.2, 0.3, 0.3], "loss": [2.3, 0.9, 1.2, 1143.0]},
        "loss 1143 at the end, and 0.9 after round 10",
    ),
    "perplexity": ({"perplexity": [3e4, 30, 60, 4e3]}, "perplexity 4000 at the end, and 30 after round 10"),
    "a metric of one's own": ({"success": [0.0, 40.0, 60.0, 20.0]}, "success 20 at the end, and 60 after round 20"),
    "below its beginning": ({"accuracy": [0.5, 0.9, 0.9, 0.1]}, "accuracy 0.1 at the end, and 0.9 after round 10"),
}
HOLDS: dict[str, dict[str, list[float]]] = {
    "the best at the end": {"accuracy": [0.1, 0.3, 0.6, 0.9]},
    "a dip": {"accuracy": [0.1, 0.9, 0.2, 0.85]},
    "noise of a model that has learnt little": {"accuracy": [0.10, 0.20, 0.24, 0.11]},
    "two fifths lost": {"accuracy": [0.10, 0.60, 0.90, 0.56]},
    "a loss that grows while accuracy holds": {"accuracy": [0.1, 0.8, 0.8, 0.8], "loss": [2.3, 0.6, 1.9, 4.0]},
    "a loss that hardly moves": {"loss": [2.30, 2.25, 2.20, 2.29]},
    "a perplexity that overfits": {"perplexity": [3e4, 30, 60, 300]},
    "a first value that is no number": {"accuracy": [math.nan, 0.90, 0.90, 0.10]},
}


def lines(values: dict[str, list[float]]) -> list[dict[str, Any]]:
    return [
        {"round": 10 * n - 1 if n else 0, "version": 10 * n} | {name: each[n] for name, each in values.items()}
        for n in range(4)
    ]


def said(values: dict[str, list[float]]) -> list[str]:
    return shortcomings(
        lines(values), 30, ("accuracy", "success", "f1"), "perplexity" if "perplexity" in values else None
    )


@pytest.mark.parametrize("name", FALLS)
def test_training_that_fell_apart_is_told_with_its_best_round(name: str) -> None:
    values, sentence = FALLS[name]
    told = said(values)
    assert told[0] == f"training fell apart: {sentence}, the best"
    assert len(told) == 1 + (name == "below its beginning")


@pytest.mark.parametrize("name", HOLDS)
def test_training_that_holds_is_not_told_to_have_fallen_apart(name: str) -> None:
    assert said(HOLDS[name]) == []


def test_values_that_do_not_begin_before_the_first_round_tell_of_no_fall_and_one_that_is_infinite_of_more() -> None:
    falling = {"accuracy": [0.1, 0.9, 0.6, 0.1]}
    assert len(said(falling)) == 1 and shortcomings(lines(falling)[1:], 30, ("accuracy",)) == []
    worse = "the model ended worse than it began: loss not a finite number, before the first round 2.3"
    assert said({"loss": [2.3, 0.5, 0.4, math.inf]}) == [worse]


@pytest.mark.parametrize("topology", [None, {"kind": "gossip", "graph": "ring"}], ids=["server", "gossip"])
def test_a_run_whose_training_falls_apart_says_so_on_its_page_and_in_its_results(
    tmp_path: Path, topology: dict[str, Any] | None
) -> None:
    rates = {0: 0.05, 30: 1.5}
    algorithm = {"name": "decomfl", "perturbations": 5, "learning_rate": rates, "arithmetic": "integer"}
    settings = {"participation": {"clients": 4}, "topology": topology} if topology else {}
    what = scenario(
        task={"name": "quadratic", "dimension": 20},
        algorithm=algorithm,
        stop={"rounds": 36},
        evaluation={"every": 1},
        **settings,
    )
    results = go(tmp_path / "run", what)
    fell = results.summary["shortcomings"][0]
    losses = results.metrics["loss"]
    best = int(losses.index[int(losses.to_numpy().argmin())])
    assert f"{losses.min():.6g} after round {best:,}, the best" in fell and 10 < best < 36
    assert fell.startswith("training fell apart: loss ") and not results.training_diverged
    assert "training fell apart: loss" in (tmp_path / "run" / "report.html").read_text()


def test_a_run_in_which_no_round_commits_has_an_exit_code_of_its_own(seedbus: Command, tmp_path: Path) -> None:
    never = scenario(participation={"clients": 4, "cohort": 4, "quorum": 4, "deadline_s": 0.01}, stop={"rounds": 3})
    (tmp_path / "never.yaml").write_text(dump(never.resolved()))
    ran = seedbus("run", "never.yaml", "-q", "--out", "one", "--format", "json", "--set", "expect={loss: {at_most: 0}}")
    assert (ran.code, int(ran.code)) == (Exit.NO_COMMIT, 13)
    assert json.loads(ran.out)["shortcomings"] == [
        "no round made a commit: the model is the one that the run began with"
    ]
    assert seedbus("run", "--resume", "one", "-q").code == Exit.NO_COMMIT
    met = ("--set", "stop.target={metric: loss, value: 1e9, direction: below, smoothed: false}")
    assert seedbus("run", "never.yaml", "-q", "--out", "two", *met).code == Exit.OK, "no round was needed"
