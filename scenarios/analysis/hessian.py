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

from seedbus.scenarios.analysis.curvature import Curvature
from seedbus.scenarios.analysis.estimate import Null, number, rank_correlation
from seedbus.scenarios.analysis.findings import Finding
from seedbus.scenarios.analysis.lanczos import Vector64
from seedbus.scenarios.analysis.subject import NotHere, Subject
from seedbus.scenarios.reporting.figures import Line, lines

TITLE = "H against the diagonal of the Hessian"
_BINS = 50


def hessian(run: Subject) -> Finding:
    """Measure it. Raises `NotHere`."""
    if "hessian" not in run.models[0].replayed.replica.fields:
        raise NotHere(f"{run.algorithm.name} has no H")
    if not run.effort.nulls:
        raise NotHere("without nulls there is nothing to compare H with; --nulls 1 or more")
    rows, facts, plots = [], [], []
    for model in run.models:
        learnt, curvature = model.replayed.replica.fields["hessian"].astype(np.float64), model.curvature
        squared = curvature.gradient**2
        measures = {
            "spread": lambda h: float(h.std() / h.mean()),
            "correlation with the diagonal": lambda h, c=curvature: rank_correlation(h, c.diagonal),
            "correlation with the squared gradient": lambda h, s=squared: rank_correlation(h, s),
        }
        found = {name: measure(learnt) for name, measure in measures.items()}
        nulls = {name: Null.of([measure(each) for each in model.null_hessians]) for name, measure in measures.items()}
        reliability = _reliability(curvature)
        formula = run.algorithm.diagnostics(model.replayed.replica).get("hessian_cv_null")
        rows.append(
            [
                f"{model.round:,}",
                *(text for name in measures for text in (number(found[name]), str(nulls[name]))),
                "1 (exact)" if reliability is None else number(reliability),
            ]
        )
        facts.append(
            {
                "round": model.round,
                **{name.replace(" ", "_"): value for name, value in found.items()},
                "null": {name.replace(" ", "_"): null._asdict() for name, null in nulls.items()},
                "spread_by_formula": formula,
                "reliability_of_the_diagonal": reliability,
            }
        )
        plots.append(_plot(model.round, learnt, model.null_hessians[0], curvature.diagonal))
    exact = run.models[0].curvature.is_exact
    notes = [
        "Spread: standard deviation over mean. Correlations: Spearman's. Brackets: mean [least, most] of "
        f"{run.effort.nulls} H without a signal, the run's scalars folded along other directions. Outside of the "
        "brackets, H knows something of its coordinates."
    ]
    if not exact:
        notes.append(
            "The diagonal is an estimate (Bekas, of products with ±1 probes); its reliability is the correlation that "
            "one such estimate has with another, and no correlation with it exceeds the root of that."
        )
    return Finding(
        "hessian",
        TITLE,
        [
            "round",
            "spread of H",
            "… without a signal",
            "correlation with the diagonal",
            "… without a signal",
            "with the squared gradient",
            "… without a signal",
            "reliability of the diagonal",
        ],
        rows,
        notes,
        plots,
        {"rounds": facts},
    )


def _reliability(curvature: Curvature) -> float | None:
    """Return the rank correlation of two estimates of the diagonal, by Spearman and Brown's formula; None: it is exact.

    Each is made of half of the probes, and the formula says what two of all of them would have.
    """
    if curvature.is_exact:
        return None
    between = rank_correlation(curvature.diagonals[::2].mean(axis=0), curvature.diagonals[1::2].mean(axis=0))
    return 2 * between / (1 + between) if between > 0 else 0.0


def _plot(round: int, learnt: Vector64, null: Vector64, diagonal: NDArray[np.float64]) -> str:
    """Plot the mean of H in bins of coordinates, by the rank of their curvature."""
    parts = np.array_split(np.argsort(diagonal), min(_BINS, diagonal.size))
    ranks = [100 * (number + 0.5) / len(parts) for number in range(len(parts))]
    drawn = [
        Line(name, ranks, [float(values[part].mean() / values.mean()) for part in parts])
        for name, values in (("H", learnt), ("H without a signal", null))
    ]
    title = f"H by curvature, round {round:,}"
    return lines(title, "coordinates by their diagonal entry, smallest first (%)", "H over its mean", drawn)
