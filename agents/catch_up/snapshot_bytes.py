"""The bytes of a snapshot on its way: all messages, with their headers, that carry it and ask for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgpack

from seedbus.agents.catch_up import chunks
from seedbus.agents.catch_up.chunks import Chunk, Title
from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.messages import Join, Span
from seedbus.bus import Envelope, Kind
from seedbus.bus.codec import encode

_pack = msgpack.Packer().pack


class SnapshotBytes(NamedTuple):
    """Counts the bytes of a snapshot, if no message is lost.

    Attributes:
        size: bytes of all fields of the replica.
        lag: the size of chunks, and how many are asked for at a time.
        proofs: what a client's JOIN shows when it has the snapshot, by name.
    """

    size: int
    lag: Lag
    proofs: Mapping[str, bytes]

    def of_offer(self, version: int, client: int, round: int) -> tuple[int, int]:
        """Return what a client is sent for a snapshot that it is offered, and what it sends."""
        title = self._title(version)
        down = _length(chunks.offer(title, self.lag.window, client, round))
        down += self._of_chunks(title, Kind.SNAPSHOT, client, round)
        up = _length(Join(client, (Span(client, client, version),), **self.proofs).pack())
        up += sum(_length(chunks.pull(title, wanted, client, round)) for wanted in self._windows(title))
        return down, up

    def of_fetch(self, version: int, peer: int, round: int) -> tuple[int, int]:
        """Return what a peer is sent whose snapshot the server fetches, and what it sends."""
        title = self._title(version)
        size, windows = self.lag.chunk_bytes, self._windows(title)
        down = sum(_length(chunks.fetch(version, size, wanted, peer, round)) for wanted in windows)
        return down, self._of_chunks(title, Kind.PIECE, peer, round)

    def _title(self, version: int) -> Title:
        return Title(version, -(-self.size // self.lag.chunk_bytes), bytes(chunks.DIGEST_BYTES))

    def _windows(self, title: Title) -> Iterator[range]:
        for start in range(0, title.count, self.lag.window):
            yield range(start, min(start + self.lag.window, title.count))

    def _of_chunks(self, title: Title, kind: Kind, client: int, round: int) -> int:
        """Return the bytes of all chunks: they differ in how long their index is, and the last one in its data, too."""

        def without_index(index: int) -> int:
            data = bytes(min(self.lag.chunk_bytes, self.size - index * self.lag.chunk_bytes))
            return _length(Chunk(title, index, data).pack(kind, client, round)) - len(_pack(index))

        last = title.count - 1
        return sum(len(_pack(index)) for index in range(title.count)) + last * without_index(0) + without_index(last)


def _length(envelope: Envelope) -> int:
    return len(encode(envelope)[0])
