"""Keyed random streams for what is drawn once: initial values, partitions, batches. Directions have their own stream.

A stream is NumPy's Philox, keyed by BLAKE2b over the purpose and the numbers that name the draw. The invariant: two
draws share a stream only if purpose and numbers are all equal, so no draw depends on what else is drawn, or when.
"""

from __future__ import annotations

import hashlib

import numpy as np


def digest(purpose: str, *numbers: int | str, size: int) -> bytes:
    """`size` bytes that the purpose and the numbers decide. The separator keeps (1, 23) and (12, 3) apart."""
    named = "\0".join((purpose, *map(str, numbers)))
    return hashlib.blake2b(named.encode(), digest_size=size).digest()


def stream(purpose: str, *numbers: int | str) -> np.random.Generator:
    """A generator of its own for this purpose and these numbers, the same in every process."""
    key = np.frombuffer(digest(purpose, *numbers, size=16), dtype="<u8").astype(np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def private_key(seed: int, client: int, round: int) -> int:
    """64 bits of a client in a round, for what it draws by itself."""
    return int.from_bytes(digest("private", seed, client, round, size=8), "little")
