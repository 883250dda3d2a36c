"""MEAZO: one number scales the steps of all coordinates, the root of a running mean of the squared mean scalar.

Dbouk, Gazagnadou, Reisser, Louizos. "On Adaptivity in Zeroth-Order Optimization", arXiv:2605.03869, known here from its
abstract and from summaries. It asks what a diagonal, such as ZO-Adam's v or HiSo's H, does besides setting a step size.

    ḡ = mean over p of ḡ[p],   v ← βv + (1−β)ḡ²,   v̂ = v/(1−β^t),   x ← x − η/(√v̂ + ζ) · (1/P) Σ_p ḡ[p] z(r,p)

t counts commits from 1. (A summary prints β^(t−1), which would divide the first v by 0.)

**Ours**, clients: ḡ[p] is what the cohort's scalars combine to, and the server keeps v and 1−β^t, two numbers whatever
the dimension. A commit's η, which DeComFL's commits have as well, is this η/(√v̂ + ζ), rounded to float32: four bytes.
So followers fold MEAZO's commits as DeComFL's, to the same bits, and a replica is x alone. 1−β^t is the same running
mean, of 1, so that no power, whose last bit depends on the processor, is taken. β and ζ are ZO-Adam's. K is 1, as a
client that steps further would need v.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.contract import BadPayload, Replica
from seedbus.algorithms.numbers import Positive
from seedbus.algorithms.objective import Objective
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, ScalarPlan, Scalars
from seedbus.vector import Vector

LARGEST = float(np.finfo(np.float32).max)


class MEAZO(ScalarOnly):
    """MEAZO (arXiv:2605.03869): DeComFL whose η is divided by one running size of the scalars."""

    is_linear: ClassVar[bool] = False

    name: Literal["meazo"] = "meazo"
    local_steps: Literal[1] = Field(default=1, description="K is 1")
    beta: float = Field(default=0.99, ge=0, lt=1, description="β, decay of the mean of ḡ²")
    zeta: Positive = Field(default=1e-8, description="ζ added to √v̂")

    @property
    def facts(self) -> Facts:
        return dataclasses.replace(super().facts, takes_late=False)  # a late report was not measured for this v

    def check_state(self, state: Any) -> None:
        if state is None:
            return
        if not (isinstance(state, list) and len(state) == 3):
            raise BadPayload("the state is not [that of the rule, v, 1 − β^t]")
        self.aggregation.check_state(state[0])
        if not all(type(number) is float and 0 <= number < math.inf for number in state[1:]):
            raise BadPayload("v and 1 − β^t are not two finite numbers of at least 0")

    def aggregate(
        self, state: Any, plan: ScalarPlan, reports: Mapping[int, Scalars], **others: Any
    ) -> tuple[ScalarCommit, Any]:
        """Return the commit of ḡ, whose η has been divided, and the state [that of the rule, v, 1 − β^t]."""
        of_rule, *sizes = state or (None, 0.0, 0.0)
        commit, of_rule = super().aggregate(of_rule, plan, reports, **others)
        rate, *sizes = self._divided(plan.learning_rate, commit.terms[0].scalars, *sizes)
        return dataclasses.replace(commit, learning_rate=rate), [of_rule, *sizes]

    def trained(self, replica: Replica, memory: Any, plan: ScalarPlan, objective: Objective) -> Vector:
        scalars, _ = self.local(replica, memory, plan, objective)
        rate, *_ = self._divided(plan.learning_rate, scalars, 0.0, 0.0)  # of its own size: it does not know v
        return self._committed(replica, plan, scalars, rate)

    def _divided(self, rate: float, scalars: Scalars, variance: float, ones: float) -> tuple[float, float, float]:
        """Return η/(√v̂ + ζ), and v and 1 − β^t with these scalars, [1, P]."""
        mean = math.fsum(scalars.ravel().tolist()) / scalars.size
        variance = self.beta * variance + (1 - self.beta) * (mean * mean)
        ones = self.beta * ones + (1 - self.beta)
        divided = rate / (math.sqrt(variance / ones) + self.zeta)
        return float(np.float32(min(divided, LARGEST))), variance, ones
