"""A client's round in the scalar-only family: what is measured along the directions of its local steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from seedbus.algorithms.contract import Declined
from seedbus.algorithms.objective import Objective
from seedbus.algorithms.scalar_only.differences import differences
from seedbus.algorithms.scalar_only.payloads import ScalarPlan, Scalars
from seedbus.algorithms.scalar_only.perturbed import PerturbedModel
from seedbus.algorithms.scalar_only.precision import FORMATS, Precision
from seedbus.algorithms.schedule import at


class Estimation(Protocol):
    """How an algorithm measures: μ and the estimator by round, and the format of scalars."""

    @property
    def smoothing(self) -> Any: ...
    @property
    def estimator(self) -> Any: ...
    @property
    def precision(self) -> Precision: ...


def measured(
    algorithm: Estimation, start: PerturbedModel, plan: ScalarPlan, objectives: Sequence[Objective]
) -> list[Scalars | Declined]:
    """Each client's scalars of K local steps, float32 [K, P], as they will travel. All stand at `start`."""
    first = _probe(algorithm, start, plan, objectives)
    found: list[Scalars | Declined] = []
    for objective, values in zip(objectives, first, strict=True):
        try:
            found.append(_steps(algorithm, start, plan, values, objective))
        except Declined as why:
            found.append(why)
    return found


def _steps(
    algorithm: Estimation, start: PerturbedModel, plan: ScalarPlan, values: Sequence[float], objective: Objective
) -> Scalars:
    """One client's scalars; values: those of its first step. What follows is at points of its own."""
    scalars = np.empty(plan.shape, np.float32)
    here = start.own() if plan.steps > 1 else start
    for k in range(plan.steps):  # the model after the last step is nobody's: only the scalars are reported
        if k > 0:
            here.go_on(scalars[k - 1])
            (values,) = _probe(algorithm, here, plan, [objective])
        scalars[k] = _sendable(algorithm.precision, values)
    return scalars


def _probe(
    algorithm: Estimation, here: PerturbedModel, plan: ScalarPlan, objectives: Sequence[Objective]
) -> list[tuple[float, ...]]:
    """Each client's P finite differences of one local step, all on the step's own mini-batch."""
    smoothing, estimator = float(np.float32(at(algorithm.smoothing, plan.round))), at(algorithm.estimator, plan.round)
    if estimator == "projection":
        return here.projected(objectives, plan.perturbations)
    is_central = estimator == "central"
    return differences(here.losses(objectives), plan.perturbations, smoothing, is_central=is_central)


def _sendable(precision: Precision, values: Sequence[float]) -> Scalars:
    """Scalars as they will travel. Raises `Declined`: an infinity in the place of a large number would be a lie.

    What was no finite number to begin with goes as it is, and the server refuses it.
    """
    form = FORMATS[precision]
    scalars = form.rounded(values)
    for wanted, got in zip(values, scalars.tolist(), strict=True):
        if math.isfinite(wanted) and not math.isfinite(got):
            raise Declined("overflow", f"{precision} holds no more than {form.largest:.6g}, and not {wanted:.6g}")
    return scalars
