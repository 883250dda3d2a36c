"""`forward: factored`: the losses of a local step from x and the factors of its directions of low rank.

A layer takes x(p) to x(p)Wᵀ + μ(x(p)V)U(p)ᵀ. So x is written to the objectives' point once for a step and not once for
each direction, and W is read once (`models.parameters.factored`). Directions are the same to the bit, and so are
replicas that fold the same scalars; losses differ from those at x + μz in their last bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from seedbus.algorithms.directions.low_rank import LowRankDirections
from seedbus.algorithms.objective import Factored as HasFactors
from seedbus.algorithms.objective import Objective
from seedbus.algorithms.scalar_only.differences import Losses, Shift
from seedbus.algorithms.scalar_only.perturbed import Copying, having, read


class Factored(Copying):
    """The model of `revert: copy`, whose losses are measured by factors."""

    def losses(self, objectives: Sequence[Objective]) -> Losses:
        needed_by = "algorithm.forward: factored"
        clients: list[HasFactors] = [having("measure_factored", each, needed_by) for each in objectives]
        directions = self._directions
        if not isinstance(directions, LowRankDirections):
            raise TypeError(f"{type(directions).__name__} have no factors, which forward: factored needs")

        def losses(shifts: Sequence[Shift]) -> list[list[float]]:
            self._copy_to(clients[0].points()[0])  # clients share it
            factors = directions.factors(shifts, seed=self._plan.seed, step=self._k)
            # each client's batch by itself: what is measured may not depend on who else is hosted here
            return read(clients[0], [[client.measure_factored(self._k, factors)] for client in clients])

        return losses
