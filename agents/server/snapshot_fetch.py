"""How the server gets a snapshot: a state machine without I/O, whose methods return the requests to send.

                           ┌─ all pieces ─► complete
    idle ─ request ─► evaluator asked ─ no such version ─► failed
                           │  ▲
               description │  │ the peer left, has another version, or none is left
                           ▼  │
                  a peer is sought ─ first report ─► peer asked ─ all pieces ─► complete

Only `source: peer` takes the lower way: the evaluator then describes the replica, at no cost, and a client delivers the
pieces. They are given to nobody unless they have the digest of that description. A source has until the end of the
round. After a peer has failed, the evaluator delivers the next snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from seedbus.agents.catch_up import chunks
from seedbus.agents.catch_up.chunks import Chunk, Title
from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.messages import Outgoing
from seedbus.agents.server.snapshot import Snapshot
from seedbus.algorithms.contract import BadPayload, ReportRefused
from seedbus.bus import EVALUATOR, Envelope
from seedbus.bus.envelope import NO_TALLY


class FetchStep(NamedTuple):
    """What follows from a message of the source.

    Attributes:
        outgoing: requests to send.
        snapshot: the whole snapshot, if this was its last piece.
        has_failed: whether nobody can deliver it, because the evaluator is at another version.
        is_forged: whether a peer delivered something else than the evaluator described.
    """

    outgoing: Sequence[Outgoing] = ()
    snapshot: Snapshot | None = None
    has_failed: bool = False
    is_forged: bool = False


@dataclass(slots=True)
class _Transfer:
    """A snapshot that is being fetched.

    Attributes:
        version: of the replica.
        source: the follower that was asked; None while no peer has been found.
        title: as the evaluator described it, or the first piece.
        pieces: index → chunk, of those received.
        wanted: indices that were requested and not received yet.
    """

    version: int
    source: int | None
    title: Title | None = None
    pieces: dict[int, bytes] = field(default_factory=dict)
    wanted: set[int] = field(default_factory=set)


class SnapshotFetch:
    """Fetches one snapshot at a time.

    Args:
        lag: when clients get snapshots, from whom and in what pieces.
        fields: the fields of a replica, all of one length: name → dtype.

    Attributes:
        transfer: the snapshot that is being fetched; None: none is.
        distrusts_peers: whether a peer failed since the last snapshot that was complete; kept in checkpoints.
    """

    def __init__(self, lag: Lag, fields: Mapping[str, np.dtype[Any]]) -> None:
        self._lag = lag
        self._fields = fields
        self._round = 0
        self._version = 0
        self.transfer: _Transfer | None = None
        self.distrusts_peers = False

    @property
    def awaits_evaluator(self) -> bool:
        """Whether the evaluator owes an answer, which takes no simulated time."""
        return self.transfer is not None and self.transfer.source == EVALUATOR

    @property
    def asks_peers(self) -> bool:
        """Whether a client is to deliver the next snapshot, and not the evaluator."""
        return self._lag.source == "peer" and not self.distrusts_peers

    def open_round(self, round: int, version: int) -> None:
        """Fetch replicas of this version from now on."""
        self._round = round
        self._version = version

    def request(self) -> list[Outgoing]:
        """Begin to fetch, unless a snapshot is being fetched already."""
        if self.transfer is not None:
            return []
        transfer = self._begin()
        return self._ask(transfer, EVALUATOR, () if self.asks_peers else self._next_pieces(transfer))

    def client_reported(self, client: int) -> list[Outgoing]:
        """A client reported in the open round, so it holds the round's version: it may be the peer that is sought."""
        transfer = self.transfer
        if transfer is None or transfer.source is not None:
            return []
        transfer.source = client
        return self._ask(transfer, client, self._next_pieces(transfer))

    def client_left(self, client: int) -> list[Outgoing]:
        """A client is gone. If it was the source, the evaluator takes its place."""
        if self.transfer is None or self.transfer.source != client:
            return []
        return self._turn_to_evaluator()

    def no_peer_left(self) -> list[Outgoing]:
        """No client of the open round can become the source. If one is sought, the evaluator takes its place."""
        if self.transfer is None or self.transfer.source is not None:
            return []
        return self._turn_to_evaluator()

    def give_up_source(self) -> FetchStep:
        """The source does not deliver. The evaluator takes the place of a peer; if it was the source, nobody can."""
        if self.transfer is None:
            return FetchStep()
        self.distrusts_peers = True
        return self._source_has_moved_on(self.transfer)

    def received(self, envelope: Envelope) -> FetchStep:
        """Take a PIECE: a chunk of the replica, or its description.

        Raises:
            BadPayload: the message cannot be unpacked, or the chunk has the wrong size.
            ReportRefused: nobody asked its sender for this.
        """
        transfer = self.transfer
        if transfer is None or (envelope.client, envelope.base) != (transfer.source, transfer.version):
            raise ReportRefused("not-fetched", f"client {envelope.client} was not asked for its replica (any more)")
        unpacked = chunks.unpack(envelope)
        if isinstance(unpacked, Chunk):
            return self._take(transfer, envelope.client, unpacked)
        title, _ = unpacked
        if title.count == 0:
            return self._source_has_moved_on(transfer)
        if transfer.source != EVALUATOR or transfer.title is not None:
            raise ReportRefused("not-fetched", f"client {envelope.client} describes what was described")
        transfer.title = title
        transfer.source = None
        return FetchStep()

    def close_round(self) -> None:
        """The round is over. A source that has not delivered by now is given up, and peers are no longer trusted."""
        if self.transfer is not None:
            self.distrusts_peers = True
        self.abandon()

    def abandon(self) -> None:
        """Forget what was received of a snapshot that is not complete."""
        self.transfer = None

    def _begin(self) -> _Transfer:
        self.transfer = _Transfer(self._version, EVALUATOR)
        return self.transfer

    def _turn_to_evaluator(self) -> list[Outgoing]:
        transfer = self._begin()
        return self._ask(transfer, EVALUATOR, self._next_pieces(transfer))

    def _source_has_moved_on(self, transfer: _Transfer) -> FetchStep:
        """The source is at another version by now."""
        if transfer.source != EVALUATOR:
            return FetchStep(self._turn_to_evaluator())
        self.abandon()
        return FetchStep(has_failed=True)

    def _take(self, transfer: _Transfer, source: int, chunk: Chunk) -> FetchStep:
        size = self._lag.chunk_bytes
        title = transfer.title or chunk.title
        if chunk.title != title or chunk.index not in transfer.wanted:
            raise ReportRefused("not-fetched", f"piece {chunk.index}, which was not asked for")
        is_last = chunk.index == title.count - 1
        if not (len(chunk.data) == size or (is_last and 0 < len(chunk.data) < size)):
            raise BadPayload(f"a piece of {len(chunk.data)} bytes; they have {size}")
        transfer.title = title
        transfer.pieces[chunk.index] = chunk.data
        transfer.wanted.discard(chunk.index)
        if len(transfer.pieces) == title.count:
            pieces = [transfer.pieces[index] for index in range(title.count)]
            if source != EVALUATOR and not self._has_digest(title, b"".join(pieces)):
                self.distrusts_peers = True
                return FetchStep(self._turn_to_evaluator(), is_forged=True)
            self.transfer = None
            self.distrusts_peers = False
            return FetchStep(snapshot=Snapshot(title, pieces))
        if min(transfer.wanted, default=title.count) >= title.count:  # the first request may reach beyond the end
            return FetchStep(self._ask(transfer, source, self._next_pieces(transfer)))
        return FetchStep()

    def _has_digest(self, title: Title, data: bytes) -> bool:
        size = len(data) // sum(dtype.itemsize for dtype in self._fields.values())
        try:
            chunks.restored({name: (dtype, size) for name, dtype in self._fields.items()}, title, data)
        except BadPayload:
            return False
        return True

    def _next_pieces(self, transfer: _Transfer) -> list[int]:
        """The next window of pieces; they are requested in order."""
        first = len(transfer.pieces)
        last = min(first + self._lag.window, transfer.title.count if transfer.title else 2**32)
        return list(range(first, last))

    def _ask(self, transfer: _Transfer, source: int, wanted: Collection[int]) -> list[Outgoing]:
        transfer.wanted = set(wanted)
        return [(chunks.fetch(transfer.version, self._lag.chunk_bytes, wanted, source, self._round), NO_TALLY)]
