"""FedScalar: a client trains by SGD, and sends its whole update as a scalar, along a direction of its own.

Rostami, Kia. "FedScalar: Federated Learning with Scalar Communication for Bandwidth-Constrained Networks",
arXiv:2410.02260:

    client      y ← x,  y ← y − α∇f(y; ξ_k) for K mini-batches,  r = ⟨y − x, v⟩ for a random v     sends r and v's seed
    server      x ← x + (1/n) Σ_i r_i v_i                                                         over n clients

The paper's server sends x, d numbers, in every round. **Ours**: a commit is the n seeds and scalars, from which every
follower computes the step, so that both ways are dimension-free. A client's seed is drawn from its own key, and scalars
are g = −r, so that x ← x − (η/nP) Σ_i Σ_p g_i[p] z_i(p), with P directions a client and a rate η (the paper: 1 and 1).
Late reports are further terms.

With directions of their own, clients' noise averages out: it is about √(d/nP) times as long as the step. But a commit
grows with the cohort, and scalars cannot be compared, so that the only rule is the mean. `fedscalar-shared` has the
round's directions instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.contract import Declined, LateReports, Packed, Replica
from seedbus.algorithms.objective import Differentiable
from seedbus.algorithms.scalar_only import payloads as wire
from seedbus.algorithms.scalar_only.fedscalar_shared import FedScalarShared
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, ScalarPlan, Scalars, Term
from seedbus.keyed import keyed_bits
from seedbus.vector import Vector


@dataclass(frozen=True, slots=True)
class SeededReport:
    """A client's report.

    Attributes:
        seed: 64 bits that key its directions.
        scalars: float32 [1, P].
    """

    seed: int
    scalars: Scalars


class FedScalar(FedScalarShared):
    """FedScalar (arXiv:2410.02260): projections of an update by SGD onto directions of the client's own."""

    name: Literal["fedscalar"] = "fedscalar"  # type: ignore[assignment]
    precision: Literal["float32", "float16", "bfloat16"] = Field(
        default="float32", description="format of scalars on the wire"
    )
    arithmetic: Literal["float"] = Field(
        default="float", description="x is float32: bfloat16 would round it after each report of a commit"
    )

    @model_validator(mode="after")
    def _of_mean(self) -> Self:
        if self.aggregation.rule != "mean":
            raise ValueError(
                f"aggregation: {self.aggregation.rule} compares the scalars of clients, and each client of fedscalar "
                "has directions of its own; mean is accepted (fedscalar-shared takes every rule)"
            )
        return self

    @property
    def facts(self) -> Facts:
        beside = "the seed of its directions"
        return replace(super().facts, has_round_seeds=False, is_comparable=False, beside_scalars=beside)

    def _seed_of(self, plan: ScalarPlan, objective: Differentiable) -> int:
        return keyed_bits("fedscalar", objective.key)

    def _together(
        self, replica: Replica, memories: Sequence[Any], plan: ScalarPlan, objectives: Sequence[Any]
    ) -> list[Any]:
        results = super()._together(replica, memories, plan, objectives)
        return [
            each if isinstance(each, Declined) else (SeededReport(self._seed_of(plan, objective), each[0]), each[1])
            for each, objective in zip(results, objectives, strict=True)
        ]

    # -- the server

    def example(self, plan: ScalarPlan) -> SeededReport:
        return SeededReport(plan.seed, super().example(plan))

    def check(self, plan: ScalarPlan, report: SeededReport) -> None:  # type: ignore[override]
        super().check(plan, report.scalars)

    def aggregate(
        self,
        state: Any,
        plan: ScalarPlan,
        reports: Mapping[int, SeededReport],
        *,
        share: float = 1.0,
        late: Sequence[LateReports] = (),
        members: int = 0,
    ) -> tuple[ScalarCommit, Any]:
        """Return the commit of a term for each report, whose weight in the mean is part of the commit's η.

        Raises:
            OverflowError: these are more terms than a payload counts; every client would be sent each of them.
        """
        rate = float(np.float32(plan.learning_rate * share / max(1, len(reports))))
        terms = [Term(plan.round, each.seed, each.scalars) for _, each in sorted(reports.items())]
        if not (terms and rate):  # late reports alone count; a commit begins with a term of its own round
            rate, terms = plan.learning_rate, [Term(plan.round, plan.seed, np.zeros(plan.shape, np.float32), 0.0)]
        for group in late:
            weight = float(np.float32(group.weight * group.plan.learning_rate / rate))
            older = (report for _, report in sorted(group.reports.items()))
            terms += [Term(group.plan.round, each.seed, each.scalars, weight) for each in older]
        if len(terms) > wire.MOST_TERMS:
            raise OverflowError(
                f"it would have {len(terms)} reports; a commit of fedscalar has at most {wire.MOST_TERMS} "
                "(fedscalar-shared takes any number)"
            )
        return ScalarCommit(plan.version + 1, plan.round, rate, tuple(terms)), state

    def values(self, report: SeededReport) -> Vector:  # type: ignore[override]
        return report.scalars

    def with_values(self, report: SeededReport, values: Vector) -> SeededReport:  # type: ignore[override]
        return SeededReport(report.seed, values.astype(np.float32, copy=False))

    # -- the wire

    def pack_report(self, plan: ScalarPlan, report: SeededReport) -> Packed:  # type: ignore[override]
        packed = super().pack_report(plan, report.scalars)
        return Packed([report.seed, *packed.body], scalars=packed.scalars, seeds=1)

    def unpack_report(self, body: Any, plan: ScalarPlan) -> SeededReport:  # type: ignore[override]
        seed, *scalars = wire.fields(body, 2, "a report")
        return SeededReport(wire.whole(seed, "a seed", 0, 2**64), super().unpack_report(scalars, plan))
