"""The bytes of a snapshot on its way: all messages, with their headers, that carry it and ask for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from seedbus.agents import chunks
from seedbus.agents.chunks import Chunk, Title
from seedbus.agents.messages import Join, Span
from seedbus.agents.policies.snapshot_budget import Lag
from seedbus.bus import Envelope, Kind
from seedbus.bus.codec import encode


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
        up = _length(Join(client, (Span(client, client, version),), **self.proofs).pack())
        for wanted in self._windows(title):
            up += _length(chunks.pull(title, wanted, client, round))
            down += sum(_length(self._chunk(title, index).pack(Kind.SNAPSHOT, client, round)) for index in wanted)
        return down, up

    def of_fetch(self, version: int, peer: int, round: int) -> tuple[int, int]:
        """Return what a peer is sent whose snapshot the server fetches, and what it sends."""
        title = self._title(version)
        down = up = 0
        for wanted in self._windows(title):
            down += _length(chunks.fetch(version, self.lag.chunk_bytes, wanted, peer, round))
            up += sum(_length(self._chunk(title, index).pack(Kind.PIECE, peer, round)) for index in wanted)
        return down, up

    def _title(self, version: int) -> Title:
        return Title(version, -(-self.size // self.lag.chunk_bytes), bytes(chunks.DIGEST_BYTES))

    def _windows(self, title: Title) -> Iterator[range]:
        for start in range(0, title.count, self.lag.window):
            yield range(start, min(start + self.lag.window, title.count))

    def _chunk(self, title: Title, index: int) -> Chunk:
        return Chunk(title, index, bytes(min(self.lag.chunk_bytes, self.size - index * self.lag.chunk_bytes)))


def _length(envelope: Envelope) -> int:
    return len(encode(envelope)[0])
