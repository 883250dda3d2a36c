"""Keyed random generators for initial values, partitions and batches. Directions draw in another way.

A generator is NumPy's Philox, keyed by BLAKE2b of a purpose and numbers. The invariant: two draw the same only if
purpose and numbers are all equal, so no draw depends on which other draws are made, or when.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from seedbus.keyed import keyed_bits, keyed_bytes


class _Reused(threading.local):
    """A thread's generator of `brief`."""

    def __init__(self) -> None:
        self.bits = np.random.Philox(0)
        self.generator = np.random.Generator(self.bits)


_reused = _Reused()
_NOTHING = np.zeros(4, dtype=np.uint64)


def generator(purpose: str, *numbers: int | str) -> np.random.Generator:
    """Return the generator of this purpose and these numbers, the same in every process."""
    return np.random.Generator(np.random.Philox(key=_key(purpose, *numbers)))


def brief(purpose: str, *numbers: int | str) -> np.random.Generator:
    """Return a generator that draws as `generator`'s does until this thread calls `brief` again, made in less time."""
    _reused.bits.state = {
        "bit_generator": "Philox",
        "state": {"counter": _NOTHING, "key": _key(purpose, *numbers)},
        "buffer": _NOTHING,
        "buffer_pos": len(_NOTHING),
        "has_uint32": 0,
        "uinteger": 0,
    }
    return _reused.generator


def _key(purpose: str, *numbers: int | str) -> NDArray[np.uint64]:
    return np.frombuffer(keyed_bytes(purpose, *numbers, size=16), dtype="<u8").astype(np.uint64)


def client_key(seed: int, client: int, round: int) -> int:
    """Return 64 bits that key the draws that a client makes by itself in a round."""
    return keyed_bits("private", seed, client, round)
