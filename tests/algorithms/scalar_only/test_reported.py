"""What a client reports of its scalars is what its own next step starts from, and what every replica folds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds import scenario

from seedbus.algorithms.contract import Declined
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.local import reports_of
from seedbus.discovery import PluginError
from seedbus.scenarios.running.run import run

DIMENSION = 37


class Slope:
    """A linear loss, which keeps the points at which it was taken."""

    def __init__(self) -> None:
        self.point = np.zeros(DIMENSION, np.float32)
        self.points: list[Any] = []

    def loss(self, step: int) -> float:
        self.points.append((step, self.point.copy()))
        return float(np.arange(DIMENSION) @ self.point.astype(np.float64))


def test_every_step_reports_signs_and_a_step_starts_where_the_reported_ones_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    algorithm = DeComFL(perturbations=2, local_steps=3, learning_rate=0.5).sized(DIMENSION)
    replica, plan = algorithm.replica(np.ones(DIMENSION, np.float32)), algorithm.plan(0, 0, 7)

    def report(reported: Any) -> tuple[Any, list[Any]]:
        monkeypatch.setattr(DeComFL, "reported", reported)
        slope = Slope()
        scalars, _ = algorithm.local(replica, None, plan, slope)
        starts = [next(point for taken, point in slope.points if taken == step) for step in range(3)]
        return scalars, starts

    signs, moved = report(lambda self, scalars: list(np.sign(scalars)))
    assert set(np.unique(signs)) == {-1.0, 1.0} and signs.shape == (3, 2)
    assert not np.array_equal(moved[0], moved[1]) and not np.array_equal(moved[1], moved[2])
    nothing, unmoved = report(lambda self, scalars: [0.0] * len(scalars))
    assert not nothing.any() and all(np.array_equal(start, unmoved[0]) for start in unmoved)


@pytest.mark.parametrize("loss", [np.nan, np.inf])
def test_a_client_declines_if_what_it_reports_would_hide_a_loss_that_is_not_finite(
    monkeypatch: pytest.MonkeyPatch, loss: float
) -> None:
    """A plug-in that clips, or takes signs by a comparison, makes a number like any other of a NaN."""

    def clipped(self: Any, scalars: Sequence[float]) -> Sequence[float]:
        return [max(-1.0, min(1.0, scalar)) for scalar in scalars]

    monkeypatch.setattr(DeComFL, "reported", clipped)
    monkeypatch.setattr(Slope, "loss", lambda self, step: loss if self.point[0] > 1 else 0.0)
    algorithm = DeComFL(perturbations=8).sized(DIMENSION)
    replica, plan = algorithm.replica(np.ones(DIMENSION, np.float32)), algorithm.plan(0, 0, 7)
    with pytest.raises(Declined, match=r"`reported` made 1 of (nan|inf)") as declined:
        algorithm.local(replica, None, plan, Slope())
    assert declined.value.reason == "overflow"


@pytest.mark.parametrize(
    "wrong", [None, 1.0, [1.0], [1.0, 2.0, 3.0], [[1.0], [2.0]], [[1.0], 2.0], ["1", "2"], [1j, 2]]
)
def test_what_is_reported_of_each_perturbation_is_a_number(monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    algorithm = DeComFL(perturbations=2)
    for sound in ([1.0, 2.0], (1, 2), np.array([1, 2]), [True, 2]):
        monkeypatch.setattr(DeComFL, "reported", lambda self, scalars, sound=sound: sound)
        (report,) = reports_of(algorithm, [[5.0, 6.0]])
        assert np.asarray(report).tolist() == [[1.0, 2.0]]
    monkeypatch.setattr(DeComFL, "reported", lambda self, scalars: wrong)
    with pytest.raises(PluginError, match=r"`reported` of DeComFL returned .*; expected 2 numbers, one for each"):
        reports_of(algorithm, [[5.0, 6.0]])


def test_a_field_of_replicas_begins_with_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeComFL, "companions", lambda self: {"anchor": np.zeros(3, np.float32)})
    with pytest.raises(PluginError, match="`companions` of DeComFL gave ndarray for anchor; expected a number, with"):
        DeComFL(learning_rate=0.1).replica(np.zeros(3, np.float32))


def test_a_client_declines_for_the_first_number_that_its_format_cannot_hold_and_others_report() -> None:
    declined, report = reports_of(DeComFL(perturbations=3, precision="float16"), [[1.0, 1e6, 2e6], [1.0, 2.0, 3.0]])
    assert isinstance(declined, Declined) and str(declined) == "float16 holds no more than 65504, and not 1e+06"
    assert np.asarray(report).tolist() == [[1.0, 2.0, 3.0]]


def test_an_objective_that_compares_its_losses_is_told_its_own() -> None:
    class Comparing(Slope):
        def __init__(self) -> None:
            super().__init__()
            self.told: list[float] = []
            self.taken: list[float] = []

        def loss(self, step: int) -> float:
            self.taken.append(super().loss(step))
            return self.taken[-1]

        def compare(self, losses: Sequence[float]) -> None:
            self.told += losses

    algorithm = DeComFL(perturbations=2, local_steps=2, learning_rate=0.5).sized(DIMENSION)
    objectives: list[Any] = [Comparing(), Slope(), Comparing()]
    replica, plan = algorithm.replica(np.ones(DIMENSION, np.float32)), algorithm.plan(0, 0, 7)
    algorithm.local_together(replica, [None] * 3, plan, objectives)
    for each in objectives[::2]:
        assert each.told == each.taken and len(each.told) == 6


def test_a_run_that_reports_signs_alone_has_replicas_that_agree_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def signs(self: Any, scalars: Sequence[float]) -> Sequence[float]:
        return list(np.sign(scalars))

    algorithm = {"name": "decomfl", "perturbations": 2, "local_steps": 3, "learning_rate": 0.01}
    what = scenario(algorithm=algorithm, verify=True, stop={"rounds": 8})
    plain = run(what, tmp_path / "plain").summary
    monkeypatch.setattr(DeComFL, "reported", signs)
    summary = run(what, tmp_path / "signs").summary
    assert not summary["refusals"] and summary["version"] == 8, "replicas that differ would be refused as diverged"
    assert summary["digest"] != plain["digest"]
