"""FZOO: every step is divided by the standard deviation of the losses that it was measured with.

Dang, Guo, Zhao, Ye, Zheng, Dai, Tsang. "FZOO: Fast Zeroth-Order Optimizer for Fine-Tuning Large Language Models towards
Adam-Scale Speed", ICLR 2026, arXiv:2506.09034; the authors' code is DKmiyan/FZOO, trainer.py. With u = ±1:

    l_0 = f(x),  l_p = f(x + μu_p),   σ = standard deviation of l_1 … l_P,   x ← x − η/(Pσ) Σ_p (l_p − l_0) u_p

σ divides by P, as in the authors' code; the paper prints P − 1, which η takes up. l_p − l_0 is μ·g_p, so σ is μ times
the deviation of the scalars, and μ cancels.

**Ours**, clients: the mean of their losses is the loss of the cohort, so σ is that of the scalars ḡ[k,p] in the commit.
Messages are DeComFL's: a client sends its g and no σ, and a commit has no more than ḡ. Every follower computes

    x ← x − η/σ[k] · (1/P) Σ_p ḡ[k,p] u(r,k,p),     σ[k]² = (1/P) Σ_p (ḡ[k,p] − mean of ḡ[k])²

from them, with exact sums and a correctly rounded root, so to the same bits. A client's local steps are divided by the
σ of its own scalars. If all losses are equal there is no step. A report that missed its round is of no use: its own σ
is another one. The paper also reuses the losses of earlier steps for σ; neither the authors' public code nor this does.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.directions.laws.law import AnyLaw
from seedbus.algorithms.directions.laws.rademacher import Rademacher
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.fields import Count
from seedbus.algorithms.schedule import Scheduled, values
from seedbus.vector import Vector

LEAST = 2.0**-126
"""The least σ by which a step is divided, the smallest normal float32; below it losses count as equal."""


class FZOO(ScalarOnly):
    """FZOO (arXiv:2506.09034): DeComFL whose steps are divided by the standard deviation of their scalars."""

    is_linear: ClassVar[bool] = False

    name: Literal["fzoo"] = "fzoo"
    perturbations: Scheduled[Count] = Field(
        default=8, description="P, directions per local step, at least 2; may change by round"
    )
    directions: AnyLaw = Field(default=Rademacher(), description="law of u's coordinates; the paper's is ±1")

    @model_validator(mode="after")
    def _has_a_deviation(self) -> Self:
        if min(values(self.perturbations)) < 2:
            raise ValueError("perturbations: 1 has no standard deviation, by which steps are divided; 2 or more has")
        if self.precision == "sign":
            raise ValueError(
                "precision: sign leaves nothing of a standard deviation; float32, float16 and bfloat16 are accepted"
            )
        return self

    @property
    def facts(self) -> Facts:
        return replace(super().facts, takes_late=False)  # a late report has a σ of its own

    def rate(self, learning_rate: float, scalars: Vector) -> float:
        own = scalars.tolist()
        if not all(map(math.isfinite, own)):
            return math.nan  # the client diverges, and its report will be refused
        mean = math.fsum(own) / len(own)
        deviation = math.sqrt(math.fsum((scalar - mean) * (scalar - mean) for scalar in own) / len(own))
        return learning_rate / deviation if deviation >= LEAST else 0.0
