"""R-AdaZO: ZO-Adam whose v is the second moment of its first moment, which deviates less than Δ.

Shu, Zhang, He, Dai. "Refining Adaptive Zeroth-Order Optimization at Ease", ICML 2025, arXiv:2502.01014, Algorithm 1.

    m ← β₁m + (1−β₁)Δ,   v ← β₂v + (1−β₂)m²,   x ← x − η m/√(v + ζ)

ζ stands under the root, as in the paper; the authors' code (class R_AdaZO) adds it to the root. Both leave out a
correction of m and v for their start at 0: the first step is 1/√(1−β₂) of η. β₁ and β₂ are the code's. **Ours**:
DeComFL's directions. The code draws u on the unit sphere and leaves the paper's factor d out, which m/√v cancels.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.numbers import Positive
from seedbus.algorithms.scalar_only.block import Block, descend
from seedbus.algorithms.scalar_only.moments import Moments, average


class RAdaZO(Moments):
    """R-AdaZO (arXiv:2502.01014): ZO-Adam whose v is a running mean of m², and not of Δ²."""

    name: Literal["r-adazo"] = "r-adazo"
    beta1: float = Field(default=0.9, ge=0, lt=1, description="β₁, decay of the mean of Δ")
    beta2: float = Field(default=0.999, ge=0, lt=1, description="β₂, decay of the mean of m²")
    zeta: Positive = Field(default=1e-8, description="ζ added to v")

    def step(self, block: Block, learning_rate: float) -> None:
        m, v, delta = block.fields["momentum"], block.fields["variance"], block.delta
        average(m, delta, self.beta1, out=block.spare)
        average(v, np.multiply(m, m, out=delta), self.beta2, out=block.spare)
        divisor = np.sqrt(np.add(v, v.dtype.type(self.zeta), out=delta), out=delta)
        descend(block, np.divide(m, divisor, out=delta), learning_rate)
