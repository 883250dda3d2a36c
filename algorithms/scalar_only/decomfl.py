"""DeComFL: dimension-free communication in federated learning by zeroth-order optimisation.

Li, Ying, Liu, Dong, Yang. "Achieving Dimension-Free Communication in Federated Learning via Zeroth-Order
Optimization", ICLR 2025, arXiv:2405.15861, Algorithms 1–4; momentum: equations 8–9 of its Appendix A.

    m ← βm + (1−β)Δ,   x ← x − ηm       (dampening: true, equation 8)
    m ← βm + Δ,        x ← x − ηm       (dampening: false, as in the authors' code)

Equation 8 prints the new m on its right side, too, where this has the one before the step. The step for P > 1 is that
of Algorithms 3 and 4; Appendix A.1 prints it without their 1/P.

m is a field of the replica, so a client that fell behind rebuilds it from the commits that it missed. Local steps start
from the replica's m and do not change it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.directions import Momentum, UpdateRule
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.block import Block, descend


class DeComFL(ScalarOnly):
    """DeComFL (arXiv:2405.15861): seeds down, gradient scalars up, isotropic directions."""

    name: Literal["decomfl"] = "decomfl"
    momentum: float = Field(default=0.0, ge=0, lt=1, description="β of equations 8–9; 0: none")
    dampening: bool = Field(default=True, description="multiply Δ by 1−β (equation 8); the authors' code does not")

    def companions(self) -> dict[str, float]:
        return {"momentum": 0.0} if self.momentum else {}

    @property
    def momentum_rule(self) -> Momentum | None:
        return Momentum(self.momentum, 1 - self.momentum if self.dampening else 1) if self.momentum else None

    def update_rule(self) -> UpdateRule | None:
        return UpdateRule(self.momentum_rule)

    def step(self, block: Block, learning_rate: float) -> None:
        if not self.momentum:
            descend(block, block.delta, learning_rate)
            return
        m, real = block.fields["momentum"], block.delta.dtype.type
        np.multiply(m, real(self.momentum), out=m)
        fresh = np.multiply(block.delta, real(1 - self.momentum), out=block.spare) if self.dampening else block.delta
        np.add(m, fresh, out=m)
        descend(block, m, learning_rate)
