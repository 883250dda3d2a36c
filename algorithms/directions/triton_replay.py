"""Replay on a GPU: the scalar-only family's followers fold commits into torch tensors, in one fused Triton kernel.

Each program takes a block of coordinates through all the commits, so x, H and m are read and written once however long
the lag. In float32 the bits are those of `Algorithm.apply`.

A field in bfloat16 is rounded to nearest, ties to even, after every global step k of every term; the arithmetic in
between is float32. So the bits don't depend on how many commits were folded at a time, and followers who keep the same
fields in bfloat16 hold the same bits. (One rounding at the end would depend on it.) They are not the bits of a float32
follower: all of a run's followers keep a field in the same type.

It stands here because every module beside the algorithms is imported when they are looked for, and this one needs
Triton.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from seedbus.algorithms.contract import CommitGap
from seedbus.algorithms.directions.contract import check_stream
from seedbus.algorithms.directions.philox import key_words
from seedbus.algorithms.directions.triton_backend import as_stored, check_tensors, float32, launch, table
from seedbus.algorithms.directions.triton_kernels import direction, read, stored, unsigned, write
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.block import coefficients_of
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.hiso import HiSo
from seedbus.algorithms.scalar_only.mezo import MeZO
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, Scalars

IS_FIRST: Final = tl.constexpr(1)  # of its term: the directions of a term have one divisor
IS_OWN: Final = tl.constexpr(2)  # of the commit's round, and no late report
LEARNS: Final = tl.constexpr(4)
COLUMNS: Final = tl.constexpr(6)


class Move(NamedTuple):
    """One global step k of one term. words: low and high half of the seed, k, first scalar, P, flags."""

    words: tuple[int, int, int, int, int, int]
    learning_rate: float


def replay(fields: Mapping[str, Tensor], algorithm: ScalarOnly, commits: Sequence[ScalarCommit]) -> None:
    """Fold commits, oldest first, into the fields of a replica that holds the version before the first of them.

    fields: name → tensor [d], float32 or bfloat16 each, all on one device; x and the algorithm's companions.
    Raises ValueError for fields that are not the algorithm's, TypeError for an algorithm that has no kernel here, and
    `CommitGap` if a commit does not follow the one before it.
    """
    rules = _rules(algorithm)
    wanted = {"x", *algorithm.companions()}
    if set(fields) != wanted:
        raise ValueError(f"a replica of {type(algorithm).__name__} has {sorted(wanted)}, not {sorted(fields)}")
    for before, after in pairwise(commits):
        if after.version != before.version + 1:
            raise CommitGap(before.version, after.version)
    x = fields["x"]
    check_tensors(x, *fields.values())
    moves = list(_moves(algorithm, commits, len(x)))
    if not moves:
        return
    vectors = (as_stored(x), as_stored(fields.get("momentum")), as_stored(fields.get("hessian")))
    program = (part.to(x.device) for part in _program(moves, commits))
    launch(_replay, algorithm.directions, x, *vectors, table(x.device), *program, len(moves), len(x), **rules)


def _rules(algorithm: ScalarOnly) -> dict[str, Any]:
    """The hyperparameters that the kernel takes, as float32. A subclass, which might move x otherwise, is refused."""
    rules = {"beta": 0.0, "share": 1.0, "nu": 0.0, "keep": 1.0, "epsilon": 0.0, "lowest": 0.0, "highest": 0.0}
    is_clipped = False
    if type(algorithm) is DeComFL:
        rules |= {"beta": algorithm.momentum, "share": 1 - algorithm.momentum if algorithm.dampening else 1.0}
    elif type(algorithm) is HiSo:
        lowest, highest = algorithm.clip or (0.0, 0.0)
        is_clipped = algorithm.clip is not None
        rules |= {"nu": algorithm.nu, "keep": 1 - algorithm.nu, "epsilon": algorithm.epsilon}
        rules |= {"lowest": lowest, "highest": highest}
    elif type(algorithm) is not MeZO:
        raise TypeError(f"{type(algorithm).__name__} has no replay on a GPU; DeComFL, HiSo and MeZO have")
    return {name: float32(value) for name, value in rules.items()} | {"IS_CLIPPED": is_clipped}


def _moves(algorithm: ScalarOnly, commits: Sequence[ScalarCommit], dimension: int) -> Iterable[Move]:
    """The global steps in the order of `ScalarOnly.apply`; a term without weight has none."""
    learns_always = not isinstance(algorithm, HiSo) or algorithm.hessian_step == "every"
    first = 0
    for commit in commits:
        for term in commit.terms:
            steps, perturbations = term.scalars.shape
            check_stream(
                algorithm.directions, dimension, seed=term.seed, step=steps, perturbation=perturbations, start=0
            )
            is_own, _, rate = commit.effect(term)
            for k in range(steps if term.weight else 0):
                flags = IS_FIRST.value * (k == 0) + IS_OWN.value * is_own
                flags += LEARNS.value * (is_own and (learns_always or k + 1 == steps))
                yield Move((*key_words(term.seed), k, first + k * perturbations, perturbations, flags), rate)
            first += term.scalars.size


def _program(moves: Sequence[Move], commits: Sequence[ScalarCommit]) -> tuple[Tensor, Tensor, Tensor]:
    """What the kernel reads: words int32 [S, 6], learning rates float32 [S], all shares float32 [N]."""
    words: NDArray[np.uint32] = np.array([move.words for move in moves], np.uint32)
    rates = np.array([move.learning_rate for move in moves], np.float32)
    parts: list[Scalars] = [
        coefficients_of(term.scalars, commit.effect(term)[1], np.float32).reshape(-1)
        for commit in commits
        for term in commit.terms
    ]
    return (
        torch.from_numpy(words.view(np.int32)),
        torch.from_numpy(rates),
        torch.from_numpy(np.concatenate(parts)),
    )


@triton.jit(do_not_specialize=["count"])
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
    beta,
    share,
    nu,
    keep,
    epsilon,
    lowest,
    highest,
    COUNT: tl.constexpr,
    IS_GAUSSIAN: tl.constexpr,
    IS_CLIPPED: tl.constexpr,
):
    """Take one block of x, and of m and H where they are no None, through `count` moves."""
    start = tl.program_id(0).to(tl.int64) * COUNT
    at = start + tl.arange(0, COUNT)
    x = read(x_field, at, size)
    if m_field is not None:
        m = read(m_field, at, size)
    if h_field is not None:
        h = read(h_field, at, size)
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
        away = delta
        if m_field is not None:
            if flags & IS_OWN != 0:
                away = m * beta + delta * share
                m = stored(m_field, away)
        x = stored(x_field, x - away * tl.load(rates + number))
        if h_field is not None:
            if flags & LEARNS != 0:
                h = h * keep + (delta * delta + epsilon) * nu
                if IS_CLIPPED:
                    h = tl.where(h < lowest, lowest, h)
                    h = tl.where(h > highest, highest, h)
                h = stored(h_field, h)
    write(x_field, at, size, x)
    if m_field is not None:
        write(m_field, at, size, m)
    if h_field is not None:
        write(h_field, at, size, h)
