"""The server's part in snapshots: the one that it holds, whom it was offered, and where the next comes from.

    a client lags ─► offer ─► PULL, chunks, PULL, chunks … ─► JOIN
          └ none that is young enough: FETCH, pieces, FETCH, pieces … from the source

Rules
- One snapshot is held. Its bytes are opaque: what the evaluator says that they hold, whoever installs them checks.
- Only who was offered it may pull it, and for each offer no more than a few times all of it. So a client that is
  struck dumb in the middle costs nothing until it is asked again; it is then offered what there is, and pulls what it
  lacks.
- A source has until the end of the round. A peer that does not deliver is replaced by the evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack

from seedbus.agents import chunks
from seedbus.agents.chunks import Chunk, Title
from seedbus.agents.messages import Outgoing
from seedbus.agents.policies.snapshot_budget import Lag
from seedbus.algorithms.contract import BadPayload, ReportRefused
from seedbus.bus import EVALUATOR, Envelope, Kind, Tally
from seedbus.bus.envelope import NO_TALLY

MAX_RESENDS = 4  # times all chunks that an offer is good for: what is on its way twice is not the client's fault


class NoSnapshot(ReportRefused):
    """A client pulls what is not held, or not any more."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One replica as its source gave it."""

    title: Title
    pieces: list[bytes]
    is_of_peer: bool


@dataclass(slots=True)
class _Fetch:
    """A snapshot on its way here. source: None while no peer has been found; wanted: pieces asked for."""

    version: int
    source: int | None
    title: Title | None = None
    pieces: dict[int, bytes] = field(default_factory=dict)
    wanted: set[int] = field(default_factory=set)


class Snapshots:
    """outbox: what is to be sent because of what came in; it is emptied by who sends it."""

    def __init__(self, lag: Lag | None) -> None:
        self.lag = lag or Lag(snapshot_after_commits=1)
        self.held: Snapshot | None = None
        self.outbox: list[Outgoing] = []
        self._is_new = False
        self._fetch: _Fetch | None = None
        self._round = self._version = 0
        self._waiting: set[int] = set()
        self._allowed: dict[int, int] = {}
        self._replays: set[int] = set()
        self._fallback_to_replay: list[int] = []
        self._distrusts_peers = False

    # -- who needs one

    def open(self, round: int, version: int) -> None:
        """A round opens."""
        self._round, self._version = round, version

    def replays(self, client: int) -> bool:
        """Whether a client is to replay what it missed, however much: snapshots were of no use to it."""
        return client in self._replays

    def request_snapshot(self, client: int, is_young: Callable[[int], bool]) -> None:
        """A client of the open round lags too far: offer it a snapshot, now or when there is one.

        is_young: whether who holds a version may replay the rest.
        """
        if self.held is not None and is_young(self.held.title.version):
            self._offer(client, self.held)
            return
        self._waiting.add(client)
        if self._fetch is None:
            has_peers = self.lag.source == "peer" and not self._distrusts_peers
            self._fetch = fetch = _Fetch(self._version, EVALUATOR)
            self._ask(fetch, EVALUATOR, () if has_peers else self._next_pieces(fetch))

    @property
    def awaits_evaluator(self) -> bool:
        """Whether the evaluator is about to say something, which takes no time."""
        return self._fetch is not None and self._fetch.source == EVALUATOR

    def close(self) -> list[int]:
        """The round is over, and with it the patience for the source. Returns those who were told nothing in it."""
        if self._fetch is not None:
            self._distrusts_peers = True
        waiting = sorted(self._waiting)
        self.crashed()
        return waiting

    def crashed(self) -> None:
        """The round is lost, and a snapshot that was on its way; the one that is held is not."""
        self._fetch = None
        self._waiting.clear()
        self._replays.clear()
        self._fallback_to_replay.clear()

    def take_fallback_to_replay(self) -> list[int]:
        """Those who are to replay after all, since the last call."""
        fallback, self._fallback_to_replay = self._fallback_to_replay, []
        return fallback

    def left(self, clients: Iterable[int]) -> None:
        for client in clients:
            self._waiting.discard(client)
            self._allowed.pop(client, None)
            if self._fetch is not None and self._fetch.source == client:
                self._turn_to_evaluator()

    def installed(self, client: int, version: int) -> bool:
        """Whether a client that says where it is says what was to be expected: it has pulled all there is."""
        is_so = client in self._allowed and self.held is not None and version == self.held.title.version
        if is_so:
            del self._allowed[client]
        return is_so

    # -- what clients pull

    def pulled(self, envelope: Envelope) -> None:
        """Raises `BadPayload`, `ReportRefused`."""
        client, held = envelope.client, self.held
        digest, wanted = chunks.unpack_pull(envelope, self.lag.window)
        if held is None or (envelope.base, digest) != (held.title.version, held.title.digest):
            raise NoSnapshot("no-snapshot", f"there is no snapshot of version {envelope.base} (any more)")
        if client not in self._allowed:
            raise ReportRefused("not-offered", f"client {client} was not offered the snapshot that it pulls")
        if not wanted:
            self._spoilt(client, held)
        if wanted[-1] >= held.title.count:
            raise ReportRefused("no-chunk", f"chunk {wanted[-1]} of a snapshot of {held.title.count}")
        if len(wanted) > self._allowed[client]:
            raise ReportRefused("pulls-again", f"client {client} pulls more than it was offered")
        self._allowed[client] -= len(wanted)
        for index in wanted:
            chunk = Chunk(held.title, index, held.pieces[index]).pack(Kind.SNAPSHOT, client, self._round)
            self.outbox.append((chunk, Tally(catchup_bytes=len(msgpack.packb(chunk.body)))))

    def _offer(self, client: int, held: Snapshot) -> None:
        self._allowed[client] = MAX_RESENDS * held.title.count
        envelope = chunks.offer(held.title, self.lag.window, client, self._round)
        self.outbox.append((envelope, Tally(catchup_bytes=len(msgpack.packb(envelope.body)))))

    def _spoilt(self, client: int, held: Snapshot) -> None:
        """A client says that what it has put together is not what it was said to be."""
        del self._allowed[client]
        self._give_up([client])
        if held.is_of_peer:
            self.held, self._is_new, self._distrusts_peers = None, True, True
            self._allowed.clear()
        raise ReportRefused("bad-snapshot", f"client {client} says that the snapshot it pulled has another digest")

    # -- what sources send

    def came(self, envelope: Envelope) -> None:
        """A piece, or what the evaluator says of its replica. Raises `BadPayload`, `ReportRefused`."""
        fetch = self._fetch
        if fetch is None or (envelope.client, envelope.base) != (fetch.source, fetch.version):
            raise ReportRefused("not-fetched", f"client {envelope.client} was not asked for its replica (any more)")
        got = chunks.unpack(envelope)
        if isinstance(got, Chunk):
            self._piece(fetch, envelope.client, got)
        elif got[0].count == 0:
            self._turned_down(fetch)
        elif fetch.source == EVALUATOR and fetch.title is None:
            fetch.title, fetch.source = got[0], None
        else:
            raise ReportRefused("not-fetched", f"client {envelope.client} describes what was described")

    def reported(self, client: int) -> None:
        """A client of the open round has reported, so it stands where the server does."""
        fetch = self._fetch
        if fetch is not None and fetch.source is None:
            fetch.source = client
            self._ask(fetch, client, self._next_pieces(fetch))

    def settle(self, waiting: Collection[int]) -> None:
        """waiting: of whom the open round still expects a report. If all of them are fed first, no peer is left."""
        fetch = self._fetch
        if fetch is not None and fetch.source is None and self._waiting.issuperset(waiting):
            self._turn_to_evaluator()

    def _piece(self, fetch: _Fetch, source: int, chunk: Chunk) -> None:
        size, last = self.lag.chunk_bytes, chunk.title.count - 1
        fetch.title = fetch.title or chunk.title
        if chunk.title != fetch.title or chunk.index not in fetch.wanted:
            raise ReportRefused("not-fetched", f"piece {chunk.index}, which was not asked for")
        if not (len(chunk.data) == size or (chunk.index == last and 0 < len(chunk.data) < size)):
            raise BadPayload(f"a piece of {len(chunk.data)} bytes; they have {size}")
        fetch.pieces[chunk.index] = chunk.data
        fetch.wanted.discard(chunk.index)
        if len(fetch.pieces) == fetch.title.count:
            pieces = [fetch.pieces[index] for index in range(fetch.title.count)]
            self._complete(Snapshot(fetch.title, pieces, source != EVALUATOR))
        elif min(fetch.wanted, default=fetch.title.count) >= fetch.title.count:
            self._ask(fetch, source, self._next_pieces(fetch))

    def _complete(self, snapshot: Snapshot) -> None:
        self.held, self._is_new, self._fetch, self._distrusts_peers = snapshot, True, None, False
        self._allowed.clear()
        waiting, self._waiting = sorted(self._waiting), set()
        for client in waiting:
            self._offer(client, snapshot)

    def _turned_down(self, fetch: _Fetch) -> None:
        """The source has another version by now."""
        if fetch.source != EVALUATOR:
            self._turn_to_evaluator()
        else:
            self._fetch = None
            self._give_up(sorted(self._waiting))

    def _give_up(self, clients: Sequence[int]) -> None:
        self._replays.update(clients)
        self._fallback_to_replay.extend(clients)

    def _turn_to_evaluator(self) -> None:
        self._fetch = fetch = _Fetch(self._version, EVALUATOR)
        self._ask(fetch, EVALUATOR, self._next_pieces(fetch))

    def _next_pieces(self, fetch: _Fetch) -> list[int]:
        first = len(fetch.pieces)  # they are asked for in order, a window after the other
        last = min(first + self.lag.window, fetch.title.count if fetch.title else 2**32)
        return list(range(first, last))

    def _ask(self, fetch: _Fetch, source: int, wanted: Collection[int]) -> None:
        fetch.wanted = set(wanted)
        envelope = chunks.fetch(fetch.version, self.lag.chunk_bytes, wanted, source, self._round)
        self.outbox.append((envelope, NO_TALLY))

    # -- checkpoints

    def pack(self) -> list[Any]:
        """All but the snapshot itself."""
        return [self._round, self._version, sorted(self._allowed.items()), self._distrusts_peers]

    def take_new(self) -> bytes | None:
        """The snapshot, if it is another than at the last call; b"": none any more."""
        if not self._is_new:
            return None
        self._is_new = False
        if self.held is None:
            return b""
        title = self.held.title
        whole = [title.version, title.count, title.digest, self.held.is_of_peer, b"".join(self.held.pieces)]
        packed: bytes = msgpack.packb(whole)
        return packed

    def unpack(self, packed: list[Any], snapshot: bytes) -> None:
        self._round, self._version, allowed, self._distrusts_peers = packed
        self._allowed = dict(allowed)
        if snapshot:
            version, count, digest, is_of_peer, data = msgpack.unpackb(snapshot)
            size = self.lag.chunk_bytes
            pieces = [data[start : start + size] for start in range(0, len(data), size)]
            self.held = Snapshot(Title(version, count, digest), pieces, is_of_peer)
