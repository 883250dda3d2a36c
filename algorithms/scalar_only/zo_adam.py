"""ZO-Adam: steps are scaled, coordinate by coordinate, by running means of Δ and Δ² that every follower rebuilds.

Chen, Liu, Xu, Li, Lin, Hong, Cox. "ZO-AdaMM: Zeroth-Order Adaptive Momentum Method for Black-Box Optimization",
NeurIPS 2019, arXiv:1910.06513, Algorithm 1 without constraints. DeComFL's paper (arXiv:2405.15861, Appendix A.1) names
it as one of the optimisers that fit its messages:

    Δ = (1/P) Σ_p ḡ[k,p] z(r,k,p)                    z isotropic
    m ← β₁m + (1−β₁)Δ,   v ← β₂v + (1−β₂)Δ²
    x ← x − η m/(√v + ε)                             amsgrad: false
    v̂ ← max(v̂, v),   x ← x − η m/(√v̂ + ε)           amsgrad: true, as in ZO-AdaMM

m, v and v̂ begin at 0, and every follower rebuilds them (`moments`).

**Ours**: DeComFL's directions. The paper's estimate, (d/μ)(f(x+μv) − f(x)) v, has v uniform on the unit sphere, so a μ
of theirs reaches as far as one here that is √d times smaller. **Ours** too: ε, which the paper leaves out, so that a
coordinate that has not moved is not divided by 0. As in the paper there is no correction of m and v for their start at
0: the first steps are (1−β₁)/√(1−β₂) of η, which is 1 with the defaults. A report that missed its round is of no use,
because η is not a multiple of Δ here.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.numbers import Positive
from seedbus.algorithms.scalar_only.block import Block
from seedbus.algorithms.scalar_only.moments import Moments, average, descend_scaled


class ZOAdam(Moments):
    """ZO-Adam (ZO-AdaMM, arXiv:1910.06513): DeComFL whose followers rebuild Adam's m and v from the scalars."""

    name: Literal["zo-adam"] = "zo-adam"
    beta1: float = Field(default=0.9, ge=0, lt=1, description="β₁, decay of the mean of Δ")
    beta2: float = Field(default=0.99, ge=0, lt=1, description="β₂, decay of the mean of Δ²")
    epsilon: Positive = Field(default=1e-8, description="ε added to √v")
    amsgrad: bool = Field(default=False, description="divide by the largest v so far, as ZO-AdaMM; one field more")

    def companions(self) -> dict[str, float]:
        return super().companions() | ({"largest_variance": 0.0} if self.amsgrad else {})

    def step(self, block: Block, learning_rate: float) -> None:
        m, v, delta = block.fields["momentum"], block.fields["variance"], block.delta
        average(m, delta, self.beta1, out=block.spare)
        average(v, np.multiply(delta, delta, out=delta), self.beta2, out=block.spare)
        if self.amsgrad:
            largest = block.fields["largest_variance"]
            v = np.maximum(largest, v, out=largest)
        descend_scaled(block, m, v, self.epsilon, learning_rate)
