"""Giving out a replica in pieces, to a server that keeps a snapshot for those who lag."""

from __future__ import annotations

from seedbus.agents import chunks
from seedbus.agents.chunks import Title
from seedbus.agents.policies.snapshot_budget import MOST_WINDOW
from seedbus.algorithms.contract import Replica
from seedbus.bus import Envelope, Kind


class Source:
    """Remembers the last title that it gave, for it takes a pass over the replica."""

    def __init__(self) -> None:
        self._known: tuple[Title, int] | None = None

    def pieces(self, envelope: Envelope, replica: Replica) -> list[Envelope]:
        """The answer to a FETCH out of a replica, if that is of the version that is asked for. Raises `BadPayload`."""
        chunk_bytes, wanted = chunks.unpack_fetch(envelope, MOST_WINDOW)
        client, round = envelope.client, envelope.round
        if replica.version != envelope.base:
            return [chunks.description(Title(envelope.base, 0, b""), client, round)]
        title = self._title(replica, chunk_bytes)
        if not wanted:
            return [chunks.description(title, client, round)]
        found = [chunks.cut(replica, title, index, chunk_bytes) for index in wanted if index < title.count]
        return [chunk.pack(Kind.PIECE, client, round) for chunk in found]

    def _title(self, replica: Replica, chunk_bytes: int) -> Title:
        if self._known is None or (self._known[0].version, self._known[1]) != (replica.version, chunk_bytes):
            self._known = chunks.title_of(replica, chunk_bytes), chunk_bytes
        return self._known[0]
