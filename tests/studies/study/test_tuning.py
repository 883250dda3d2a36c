"""Tuning goes on beyond an edge until the best value lies inside, within its bound, with one budget for all rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from worlds import scenario

import seedbus
from seedbus.studies.study.cells import Cell, plan_of
from seedbus.studies.study.intervals import Difference, covering
from seedbus.studies.study.remarks import sentences
from seedbus.studies.study.study import trial_of
from seedbus.studies.study.trials import Trial, Tuned, regret
from seedbus.studies.study.tuning import tuned

pytestmark = pytest.mark.slow

RATE = "algorithm.learning_rate"
BEST = {"easy": 1e-2, "far": 10.0}


def chosen(best: dict[str, float], values: list[Any], path: str = RATE, **tuning: Any) -> dict[str, Tuned]:
    """Tune rows whose score is the closer to 0, the nearer a value is to the best by its logarithm."""
    rows = {name: {"stop.rounds": 40 + number} for number, name in enumerate(best)}
    document = {"base": scenario().resolved(), "variants": rows, "tune": {path: values}, "tuning": tuning}
    plan = plan_of(document)

    def make(batch: list[tuple[Cell, dict[str, Any]]]) -> list[Trial]:
        return [Trial(tried, abs(math.log(tried[path] or 1e-9) - math.log(best[cell.name]))) for cell, tried in batch]

    return tuned(plan, False, make)


def tried(found: Tuned, path: str = RATE) -> list[Any]:
    return [trial.values[path] for trial in found.trials]


def test_a_grid_extends_by_the_ratio_of_its_neighbours_until_the_best_is_inside() -> None:
    found = chosen({"far": 10.0}, [1e-3, 1e-2])["far"]
    assert tried(found) == [1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0]
    assert (found.chosen, found.at_edge) == ({RATE: 10.0}, [])
    low = chosen({"low": 1e-4}, [1e-3, 1e-2])["low"]
    assert tried(low) == [1e-3, 1e-2, 1e-4, 1e-5] and low.chosen == {RATE: 1e-4}


def test_values_a_factor_of_ten_away_from_the_best_leave_gaps() -> None:
    assert chosen({"far": 10.0}, [1e-3, 1e-2])["far"].gaps == {RATE: [1.0, 100.0]}
    assert chosen({"inside": 0.3}, [0.01, 0.3, 1.0])["inside"].gaps == {RATE: [0.01]}
    assert chosen({"fine": 0.3}, [0.1, 0.3, 1.0])["fine"].gaps == {}
    assert chosen({"a": 0.5}, [0.0, 0.5, 0.9], "algorithm.momentum")["a"].gaps == {}, "0 is no factor away"


def test_it_ends_at_its_bound_and_says_that_the_best_lies_at_the_edge() -> None:
    found = chosen({"far": 1e6}, [1e-3, 1e-2], further=2)["far"]
    assert tried(found) == [1e-3, 1e-2, 0.1, 1.0]
    assert (found.chosen, found.at_edge) == ({RATE: 1.0}, [RATE])


def test_a_grid_with_a_0_does_not_go_on_and_says_that_the_best_lies_at_the_edge() -> None:
    found = chosen({"a": 0.9}, [0.0, 0.5, 0.9], "algorithm.momentum")["a"]
    assert tried(found, "algorithm.momentum") == [0.0, 0.5, 0.9]
    assert (found.chosen, found.at_edge) == ({"algorithm.momentum": 0.9}, ["algorithm.momentum"])


def test_every_row_spends_the_same_number_of_trials() -> None:
    found = chosen(BEST, [1e-3, 1e-2, 1e-1])
    assert len(found["easy"].trials) == len(found["far"].trials) == 6
    assert tried(found["easy"]) == [1e-3, 1e-2, 0.1, 0.003162, 0.03162, pytest.approx(0.005623, abs=1e-5)]
    assert found["easy"].chosen == {RATE: 1e-2} and found["far"].chosen == {RATE: 10.0}


def test_what_the_scenario_does_not_accept_is_no_value_and_bounds_the_grid() -> None:
    found = chosen({"a": 4.0}, [0.5, 0.7], "algorithm.momentum")["a"]
    assert tried(found, "algorithm.momentum") == [0.5, 0.7, 0.98]


def test_whole_numbers_stay_whole() -> None:
    found = chosen({"a": 20.0}, [5, 10], "algorithm.perturbations")["a"]
    assert tried(found, "algorithm.perturbations") == [5, 10, 20, 40]


def test_a_variant_chooses_fields_of_its_own_and_others_of_its_values_and_a_row_without_fields_tries_nothing() -> None:
    count = "algorithm.perturbations"
    rows = {"common": [], "own": {"tune": {count: [2, 4]}}, "other": [f"tune={{{RATE}: [1, 2]}}"]}
    plan = plan_of({"base": scenario(), "variants": rows, "tune": {RATE: [0.1, 0.2]}, "tuning": {"further": 0}})
    found = tuned(plan, False, lambda batch: [Trial(tried, float(number)) for number, (_, tried) in enumerate(batch)])
    tries = {row: [tuple(trial.values.values()) for trial in each.trials] for row, each in found.items()}
    pairs = [(0.1, 2), (0.1, 4), (0.2, 2), (0.2, 4)]
    assert tries == {"common": [(0.1,), (0.2,)], "own": pairs, "other": [(1,), (2,)]}
    assert found["own"].chosen == {RATE: 0.1, count: 2}
    only = plan_of({"base": scenario(), "variants": rows | {"common": ["stop.rounds=9"]}})
    assert tuned(only, False, lambda batch: [Trial(tried, 1.0) for _, tried in batch]).keys() == {"own", "other"}


def test_a_trial_has_a_quarter_of_the_rounds_and_of_the_simulated_time_unless_the_study_says_its_rounds() -> None:
    for given, tuning, rounds, simulated_s in (
        (4000, {}, 1000, 15),
        (4000, {"rounds": 30}, 30, 60),
        (None, {}, None, 15),
        (None, {"rounds": 30}, 30, 60),
    ):
        base = scenario(stop={"rounds": given, "simulated_s": 60})
        plan = plan_of({"base": base, "tune": {RATE: [0.1, 0.2]}, "tuning": tuning})
        stop = trial_of(plan, plan.cells[0], {RATE: 0.2}, 1).stop
        assert (stop.rounds, stop.simulated_s) == (rounds, simulated_s)


def test_without_a_finite_score_nothing_is_chosen() -> None:
    found = chosen({"a": math.inf}, [1e-3, 1e-2])["a"]
    assert (found.chosen, len(found.trials)) == ({}, 2)


@pytest.mark.parametrize("is_rising", [False, True])
def test_of_equal_scores_the_one_that_was_tried_first_is_chosen(is_rising: bool) -> None:
    plan = plan_of({"base": scenario(), "tune": {RATE: [0.3, 0.1, 0.2]}, "tuning": {"further": 0}})
    found = tuned(plan, is_rising, lambda batch: [Trial(tried, 1.0) for _, tried in batch])
    assert [each.chosen for each in found.values()] == [{RATE: 0.3}]


def test_a_difference_of_rows_with_other_tuned_values_is_wider_by_what_a_tied_value_may_gain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trials of each row differ by less than 135 validation samples tell apart; three seeds say more than that."""
    rows = {"low": [0.02, 0.021], "high": [0.06, 0.063]}
    study = {
        "base": "quickstart",
        "variants": {row: {"tune": {RATE: values}} for row, values in rows.items()},
        "grid": {"stop.rounds": [30]},
        "tuning": {"further": 0},
    }
    found = seedbus.study(study, tmp_path)
    wide = {(row, other): each for row, other, each in found.compared_by["final"]}
    gains = found.regrets
    assert gains.keys() == rows.keys() and all(gain > 0.02 for gain in gains.values())
    values = {row: [member.figures["final"] or 0.0 for member in members] for row, members in found.members.items()}
    plain = Difference.of([one - less for one, less in zip(values["low"], values["high"], strict=True)])
    assert wide["low", "high"].mean == plain.mean and plain.high < 0
    assert wide["low", "high"].low == pytest.approx(plain.low - gains["high"])
    assert wide["low", "high"].high == pytest.approx(plain.high + gains["low"])
    assert any("may gain" in sentence for sentence in sentences(found))
    with monkeypatch.context() as patch:
        patch.setattr(type(found), "is_rising", False)  # were it a loss, a better value would make it less
        falling = found._difference("low", "high")
    assert falling is not None and falling.low == pytest.approx(plain.low - gains["low"])
    assert falling.high == pytest.approx(plain.high + gains["high"])
    found.tuned["low"] = found.tuned["high"]
    assert found._difference("low", "high") == plain, "with the same values they differ in nothing that was tuned"


@pytest.mark.parametrize("is_rising", [False, True])
def test_a_row_may_gain_the_most_that_any_value_may_which_ties_with_the_chosen_one(is_rising: bool) -> None:
    def gain(*finals: tuple[float, float], step: float = 0.0) -> float:
        """Losses of two seeds, or the same below 0 as a metric that rises."""
        sign = -1 if is_rising else 1
        trials = [
            Trial({RATE: number}, sign * (one + other) / 2, (sign * one, sign * other), step)
            for number, (one, other) in enumerate(finals)
        ]
        return regret(Tuned(trials, {RATE: 0}, []), "loss", is_rising=is_rising, confidence=0.95)

    best, near, wide, far = (0.48, 0.52), (0.50, 0.51), (0.56, 0.46), (0.61, 0.63)
    assert gain(best, near) == pytest.approx(covering([-0.02, 0.01])[2])
    assert gain(best, near, wide, far) == pytest.approx(covering([-0.08, 0.06])[2])
    assert gain(best, far) == 0, "the trials tell these apart"
    assert 0 < gain(best, best, step=0.02) == pytest.approx(covering([0.0, 0.0], step=0.02)[2])
