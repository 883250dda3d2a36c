"""Effective rank and spectrum of the Hessian.

κ = Tr(Σ/L) with Σ = |∇²F| and L its largest eigenvalue (arXiv:2506.02370, eq. 15; DeComFL, arXiv:2405.15861, assumes it
to be small). Where κ ≪ d, the variance of a zeroth-order gradient grows with κ and not with d.
"""

from __future__ import annotations

import numpy as np

from seedbus.scenarios.reporting.axes import MAX_POINTS
from seedbus.scenarios.reporting.findings import Finding, Plot
from seedbus.scenarios.reporting.looks import Line
from seedbus.studies.analysis.estimate import Estimate, number
from seedbus.studies.analysis.subject import Subject

TITLE = "Spectrum of the Hessian"


def spectrum(run: Subject) -> Finding:
    """Measure it. Raises `NotHere`."""
    rows, facts, drawn, gained = [], [], [], []
    for model in run.models:
        curvature, name = model.curvature, f"round {model.round:,}"
        trace, absolute = curvature.trace(), curvature.trace(np.abs)
        largest = curvature.smoothness or 1.0
        kappa = Estimate(absolute.value / largest, None if absolute.error is None else absolute.error / largest)
        sizes, ranks = curvature.ranked()
        share = np.cumsum(np.diff(ranks, prepend=0) * sizes) / (absolute.value or 1.0)
        half = float(np.interp(0.5, share, ranks)) if absolute.value else 0.0  # a Hessian of zeros needs none for half
        ends = map(number, (curvature.highest, curvature.lowest))
        rows.append([f"{model.round:,}", *ends, str(trace), str(absolute), str(kappa), number(half)])
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
        at = np.unique(np.geomspace(1, sizes.size, MAX_POINTS).astype(np.int64)) - 1  # more where ranks are low
        drawn.append(Line(name, ranks[at], sizes[at]))
        gained.append(Line(name, ranks[at], 100 * share[at]))
    curvature, by_rank = run.models[0].curvature, "rank, largest magnitude first (log scale)"
    return Finding(
        "spectrum",
        f"{TITLE}, d = {curvature.dimension:,}",
        ["round", "largest λ", "smallest λ", "Tr ∇²F", "Tr |∇²F|", "κ = Tr |∇²F| / L", "λ with half of Tr |∇²F|"],
        rows,
        [f"Measured: {curvature.method}. F is the mean loss over {run.effort.samples:,} training samples, or all."],
        [
            Plot.of_lines("Eigenvalues by rank", by_rank, "|λ|", drawn, is_log=True),
            Plot.of_lines("Share of Tr |∇²F|", by_rank, "share up to there (%)", gained, is_log=True),
        ],
        {"dimension": curvature.dimension, "rounds": facts},
    )
