"""LOZO: directions that are matrices of a low rank, because the gradients of language models are such.

Chen, Zhang, Cao, Yuan, Wen. "Enhancing Zeroth-Order Fine-Tuning for Language Models with Low-Rank Structures", ICLR
2025, arXiv:2410.07698, Algorithm 1:

    g = (f(X + εUVᵀ) − f(X − εUVᵀ)) / 2ε,   X ← X − η g UVᵀ / r         U [m, r] new in each step, V [n, r] for ν steps

for every matrix X [m, n] of a network; other parameters have independent coordinates. Here z = UVᵀ/√r
(`directions.low_rank`), which for matrices is the same with μ = ε√r, and has the variance 1 of all directions. The
authors' code has no 1/r, which for matrices is an η that is r times as large. **Ours**: other parameters get that μ and
that η too.

Because V stays, the sum over P directions is one matrix of the same rank, and a follower adds the U of a step before it
makes a product: replay costs r products a coordinate and step, where dense directions cost P draws.

**Ours**: many clients; ν counts rounds, and V is keyed by the number of the window that a round is in alone, so that a
commit says which V it means: all seeds of a scenario have the same V. A convolution is a matrix with a row for each
output channel. LOZO-M, whose momentum is of low rank too, is not here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.contract import Shapes
from seedbus.algorithms.directions import Directions
from seedbus.algorithms.directions.low_rank import Layers, LowRankDirections
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.factored import Factored
from seedbus.algorithms.scalar_only.fields import Estimator
from seedbus.algorithms.scalar_only.perturbed import Copying
from seedbus.algorithms.schedule import Scheduled
from seedbus.capabilities import Fact, Needs, Stated
from seedbus.keyed import keyed_bits


class LOZO(ScalarOnly):
    """LOZO (arXiv:2410.07698): directions of low rank, a product UVᵀ for each matrix of the network."""

    fold_block: ClassVar[int | None] = 1 << 16  # a step's products cost so little that calls count

    name: Literal["lozo"] = "lozo"
    rank: int = Field(default=2, ge=1, le=64, description="r, the rank of a matrix's direction")
    interval: int = Field(default=50, ge=1, lt=2**32, description="ν, rounds for which V stays the same")
    estimator: Scheduled[Estimator] = Field(
        default="central", description="as for DeComFL; the paper's is central; may change by round"
    )
    forward: Annotated[
        Literal["each", "factored"], Stated(Needs(Fact.FACTORS, "measures the losses of a step together"))
    ] = Field(
        default="each",
        description="each: a loss is computed at x + μz; factored: those of a step together, by x and the factors U "
        "and V, and no x + μz is formed: with other last bits, and mostly faster (docs/directions.md)",
    )
    _layers: Layers | None = None

    @property
    def facts(self) -> Facts:
        return replace(super().facts, needs_layers=True, needs_factors=self.forward == "factored")

    @property
    def copying(self) -> type[Copying]:
        return Copying if self.forward == "each" else Factored

    @model_validator(mode="after")
    def _check_forward(self) -> Self:
        if self.forward == "factored" and self.derivatives:
            reason = f"estimator: {self.derivatives[0]} perturbs nothing; forward and central are accepted"
            raise ValueError(f"forward: factored is not possible here: {reason}")
        if self.forward == "factored" and self.revert != "copy":
            raise ValueError(f"forward: factored needs revert: copy; {self.revert} writes each x + μz")
        return self

    def sized(self, dimension: int, shapes: Shapes = ()) -> Self:
        """Return this algorithm for a network with these parameters, or for one vector, which is no matrix."""
        own = super().sized(dimension, shapes)
        own._layers = Layers.of(shapes or [(dimension,)], self.rank)
        return own

    def directions_of(self, source: Directions, round: int) -> LowRankDirections:
        if self._layers is None:
            raise RuntimeError("lozo has no directions before `sized`")
        return LowRankDirections(source.law, self._layers, self._seed(keyed_bits("lozo", round // self.interval)))
