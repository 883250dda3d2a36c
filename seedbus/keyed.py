"""Random bits by key, the same everywhere: BLAKE2b of a seed and of what the bits are drawn for.

Everything in Seedbus that is random is drawn by a key and not from a generator with a state, so no draw depends on what
else is drawn, when, or in which process. This module stands below all layers and imports none of them.
"""

from __future__ import annotations

import hashlib

Key = int | str


def keyed_bytes(*key: Key, size: int = 8, salt: bytes = b"", separator: str = "\0") -> bytes:
    """Return `size` bytes that the parts of a key decide.

    Args:
        key: what the bytes are for; the order matters.
        size: number of bytes, 1 to 64.
        salt: a secret or a seed of at most 64 bytes that keys the hash itself.
        separator: stands between the parts, so that (1, 23) and (12, 3) differ.
    """
    return hashlib.blake2b(separator.join(map(str, key)).encode(), digest_size=size, key=salt).digest()


def keyed_bits(*key: Key, salt: bytes = b"", separator: str = "\0") -> int:
    """Return 64 uniform bits; the arguments are those of `keyed_bytes`."""
    return int.from_bytes(keyed_bytes(*key, salt=salt, separator=separator), "little")
