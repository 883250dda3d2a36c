"""Gives out a replica in pieces, to a server that keeps a snapshot for clients that lag."""

from __future__ import annotations

from typing import NamedTuple

from seedbus.agents import chunks
from seedbus.agents.chunks import Title
from seedbus.agents.policies.snapshot_budget import MOST_WINDOW
from seedbus.algorithms.contract import Replica
from seedbus.bus import Envelope, Kind


class _CachedTitle(NamedTuple):
    """A title and the size of the chunks that it counts, in bytes."""

    title: Title
    chunk_bytes: int


class SnapshotSource:
    """Answers requests for a replica. It caches the last title, whose digest takes a pass over the replica."""

    def __init__(self) -> None:
        self._cached: _CachedTitle | None = None

    def pieces(self, envelope: Envelope, replica: Replica) -> list[Envelope]:
        """Return the answer to a FETCH: pieces, a description, or that the replica is at another version.

        Raises:
            BadPayload: the FETCH cannot be unpacked.
        """
        chunk_bytes, wanted = chunks.unpack_fetch(envelope, MOST_WINDOW)
        client, round = envelope.client, envelope.round
        if replica.version != envelope.base:
            return [chunks.description(Title(envelope.base, 0, b""), client, round)]
        title = self._title(replica, chunk_bytes)
        if not wanted:
            return [chunks.description(title, client, round)]
        pieces = [chunks.cut(replica, title, index, chunk_bytes) for index in wanted if index < title.count]
        return [piece.pack(Kind.PIECE, client, round) for piece in pieces]

    def _title(self, replica: Replica, chunk_bytes: int) -> Title:
        cached = self._cached
        if cached is None or (cached.title.version, cached.chunk_bytes) != (replica.version, chunk_bytes):
            self._cached = cached = _CachedTitle(chunks.title_of(replica, chunk_bytes), chunk_bytes)
        return cached.title
