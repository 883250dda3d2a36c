"""Directions compiled by Numba: one kernel call per block, without the interpreter lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seedbus.algorithms.directions import numba_exact, numba_fold
from seedbus.algorithms.directions.contract import ALIGNMENT, check_stream, stream_key, with_key
from seedbus.algorithms.directions.exact import Sums, Terms, check_terms, is_sums, rounded_table, whole_table
from seedbus.algorithms.directions.folding import ReplaySteps, UpdateRule
from seedbus.algorithms.directions.kernels import (
    ABSENT,
    ONE,
    PIECE,
    SCRATCH_WORDS,
    LookUp,
    Stream,
    add,
    add_all,
    check_float32,
    divide_by,
    groups,
    kernel,
    padded,
    sources,
)
from seedbus.algorithms.directions.laws.law import Law, mirrored
from seedbus.algorithms.directions.look_ups import LookUps, fastest
from seedbus.algorithms.directions.quantiles import SIZE, quantiles
from seedbus.vector import Vector


@kernel
def _accumulate(out, scales, key, step, start, table, gathers, divisor):  # type: ignore[no-untyped-def]
    words, stream, look_up = np.empty(SCRATCH_WORDS, np.uint32), Stream(step, 0, *key), LookUp(table, gathers)
    for first in range(0, out.size, PIECE):
        piece, part = out[first : first + PIECE], divisor[first : first + PIECE]
        add_all(piece, scales, words, start + first, stream, look_up, part)


@kernel
def _perturb(out, x, scale, words_of, start, table, gathers, divisor):  # type: ignore[no-untyped-def]
    words, scratch = np.empty(SCRATCH_WORDS, np.uint32), np.empty(PIECE, np.float32)
    stream, look_up = Stream(*words_of), LookUp(table, gathers)
    for first in range(0, out.size, PIECE):
        last = min(first + PIECE, out.size)
        piece, base, part = out[first:last], x[first:last], divisor[first:last]
        rest = (first - last) % ALIGNMENT
        if rest:
            piece, base, part = padded(piece, rest), padded(base, rest), padded(part, rest)
        factor = divide_by(part, scratch, table)
        add(piece, base, scale, words, start + first, stream, look_up, factor)
        if rest:
            out[first:last] = piece[: last - first]


@lru_cache(maxsize=1)
def fastest_look_ups() -> LookUps:
    """Return the faster way to look quantiles up: 16,384 coordinates of a sum, and of a direction alone, in both."""
    out, scales, table = np.zeros(4 * PIECE, np.float32), np.ones(1, np.float32), quantiles()[SIZE // 2 :]

    def work(gathers: bool) -> None:
        _accumulate(out, scales, (0, 0), 0, 0, table, gathers, ABSENT)
        _perturb(out, out, ONE, (0, 0, 0, 0), 0, table, gathers, ABSENT)

    stats: Any = getattr(_accumulate, "stats")  # noqa: B009
    return fastest(stats.cache_path, sources(), {"gather": lambda: work(True), "scalar": lambda: work(False)})


@dataclass(frozen=True)
class NumbaDirections:
    """Directions of one law, in float32 only.

    Attributes:
        law: the law of a coordinate.
        look_ups: how quantiles are looked up; None: the faster way on this processor. The bits are the same.
    """

    law: Law
    look_ups: LookUps | None = None

    def fill(self, out: Vector, *, seed: int, step: int, perturbation: int, start: int = 0) -> None:
        out.fill(-0.0)  # which keeps the sign of a z that is 0
        self.perturb(out, out, 1, seed=seed, step=step, perturbation=perturbation, start=start)

    # a record for each call, as elsewhere, would take a seventh of the time for few coordinates
    def accumulate(
        self,
        out: Vector,
        coefficients: ArrayLike,
        divisor: Vector | None = None,
        *,
        seed: int,
        step: int,
        start: int = 0,
    ) -> None:
        scales = np.ascontiguousarray(coefficients, np.float32)
        check_float32(out, divisor)
        check_stream(self.law, out.size, seed=seed, step=step, perturbation=scales.size, start=start)
        key = stream_key(self.law, seed)
        for at, (piece, part) in groups(start, out, divisor):
            _accumulate(piece, scales, key, step, at, self._table, self._gathers, part)

    def perturb(
        self,
        out: Vector,
        x: Vector,
        scale: float,
        divisor: Vector | None = None,
        *,
        seed: int,
        step: int,
        perturbation: int,
        start: int = 0,
    ) -> None:
        check_float32(out, x, divisor)
        check_stream(self.law, out.size, seed=seed, step=step, perturbation=perturbation, start=start)
        words = (step, perturbation, *stream_key(self.law, seed))  # plain: a `Stream` takes a tenth longer to hand over
        divisor = ABSENT if divisor is None else divisor
        _perturb(out, x, np.float32(scale), words, start, self._table, self._gathers, divisor)

    def fold(self, rule: UpdateRule, fields: Mapping[str, Vector], steps: ReplaySteps, *, start: int = 0) -> None:
        check_stream(self.law, fields["x"].size, seed=0, step=0, perturbation=0, start=start)
        keyed = steps._replace(steps=with_key(self.law, steps.steps))
        numba_fold.fold(rule, fields, keyed, start, (self._table, self._gathers))

    @cached_property
    def _table(self) -> NDArray[np.float32]:
        return self.law.table[: 0 if self.law.is_signs else None]

    @property
    def _gathers(self) -> bool:
        return not self.law.is_signs and (self.look_ups or fastest_look_ups()) == "gather"


class NumbaExactDirections(NumbaDirections):
    """`ExactDirections` compiled by Numba."""

    def add_terms(self, sums: Sums, terms: Terms, *, start: int = 0) -> None:
        check_terms(self.law, sums.size, terms, start, has_sums=is_sums(sums))
        numba_exact.add_terms(self._whole, sums, with_key(self.law, terms), start)

    @cached_property
    def _table(self) -> NDArray[np.float32]:
        return rounded_table(self.law)[: 0 if self.law.is_signs else None]

    @cached_property
    def _whole(self) -> NDArray[np.int16]:
        """The whole table of q, [65536]; without elements for signs."""
        return mirrored(whole_table(self.law))[: 0 if self.law.is_signs else None]
