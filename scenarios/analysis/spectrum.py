"""Effective rank and spectrum of the Hessian.

κ = Tr(Σ/L) with Σ = |∇²F| and L its largest eigenvalue (arXiv:2506.02370, eq. 15; DeComFL, arXiv:2405.15861, assumes it
to be small). Where κ ≪ d, the variance of a zeroth-order gradient grows with κ and not with d.
"""

from __future__ import annotations

import numpy as np

from seedbus.scenarios.analysis.estimate import Estimate, number
from seedbus.scenarios.analysis.findings import Finding
from seedbus.scenarios.analysis.subject import Subject
from seedbus.scenarios.reporting.axes import sample_indices
from seedbus.scenarios.reporting.figures import Line, lines

TITLE = "Spectrum of the Hessian"


def spectrum(run: Subject) -> Finding:
    """Measure it. Raises `NotHere`."""
    rows, facts, drawn, gained = [], [], [], []
    for model in run.models:
        curvature = model.curvature
        trace, absolute = curvature.trace(), curvature.trace(np.abs)
        largest = curvature.smoothness or 1.0
        kappa = Estimate(absolute.value / largest, None if absolute.error is None else absolute.error / largest)
        rows.append(
            [
                f"{model.round:,}",
                *map(number, (curvature.highest, curvature.lowest)),
                *map(str, (trace, absolute, kappa)),
            ]
        )
        sizes, ranks = curvature.ranked()
        half = float(np.interp(absolute.value / 2, np.cumsum(np.diff(ranks, prepend=0) * sizes), ranks))
        rows[-1].append(number(half))
        facts.append(
            {
                "round": model.round,
                "method": curvature.method,
                "products": curvature.products,
                "highest": curvature.highest,
                "lowest": curvature.lowest,
                "trace": trace._asdict(),
                "absolute_trace": absolute._asdict(),
                "effective_rank": kappa._asdict(),
                "half_of_trace": half,
            }
        )
        at = sample_indices(sizes.size)
        drawn.append(Line(f"round {model.round:,}", ranks[at], sizes[at]))
        gained.append(
            Line(
                f"round {model.round:,}",
                ranks[at],
                100 * np.cumsum(np.diff(ranks, prepend=0) * sizes)[at] / absolute.value,
            )
        )
    curvature = run.models[0].curvature
    counted = f"{curvature.method}; F is the mean loss of {run.effort.samples:,} training samples at most"
    return Finding(
        "spectrum",
        f"{TITLE}, d = {curvature.dimension:,}",
        [
            "round",
            "largest λ",
            "smallest λ",
            "Tr ∇²F",
            "Tr |∇²F|",
            "κ = Tr |∇²F| / L",
            "eigenvalues with half of Tr |∇²F|",
        ],
        rows,
        [f"{counted}."],
        [
            lines("Eigenvalues by rank", "rank, largest magnitude first (log scale)", "|λ|", drawn, is_log=True),
            lines(
                "Share of Tr |∇²F|",
                "rank, largest magnitude first (log scale)",
                "share up to there (%)",
                gained,
                is_log=True,
            ),
        ],
        {"dimension": curvature.dimension, "rounds": facts},
    )
