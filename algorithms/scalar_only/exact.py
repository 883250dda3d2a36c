"""`arithmetic: integer`: commits hold whole numbers, and a replica their exact sum, which depends on no order.

    x = x₀ + 2⁻ˢ · Σ_j n_j · z_j,     n = −η·ḡ·w/P in multiples of 2⁻ˢ, rounded once, to nearest even

z is exact (directions.exact), n has 32 bits and is rounded by the server that commits. A replica's x is int64 [d], in
multiples of 2⁻⁽ˢ⁺¹²⁾: the sum begins at x₀, rounded to such a multiple, so x₀ is kept nowhere else. Float32 coordinates
are made from it where a loss is taken: one conversion of an int64, rounded to nearest even, and a product with a power
of two, which is exact.

Invariant: x is a function of x₀ and the multiset of terms. Any order, any grouping and any partial sums of the commits
lead to the same bits. That holds only if the update is linear in what is sent: `why_not` names what is not.

Nothing overflows. A scalar whose n needs more than 32 bits is declined by its client, and refused by the server. The
server adds up Σ|n|·max|q| of all commits, and makes none that would bring a coordinate beyond 2⁶³ in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.algorithms.aggregation.rules import Mean, Rule, checked
from seedbus.algorithms.contract import BadPayload, Declined, LateReports, Total
from seedbus.algorithms.directions import (
    FRACTION,
    MOST_Q,
    TERM,
    ExactDirections,
    Law,
    Sums,
    Terms,
    UpdateRule,
    for_blocks,
    most_q,
    without_zeros,
)
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, ScalarPlan, Scalars, Term, rows
from seedbus.algorithms.scalar_only.replay import COMMITS_PER_CALL, rule_of
from seedbus.algorithms.schedule import values
from seedbus.vector import Vector

PRECISION_BITS = 18
"""η is at least 2¹⁸ units, by default."""
MOST_UNIT_BITS = 36
"""The largest default of s: x may then reach ±2¹⁴."""
MOST_NUMBER = 2**31 - 1
MOST_START = 2**62
"""What a coordinate of x₀ may hold, in multiples of 2⁻⁽ˢ⁺¹²⁾."""
BUDGET = 2**62
"""What all commits may add to a coordinate, in the same."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The whole numbers of a run.

    Attributes:
        unit_bits: s.
        most_q: a bound on |q| of the run's law.
    """

    unit_bits: int
    most_q: int = MOST_Q

    def numbers(self, scalars: NDArray[Any], learning_rate: float, weight: float = 1.0) -> NDArray[np.int32]:
        """Return n = −η·g·w/P in units, for scalars [K, P] or [P], in their shape.

        Raises:
            OverflowError: one is not finite, or needs more than 32 bits.
        """
        scale = -learning_rate * weight / scalars.shape[-1] * 2.0**self.unit_bits
        rounded: NDArray[Any] = np.rint(scalars.astype(np.float64) * scale)
        if not (np.abs(rounded) <= MOST_NUMBER).all():
            largest = float(scalars.flat[int(np.abs(scalars).argmax())])
            raise OverflowError(
                f"a scalar of {largest:.6g} makes a step beyond 32 bits of units of 2^-{self.unit_bits}, of which "
                f"{MOST_NUMBER / abs(scale):.6g} makes the largest; a smaller unit_bits has a larger unit"
            )
        numbers: NDArray[np.int32] = rounded.astype(np.int32)
        return numbers

    def fixed(self, x: Vector) -> Sums:
        """Return float32 coordinates as multiples of 2⁻⁽ˢ⁺¹²⁾, rounded to nearest even, int64 [d].

        Raises:
            OverflowError: one is not finite, or beyond the range.
        """
        sums = np.empty_like(x, dtype=np.int64)

        def convert(span: slice) -> None:
            scaled = np.rint(x[span].astype(np.float64) * 2.0 ** (self.unit_bits + FRACTION))
            if not (np.abs(scaled) < MOST_START).all():
                most = MOST_START * 2.0 ** -(self.unit_bits + FRACTION)
                raise OverflowError(f"x₀ holds {np.abs(x).max()}, and unit_bits: {self.unit_bits} less than {most:.6g}")
            sums[span] = scaled

        for_blocks(x.size, convert, like=x)
        return sums

    def coordinates(self, sums: Sums) -> Vector:
        """Return the coordinates that a replica's x, or a span of it, stands for, float32."""
        x: Vector = sums.astype(np.float32)
        x *= np.float32(2.0 ** -(self.unit_bits + FRACTION))
        return x


def grid_of(learning_rate: Any, unit_bits: int | None, law: Law) -> Grid:
    """Return the whole numbers for a learning rate, or schedule of it; unit_bits: s, or None for its default.

    Raises:
        ValueError: the law's coordinates are too large for whole numbers.
    """
    return Grid(default_unit_bits(learning_rate) if unit_bits is None else unit_bits, most_q(law))


def default_unit_bits(learning_rate: Any) -> int:
    """Return s for a learning rate, or the largest of a schedule."""
    _, exponent = math.frexp(max(values(learning_rate)))
    return min(max(PRECISION_BITS + 1 - exponent, 0), MOST_UNIT_BITS)


def why_not(algorithm: Any) -> str | None:
    """Return why an algorithm's update is not linear in what is sent; None if it is."""
    if algorithm.weight_decay:
        return "weight_decay shrinks what earlier commits added, so the order of commits matters; use weight_decay: 0"
    rule = rule_of(algorithm)
    if not algorithm.is_linear:
        return f"the steps of {algorithm.name} are divided by the size of what is sent, which is no sum"
    if rule is None:
        return (
            f"what algorithm {algorithm.name} adds to x is no plain sum of random directions, as that of decomfl, mezo "
            "and fedkseed is"
        )
    if rule.hessian is not None:
        return "H divides its directions, so a commit's effect depends on the commits before it"
    if rule.momentum is not None:
        return "momentum weighs a commit by what came after it, so the order of commits matters; use momentum: 0"
    return None if rule == UpdateRule() else "its update is not a sum of what is sent"


def check_state(rule: Rule, state: Any) -> None:
    """Raise `BadPayload` for anything but [a state of the rule, the budget that commits have used]."""
    if not (isinstance(state, list) and len(state) == 2):
        raise BadPayload("the state is not [that of the rule, the budget that commits have used]")
    rule.check_state(state[0])
    check_spent(state[1])


def check_spent(spent: Any) -> None:
    """Raise `BadPayload` unless it is a budget that commits can have used."""
    if not (type(spent) is int and 0 <= spent < BUDGET):
        raise BadPayload("the budget that commits have used is no whole number below 2⁶²")


def aggregate(
    grid: Grid,
    rule: Rule,
    state: Any,
    plan: ScalarPlan,
    reports: Mapping[int, Scalars] | Total | None,
    share: float,
    late: Sequence[LateReports],
    *,
    is_whole: bool = False,
) -> tuple[ScalarCommit, list[Any]]:
    """Return the commit of the reports, and the state [that of the rule, the budget that commits have used].

    See `ScalarOnly.aggregate`. Weights are part of the numbers, which are rounded once. is_whole: whether reports hold
    numbers n, and not scalars g. The commit goes by the round of its first term, as the wire has it.

    Raises:
        OverflowError: the budget is used up.
    """
    of_rule, spent = state or (None, 0)

    def rounded(values: NDArray[Any], weight: float, rate: float) -> NDArray[np.int32]:
        return nearest(values * weight) if is_whole else grid.numbers(values, rate, weight)

    terms = []
    if reports is None:
        late = [each._replace(reports={client: one}) for each in late for client, one in sorted(each.reports.items())]
    else:
        numbers = np.zeros((1, 1), np.int32)
        if isinstance(reports, Total):
            numbers = nearest(reports.numbers / reports.divisor)
        elif reports:
            found = rule.combine(rows(reports), of_rule)
            combined, of_rule = checked(rule, "combine", found, plan.steps * plan.perturbations)
            numbers = rounded(combined.reshape(plan.shape), share, plan.learning_rate)
        terms.append(Term(plan.round, plan.seed, numbers))
    for group in late:
        mean = Mean().combine(rows(group.reports), None)[0].reshape(group.plan.shape)
        numbers = rounded(mean, group.weight * len(group.reports), group.plan.learning_rate)
        terms.append(Term(group.plan.round, group.plan.seed, numbers))
    spent = spend(grid, spent, (term.scalars for term in terms))
    return ScalarCommit(plan.version + 1, terms[0].round, plan.learning_rate, tuple(terms)), [of_rule, spent]


def nearest(values: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the nearest whole numbers, ties to even."""
    numbers: NDArray[np.int32] = np.rint(values).astype(np.int32)
    return numbers


def sendable(grid: Grid, learning_rate: float, report: Scalars | Declined) -> Scalars | Declined:
    """Return a client's report, or that it declines because a step would be too large.

    Scalars that are infinite or NaN are kept, and the server refuses them.
    """
    if isinstance(report, Declined) or not np.isfinite(report).all():
        return report
    numbers = own_numbers(grid, learning_rate, report)
    return numbers if isinstance(numbers, Declined) else report


def own_numbers(grid: Grid, learning_rate: float, report: Scalars | Declined) -> Any:
    """Return the numbers n that a client reports for its scalars, int32 [K, P], or that it declines."""
    if isinstance(report, Declined):
        return report
    try:
        return grid.numbers(report, learning_rate)
    except OverflowError as error:
        return Declined("overflow", str(error))


def local_terms(grid: Grid, plan: ScalarPlan, k: int, scalars: Scalars) -> Terms:
    """Return the terms of a client's own local step. Raises `Declined` if it is too large."""
    try:
        return step_terms(plan.seed, k, grid.numbers(scalars, plan.learning_rate))
    except OverflowError as error:
        raise Declined("overflow", str(error)) from None


def terms_of(commits: Iterable[ScalarCommit]) -> Terms:
    """Return the terms of commits, without those whose n is 0."""
    parts = [
        step_terms(term.seed, k, numbers)
        for commit in commits
        for term in commit.terms
        for k, numbers in enumerate(term.scalars)
    ]
    return without_zeros(np.concatenate([np.empty(0, TERM), *parts]))


def step_terms(seed: int, k: int, numbers: NDArray[np.int32]) -> Terms:
    """Return the terms of one step: numbers [P] times z(seed, k, p)."""
    terms = np.empty(numbers.size, TERM)
    terms["low"], terms["high"], terms["step"] = seed & 0xFFFFFFFF, seed >> 32, k
    terms["perturbation"], terms["number"] = np.arange(numbers.size), numbers
    return terms


def add(sums: Sums, backend: ExactDirections, commits: Sequence[ScalarCommit]) -> None:
    """Add commits to a replica's x, [d]."""
    parts = [terms_of(commits[at : at + COMMITS_PER_CALL]) for at in range(0, len(commits), COMMITS_PER_CALL)]
    add_terms(sums, backend, parts)


def add_terms(sums: Sums, backend: ExactDirections, parts: Sequence[Terms]) -> None:
    """Add terms to a replica's x, [d], block by block."""

    def fold(span: slice) -> None:
        for part in parts:
            backend.add_terms(sums[span], part, start=span.start)

    for_blocks(sums.size, fold, like=sums)


def spend(grid: Grid, spent: int, numbers: Iterable[NDArray[Any]]) -> int:
    """Return the budget that all commits have used, with these numbers.

    Raises:
        OverflowError: it is used up.
    """
    spent += sum(grid.most_q * int(np.abs(part.astype(np.int64)).sum()) for part in numbers)
    if spent >= BUDGET:
        raise OverflowError(
            "the sums of all commits could exceed 63 bits with this one; a smaller algorithm.unit_bits gives them room"
        )
    return spent
