"""Random bits by key, the same everywhere: BLAKE2b of a seed and of what the bits are drawn for.

Everything in Seedbus that is random is drawn by a key and not from a generator with a state, so no draw depends on what
else is drawn, when, or in which process. Messages, faults and cohorts are drawn with the scenario's seed as BLAKE2b's
own key (`bits`); streams of numbers and codecs have all that names them in the hashed text (`keyed_bytes`). This module
stands below all layers and imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

Key = int | str


def bits(seed: int, *key: Key) -> int:
    """Return 64 uniform bits keyed by (seed, key…)."""
    text = "\x1f".join(map(str, key)).encode()
    salt = (seed % 2**64).to_bytes(8, "little")
    return int.from_bytes(blake2b(text, digest_size=8, key=salt).digest(), "little")


def bits_below(seed: int, *key: Key) -> Callable[..., int]:
    """Return `bits` for the keys that begin like this: bits_below(seed, *a)(*b) is bits(seed, *a, *b); b is not empty.

    The beginning is hashed once only.
    """
    salt = (seed % 2**64).to_bytes(8, "little")
    beginning = blake2b("".join(f"{part}\x1f" for part in key).encode(), digest_size=8, key=salt)

    def rest(*key: Key) -> int:
        hasher = beginning.copy()
        hasher.update("\x1f".join(map(str, key)).encode())
        return int.from_bytes(hasher.digest(), "little")

    return rest


def keyed_bytes(*key: Key, size: int = 8) -> bytes:
    """Return `size` bytes, 1 to 64, that the parts of a key decide; (1, 23) and (12, 3) are different keys."""
    return blake2b("\0".join(map(str, key)).encode(), digest_size=size).digest()


def keyed_bits(*key: Key) -> int:
    """Return the 64 bits of `keyed_bytes`, as a number."""
    return int.from_bytes(keyed_bytes(*key), "little")
