"""FedScalar with the round's directions: clients train by SGD, and report the projections of their whole update.

**Ours**, of FedScalar (`fedscalar`), whose clients have directions of their own:

    client      y ← x,  y ← y − α∇f(y; ξ_k) for K mini-batches,  g[p] = ⟨x − y, z(r,p)⟩,  rounded for the wire
    server      ḡ = mean of g over the cohort, or a robust rule instead
    follower    x ← x − (η/P) Σ_p ḡ[p] z(r,p)

E[⟨u, z⟩z] = u, so with η = 1 the expected step is FedAvg's mean update (`weighting: uniform`). Its noise is that of P
random directions in d dimensions, about √(d/P) times as long as the step, whatever K and the cohort: η·α has to be so
much smaller than FedAvg's. As all clients share directions, a commit is one seed and P scalars, whatever the cohort,
and scalars can be compared, summed and masked: robust rules, exact sums and masks work as for DeComFL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.contract import Declined, Replica, Work
from seedbus.algorithms.numbers import Positive
from seedbus.algorithms.objective import PASSES, Differentiable
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.differences import projections
from seedbus.algorithms.scalar_only.fields import Count
from seedbus.algorithms.scalar_only.local import reports_of
from seedbus.algorithms.scalar_only.payloads import ScalarPlan, Scalars
from seedbus.algorithms.scalar_only.perturbed import gradient_of
from seedbus.algorithms.schedule import Scheduled, at, values
from seedbus.vector import Vector


class FedScalarShared(ScalarOnly):
    """FedScalar (arXiv:2410.02260) along the round's directions, which is ours: a commit is one seed and P scalars."""

    name: Literal["fedscalar-shared"] = "fedscalar-shared"
    perturbations: Scheduled[Count] = Field(
        default=1, description="P, directions that an update is projected onto; may change by round"
    )
    local_steps: Scheduled[Count] = Field(
        default=10, description="K, mini-batches of a client's SGD; may change by round"
    )
    local_learning_rate: Scheduled[Positive] = Field(default=1e-3, description="α, of SGD; may change by round")
    learning_rate: Scheduled[Positive] = Field(
        default=1.0, description="η, by which followers multiply the step; the paper's is 1; may change by round"
    )
    smoothing: float = Field(default=1e-3, description="not used: there are no finite differences")
    weight_decay: float = Field(default=0.0, description="not used: a client's SGD has none")
    estimator: Literal["projection"] = Field(default="projection", description="of the update")
    revert: Literal["copy"] = Field(default="copy", description="SGD writes to a copy of x")

    @model_validator(mode="after")
    def _of_sgd(self) -> Self:
        for name in ("smoothing", "weight_decay"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is {getattr(self, name)}, and {self.name} does not use it; leave it out")
        return self

    @property
    def facts(self) -> Facts:
        projected = (
            "projections, onto directions that follow from seeds, of how training on your samples moved the model"
        )
        return replace(super().facts, reports=projected)

    @property
    def scalars_formula(self) -> str:
        return "P"

    @property
    def _most(self) -> int:
        return max(values(self.perturbations))

    def plan(self, round: int, version: int, seed: int, state: Any = None) -> ScalarPlan:
        return replace(super().plan(round, version, seed), steps=1)

    def directions_of_report(self, round: int) -> int:
        return at(self.perturbations, round)

    def work(self, round: int) -> Work:
        return super().work(round)._replace(evaluations=at(self.local_steps, round) * PASSES)

    def trained(self, replica: Replica, memory: Any, plan: ScalarPlan, objective: Any) -> Vector:
        return self._descended(self.point(replica), plan.round, objective)

    def _measure(self, replica: Replica, plan: ScalarPlan, objectives: Sequence[Any]) -> list[Scalars | Declined]:
        x, directions = self.point(replica), self._backend(replica.x)
        found = []
        for objective in objectives:
            seed = self._seed_of(plan, objective)

            def write(z: Vector, perturbation: int, span: slice, seed: int = seed) -> None:
                directions.fill(z, seed=seed, step=0, perturbation=perturbation, start=span.start)

            with np.errstate(over="ignore", invalid="ignore"):  # the server refuses an update that diverged
                update = x - self._descended(x, plan.round, objective)
            found.append(projections(update, write, plan.perturbations))
        return reports_of(self, found)

    def _seed_of(self, plan: ScalarPlan, objective: Differentiable) -> int:
        """Return what keys the directions that a client's update is projected onto."""
        return plan.seed

    def _descended(self, x: Vector, round: int, objective: Differentiable) -> Vector:
        """Return a client's model after its SGD from x, a new vector, [d]."""
        y, rate = x.copy(), np.float32(at(self.local_learning_rate, round))
        gradient = gradient_of(objective, f"algorithm {self.name}")
        with np.errstate(over="ignore", invalid="ignore"):
            for step in range(at(self.local_steps, round)):
                np.copyto(objective.point, y)
                y -= gradient(step) * rate
        return y
