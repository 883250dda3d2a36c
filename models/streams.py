"""Keyed random streams for initial values, partitions and batches. Directions have a stream of their own.

A stream is NumPy's Philox, keyed by BLAKE2b of a purpose and numbers. The invariant: two draws share a stream only if
purpose and numbers are all equal, so no draw depends on which other draws are made, or when.
"""

from __future__ import annotations

import hashlib

import numpy as np


def digest(purpose: str, *numbers: int | str, size: int) -> bytes:
    """Return a digest of a purpose and numbers, of `size` bytes. A separator distinguishes (1, 23) from (12, 3)."""
    named = "\0".join((purpose, *map(str, numbers)))
    return hashlib.blake2b(named.encode(), digest_size=size).digest()


def stream(purpose: str, *numbers: int | str) -> np.random.Generator:
    """Return the generator of this purpose and these numbers, the same in every process."""
    key = np.frombuffer(digest(purpose, *numbers, size=16), dtype="<u8").astype(np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def private_key(seed: int, client: int, round: int) -> int:
    """Return 64 bits that key the draws that a client makes by itself in a round."""
    return int.from_bytes(digest("private", seed, client, round, size=8), "little")
