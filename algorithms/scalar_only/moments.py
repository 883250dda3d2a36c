"""Steps that running means of Δ and Δ² scale, coordinate by coordinate: what Adam's relatives have in common.

    m ← β₁m + (1−β₁)Δ,   v ← what the rule makes of v and Δ,   x ← x − η m/(√v + ε)

m and v begin at 0. They are fields of the replica, like HiSo's H: commits do not contain them, and a client that fell
behind rebuilds them from the scalars that it missed. Local steps start from the replica's and do not change them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.block import Block, descend
from seedbus.vector import Vector


class Moments(ScalarOnly):
    """The base class of rules whose replicas keep a mean of Δ, of Δ², or of both."""

    @property
    def facts(self) -> Facts:
        # a late Δ moves x by ηΔ, and η is the size of a whole step here
        return replace(super().facts, takes_late=False)

    def companions(self) -> dict[str, float]:
        return {"momentum": 0.0, "variance": 0.0}


def average(mean: Vector, fresh: Vector, decay: float, *, out: Vector) -> None:
    """Compute mean ← decay·mean + (1−decay)·fresh, with scratch in `out`."""
    real = mean.dtype.type
    np.multiply(mean, real(decay), out=mean)
    np.add(mean, np.multiply(fresh, real(1 - decay), out=out), out=mean)


def descend_scaled(block: Block, direction: Vector, variance: Vector, epsilon: float, learning_rate: float) -> None:
    """Compute x ← x − η·direction/(√variance + ε); block.delta, which may be the direction, is not kept."""
    divisor = np.sqrt(variance, out=block.spare)
    np.add(divisor, divisor.dtype.type(epsilon), out=divisor)
    descend(block, np.divide(direction, divisor, out=block.delta), learning_rate)
