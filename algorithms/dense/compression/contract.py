"""What a codec of vectors is."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from seedbus.algorithms.contract import BadPayload, Vector


class Compression(BaseModel):
    """As it is: four bytes a coordinate.

    A codec is one file of this folder: a frozen pydantic model with its name as `kind`. What `decode` makes of what
    `encode` made is what was sent, for both sides: the client reckons with it too. A vector that is not finite comes
    out as one that is not, so that the server sees it and refuses it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def encode(self, vector: Vector, key: int) -> list[Any]:
        """A float32 [d] as plain data of the wire. key: 64 bits for what is drawn; the same key, the same bits."""
        return [np.ascontiguousarray(vector, "<f4").tobytes()]

    def decode(self, body: Any, dimension: int) -> Vector:
        """The inverse, as far as there is one: float32 [dimension]. Raises `BadPayload`, whatever a peer sent."""
        (raw,) = parts(body, 4 * dimension)
        return floats(raw)

    def most_bytes(self, dimension: int) -> int:
        """What a vector takes on the wire, at most."""
        return 4 * dimension + 64

    def scalars(self, dimension: int) -> int:
        """How many numbers of a vector travel."""
        return dimension


def parts(body: Any, *sizes: int | None) -> list[bytes]:
    """The byte strings of a body, of these sizes; None: of any. Raises `BadPayload`."""
    if not isinstance(body, list) or [type(part) for part in body] != [bytes] * len(sizes):
        raise BadPayload(f"a vector is not {len(sizes)} byte strings")
    for part, size in zip(body, sizes, strict=True):
        if size is not None and len(part) != size:
            raise BadPayload(f"a vector's part of {len(part)} bytes where {size} belong")
    return body


def floats(raw: bytes) -> Vector:
    """Little-endian float32."""
    return np.frombuffer(raw, "<f4").astype(np.float32)
