"""ZO-RMSProp: Δ over the root of a running mean of Δ², which is ZO-Adam without its m.

Tieleman, Hinton. "Lecture 6.5: RMSProp", Coursera 2012, with DeComFL's Δ in the place of the gradient. DeComFL's paper
(arXiv:2405.15861, Appendix A.1) puts other optimisers of this kind on its messages.

    v ← ρv + (1−ρ)Δ²,   x ← x − η Δ/(√v + ε)

v begins at 0 and is not corrected for that, as in the lecture: the first step is 1/√(1−ρ) of η in every coordinate.
ρ is the lecture's; ε, which it leaves out, is ZO-Adam's.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.numbers import Positive
from seedbus.algorithms.scalar_only.block import Block
from seedbus.algorithms.scalar_only.moments import Moments, average, descend_scaled


class ZORMSProp(Moments):
    """ZO-RMSProp (Tieleman, Hinton 2012; arXiv:2405.15861, A.1): DeComFL whose Δ is divided by its running size."""

    name: Literal["zo-rmsprop"] = "zo-rmsprop"
    decay: float = Field(default=0.9, ge=0, lt=1, description="ρ, decay of the mean of Δ²")
    epsilon: Positive = Field(default=1e-8, description="ε added to √v")

    def companions(self) -> dict[str, float]:
        return {"variance": 0.0}

    def step(self, block: Block, learning_rate: float) -> None:
        v, delta = block.fields["variance"], block.delta
        squares = np.multiply(delta, delta, out=block.spare)
        average(v, squares, self.decay, out=squares)
        descend_scaled(block, delta, v, self.epsilon, learning_rate)
