"""A snapshot as the server holds it: a replica's bytes in chunks. Of a peer's, the server checks the digest."""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

from seedbus.agents.catch_up.chunks import Title


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole replica, as its source sent it.

    Attributes:
        title: version, number of chunks and digest that the source stated.
        pieces: the chunks in order; all but the last are of one size.
    """

    title: Title
    pieces: list[bytes]

    def pack(self) -> bytes:
        """Return the bytes that the journal stores."""
        title = self.title
        packed: bytes = msgpack.packb([title.version, title.count, title.digest, b"".join(self.pieces)])
        return packed

    @staticmethod
    def unpack(packed: bytes, chunk_bytes: int) -> Snapshot:
        """Return the snapshot that `pack` stored, cut into chunks of `chunk_bytes` bytes."""
        version, count, digest, data = msgpack.unpackb(packed)
        pieces = [data[start : start + chunk_bytes] for start in range(0, len(data), chunk_bytes)]
        return Snapshot(Title(version, count, digest), pieces)
