"""Keyed random generators for initial values, partitions and batches. Directions draw in another way.

A generator is NumPy's Philox, keyed by BLAKE2b of a purpose and numbers. The invariant: two draw the same only if
purpose and numbers are all equal, so no draw depends on which other draws are made, or when.
"""

from __future__ import annotations

import numpy as np

from seedbus.keyed import keyed_bits, keyed_bytes


def generator(purpose: str, *numbers: int | str) -> np.random.Generator:
    """Return the generator of this purpose and these numbers, the same in every process."""
    key = np.frombuffer(keyed_bytes(purpose, *numbers, size=16), dtype="<u8").astype(np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def client_key(seed: int, client: int, round: int) -> int:
    """Return 64 bits that key the draws that a client makes by itself in a round."""
    return keyed_bits("private", seed, client, round)
