"""FedKSeed: a pool of S seeds, so that what a client missed is a sum of at most S numbers, however long it was away.

Qin, Chen, Qian, Ding, Li, Deng. "Federated Full-Parameter Tuning of Billion-Sized Language Models with Communication
Cost under 18 Kilobytes", ICML 2024, arXiv:2312.06353, Algorithm 1; the Pro variant is `fedkseed_pro`.

    pool              z_1 … z_S, fixed for the run
    client, step k    draws P indices i of the pool, g = (f(x+μz_i) − f(x−μz_i)) / 2μ,  x ← x − (η/P) Σ g z_i
    report            K·P pairs (i, g)
    server            n_i = −η·w/P · Σ g of all pairs with index i, in units, rounded once; commits are pairs (i, n_i)
    follower          x ← x + 2⁻ˢ · Σ_i n_i z_i

The paper's server keeps one coefficient per seed and its clients rebuild x from x₀ in 16-bit floats, in every round.
Here the arithmetic is that of `scalar_only.exact`, so a client adds the *difference* of the coefficients since its own
version, and holds the bits of one that folded every commit: one to eight bytes a number, exactly. What is sent is the
commits or their sum, whichever takes fewer bytes.

**Ours**: a client draws indices with replacement, keyed by client and round; direction i of the pool is
z(seed, 0, i) of the run's own stream; clients weigh the same (in the authors' code in proportion to their
mini-batches, unless it is told `equal_weight`). Since each client has directions of its own, their scalars cannot be
compared, and the only rule is the mean.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, Unpack

import msgpack
import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, model_validator

from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.contract import (
    Declined,
    LateReports,
    Packed,
    Replica,
    ReportRefused,
    Reports,
    commits_after,
)
from seedbus.algorithms.directions import TERM, ExactDirections, Law, Place, Step, Sums, Terms
from seedbus.algorithms.objective import Objective
from seedbus.algorithms.scalar_only import exact, pool
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.fields import Count, Estimator
from seedbus.algorithms.scalar_only.local import measure
from seedbus.algorithms.scalar_only.payloads import ScalarPlan
from seedbus.algorithms.scalar_only.perturbed import PERTURBED_MODELS
from seedbus.algorithms.scalar_only.pool import Indices, PoolCommit, PoolReport
from seedbus.algorithms.schedule import Scheduled, values
from seedbus.keyed import keyed_bits
from seedbus.vector import Vector

REPORTABLE = 10_000  # pairs in a report at most: they fit the 64 KiB that a server accepts from a client
SUM_OVERHEAD = 32  # bytes of a packed sum besides its indices and numbers, at most


class FedKSeed(ScalarOnly):
    """FedKSeed (arXiv:2312.06353): directions from a pool; catching up takes at most a number for each of them."""

    name: Literal["fedkseed"] = "fedkseed"
    arithmetic: Literal["integer"] = Field(default="integer", description="x is an exact sum (docs/exact-sums.md)")
    pool: Count = Field(default=4096, description="S, number of directions in the pool (the paper: 1,024 to 4,096)")
    seed: int = Field(default=0, ge=0, lt=2**64, description="keys the directions of the pool")
    perturbations: Scheduled[Count] = Field(default=1, description="P, directions per local step; may change by round")
    estimator: Scheduled[Estimator] = Field(
        default="central", description="as for DeComFL; the paper's is central; may change by round"
    )

    @model_validator(mode="after")
    def _of_pairs(self) -> Self:
        pairs = max(values(self.local_steps)) * max(values(self.perturbations))
        if pairs > REPORTABLE:
            raise ValueError(f"local_steps × perturbations is {pairs}; a report holds at most {REPORTABLE} pairs")
        if self.precision == "int32":
            raise ValueError(
                "precision: int32 has no use here: the clients of fedkseed have no direction in common, so their "
                "numbers are not added up; float32, float16 and bfloat16 are accepted"
            )
        if self.aggregation.rule != "mean":
            raise ValueError(
                f"aggregation: {self.aggregation.rule} compares the scalars of clients, and each client of fedkseed "
                "has directions of its own; mean is accepted"
            )
        return self

    @property
    def facts(self) -> Facts:
        return replace(
            super().facts,
            is_order_free=type(self).aggregate is FedKSeed.aggregate,
            has_round_seeds=False,
            is_comparable=False,
            beside_scalars="for each the number of its direction",
            commits_vary=True,
            most_catch_up_bytes=-(-self.pool // 8) + 8 * self.pool + SUM_OVERHEAD,
        )

    # -- the client

    def _together(
        self, replica: Replica, memories: Sequence[Any], plan: ScalarPlan, objectives: Sequence[Objective]
    ) -> list[Any]:
        """Run the local steps of several clients, one after the other: they have no direction in common."""
        return [
            report if isinstance(report, Declined) else (report, memory)
            for report, memory in zip(
                (self._measured(replica, plan, each) for each in objectives), memories, strict=True
            )
        ]

    def _measured(self, replica: Replica, plan: ScalarPlan, objective: Any) -> PoolReport | Declined:
        source = self._source(replica, plan, objective)
        start = PERTURBED_MODELS[self.revert](self, source, replica, plan)
        (scalars,) = measure(self, start, plan, [objective])
        scalars = exact.sendable(self._exact, self._largest_rate, scalars)
        return scalars if isinstance(scalars, Declined) else PoolReport(source.indices, scalars)

    def _source(self, replica: Replica, plan: ScalarPlan, objective: Any) -> _PoolDirections:
        return _PoolDirections(self._backend(replica.x), self.seed, self._draw(plan, objective.key))

    def _draw(self, plan: ScalarPlan, key: int) -> Indices:
        """Return the indices that a client draws in the round of a plan, uint16 [K, P]."""
        return drawn(key, plan.shape, self.pool)

    # -- the server

    def example(self, plan: ScalarPlan) -> PoolReport:
        """Return a report of one unit along each of K × P directions, for a commit leaves out numbers of 0."""
        scalar = plan.shape[-1] / (plan.learning_rate * 2.0**self._exact.unit_bits)
        indices = np.arange(math.prod(plan.shape)).reshape(plan.shape) % self.pool
        return PoolReport(indices.astype(np.uint16), np.full(plan.shape, scalar))

    def check_state(self, state: Any) -> None:
        if state is not None:
            exact.check_spent(state)

    def check(self, plan: ScalarPlan, report: PoolReport) -> None:  # type: ignore[override]
        super().check(plan, report.scalars)
        if report.indices.shape != plan.shape:
            raise ReportRefused("shape", f"its indices have shape {report.indices.shape}, not K × P = {plan.shape}")
        if int(report.indices.max()) >= self.pool:
            raise ReportRefused("absurd", f"it holds the index {report.indices.max()} into a pool of {self.pool}")

    def aggregate(  # type: ignore[override]
        self,
        state: Any,
        plan: ScalarPlan,
        reports: Reports,
        *,
        share: float = 1.0,
        late: Sequence[LateReports] = (),
        members: int = 0,
    ) -> tuple[PoolCommit, Any]:
        """Return the commit of n; late reports are more pairs.

        Raises:
            OverflowError: the sums of all commits might overflow.
        """
        if reports is None:
            return self._of_each(state, plan, late)
        moves = defaultdict[int, list[float]](list)
        groups = [LateReports(plan, reports, share / len(reports)), *late] if reports else late
        for group in groups:
            for report in group.reports.values():  # in any order: `fsum` rounds once
                scale = -group.plan.learning_rate * group.weight / report.scalars.shape[-1]
                for index, scalar in zip(report.indices.flat, report.scalars.flat, strict=True):
                    moves[int(index)].append(scale * float(scalar))
        unit = 2.0**self._exact.unit_bits
        rounded = {index: round(math.fsum(moves[index]) * unit) for index in sorted(moves)}
        found = {index: number for index, number in rounded.items() if number}
        if any(abs(number) >= exact.BUDGET for number in found.values()):
            raise OverflowError("a step beyond 62 bits; a smaller algorithm.unit_bits has a larger unit")
        numbers = np.array(list(found.values()), np.int64)
        spent = exact.spend(self._exact, state or 0, [numbers])
        indices = np.array(list(found), np.uint16)
        return PoolCommit(plan.version, plan.version + 1, plan.round, indices, numbers), spent

    def _of_each(self, state: Any, plan: ScalarPlan, groups: Sequence[LateReports]) -> tuple[PoolCommit, Any]:
        """Return the commit of n, for which each report is rounded on its own."""
        indices, numbers = [], []
        for group in groups:
            for report in group.reports.values():
                indices.append(report.indices.ravel())
                own = self._exact.numbers(report.scalars, group.plan.learning_rate, group.weight)
                numbers.append(own.ravel().astype(np.int64))
        found, sums = pool.added(np.concatenate(indices), np.concatenate(numbers))
        spent = exact.spend(self._exact, state or 0, [sums])
        return PoolCommit(plan.version, plan.version + 1, plan.round, found, sums), spent

    def values(self, report: PoolReport) -> Vector:  # type: ignore[override]
        return report.scalars

    def with_values(self, report: PoolReport, values: Vector) -> PoolReport:  # type: ignore[override]
        return PoolReport(report.indices, values.astype(np.float32, copy=False))

    # -- every follower

    def apply(self, replica: Replica, commits: Sequence[PoolCommit]) -> None:  # type: ignore[override]
        """Add commits to x, as one sum."""
        pending = commits_after(replica.version, commits, are_sums=True)
        if not pending:
            return
        total = pool.summed(pending)
        terms = pool_terms(self.seed, total.indices, total.numbers)
        exact.add_terms(replica.fields["x"], self._backend(replica.x), [terms])
        replica.version = total.version

    # -- the wire

    def pack_report(self, plan: ScalarPlan, report: PoolReport) -> Packed:  # type: ignore[override]
        return Packed(pool.pack_report(report, self._format), scalars=report.scalars.size)

    def unpack_report(self, body: Any, plan: ScalarPlan) -> PoolReport:  # type: ignore[override]
        return pool.unpack_report(body, plan.shape, self._format)

    def pack_commits(self, commits: Sequence[PoolCommit], *, whole: bool = False) -> Packed:  # type: ignore[override]
        """Pack commits, or if that takes fewer bytes and need not be whole, their sum.

        Each commit counts as one seed; a sum as so many as commits have directions as many as the sum.
        """
        scalars = sum(commit.numbers.size for commit in commits)
        all_of_them = Packed(pool.pack_commits(commits), scalars=scalars, seeds=len(commits))
        if whole or len(commits) < 2:
            return all_of_them
        total = pool.summed(commits)
        body = pool.pack_sum(total, self.pool)
        if len(msgpack.packb(all_of_them.body)) <= len(msgpack.packb(body)):
            return all_of_them
        work = -(-len(commits) * total.numbers.size // max(1, scalars))
        return Packed(body, scalars=total.numbers.size, seeds=max(1, work))

    def unpack_commits(self, body: Any) -> list[PoolCommit]:  # type: ignore[override]
        return pool.unpack_commits(body, self.pool)

    @property
    def _exact(self) -> exact.Grid:
        return exact.grid_of(self.learning_rate, self.unit_bits, self.directions)


def drawn(key: int, shape: tuple[int, int], size: int) -> Indices:
    """Return the indices into a pool of `size` that a client draws in a round, uint16 [K, P].

    Args:
        key: 64 bits of the client in the round.
        shape: K, P.
        size: number of directions in the pool.
    """
    generator = np.random.Philox(key=np.array([key, keyed_bits("pool")], np.uint64))
    bits = generator.random_raw(shape[0] * shape[1]) >> np.uint64(32)
    return (bits * np.uint64(size) >> np.uint64(32)).astype(np.uint16).reshape(shape)


def pool_terms(seed: int, indices: Indices, numbers: Any) -> Terms:
    """Return the terms of numbers [n] along directions of the pool [n]."""
    terms = np.zeros(indices.size, TERM)
    terms["low"], terms["high"] = seed & 0xFFFFFFFF, seed >> 32
    terms["perturbation"], terms["number"] = indices, numbers
    return terms


@dataclass(frozen=True)
class _PoolDirections:
    """A client's directions in a round: (k, p) is the direction of the pool that it drew."""

    source: ExactDirections
    seed: int
    indices: Indices

    @property
    def law(self) -> Law:
        return self.source.law

    def fill(self, out: Vector, **where: Unpack[Place]) -> None:
        self.source.fill(out, **self._drawn(where))

    def perturb(
        self, out: Vector, x: Vector, scale: float, divisor: Vector | None = None, **where: Unpack[Place]
    ) -> None:
        self.source.perturb(out, x, scale, divisor, **self._drawn(where))

    def accumulate(
        self, out: Vector, coefficients: ArrayLike, divisor: Vector | None = None, **where: Unpack[Step]
    ) -> None:
        raise TypeError("directions of a pool are added by add_terms")

    def add_terms(self, sums: Sums, terms: Terms, *, start: int = 0) -> None:
        indices = self.indices[terms["step"], terms["perturbation"]]
        self.source.add_terms(sums, pool_terms(self.seed, indices, terms["number"]), start=start)

    def _drawn(self, where: Place) -> Place:
        """Return where the pool has the direction that the client drew for a place."""
        number = int(self.indices[where["step"], where["perturbation"]])
        return {**where, "seed": self.seed, "step": 0, "perturbation": number}
