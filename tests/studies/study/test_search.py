"""A search of ranges: the same trials also after a stop, one budget for all rows, failures that stop nothing."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from worlds import scenario

import seedbus as package
from seedbus.scenarios.errors import Exit, ScenarioError
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.studies.study.cells import Cell, plan_of
from seedbus.studies.study.search import BATCH, searched
from seedbus.studies.study.trials import Trial, Tuned

pytest.importorskip("optuna", reason="ranges are searched by Optuna: pip install 'seedbus[study]'")

RATE, COUNT, SIGN = "algorithm.learning_rate", "algorithm.perturbations", "algorithm.directions"
RANGES: dict[str, Any] = {RATE: {"low": 1e-4, "high": 1.0, "log": True}, COUNT: {"low": 1, "high": 8}}
ROWS: dict[str, Any] = {"a": [], "b": ["algorithm.smoothing=0.01"]}
STUDY: dict[str, Any] = {
    "name": "searched",
    "variants": {"a": []},
    "base": scenario(stop={"rounds": 8}, evaluation={"every": 2}).resolved(),
    "seeds": [3],
    "tune": RANGES,
    "tuning": {"trials": 2 * BATCH + 2, "rounds": 4},
}


Scores = Callable[[list[tuple[Cell, dict[str, Any]]]], list[float]]


def distance(values: dict[str, Any]) -> float:
    """A score whose best is a rate of 0.01 with four perturbations."""
    return float(abs(math.log10(values[RATE]) + 2) + abs(values.get(COUNT, 4) - 4))


def every(batch: list[tuple[Cell, dict[str, Any]]]) -> list[float]:
    return [distance(values) for _, values in batch]


def found(score: Scores = every, **changes: Any) -> dict[str, Tuned]:
    def make(batch: list[tuple[Cell, dict[str, Any]]]) -> list[Trial]:
        return [Trial(values, each) for (_, values), each in zip(batch, score(batch), strict=True)]

    return searched(plan_of(STUDY | changes), False, make)


def tried(rows: dict[str, Tuned]) -> dict[str, list[dict[str, Any]]]:
    return {row: [trial.values for trial in tuned.trials] for row, tuned in rows.items()}


@pytest.mark.slow
def test_all_rows_spend_one_budget_on_values_within_their_ranges_and_the_best_is_chosen() -> None:
    rows = found(tuning={"trials": 21}, variants=ROWS)
    for tuned in rows.values():
        assert len(tuned.trials) == 21
        assert all(1e-4 <= t.values[RATE] <= 1 and t.values[COUNT] in range(1, 9) for t in tuned.trials)
        assert distance(tuned.chosen) == min(t.score for t in tuned.trials) and tuned.at_edge == []
    assert tried(rows)["a"] == tried(rows)["b"], "equal scores, equal proposals"
    at_random = found(tuning={"trials": 21, "search": "random"})["a"]
    guided = [t.score for t in rows["a"].trials[12:]]
    assert sum(guided) < sum(t.score for t in at_random.trials[12:]), "later proposals learn from earlier ones"


@pytest.mark.slow
def test_other_seeds_propose_other_values_and_a_best_near_an_end_is_told() -> None:
    assert tried(found(tuning={"trials": 2})) != tried(found(tuning={"trials": 2, "seed": 4}))
    low = {RATE: {"low": 1e-4, "high": 1.0, "log": True}, COUNT: {"low": 4, "high": 8}}
    assert found(tune=low)["a"].at_edge == [COUNT]


@pytest.mark.slow
def test_a_search_that_was_stopped_goes_on_with_the_same_values() -> None:
    whole = found()
    known: dict[str, float] = {}

    def until(batches: int) -> Scores:
        def score(batch: list[tuple[Cell, dict[str, Any]]]) -> list[float]:
            nonlocal batches
            if not batches:
                raise KeyboardInterrupt
            batches -= 1
            return [known.setdefault(json.dumps([cell.name, values]), distance(values)) for cell, values in batch]

        return score

    with pytest.raises(KeyboardInterrupt):
        found(until(2))
    begun = dict(known)
    assert len(begun) == 2 * BATCH
    again = found(until(3))
    assert again == whole and begun.items() <= known.items() and len(known) == 2 * BATCH + 2


@pytest.mark.slow
def test_a_trial_without_a_score_or_a_scenario_has_failed_and_the_others_go_on() -> None:
    def score(batch: list[tuple[Cell, dict[str, Any]]]) -> list[float]:
        return [math.nan if values[COUNT] > 2 else distance(values) for _, values in batch]

    tuned = found(score)["a"]
    assert len(tuned.trials) == 2 * BATCH + 2 and tuned.chosen[COUNT] <= 2
    assert [t for t in tuned.trials if math.isnan(t.score)]
    assert found(lambda batch: [math.nan] * len(batch))["a"].chosen == {}


def test_a_variant_searches_ranges_of_its_own_beside_the_common_ones() -> None:
    rows = found(tune={RATE: RANGES[RATE]}, variants={"a": [], "b": {"tune": {COUNT: RANGES[COUNT]}}})
    assert {row: each.trials[0].values.keys() for row, each in rows.items()} == {"a": {RATE}, "b": {RATE, COUNT}}
    assert len(rows["a"].trials) == len(rows["b"].trials)
    with pytest.raises(ScenarioError, match=rf"variants.b.tune.{COUNT}: \[1\] is not accepted beside a range"):
        found(variants={"a": [], "b": {"tune": {COUNT: [1]}}})


def test_choices_may_be_anything_the_field_accepts() -> None:
    choices = ["gaussian", "rademacher"]
    asked = found(lambda batch: [values[SIGN] == "gaussian" for _, values in batch], tune={SIGN: {"choices": choices}})
    assert {t.values[SIGN] for t in asked["a"].trials} == set(choices) and asked["a"].chosen == {SIGN: "rademacher"}


MISTAKES: list[tuple[dict[str, Any], str]] = [  # others: tests/mistakes/studies.yaml
    ({"tune": {"algorithm.ratte": {"low": 0.1, "high": 1}}}, "tune.algorithm.ratte: algorithm.ratte: no such field"),
    ({"tune": {COUNT: {"low": 0, "high": 4}}}, f"tune.{COUNT}: {COUNT}: 0 is not accepted; expected at least 1"),
]


@pytest.mark.parametrize(("changes", "sentence"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_in_a_search_is_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ScenarioError) as error:
        found(**changes)
    assert len(error.value.sentences) == 1 and sentence in error.value.sentences[0], error.value.sentences


def test_without_optuna_the_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ScenarioError, match=r'pip install "seedbus\[study\]"'):
        found()


@pytest.mark.slow
def test_a_search_makes_the_same_trials_in_one_process_and_in_two_and_when_it_is_resumed(
    seedbus: Command, tmp_path: Path
) -> None:
    choices = {"choices": ["uniform", {"policy": "rarest"}]}
    tune = {RATE: {"low": 1e-3, "high": 1e6, "log": True}, "participation.selection": choices}  # some diverge
    Path("searched.yaml").write_text(dump(STUDY | {"variants": ROWS, "tune": tune}))
    counted = seedbus("study", "searched.yaml", "--dry-run").err
    assert counted.startswith("searched: 2 rows × 1 seed = 2 runs, after 20 trials; 22 to make\nsearched: about ")
    whole = package.study("searched.yaml", tmp_path / "whole", jobs=1)
    folders = sorted((tmp_path / "whole" / "runs").iterdir())
    half = tmp_path / "half" / "runs"
    half.mkdir(parents=True)
    for folder in folders[::2]:
        shutil.copytree(folder, half / folder.name)
    again = package.study("searched.yaml", tmp_path / "half", jobs=2)
    assert again.tuned == whole.tuned and again.is_complete
    assert sorted(path.name for path in half.iterdir()) == [folder.name for folder in folders]
    result = seedbus("study", "searched.yaml", "--out", str(half.parent), "--so-far", "--format", "json")
    report = json.loads(result.out)
    assert result.code == Exit.OK, result.err
    for row, tuned in report["tuned"].items():
        scored = [trial for trial in tuned["trials"] if trial["score"] is not None]
        best = min(scored, key=lambda trial: trial["score"])
        assert tuned["chosen"] == best["values"] == whole.tuned[row].chosen and len(tuned["trials"]) == 10
    figures = {path.name for path in (half.parent / "searched" / "figures").iterdir()}
    assert {"tuning.svg", f"tuning-{RATE}.svg"} <= figures
    assert "all are there already" in seedbus("study", "searched.yaml", "--out", str(half.parent), "--dry-run").err
