"""A small replay whose digest shows whether two machines fold the same commits to the same bits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from seedbus.algorithms.directions.bfloat16 import BITS, narrowed, widened
from seedbus.algorithms.directions.contract import Directions, Folding
from seedbus.algorithms.directions.folding import STEP, Hessian, Momentum, ReplaySteps, UpdateRule
from seedbus.algorithms.directions.laws.law import Law, law_of
from seedbus.algorithms.directions.selection import directions_for, reference
from seedbus.vector import Vector, is_on_host

OURS = ("gaussian", "rademacher")
DIMENSION = 5_003
SEED = 0x0123_4567_89AB_CDEF
FAR_START = 7 << 32  # its block number needs all 32 bits

FOLDED = 907  # coordinates into which commits are folded, no multiple of 128
FOLD_START = 384
KEEP, ADD, DECAY, LOWEST, HIGHEST = 0.5, 0.5, 0.25, 0.5, 4.0
NU, EPSILON = 0.05, 1e-8
RULE = UpdateRule(Momentum(KEEP, ADD), Hessian(1 - NU, NU, EPSILON, LOWEST, HIGHEST, is_last_only=False), DECAY)

SHRINKING = ReplaySteps(np.array([(1, 0, 0, 0, 1, 2.0, True, True, True)], STEP), np.zeros(1, np.float32))
"""A commit of the scalar 0: x ← ¾·x. Half of all x in bfloat16 are led to a tie, and subnormal ones stay subnormal."""

COMMITS = ReplaySteps(
    np.array(
        [
            (0x89AB_CDEF, 0x0123_4567, 0, 0, 1, 0.02, True, True, False),
            (0x89AB_CDEF, 0x0123_4567, 1, 1, 2, 0.02, True, False, True),
            (0xFFFF_FFFF, 0, 0, 3, 1, 0.005, False, True, True),
            (7, 0xFFFF_FFFF, 0, 4, 2, 0.01, True, True, True),
        ],
        STEP,
    ),
    np.array([0.3, 1.3, -0.7, 2.9, -1.7, 0.3], np.float32),
)
"""A commit of two local steps, and a commit with a late report."""


def selftest(
    backend: Callable[[Law], Directions] | None = None,
    place: Callable[[Vector], Vector] = lambda vector: vector,
    law: object = None,
) -> bytes:
    """Return a digest, 16 bytes, that is equal if directions, rounding, order of operations and subnormals are equal.

    Commits are folded in one call where the backend can do so, and step by step elsewhere, in float32 and in bfloat16.
    Clients send it when they join. So a machine whose replicas would diverge is refused at once and not noticed later.

    Args:
        backend: returns the directions of a law; None: the fastest for vectors where they are placed.
        place: moves a vector into the memory in which the process computes.
        law: the run's `directions`, if it has some. If it is none of ours, which are always tested, its whole table is
            tested too: the last bits of a logarithm, for instance, may be the processor's own.
    """
    digest = hashlib.blake2b(digest_size=16)
    x = place(np.zeros(DIMENSION, np.float32))
    laws = [law_of(name) for name in OURS]
    if isinstance(law, Law) and law not in laws:
        laws.append(law)
        digest.update(law.table.astype("<f4").tobytes())
    for each in laws:
        source = directions_for(each, x) if backend is None else backend(each)
        for vector in (*_replay(source, np.zeros_like(x)), *_folded(source, place(_values()))):
            array = np.asarray(vector)
            digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.digest()


def selftest_once(
    law: object,
    backend: Callable[[Law], Directions] | None = None,
    place: Callable[[Vector], Vector] = lambda vector: vector,
) -> bytes:
    """Return what `selftest` does. A processor makes it once for a law, since many runs may follow in a process.

    Without a law the run draws no directions, and the reference computes the same digest: no kernel is compiled.
    """
    if not is_on_host(place(np.zeros(1, np.float32))):
        return selftest(backend, place, law)
    return _on_host(law if isinstance(law, Law) else None, reference if law is None else backend)


@lru_cache(maxsize=16)
def _on_host(law: Law | None, backend: Callable[[Law], Directions] | None) -> bytes:
    return selftest(backend, law=law)


def _replay(source: Directions, x: Vector) -> tuple[Vector, ...]:
    """Return x, H and a subnormal perturbation after three steps of a HiSo round, in the order of every backend."""
    tiny, delta = np.empty_like(x), np.empty_like(x)
    source.fill(x, seed=SEED, step=0, perturbation=2**32 - 1, start=FAR_START)
    hessian = np.float32(1) + x * x
    rate, keep, mix = np.float32(0.01), np.float32(0.95), np.float32(0.05)
    scalars = np.array([0.3, -1.7, 2.9], np.float32)
    sqrt_hessian = np.sqrt(hessian)
    for step in range(3):
        source.accumulate(delta, scalars, seed=SEED, step=step, divisor=sqrt_hessian)
        delta /= np.float32(scalars.size)
        x -= rate * delta
        hessian = keep * hessian + mix * (delta * delta)
    source.perturb(x, x.copy(), 1e-3, seed=SEED, step=3, perturbation=0)
    source.perturb(tiny, np.zeros_like(x), 1e-40, seed=SEED, step=4, perturbation=0)
    return x, hessian, tiny


def _values() -> Vector:
    """Return float32 values of all magnitudes and both signs, on the ties of bfloat16 and beside them."""
    numbers = np.arange(FOLDED, dtype=np.uint32)
    uppers = 35 * numbers
    uppers[::8] %= 0x80
    bits = uppers << 16 | np.array([0, 1, 0x7FFF, 0x8000, 0x8001], np.uint32)[numbers % 5]
    values: Vector = np.where(numbers % 3, bits, bits | 0x8000_0000).astype(np.uint32).view(np.float32)
    return values


def _folded(source: Directions, x: Vector) -> list[Vector]:
    """Return x after a commit, and x, m and H after two more, in float32 and in bfloat16."""
    found = []
    for start in (x, narrowed(x)):
        fields = {"x": start, "momentum": np.zeros_like(x), "hessian": np.ones_like(x)}
        for steps in (SHRINKING, COMMITS):
            if isinstance(source, Folding):
                source.fold(RULE, fields, steps, start=FOLD_START)
            else:
                _fold(source, steps, **fields)
            found.append(fields["x"].copy())
        found += [fields["momentum"], fields["hessian"]]
    return found


def _fold(source: Directions, steps: ReplaySteps, x: Vector, momentum: Vector, hessian: Vector) -> None:
    """Fold steps by `RULE` for directions that do not fold: the definition in `folding`, one operation at a time."""
    values, delta = widened(x), np.empty_like(momentum)
    for step in steps.steps:
        if step["is_first"]:
            roots = np.sqrt(hessian)
        scalars = steps.coefficients[step["first"] : step["first"] + step["count"]]
        seed = int(step["high"]) << 32 | int(step["low"])
        source.accumulate(delta, scalars, seed=seed, step=int(step["step"]), start=FOLD_START, divisor=roots)
        update = delta
        if step["is_own"]:
            momentum *= np.float32(KEEP)
            momentum += (delta + values * np.float32(DECAY)) * np.float32(ADD)
            update = momentum
            hessian *= np.float32(1 - NU)
            hessian += (delta * delta + np.float32(EPSILON)) * np.float32(NU)
            hessian[:] = np.clip(hessian, np.float32(LOWEST), np.float32(HIGHEST))
        values -= update * step["rate"]
        if x.dtype == BITS:
            x[:] = narrowed(values)
            values = widened(x)
