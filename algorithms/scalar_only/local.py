"""A client's round in the scalar-only family: it measures gradient scalars along the directions of its local steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from seedbus.algorithms.contract import Declined
from seedbus.algorithms.objective import Objective
from seedbus.algorithms.scalar_only.differences import Losses, Shift, differences, with_curvature
from seedbus.algorithms.scalar_only.payloads import ScalarPlan, Scalars
from seedbus.algorithms.scalar_only.perturbed import PerturbedModel
from seedbus.algorithms.scalar_only.precision import FLOAT32, WIRE_FORMATS, WirePrecision
from seedbus.algorithms.schedule import at
from seedbus.discovery import PluginError


class Estimation(Protocol):
    """The settings of an algorithm that determine how it measures.

    Attributes:
        smoothing: μ, may change by round.
        estimator: may change by round.
        precision: format of scalars on the wire; scalars that are sent as whole numbers are measured in float32.
        is_normalised: whether each scalar is divided by ‖z‖².
    """

    @property
    def smoothing(self) -> Any: ...
    @property
    def estimator(self) -> Any: ...
    @property
    def precision(self) -> WirePrecision: ...
    @property
    def is_normalised(self) -> bool: ...

    def reported(self, scalars: Sequence[float]) -> Sequence[float]: ...


def measure(
    algorithm: Estimation, start: PerturbedModel, plan: ScalarPlan, objectives: Sequence[Objective]
) -> list[Scalars | Declined]:
    """Return each client's scalars of K local steps, float32 [K, P], as rounded for the wire, or why it declines.

    Args:
        algorithm: the settings.
        start: the model before the first step, which all the clients share.
        plan: their plan.
        objectives: each client's objective.
    """
    firsts = _reported(algorithm, start, plan, objectives)
    if plan.steps == 1:
        return firsts
    results: list[Scalars | Declined] = []
    for objective, first in zip(objectives, firsts, strict=True):
        try:
            results.append(_measure_further(algorithm, start.fork(), plan, first, objective))
        except Declined as declined:
            results.append(declined)
    return results


def _measure_further(
    algorithm: Estimation, model: PerturbedModel, plan: ScalarPlan, step: Scalars | Declined, objective: Objective
) -> Scalars | Declined:
    """Return one client's scalars, from those of its first step and its further steps, which it takes alone."""
    scalars = np.empty(plan.shape, np.float32)
    for k in range(plan.steps):
        if isinstance(step, Declined):
            return step
        scalars[k] = step[0]
        if k + 1 < plan.steps:  # the model after the last step is not computed: only the scalars are reported
            model.advance(scalars[k])
            (step,) = _reported(algorithm, model, plan, [objective])
    return scalars


def _reported(
    algorithm: Estimation, model: PerturbedModel, plan: ScalarPlan, objectives: Sequence[Objective]
) -> list[Scalars | Declined]:
    """Return each client's scalars of one local step as rounded for the wire, float32 [1, P], or why it declines."""
    return reports_of(algorithm, _estimate(algorithm, model, plan, objectives))


def reports_of(algorithm: Estimation, found: Sequence[Sequence[float]]) -> list[Scalars | Declined]:
    """Return what clients report of P scalars each, as rounded for the wire, float32 [1, P], or why they decline."""
    return _rounded(algorithm.precision, found, [_of_each_perturbation(algorithm, scalars) for scalars in found])


def _of_each_perturbation(algorithm: Estimation, scalars: Sequence[float]) -> Sequence[float]:
    """Return what the algorithm reports of P scalars. Raises `PluginError` unless these are P numbers."""
    reported = algorithm.reported(scalars)
    if reported is scalars:
        return reported
    try:
        numbers = np.asarray(reported)
        is_each = numbers.shape == (len(scalars),) and numbers.dtype.kind in "fiub"
    except ValueError:  # parts of different lengths
        is_each = False
    if not is_each:
        what = repr(reported)
        raise PluginError(
            f"`reported` of {type(algorithm).__name__} returned {what if len(what) < 80 else f'{what[:79]}…'}; "
            f"expected {len(scalars)} numbers, one for each perturbation"
        )
    return reported


def _estimate(
    algorithm: Estimation, model: PerturbedModel, plan: ScalarPlan, objectives: Sequence[Objective]
) -> list[tuple[float, ...]]:
    """Return each client's P gradient scalars of one local step, all on the step's own mini-batch."""
    losses = _compared(model.losses(objectives), objectives)
    smoothing, estimator = float(np.float32(at(algorithm.smoothing, plan.round))), at(algorithm.estimator, plan.round)
    if estimator == "projection":
        found = model.project_gradients(objectives, plan.perturbations)
    elif estimator == "forward-mode":
        found = model.slopes(objectives, plan.perturbations)
    elif estimator == "curvature":
        found = with_curvature(losses, plan.perturbations // 2, smoothing)
    else:
        is_central = estimator == "central"
        found = differences(losses, plan.perturbations, smoothing, is_central=is_central)
    if not algorithm.is_normalised:
        return found
    norms = [norm or math.nan for norm in model.squared_norms(plan.perturbations)]  # 0 once all of H is infinite
    return [tuple(g / norm for g, norm in zip(scalars, norms, strict=True)) for scalars in found]


def _compared(losses: Losses, objectives: Sequence[Objective]) -> Losses:
    """Return the function of the losses, which also tells each objective its own."""

    def compared(shifts: Sequence[Shift]) -> list[list[float]]:
        found = losses(shifts)
        for objective, own in zip(objectives, found, strict=True):
            if (compare := getattr(objective, "compare", None)) is not None:
                compare(own)
        return found

    return compared


def _rounded(
    precision: WirePrecision, measured: Sequence[Sequence[float]], reported: Sequence[Sequence[float]]
) -> list[Scalars | Declined]:
    """Return what each client reports as rounded for the wire, float32 [1, P].

    Values that are infinite or NaN already are kept, and the server refuses them. A client declines if rounding would
    turn a finite value into an infinity, or if rounding or `reported` would hide an infinity or NaN.
    """
    form = FLOAT32 if precision == "int32" else WIRE_FORMATS[precision]
    exact, own = np.array(reported, np.float64), np.array(measured, np.float64)
    scalars = form.rounded(exact)
    results: list[Scalars | Declined] = list(scalars[:, None])
    is_hidden = np.isfinite(exact) & ~np.isfinite(own)
    is_changed = np.isfinite(exact) != np.isfinite(scalars)
    for client, p in np.argwhere(is_hidden | is_changed)[::-1]:  # the first of a client stays
        what = f"{precision} holds no more than {form.largest:.6g}, and not {exact[client, p]:.6g}"
        if is_hidden[client, p]:
            what = f"`reported` made {exact[client, p]:.6g} of {own[client, p]:.6g}"
        results[client] = Declined("overflow", what)
    return results
