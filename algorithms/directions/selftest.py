"""One small replay whose digest tells whether two machines would follow the same commits to the same bits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from seedbus.algorithms.directions.contract import Directions, Kind
from seedbus.algorithms.directions.selection import directions
from seedbus.algorithms.vector import Vector

KINDS: tuple[Kind, ...] = ("gaussian", "rademacher")
DIMENSION = 5_003
SEED = 0x0123_4567_89AB_CDEF
FAR = 7 << 32  # a start whose block number needs all of its 32 bits


def selftest(backend: Callable[[Kind], Directions] = directions) -> bytes:
    """Sixteen bytes: equal where directions, rounding, order of operations and subnormals are equal.

    Joining clients send it, so that a machine that would drift is refused instead of being noticed later.
    """
    whole = hashlib.blake2b(digest_size=16)
    for kind in KINDS:
        for vector in _replay(backend(kind)):
            whole.update(vector.astype("<f4").tobytes())
    return whole.digest()


def _replay(source: Directions) -> tuple[Vector, ...]:
    """x, H and a subnormal perturbation after three steps of a HiSo round, in the order that every backend keeps."""
    x, tiny, delta = (np.empty(DIMENSION, np.float32) for _ in range(3))
    source.fill(x, seed=SEED, step=0, perturbation=2**32 - 1, start=FAR)
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
