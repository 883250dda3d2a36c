"""ZO-Yogi: ZO-Adam whose v moves towards Δ² by steps of (1−β₂)Δ², so that it falls no faster than it rises.

Zaheer, Reddi, Sachan, Kale, Kumar. "Adaptive Methods for Nonconvex Optimization", NeurIPS 2018, Algorithm 2, with
DeComFL's Δ in the place of the gradient; the dense family's `fedyogi` (arXiv:2003.00295) has the same v. DeComFL's
paper (arXiv:2405.15861, Appendix A.1) puts other optimisers of this kind on its messages.

    m ← β₁m + (1−β₁)Δ,   v ← v − (1−β₂) sign(v − Δ²) Δ²,   x ← x − η m/(√v + ε)

β₁, β₂ and ε are the paper's. **Ours**: v begins at 0, so the first step makes it (1−β₂)Δ², as ZO-Adam's. v is
never negative: it falls by (1−β₂)Δ² only where it is above Δ².
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.numbers import Positive
from seedbus.algorithms.scalar_only.block import Block
from seedbus.algorithms.scalar_only.moments import Moments, average, descend_scaled


class ZOYogi(Moments):
    """ZO-Yogi (Zaheer et al. 2018; arXiv:2405.15861, A.1): ZO-Adam whose v falls no faster than it rises."""

    name: Literal["zo-yogi"] = "zo-yogi"
    beta1: float = Field(default=0.9, ge=0, lt=1, description="β₁, decay of the mean of Δ")
    beta2: float = Field(default=0.999, ge=0, lt=1, description="β₂: v moves by (1−β₂)Δ²")
    epsilon: Positive = Field(default=1e-3, description="ε added to √v")

    def step(self, block: Block, learning_rate: float) -> None:
        m, v, delta = block.fields["momentum"], block.fields["variance"], block.delta
        average(m, delta, self.beta1, out=block.spare)
        squares = np.multiply(delta, delta, out=delta)
        towards = np.sign(np.subtract(v, squares, out=block.spare), out=block.spare)
        np.multiply(squares, squares.dtype.type(1 - self.beta2), out=squares)
        np.subtract(v, np.multiply(towards, squares, out=towards), out=v)
        descend_scaled(block, m, v, self.epsilon, learning_rate)
