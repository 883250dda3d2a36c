"""HiSo's H against the diagonal of the Hessian, and against an H without a signal.

H is an average of squares of Δ (arXiv:2506.02370, eq. 12), which hold little of each coordinate: with P directions a
round, E Δ_j² is ‖∇F‖²/P, the same for all, plus about (∂_j F)². So its spread is compared with that of an H that knows
nothing, made by folding the run's own scalars along other directions: the same scalars, ν, K and P, and no information
on coordinates. `hessian_cv_null` of the run's metrics is the formula for that spread.

The rank correlation with the diagonal has the same null, and as its interval the extremes of the nulls.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seedbus.scenarios.reporting.findings import Finding, Plot
from seedbus.scenarios.reporting.looks import Line
from seedbus.studies.analysis.curvature import Curvature
from seedbus.studies.analysis.estimate import Null, number, rank_correlation
from seedbus.studies.analysis.lanczos import Vector64
from seedbus.studies.analysis.subject import ABOUT_NULLS, NotHere, Subject

TITLE = "H against the diagonal of the Hessian"
_BINS = 50


def hessian(run: Subject) -> Finding:
    """Measure it. Raises `NotHere`."""
    if "hessian" not in run.models[0].replayed.replica.fields:
        raise NotHere(f"{run.algorithm.facts.label} has no H")
    if not run.effort.nulls:
        raise NotHere("without nulls there is nothing to compare H with; --set nulls=1 or more")
    nulls_are = ABOUT_NULLS.format(nulls=run.effort.nulls)
    notes = [
        "Spread: standard deviation over mean. Correlations: Spearman's, over coordinates.",
        f"H without a signal: {nulls_are} One more such H would be outside of its brackets with a probability of "
        f"2/{run.effort.nulls + 1}.",
    ]
    rows, facts, plots = [], [], []
    for model in run.models:
        learnt, curvature = model.replayed.replica.fields["hessian"].astype(np.float64), model.curvature
        found = _measures(learnt, curvature)
        each_null = [_measures(each, curvature) for each in model.null_hessians]
        nulls = {name: Null.of([each[name] for each in each_null]) for name in found}
        reliability = _reliability(curvature)
        formula = run.algorithm.diagnostics(model.replayed.replica).get("hessian_cv_null")
        rows += [[f"{model.round:,}", name, number(found[name]), str(nulls[name])] for name in found]
        facts.append(
            {
                "round": model.round,
                **{name.replace(" ", "_"): value for name, value in found.items()},
                "null": {name.replace(" ", "_"): null._asdict() for name, null in nulls.items()},
                "spread_by_formula": formula,
                "reliability_of_the_diagonal": reliability,
            }
        )
        at = f"Round {model.round:,}"
        if formula is not None:
            notes.append(f"{at}: hessian_cv_null, the formula for normal scalars, is {number(formula)}.")
        if reliability is not None:
            notes.append(
                f"{at}: the diagonal is an estimate of {len(curvature.diagonals)} probes (Bekas). Two such have a "
                f"correlation of {number(reliability)}, and none with H can exceed the root of that."
            )
        plots.append(_plot(model.round, learnt, model.null_hessians[0], curvature.diagonal))
    return Finding(
        "hessian", TITLE, ["round", "quantity", "H", "H without a signal"], rows, notes, plots, {"rounds": facts}
    )


def _measures(hessian: Vector64, curvature: Curvature) -> dict[str, float]:
    return {
        "spread": float(hessian.std() / hessian.mean()),
        "correlation with the diagonal": rank_correlation(hessian, curvature.diagonal),
        "correlation with the squared gradient": rank_correlation(hessian, curvature.gradient**2),
    }


def _reliability(curvature: Curvature) -> float | None:
    """Return the rank correlation of two estimates of the diagonal, by Spearman and Brown's formula.

    Each is made of half of the probes, and the formula says what two of all of them would have. None: the diagonal is
    exact, or of one probe, which does not tell.
    """
    if len(curvature.diagonals) < 2:
        return None
    between = rank_correlation(curvature.diagonals[::2].mean(axis=0), curvature.diagonals[1::2].mean(axis=0))
    return 2 * between / (1 + between) if between > 0 else 0.0


def _plot(round: int, learnt: Vector64, null: Vector64, diagonal: NDArray[np.float64]) -> Plot:
    """Plot the mean of H in bins of coordinates, by the rank of their curvature."""
    parts = np.array_split(np.argsort(diagonal), min(_BINS, diagonal.size))
    ranks = [100 * (number + 0.5) / len(parts) for number in range(len(parts))]
    drawn = [
        Line(name, ranks, [float(values[part].mean() / values.mean()) for part in parts])
        for name, values in (("H", learnt), ("H without a signal", null))
    ]
    title = f"H by curvature, round {round:,}"
    return Plot.of_lines(title, "coordinates by their diagonal entry, smallest first (%)", "H over its mean", drawn)
