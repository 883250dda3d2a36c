"""ζ against Lκ and Ld: what HiSo's H does to the variance of a direction.

arXiv:2506.02370, Figure 4, with u ~ N(0, I), z = H^−½ u, and Σ = |∇²F|:

    E‖u‖²_Σ ≤ Ld               eq. 14
    E‖u‖²_Σ = Tr Σ = Lκ        eq. 15
    E‖z‖²_Σ = Tr(H^−½ Σ H^−½) = ζ       eq. 16

ζ depends on the unit of H: twice the H halves ζ, and a learning rate twice as large undoes it. So a second figure has ζ
at equal lengths, H scaled so that E‖z‖² = E‖u‖² = d. If H knew nothing of the coordinates that would be Lκ on average:
that is its null, exactly the mean over all permutations of H. Below Lκ, H makes directions shorter where F is curved.
"""

from __future__ import annotations

import numpy as np

from seedbus.scenarios.reporting.findings import Finding, Plot
from seedbus.studies.analysis.curvature import Curvature
from seedbus.studies.analysis.estimate import Estimate, Null, number
from seedbus.studies.analysis.lanczos import Vector64
from seedbus.studies.analysis.subject import ABOUT_NULLS, Subject

TITLE = "ζ, Lκ and Ld (HiSo, Figure 4)"


def whitening(run: Subject) -> Finding:
    """Measure them. Raises `NotHere`."""
    rows, facts, plots = [], [], []
    for model in run.models:
        curvature = model.curvature
        flat, known = curvature.trace(np.abs), model.scaling
        worst = curvature.smoothness * curvature.dimension
        row = [f"{model.round:,}", number(worst), str(flat)]
        fact = {"round": model.round, "Ld": worst, "Lkappa": flat._asdict()}
        shown = {"Ld": worst, "Lκ": flat.value}
        if known is not None and known.min() > 0:
            zeta, equal = curvature.whitened(1 / known), _at_equal_lengths(model.curvature, known)
            row += [str(zeta), str(equal)]
            fact |= {"zeta": zeta._asdict(), "zeta_at_equal_lengths": equal._asdict()}
            shown |= {"ζ": zeta.value, "ζ at equal lengths": equal.value}
            if "hessian" in model.replayed.replica.fields and run.effort.nulls:
                null = Null.of([_at_equal_lengths(curvature, each).value for each in model.null_hessians])
                row.append(str(null))
                fact["null"] = null._asdict()
                shown["without a signal"] = null.mean
        rows.append([*row, *["–"] * (6 - len(row))])
        facts.append(fact)
        plots.append(Plot(f"What divides the variance, round {model.round:,}", "quantity", "log₁₀", bars=_logs(shown)))
    has_h = any(model.scaling is not None for model in run.models)
    notes = (
        [
            "ζ as in equation 16 depends on the unit of H. At equal lengths H is scaled so that directions are as long "
            "as without it; then Lκ is what a permuted H has on average.",
            f"Without a signal: {ABOUT_NULLS.format(nulls=run.effort.nulls)}",
        ]
        if has_h
        else [f"{run.algorithm.facts.label} divides its directions by nothing, so ζ is Lκ."]
    )
    return Finding(
        "whitening",
        TITLE,
        ["round", "Ld", "Lκ = Tr |∇²F|", "ζ (eq. 16)", "ζ at equal lengths", "… without a signal"],
        rows,
        notes,
        plots,
        {"rounds": facts},
    )


def _at_equal_lengths(curvature: Curvature, hessian: Vector64) -> Estimate:
    inverse = 1 / hessian
    return curvature.whitened(inverse / inverse.mean())


def _logs(values: dict[str, float]) -> dict[str, float | None]:
    return {name: float(np.log10(max(value, 1.0))) for name, value in values.items()}
