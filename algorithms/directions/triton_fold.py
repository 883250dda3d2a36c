"""The fused replay on a GPU: one Triton kernel folds commits into torch tensors.

Each program folds all the steps into one block of coordinates. So x, H and m are read and written only once, no matter
how many commits were missed. In float32 the bits are those of the NumPy reference and of the Numba kernels.

A field in bfloat16 is rounded to nearest, ties to even, after every global step k of every term; the arithmetic in
between is float32. So the bits do not depend on how many commits are folded at a time, as they would with one rounding
at the end, and followers that keep the same fields in bfloat16 hold the same bits. These are not the bits of a float32
follower: all followers of a run keep a field in the same type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from seedbus.algorithms.directions.contract import with_key
from seedbus.algorithms.directions.folding import ReplaySteps, UpdateRule
from seedbus.algorithms.directions.triton_backend import (
    TritonDirections,
    as_stored,
    check_tensors,
    float32,
    launch,
    table,
)
from seedbus.algorithms.directions.triton_kernels import direction, read, stored, unsigned, write

IS_FIRST: Final = tl.constexpr(1)  # of its term; the directions of a term have one divisor
IS_OWN: Final = tl.constexpr(2)  # of the commit's own round, not of a late report
LEARNS: Final = tl.constexpr(4)  # updates H, if the replica has it
COLUMNS: Final = tl.constexpr(6)  # words of a step


@dataclass(frozen=True)
class TritonReplay(TritonDirections):
    """Directions that also fold many commits in one call."""

    def fold(self, rule: UpdateRule, fields: Mapping[str, Tensor], steps: ReplaySteps, *, start: int = 0) -> None:
        """Fold steps into a span of a replica's fields.

        Args:
            rule: how each step updates the fields, as in `Folding.fold`.
            fields: name → tensor [d], float32 or bfloat16 each, all on one device: x, and `momentum` and `hessian` if
                the rule has them.
            steps: the steps of the commits, oldest first.
            start: the first coordinate of the span, a multiple of `ALIGNMENT`.
        """
        x = fields["x"]
        check_tensors(x, *fields.values())
        if not len(steps.steps):
            return
        vectors = (as_stored(x), as_stored(fields.get("momentum")), as_stored(fields.get("hessian")))
        keyed = steps._replace(steps=with_key(self.law, steps.steps))
        inputs = (part.to(x.device) for part in _kernel_steps(keyed, rule))
        numbers = (len(steps.steps), len(x), start)
        launch(_replay, self.law, x, *vectors, table(self.law, x.device), *inputs, *numbers, **_hyperparameters(rule))


def _hyperparameters(rule: UpdateRule) -> dict[str, Any]:
    """Return the rule's hyperparameters in float32, by the names of the kernel's parameters."""
    numbers = {"beta": 0.0, "share": 1.0, "nu": 0.0, "keep": 1.0, "epsilon": 0.0, "lowest": 0.0, "highest": 0.0}
    numbers["decay"] = rule.decay
    is_clipped = False
    if rule.momentum is not None:
        numbers |= {"beta": rule.momentum.keep, "share": rule.momentum.add}
    if rule.hessian is not None:
        hessian = rule.hessian
        is_clipped = math.isfinite(hessian.lowest) or math.isfinite(hessian.highest)
        numbers |= {"nu": hessian.add, "keep": hessian.keep, "epsilon": hessian.epsilon}
        numbers |= {"lowest": hessian.lowest, "highest": hessian.highest} if is_clipped else {}
    return {name: float32(value) for name, value in numbers.items()} | {
        "IS_CLIPPED": is_clipped,
        "IS_DECAYING": rule.decay != 0,
    }


def _kernel_steps(replay: ReplaySteps, rule: UpdateRule) -> tuple[Tensor, Tensor, Tensor]:
    """Return steps as the kernel reads them: words int32 [S, 6], learning rates float32 [S], coefficients float32 [N].

    The words of a step are: low and high word of the seed, k, its first coefficient, their count, flags.
    """
    steps = replay.steps
    learns = (
        steps["is_own"] if rule.hessian is None or not rule.hessian.is_last_only else steps["is_own"] & steps["is_last"]
    )
    flags = IS_FIRST.value * steps["is_first"] + IS_OWN.value * steps["is_own"] + LEARNS.value * learns
    columns = (steps["low"], steps["high"], steps["step"], steps["first"], steps["count"], flags)
    words = np.stack([column.astype(np.uint32) for column in columns], axis=1)
    return (
        torch.from_numpy(words.view(np.int32)),
        torch.from_numpy(np.ascontiguousarray(steps["rate"])),
        torch.from_numpy(replay.coefficients),
    )


@triton.jit(do_not_specialize=["count", "first"])
def _replay(  # type: ignore[no-untyped-def]
    x_field,
    m_field,
    h_field,
    table,
    words,
    rates,
    scalars,
    count,
    size,
    first,
    beta,
    share,
    nu,
    keep,
    epsilon,
    lowest,
    highest,
    decay,
    COUNT: tl.constexpr,
    IS_GAUSSIAN: tl.constexpr,
    IS_CLIPPED: tl.constexpr,
    IS_DECAYING: tl.constexpr,
):
    """Fold `count` steps into one block of x, and of m and H unless they are None."""
    at = tl.program_id(0).to(tl.int64) * COUNT
    start = first + at
    x = read(x_field, at, size, COUNT)
    if m_field is not None:
        m = read(m_field, at, size, COUNT)
    if h_field is not None:
        h = read(h_field, at, size, COUNT)
        sqrt_hessian = h
    for number in range(count):
        word = words + COLUMNS * number
        low, high, step = unsigned(tl.load(word)), unsigned(tl.load(word + 1)), unsigned(tl.load(word + 2))
        scalar, perturbations, flags = scalars + tl.load(word + 3), tl.load(word + 4), tl.load(word + 5)
        if h_field is not None:
            if flags & IS_FIRST != 0:
                sqrt_hessian = tl.sqrt_rn(h)
        delta = tl.zeros([COUNT], tl.float32)
        for p in range(perturbations):
            z = direction(table, start, step, p, low, high, COUNT, IS_GAUSSIAN)
            delta = delta + tl.load(scalar + p) * z
        if h_field is not None:
            delta = tl.div_rn(delta, sqrt_hessian)
        update = delta
        if IS_DECAYING:
            if flags & IS_OWN != 0:
                update = delta + x * decay
        if m_field is not None:
            if flags & IS_OWN != 0:
                update = m * beta + update * share
                m = stored(m_field, update)
        x = stored(x_field, x - update * tl.load(rates + number))
        if h_field is not None:
            if flags & LEARNS != 0:
                h = h * keep + (delta * delta + epsilon) * nu
                if IS_CLIPPED:
                    h = tl.where(h < lowest, lowest, h)
                    h = tl.where(h > highest, highest, h)
                h = stored(h_field, h)
    write(x_field, at, size, x, COUNT)
    if m_field is not None:
        write(m_field, at, size, m, COUNT)
    if h_field is not None:
        write(h_field, at, size, h, COUNT)
