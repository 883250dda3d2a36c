"""Two variants of HiSo, each off by default; scenarios write both beside HiSo's own settings.

normalise: true           g ← g/‖z‖²                              eq. 7's (uᵀH⁻¹u)⁻¹, which eq. 8 leaves to η
hessian: mean             z(r,k,p) = u(r,k,p) / sqrt(mean of H_r)    the control: all that H knows is one number
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.contract import Replica, commits_after
from seedbus.algorithms.directions import UpdateRule
from seedbus.algorithms.scalar_only.block import total
from seedbus.algorithms.scalar_only.hiso_curvature import HiSoCurvature
from seedbus.algorithms.scalar_only.payloads import ScalarCommit
from seedbus.vector import Vector


class HiSoVariants(HiSoCurvature):
    """HiSo (arXiv:2506.02370): DeComFL with directions scaled by a diagonal Hessian that every follower rebuilds."""

    normalise: bool = Field(
        default=False,
        description="clients divide each scalar by ‖z‖² (equation 7), which is about d; the learning rate is then as "
        "many times larger",
    )
    hessian: Literal["diagonal", "mean"] = Field(
        default="diagonal",
        description="what divides directions: the root of each H_j, or, as a control, of the mean of H in every "
        "coordinate, with a second vector of d numbers",
    )

    @model_validator(mode="after")
    def _divides_slopes(self) -> Self:
        if self.normalise and self.has_curvature:
            raise ValueError(
                "normalise: true divides slopes and not curvatures; leave it out with estimator: curvature"
            )
        return self

    @property
    def facts(self) -> Facts:
        found = super().facts
        falls = "H learns from normalised Δ, which are about 1/d as large, so it falls towards ε; clip bounds it"
        is_falling = bool(self.normalise and self.nu and self.clip is None)
        return replace(found, caveats=[*found.caveats, *[falls] * is_falling])

    @property
    def is_normalised(self) -> bool:
        return self.normalise

    def companions(self) -> dict[str, float]:
        found = super().companions()
        return found if self.hessian == "diagonal" else found | {"hessian_mean": found["hessian"]}

    def divisor(self, fields: Mapping[str, Vector], out: Vector) -> Vector | None:
        if self.hessian == "diagonal":
            return super().divisor(fields, out)
        return np.sqrt(fields["hessian_mean"], out=out)

    def apply(self, replica: Replica, commits: Sequence[ScalarCommit]) -> None:
        if self.hessian == "diagonal":
            super().apply(replica, commits)
            return
        hessian = replica.fields["hessian"]
        for commit in commits_after(replica.version, commits):
            super().apply(replica, [commit])
            replica.fields["hessian_mean"].fill(total(hessian, lambda span: hessian[span]) / hessian.size)

    def update_rule(self) -> UpdateRule | None:
        """Return None for a mean over all coordinates, which a block does not know."""
        return super().update_rule() if self.hessian == "diagonal" else None

    def _null_variance(self) -> float:
        """With one mean in the place of each H_j nothing pulls a large H_j back."""
        return super()._null_variance() * (1 if self.hessian == "diagonal" else 2)
