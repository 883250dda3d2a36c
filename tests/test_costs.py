"""The cost model of a round: its counts are the operations of a run, and its fit recovers known costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import model
import numpy as np
import pytest
from costs import NAMES, WARM, Point, counts, fit, mean_lag

from seedbus.algorithms.directions.numba_backend import NumbaDirections
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate

POINT = Point(clients=4, cohort=4, perturbations=3, steps=2, dimension=300)
COSTS = np.array([2.0, 1.5e-6, 7e-7, 0.08, 0.003, 3.0])


def test_a_round_is_counted_by_hand() -> None:
    point = replace(POINT, clients=8, cohort=4, has_network=True, rounds=3)  # only the third round is counted
    lag = 1 + 1 / 2  # half of its cohort took part in the round before
    assert mean_lag(point) == lag
    assert counts(point).tolist() == [4 * 2 * 4, 900 * (1 + 4), 900 * (2 + 4), 8, 4 * lag, 1]
    apart = counts(replace(point, is_private=True)).tolist()
    assert apart == [4 * 2 * 4, 900 * (4 + 4), 900 * (2 * (1 + 4 * lag) + 4), 8, 4 * lag, 1]
    assert counts(replace(point, has_network=False))[0] == 0


def test_the_mean_lag_is_that_of_random_cohorts() -> None:
    point, rng = Point(clients=40, cohort=5, perturbations=1, steps=1, dimension=1, rounds=30), np.random.default_rng(3)
    seen: list[int] = []
    for _ in range(300):
        versions = np.zeros(40, int)
        for number in range(point.rounds):
            asked = rng.choice(40, 5, replace=False)
            seen += (number - versions[asked]).tolist() if number >= WARM else []
            versions[asked] = number
    assert mean_lag(point) == pytest.approx(np.mean(seen), rel=0.03)


def document(point: Point) -> dict[str, Any]:
    return model.document(point) | {"evaluation": {"every": 100}}


@pytest.mark.parametrize("is_private", [False, True])
def test_a_run_does_what_is_counted(is_private: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All clients take part, so lag is not random. The runs differ by two rounds, whose operations are counted."""
    done: dict[str, int] = {}
    methods: dict[str, Any] = {name: getattr(NumbaDirections, name) for name in ("perturb", "accumulate", "fold")}

    def counted(name: str, amount: Any) -> None:
        def method(self: Any, *arguments: Any, **options: Any) -> Any:
            done[name] = done.get(name, 0) + amount(*arguments)
            return methods[name](self, *arguments, **options)

        monkeypatch.setattr(NumbaDirections, name, method)

    counted("perturb", lambda out, *_: out.size)
    counted("accumulate", lambda out, coefficients: out.size * len(coefficients))
    counted("fold", lambda rule, fields, steps: fields["x"].size * steps.steps["count"].sum())
    totals = []
    for rounds in (1, 4, 6):  # the first of a process also tests its kernels
        done.clear()
        scenario = validate(document(replace(POINT, is_private=is_private, rounds=rounds)), "a test")
        summary = run(scenario, tmp_path / str(rounds)).summary
        kinds = summary["traffic"]["by_kind"]
        sent = kinds["plan"]["messages"] + kinds["report"]["messages"]
        totals.append([done["perturb"], done["accumulate"] + done["fold"], sent])
    per_round = (np.array(totals[2]) - totals[1]) / 2
    assert per_round.tolist() == counts(replace(POINT, is_private=is_private))[1:4].tolist()


def test_known_costs_are_found_again() -> None:
    fitted = fit(model.FIT, [float(counts(point) @ COSTS) for point in model.FIT])
    assert fitted == pytest.approx(COSTS, rel=1e-6)


def test_noise_moves_predictions_no_more_than_itself() -> None:
    rng = np.random.default_rng(5)
    noisy = [float(counts(point) @ COSTS * rng.uniform(0.95, 1.05)) for point in model.FIT]
    fitted = fit(model.FIT, noisy)
    assert (fitted >= 0).all()
    for points in model.CHECKED.values():
        for point in points:
            assert counts(point) @ fitted == pytest.approx(counts(point) @ COSTS, rel=0.12)


def test_what_is_checked_was_not_fitted() -> None:
    checked = [point for points in model.CHECKED.values() for point in points]
    assert not {replace(p, rounds=0) for p in model.FIT} & {replace(p, rounds=0) for p in checked}
    assert len(model.FIT) > len(NAMES) and set(model.CHECKED) == set(model.AXES)
