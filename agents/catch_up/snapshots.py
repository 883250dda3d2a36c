"""The server's side of snapshots: a state machine without I/O. What it wants sent, it adds to `messages`.

It fetches one snapshot at a time, of the version of the open round, for the clients that wait for it:

                           ┌─ all pieces ─► held, and offered
    idle ─ request ─► evaluator asked ─ no such version ─► those that wait replay
                           │  ▲
               description │  │ the peer left, has another version or other bytes, or none is left
                           ▼  │
                  a peer is sought ─ first report ─► peer asked ─ all pieces ─► held, and offered

Then it gives it out:

    offer ─► PULL, chunks, PULL, chunks … ─► JOIN at its version
                └─ PULL of nothing: its client finds it bad, and replays

Rules
- Only `source: peer` takes the lower way: the evaluator then describes the replica, at no cost, and a client delivers
  the pieces. They are given to nobody unless they have the digest of that description.
- A source has until the end of the round. After a peer has failed, the evaluator delivers the next snapshot.
- One snapshot is held at a time. Only a client to which it was offered may pull it. An offer allows `MAX_RESENDS` times
  the number of chunks, so a client that falls silent halfway costs nothing until a round asks it again; it is then
  offered the snapshot that is held, and pulls the chunks that it lacks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack
import numpy as np

from seedbus.agents.catch_up import chunks
from seedbus.agents.catch_up.chunks import Chunk, Title
from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.messages import Outgoing, PackedReplica
from seedbus.algorithms.contract import BadPayload, ReportRefused
from seedbus.bus import EVALUATOR, Envelope, Kind, Tally
from seedbus.bus.envelope import NO_TALLY

MAX_RESENDS = 4
"""How many times all chunks one offer allows. A chunk that is lost or doubled on its way is not the client's fault."""


class Snapshot(NamedTuple):
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
        version, count, digest, *_, data = msgpack.unpackb(packed)  # older runs keep one more, which nobody needs
        pieces = [data[start : start + chunk_bytes] for start in range(0, len(data), chunk_bytes)]
        return Snapshot(Title(version, count, digest), pieces)


@dataclass(slots=True)
class _Fetch:
    """A snapshot that is being fetched.

    Attributes:
        version: of the replica.
        source: the follower that was asked; None while a peer is sought.
        title: as the evaluator described it, or the first piece.
        pieces: index → chunk, of those received.
        wanted: indices that were requested and not received yet.
    """

    version: int
    source: int | None = EVALUATOR
    title: Title | None = None
    pieces: dict[int, bytes] = field(default_factory=dict)
    wanted: set[int] = field(default_factory=set)


class Snapshots:
    """The snapshots of one run.

    Attributes:
        lag: when clients get snapshots, from whom and in what pieces.
        messages: what is to be sent, oldest first.
        round, version: of the round that was opened last, and at which it started.
        held: the snapshot that clients may be offered; None if there is none.
        allowed: client → chunks that it may still pull; of clients with an offer.
        distrusts_peers: whether a peer has failed since the last snapshot that was complete.
        replaying: the clients that are to replay all commits after all, since this list was emptied.
    """

    def __init__(self, lag: Lag | None, fields: Mapping[str, np.dtype[Any]]) -> None:
        """Begin without a snapshot; fields: of a replica, all of one length: name → dtype."""
        self.lag = lag or Lag(snapshot_after_commits=1)
        self.messages: list[Outgoing] = []
        self.round = 0
        self.version = 0
        self.held: Snapshot | None = None
        self.allowed: dict[int, int] = {}
        self.distrusts_peers = False
        self.replaying: list[int] = []
        self._fields = fields
        self._fetch: _Fetch | None = None
        self._waiting: set[int] = set()  # for a snapshot, in the open round
        self._replays: set[int] = set()  # because snapshots failed them in the open round
        self._is_new = False

    # -- rounds and clients

    def replays(self, client: int) -> bool:
        """Whether a client is to replay all commits that it missed, because snapshots failed it in this round."""
        return client in self._replays

    def request(self, client: int, *, is_fresh: bool) -> None:
        """A client of the open round is to get a snapshot: offer it one, at once or when there is one.

        Args:
            client: the client that lags.
            is_fresh: whether it is to be of the newest version; else it is the one that is held.
        """
        if self.held is not None and not is_fresh:
            self._offer(client, self.held)
            return
        self._waiting.add(client)
        if self._fetch is None:
            self._ask_evaluator(only_describes=self._asks_peers)

    def reported(self, client: int) -> None:
        """A client reported in the open round, so it holds the round's version: it may be the peer that is sought."""
        if self._fetch is not None and self._fetch.source is None:
            self._ask(self._fetch, client, self._next_pieces(self._fetch))

    def left(self, clients: Iterable[int]) -> None:
        """Clients are gone. If one was the source, the evaluator takes its place."""
        for client in clients:
            self._waiting.discard(client)
            self.allowed.pop(client, None)
            if self._fetch is not None and self._fetch.source == client:
                self._ask_evaluator()

    def settle(self, expected: Collection[int]) -> None:
        """If all clients that the open round still expects wait for a snapshot, none can become the peer."""
        if self.seeks_peer and self._waiting.issuperset(expected):
            self._ask_evaluator()

    def close(self) -> list[int]:
        """The round is over. A source that has not delivered by now is given up, and peers are no longer trusted.

        Returns:
            The clients that still wait for a snapshot, ascending.
        """
        waiting = sorted(self._waiting)
        self.distrusts_peers = self.distrusts_peers or self._fetch is not None
        self.crashed()
        return waiting

    def crashed(self) -> None:
        """The round is lost, and a snapshot that was being fetched. The one that is held is kept."""
        self._fetch = None
        self._waiting.clear()
        self._replays.clear()
        self.replaying.clear()

    @property
    def awaits_evaluator(self) -> bool:
        """Whether the evaluator owes an answer, which takes no simulated time."""
        return self._fetch is not None and self._fetch.source == EVALUATOR

    @property
    def seeks_peer(self) -> bool:
        """Whether the next client that reports is to deliver a snapshot."""
        return self._fetch is not None and self._fetch.source is None

    def give_up_source(self) -> bool:
        """The source does not deliver. The evaluator takes the place of a peer. Returns whether there was a source."""
        if self._fetch is None:
            return False
        self.distrusts_peers = True
        self._source_has_moved_on(self._fetch)
        return True

    # -- fetching

    def take_piece(self, envelope: Envelope) -> None:
        """Take a PIECE: a chunk of the source's replica, or its description.

        Raises:
            BadPayload: the message cannot be unpacked, or the chunk has the wrong size.
            ReportRefused: nobody asked its sender for this, or the peer's snapshot has another digest.
        """
        fetch = self._fetch
        if fetch is None or (envelope.client, envelope.base) != (fetch.source, fetch.version):
            raise ReportRefused("not-fetched", f"client {envelope.client} was not asked for its replica (any more)")
        unpacked = chunks.unpack(envelope)
        if isinstance(unpacked, Chunk):
            self._take(fetch, envelope.client, unpacked)
        elif unpacked[0].count == 0:
            self._source_has_moved_on(fetch)
        elif fetch.source != EVALUATOR or fetch.title is not None:
            raise ReportRefused("not-fetched", f"client {envelope.client} describes what was described")
        else:
            fetch.title, fetch.source = unpacked[0], None

    def _take(self, fetch: _Fetch, source: int, chunk: Chunk) -> None:
        size, title = self.lag.chunk_bytes, fetch.title or chunk.title
        if chunk.title != title or chunk.index not in fetch.wanted:
            raise ReportRefused("not-fetched", f"piece {chunk.index}, which was not asked for")
        is_last = chunk.index == title.count - 1
        if not (len(chunk.data) == size or (is_last and 0 < len(chunk.data) < size)):
            raise BadPayload(f"a piece of {len(chunk.data)} bytes; they have {size}")
        fetch.title = title
        fetch.pieces[chunk.index] = chunk.data
        fetch.wanted.discard(chunk.index)
        if len(fetch.pieces) == title.count:
            self._complete(fetch, Snapshot(title, [fetch.pieces[index] for index in range(title.count)]))
        elif min(fetch.wanted, default=title.count) >= title.count:  # the first request may reach beyond the end
            self._ask(fetch, source, self._next_pieces(fetch))

    def _complete(self, fetch: _Fetch, snapshot: Snapshot) -> None:
        """Hold a snapshot and offer it. Raises `ReportRefused` if a peer made it up, after turning to the evaluator."""
        if fetch.source != EVALUATOR and not self._has_digest(snapshot):
            self.distrusts_peers = True
            self._ask_evaluator()
            what = f"client {fetch.source} delivered a snapshot of version {fetch.version} that has another digest"
            raise ReportRefused("bad-snapshot", what)
        self._fetch, self.distrusts_peers = None, False
        self.held, self._is_new = snapshot, True
        self.allowed.clear()
        for client in sorted(self._waiting):
            self._offer(client, snapshot)
        self._waiting.clear()

    def _has_digest(self, snapshot: Snapshot) -> bool:
        data = b"".join(snapshot.pieces)
        size = len(data) // sum(dtype.itemsize for dtype in self._fields.values())
        try:
            chunks.restored({name: (dtype, size) for name, dtype in self._fields.items()}, snapshot.title, data)
        except BadPayload:
            return False
        return True

    def _source_has_moved_on(self, fetch: _Fetch) -> None:
        """The source is at another version by now. If it is the evaluator, nobody can deliver the snapshot."""
        if fetch.source != EVALUATOR:
            self._ask_evaluator()
            return
        self._fetch = None
        self._fall_back(sorted(self._waiting))
        self._waiting.clear()

    def _ask_evaluator(self, *, only_describes: bool = False) -> None:
        """Begin to fetch, anew if pieces have come already: they were another source's."""
        self._fetch = fetch = _Fetch(self.version)
        self._ask(fetch, EVALUATOR, () if only_describes else self._next_pieces(fetch))

    def _next_pieces(self, fetch: _Fetch) -> range:
        """The next window of pieces; they are requested in order."""
        first = len(fetch.pieces)
        return range(first, min(first + self.lag.window, fetch.title.count if fetch.title else 2**32))

    def _ask(self, fetch: _Fetch, source: int, wanted: Collection[int]) -> None:
        fetch.source, fetch.wanted = source, set(wanted)
        request = chunks.fetch(fetch.version, self.lag.chunk_bytes, wanted, source, self.round)
        self.messages.append((request, NO_TALLY))

    @property
    def _asks_peers(self) -> bool:
        """Whether a client is to deliver the next snapshot, and not the evaluator."""
        return self.lag.source == "peer" and not self.distrusts_peers

    # -- giving out

    def pulled(self, envelope: Envelope) -> bool:
        """A client asks for chunks. Returns false if another snapshot is held than the one that it asks for, or none.

        Raises:
            BadPayload: the message cannot be unpacked.
            ReportRefused: the client has no offer, asks for more than it allows or for chunks that do not exist, or
                finds that the snapshot has another digest.
        """
        client, held = envelope.client, self.held
        digest, wanted = chunks.unpack_pull(envelope, self.lag.window)
        if held is None or (envelope.base, digest) != (held.title.version, held.title.digest):
            return False
        if client not in self.allowed:
            raise ReportRefused("not-offered", f"client {client} was not offered the snapshot that it pulls")
        if not wanted:
            del self.allowed[client]
            self._fall_back([client])
            raise ReportRefused("bad-snapshot", f"client {client} says that the snapshot it pulled has another digest")
        if wanted[-1] >= held.title.count:
            raise ReportRefused("no-chunk", f"chunk {wanted[-1]} of a snapshot of {held.title.count}")
        if len(wanted) > self.allowed[client]:
            raise ReportRefused("pulls-again", f"client {client} pulls more than it was offered")
        self.allowed[client] -= len(wanted)
        for index in wanted:
            self._send(Chunk(held.title, index, held.pieces[index]).pack(Kind.SNAPSHOT, client, self.round))
        return True

    def installed(self, client: int, version: int) -> bool:
        """Whether a client that states its version has thereby installed the snapshot that it was offered."""
        has_installed = client in self.allowed and self.held is not None and version == self.held.title.version
        if has_installed:
            del self.allowed[client]
        return has_installed

    def renewal_bytes(self, whole: int, fetch: int, patience: int) -> int:
        """Return the bytes that a snapshot of the newest version costs beside those of its offer.

        These are what a peer is sent and sends for it, and what other clients have been sent in vain of the one that is
        held. Nothing, if it is on its way already.

        Args:
            whole: those of its offer.
            fetch: what a peer is sent and sends.
            patience: for how many versions an offer may go unanswered before its client counts as lost.
        """
        if self._fetch is not None:
            return 0
        return fetch * self._asks_peers + self._bytes_under_way(whole, self.version - patience)

    def _bytes_under_way(self, whole: int, since: int) -> int:
        """Return the bytes that clients would be sent in vain if another snapshot took this one's place.

        Of a snapshot in several chunks a client has those that it pulled. A client that has pulled nothing yet may be
        about to, if the snapshot is not older than version `since`. That counts as a whole one: else, where rounds are
        shorter than a message's way, each snapshot would be replaced before anyone can pull it.
        """
        if self.held is None or not self.allowed:
            return 0
        pieces = self.held.pieces
        pulled = [MAX_RESENDS * len(pieces) - left for left in self.allowed.values()]
        if self.held.title.version >= since and 0 in pulled:
            return whole
        return min(whole, sum(pulled) * len(pieces[0])) if len(pieces) > 1 else 0

    def _offer(self, client: int, held: Snapshot) -> None:
        self.allowed[client] = MAX_RESENDS * held.title.count
        self._send(chunks.offer(held.title, self.lag.window, client, self.round))

    def _send(self, envelope: Envelope) -> None:
        """Send a message whose body counts as catching up."""
        self.messages.append((envelope, Tally(catchup_bytes=len(msgpack.packb(envelope.body)))))

    def _fall_back(self, clients: Collection[int]) -> None:
        self._replays.update(clients)
        self.replaying.extend(clients)

    def of_base(self, base: PackedReplica) -> Snapshot:
        """Return the snapshot that is a journal's base. Raises `BadPayload`: it does not have its digest."""
        data, size = bytes(base.fields), self.lag.chunk_bytes
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        snapshot = Snapshot(Title(base.version, len(pieces), base.digest), pieces)
        if not self._has_digest(snapshot):
            raise BadPayload("the base of the journal does not have its digest")
        return snapshot

    def take_new(self) -> bytes | None:
        """Return the packed snapshot if it is another than at the last call."""
        is_new, self._is_new = self._is_new, False
        return self.held.pack() if is_new and self.held is not None else None
