"""A small replay whose digest shows whether two machines fold the same commits to the same bits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from seedbus.algorithms.directions.contract import Directions
from seedbus.algorithms.directions.laws.law import Law, law_of
from seedbus.algorithms.directions.selection import directions_for
from seedbus.vector import Vector

OURS = ("gaussian", "rademacher")
DIMENSION = 5_003
SEED = 0x0123_4567_89AB_CDEF
FAR_START = 7 << 32  # its block number needs all 32 bits


def selftest(
    backend: Callable[[Law], Directions] | None = None,
    place: Callable[[Vector], Vector] = lambda vector: vector,
    law: object = None,
) -> bytes:
    """Return a digest, 16 bytes, that is equal if directions, rounding, order of operations and subnormals are equal.

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
        for vector in _replay(source, np.zeros_like(x)):
            digest.update(np.asarray(vector).astype("<f4").tobytes())
    return digest.digest()


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
