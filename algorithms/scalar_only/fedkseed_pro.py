"""FedKSeed-Pro: FedKSeed whose clients draw directions more often whose scalars have been large.

Qin, Chen, Qian, Ding, Li, Deng. "Federated Full-Parameter Tuning of Billion-Sized Language Models with Communication
Cost under 18 Kilobytes", ICML 2024, arXiv:2312.06353, equation 6 and the authors' code (`calculate_probabilities`):

    a_i = mean of |g|, clipped to C, over all scalars g of direction i, and one 0 with which its history begins
    s_i = (a_i − min a) / (max a − min a + 10⁻¹⁰),      p = softmax(s)

The server keeps a sum and a count for each direction, 12·S bytes. It sends s with every plan but the first rounds', a
byte each: the level q_i = 255·s_i, rounded to nearest. A client draws with the weights exp(q_i/255), which are whole
numbers from a table (`weights`), so that all clients and processors draw the same: sums of weights are exact, and no
power is taken. So a plan has S bytes more, and a weight is within 0.2% of the paper's.

**Ours**: levels, which the paper sends as S floats. While all are equal the draws are FedKSeed's, to the bit. Late
reports enter the history when their commit is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.algorithms.contract import BadPayload, LateReports, Packed
from seedbus.algorithms.numbers import Positive
from seedbus.algorithms.scalar_only import exact
from seedbus.algorithms.scalar_only.fedkseed import FedKSeed
from seedbus.algorithms.scalar_only.payloads import ScalarPlan, column, read
from seedbus.algorithms.scalar_only.pool import Indices, PoolCommit, PoolReport
from seedbus.keyed import keyed_bits

LEVELS = 255
"""The largest level."""
UNIT = 2**14
"""The weight of level 0: the weights of any pool add up to less than 2³²."""


@dataclass(frozen=True, slots=True)
class PoolPlan(ScalarPlan):
    """A plan with the level of each direction, S bytes."""

    levels: bytes


class FedKSeedPro(FedKSeed):
    """FedKSeed-Pro (arXiv:2312.06353): FedKSeed that draws a direction the more often, the larger its scalars were."""

    name: Literal["fedkseed-pro"] = "fedkseed-pro"  # type: ignore[assignment]
    clip: Positive = Field(default=1000.0, description="C, the largest |g| that enters the mean of a direction")

    # -- the server

    def check_state(self, state: Any) -> None:
        if state is None:
            return
        if not (isinstance(state, list) and len(state) == 3):
            raise BadPayload("the state is not [the budget that commits have used, sums of |g|, counts]")
        exact.check_spent(state[0])
        sums, _ = self._history(state)
        if not (np.isfinite(sums).all() and (sums >= 0).all()):
            raise BadPayload("sums of |g|: a number that is negative or not finite")

    def plan(self, round: int, version: int, seed: int, state: Any = None) -> ScalarPlan:
        plan = super().plan(round, version, seed)
        if state is None:
            return plan
        sums, counts = self._history(state)
        means = sums / (counts + 1.0)  # of a history that begins with one 0
        spread = (means - means.min()) / (means.max() - means.min() + 1e-10)
        levels = np.rint(spread * LEVELS).astype(np.uint8)
        return _with_levels(plan, levels.tobytes())

    def aggregate(  # type: ignore[override]
        self,
        state: Any,
        plan: ScalarPlan,
        reports: Mapping[int, PoolReport],
        *,
        late: Sequence[LateReports] = (),
        **others: Any,
    ) -> tuple[PoolCommit, Any]:
        """Return FedKSeed's commit, and the state [the budget that commits have used, sums of |g|, counts]."""
        spent = None if state is None else state[0]
        commit, spent = super().aggregate(spent, plan, reports, late=late, **others)
        sums, counts = self._history(state)
        for group in (reports, *(each.reports for each in late)):
            for _, report in sorted(group.items()):
                sizes = np.minimum(np.abs(report.scalars.ravel().astype(np.float64)), self.clip)
                np.add.at(sums, report.indices.ravel(), sizes)
                np.add.at(counts, report.indices.ravel(), 1)
        return commit, [spent, column(sums, "<f8"), column(counts, "<u4")]

    def _history(self, state: Any) -> tuple[NDArray[np.float64], NDArray[np.uint32]]:
        """Return the sum of |g| and the number of scalars of each direction, [S]."""
        if state is None:
            return np.zeros(self.pool), np.zeros(self.pool, np.uint32)
        return read(state[1], "<f8", self.pool, "sums of |g|"), read(state[2], "<u4", self.pool, "counts")

    # -- the client

    def _draw(self, plan: ScalarPlan, key: int) -> Indices:
        if not isinstance(plan, PoolPlan):
            return super()._draw(plan, key)
        return drawn_by_level(key, plan.shape, np.frombuffer(plan.levels, np.uint8))

    # -- the wire

    def pack_plan(self, plan: ScalarPlan) -> Packed:
        packed = super().pack_plan(plan)
        return packed._replace(body=[*packed.body, plan.levels]) if isinstance(plan, PoolPlan) else packed

    def unpack_plan(self, body: Any, round: int, version: int) -> ScalarPlan:
        if not isinstance(body, list) or len(body) != 5:
            return super().unpack_plan(body, round, version)
        plan = super().unpack_plan(body[:4], round, version)
        levels = read(body[4], "u1", self.pool, "levels").tobytes()
        return _with_levels(plan, levels)


def _with_levels(plan: ScalarPlan, levels: bytes) -> PoolPlan:
    own = plan.round, plan.version, plan.seed, plan.steps, plan.perturbations, plan.learning_rate
    return PoolPlan(*own, levels)


@cache
def weights() -> NDArray[np.int64]:
    """Return the weight of each level, 2¹⁴·exp(level/255) to nearest, int64 [256]: the same on every processor."""
    with localcontext(Context(prec=30)):
        return np.array([round(UNIT * (Decimal(level) / LEVELS).exp()) for level in range(LEVELS + 1)], np.int64)


def drawn_by_level(key: int, shape: tuple[int, int], levels: NDArray[np.uint8]) -> Indices:
    """Return the indices that a client draws in a round, each in proportion to the weight of its level, uint16 [K, P].

    Args:
        key: 64 bits of the client in the round.
        shape: K, P.
        levels: of each direction of the pool.
    """
    ends = np.cumsum(weights()[levels]).astype(np.uint64)
    generator = np.random.Philox(key=np.array([key, keyed_bits("pool")], np.uint64))
    bits = generator.random_raw(math.prod(shape)) >> np.uint64(32)
    places = bits * ends[-1] >> np.uint64(32)  # ends[-1] is below 2³²
    found: Indices = np.searchsorted(ends, places, side="right").astype(np.uint16).reshape(shape)
    return found
