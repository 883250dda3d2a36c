"""The contract of a codec of vectors."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from seedbus.algorithms.contract import BadPayload, Vector
from seedbus.algorithms.dense.vectors import raw, read
from seedbus.discovery import Variants
from seedbus.settings import Settings


class Compression(Settings):
    """No compression: four bytes a coordinate.

    A codec is one file of this folder: a frozen pydantic model with its name as `kind`. Client and server both use the
    decoded vector. A vector that is not finite must decode to one that is not finite, so that the server refuses it.
    """

    is_unbiased: ClassVar[bool] = False
    """Whether the mean of decoded vectors over all draws is the vector, so that error feedback has nothing to mend."""

    def encode(self, vector: Vector, key: int) -> list[Any]:
        """Return a float32 vector [d] as plain data for the wire; key: 64 bits, which decide all draws."""
        packed = raw(vector)
        return packed if isinstance(packed, list) else [packed]

    def decode(self, body: Any, dimension: int) -> Vector:
        """Return the vector that `encode` encoded, up to its loss; float32 [dimension].

        Raises:
            BadPayload: the body, which may come from any peer, is not a vector of this codec and dimension.
        """
        if isinstance(body, list) and len(body) > 1:
            return read(body, dimension)
        (packed,) = parts(body, 4 * dimension)
        return read(packed, dimension)

    def most_bytes(self, dimension: int) -> int:
        """Return an upper bound of the bytes that a vector takes on the wire."""
        return 4 * dimension + 64

    def longest_string(self, dimension: int) -> int:
        """Return an upper bound of the bytes of one byte string of a vector; 0 where a long one is several."""
        return 0 if type(self).encode is Compression.encode else self.most_bytes(dimension)

    def scalars(self, dimension: int) -> int:
        """Return how many of a vector's numbers are sent."""
        return dimension


CODECS = Variants("codec", "kind", "seedbus.algorithms.dense.compression", Compression, is_short=True)


def parts(body: Any, *sizes: int | None) -> list[bytes]:
    """Return the byte strings of a body; in a long message they are views of it.

    Args:
        body: what a peer sent.
        sizes: the bytes of each string; None: any number.

    Raises:
        BadPayload: the body is not a list of byte strings of these sizes.
    """
    if (
        not isinstance(body, list)
        or len(body) != len(sizes)
        or not all(isinstance(part, bytes | memoryview) for part in body)
    ):
        raise BadPayload(f"a vector is not {len(sizes)} byte strings")
    for part, size in zip(body, sizes, strict=True):
        if size is not None and len(part) != size:
            raise BadPayload(f"a part of a vector has {len(part)} bytes where {size} are expected")
    return body


def floats(raw: bytes) -> Vector:
    """Return the numbers of little-endian float32 bytes, float32."""
    return np.frombuffer(raw, "<f4").astype(np.float32)
