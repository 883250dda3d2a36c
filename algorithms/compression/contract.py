"""What a codec of vectors is."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from seedbus.algorithms.contract import BadPayload, Vector


class Compression(BaseModel):
    """As it is: four bytes a coordinate.

    A codec is one file of this folder: a frozen pydantic model with its name as `kind`. What `decode` makes of what
    `encode` made is what was sent, for both sides: the client reckons with it too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def encode(self, vector: Vector, key: int) -> list[Any]:
        """A float32 [d] as plain data of the wire. key: 64 bits for what is drawn; the same key, the same bits."""
        return [np.ascontiguousarray(vector, "<f4").tobytes()]

    def decode(self, body: Any, dimension: int) -> Vector:
        """The inverse, as far as there is one: float32 [dimension]. Raises `BadPayload`, whatever a peer sent."""
        if not (isinstance(body, list) and len(body) == 1 and isinstance(body[0], bytes)):
            raise BadPayload("a vector is not one byte string")
        if len(body[0]) != 4 * dimension:
            raise BadPayload(f"a vector of {len(body[0])} bytes where {4 * dimension} belong")
        return np.frombuffer(body[0], "<f4").astype(np.float32)

    def most_bytes(self, dimension: int) -> int:
        """What a vector takes on the wire, at most."""
        return 4 * dimension + 64
