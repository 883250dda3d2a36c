"""Snapshots at the server: which clients wait for one, and the two state machines that get it and give it out.

    a client lags ─► offer ─► PULL, chunks, PULL, chunks … ─► JOIN          `SnapshotOffers`
          └ none that is recent enough: FETCH, pieces, FETCH, pieces …      `SnapshotFetch`

Both return the messages to be sent; `Snapshots` puts them into the coordinator's outbox in that order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.server.outbox import Outbox
from seedbus.agents.server.snapshot import Snapshot
from seedbus.agents.server.snapshot_fetch import FetchStep, SnapshotFetch
from seedbus.agents.server.snapshot_offers import BadSnapshot, SnapshotOffers
from seedbus.algorithms.contract import ReportRefused
from seedbus.bus import Envelope
from seedbus.bus.records import Count, Whole
from seedbus.bus.transport import Client


class SnapshotsState(NamedTuple):
    """What a checkpoint stores of snapshots, beside the snapshot itself; in this order.

    Attributes:
        round: the newest round that was opened.
        version: the version at which it started.
        allowed: (client, chunks that it may still pull), ascending.
        distrusts_peers: whether the next snapshot is to come from the evaluator.
    """

    round: Count
    version: Count
    allowed: list[tuple[Client, Whole]]
    distrusts_peers: bool


class Snapshots:
    """The snapshots of one run.

    Attributes:
        lag: when clients get snapshots, from whom and in what pieces.
    """

    def __init__(self, lag: Lag | None, outbox: Outbox, fields: Mapping[str, np.dtype[Any]]) -> None:
        self.lag = lag or Lag(snapshot_after_commits=1)
        self._outbox = outbox
        self._fetch = SnapshotFetch(self.lag, fields)
        self._offers = SnapshotOffers(self.lag)
        self._round = 0
        self._version = 0
        self._waiting: set[int] = set()
        self._replays: set[int] = set()
        self._fallback_to_replay: list[int] = []

    @property
    def held(self) -> Snapshot | None:
        """The snapshot that clients may be offered."""
        return self._offers.held

    # -- rounds and clients

    def open(self, round: int, version: int) -> None:
        """A round opens at a version."""
        self._round = round
        self._version = version
        self._fetch.open_round(round, version)

    def replays(self, client: int) -> bool:
        """Whether a client is to replay all commits that it missed, because snapshots failed it in this round."""
        return client in self._replays

    def renewal_bytes(self, whole: int, fetch: int, patience: int) -> int:
        """Return the bytes that a snapshot of the newest version costs beside those of its offer.

        These are what a peer is sent and sends for it, and what other clients have been sent in vain of the one that is
        held. Nothing, if it is on its way already.

        Args:
            whole: those of its offer.
            fetch: what a peer is sent and sends.
            patience: for how many versions an offer may go unanswered before its client counts as lost.
        """
        if self._fetch.transfer is not None:
            return 0
        return fetch * self._fetch.asks_peers + self._offers.bytes_under_way(whole, self._version - patience)

    def request_snapshot(self, client: int, *, is_fresh: bool) -> None:
        """A client of the open round is to get a snapshot: offer it one, at once or when there is one.

        Args:
            client: the client that lags.
            is_fresh: whether it is to be of the newest version; else it is the one that is held.
        """
        held = self._offers.held
        if held is not None and not is_fresh:
            self._outbox.extend([self._offers.offer(client, held, self._round)])
        else:
            self._waiting.add(client)
            self._outbox.extend(self._fetch.request())

    @property
    def awaits_evaluator(self) -> bool:
        """Whether the evaluator owes an answer, which takes no simulated time."""
        return self._fetch.awaits_evaluator

    def close(self) -> list[int]:
        """The round is over. Returns the clients that still wait for a snapshot, ascending."""
        waiting = sorted(self._waiting)
        self._fetch.close_round()
        self.crashed()
        return waiting

    def crashed(self) -> None:
        """The round is lost, and a snapshot that was being fetched. The one that is held is kept."""
        self._fetch.abandon()
        self._waiting.clear()
        self._replays.clear()
        self._fallback_to_replay.clear()

    def take_fallback_to_replay(self) -> list[int]:
        """Return the clients that are to replay after all, since the last call."""
        fallback = self._fallback_to_replay
        self._fallback_to_replay = []
        return fallback

    def left(self, clients: Iterable[int]) -> None:
        """Clients are gone."""
        for client in clients:
            self._waiting.discard(client)
            self._offers.withdraw(client)
            self._outbox.extend(self._fetch.client_left(client))

    @property
    def is_idle(self) -> bool:
        """Whether nothing follows from a report: no snapshot is being fetched, and no client is to replay instead."""
        return self._fetch.transfer is None and not self._fallback_to_replay

    def reported(self, client: int) -> None:
        """A client of the open round has reported."""
        self._outbox.extend(self._fetch.client_reported(client))

    def settle(self, expected: Collection[int]) -> None:
        """Note which clients the open round still expects. If all of them wait for a snapshot, no peer can give it."""
        if self._waiting.issuperset(expected):
            self._outbox.extend(self._fetch.no_peer_left())

    # -- messages

    def installed(self, client: int, version: int) -> bool:
        """Whether a client that states its version has thereby installed the snapshot that it was offered."""
        return self._offers.installed(client, version)

    def pulled(self, envelope: Envelope) -> None:
        """A client asks for chunks. Raises `BadPayload`, `ReportRefused`."""
        try:
            self._outbox.extend(self._offers.pulled(envelope, self._round))
        except BadSnapshot:
            self._fall_back([envelope.client])
            raise

    def received(self, envelope: Envelope) -> None:
        """A source sends a piece, or describes its replica. Raises `BadPayload`, `ReportRefused`."""
        step = self._fetch.received(envelope)
        self._follow(step)
        if step.is_forged:
            what = f"client {envelope.client} delivered a snapshot of version {envelope.base} that has another digest"
            raise ReportRefused("bad-snapshot", what)

    def give_up_source(self) -> bool:
        """The source of the snapshot that is being fetched does not deliver it. Returns whether one was."""
        was_fetched = self._fetch.transfer is not None
        self._follow(self._fetch.give_up_source())
        return was_fetched

    def _follow(self, step: FetchStep) -> None:
        self._outbox.extend(step.outgoing)
        if step.snapshot is not None:
            self._offers.replace(step.snapshot)
            self._outbox.extend(self._offers.offer(each, step.snapshot, self._round) for each in sorted(self._waiting))
            self._waiting.clear()
        elif step.has_failed:
            self._fall_back(sorted(self._waiting))
            self._waiting.clear()

    def _fall_back(self, clients: Sequence[int]) -> None:
        self._replays.update(clients)
        self._fallback_to_replay.extend(clients)

    # -- checkpoints

    def pack(self) -> SnapshotsState:
        """Return all but the snapshot itself."""
        allowed = sorted(self._offers.allowed.items())
        return SnapshotsState(self._round, self._version, allowed, self._fetch.distrusts_peers)

    def take_new(self) -> bytes | None:
        """Return the packed snapshot if it is another than at the last call, b"" if none is held any more."""
        return self._offers.take_new()

    def unpack(self, state: SnapshotsState, snapshot: bytes) -> None:
        """Go on from what `pack` and `take_new` returned; b"": no snapshot is held."""
        self.open(state.round, state.version)
        self._offers.allowed = dict(state.allowed)
        self._fetch.distrusts_peers = state.distrusts_peers
        if snapshot:
            self._offers.held = Snapshot.unpack(snapshot, self.lag.chunk_bytes)
