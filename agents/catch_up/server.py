"""How a client gets to the version at which a round starts: by the commits that it missed, or by a snapshot.

A budget says which, or `snapshot_after_bytes: snapshot`: then it is the way that takes the fewest bytes, all messages
counted. These are

    replay     the commits that the client missed, as its plan has them
    held       the snapshot that is held, and the commits since
    fresh      a snapshot of the newest version, and what its fetch costs (`Snapshots.renewal_bytes`)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Set
from typing import Any, NamedTuple

import msgpack
import numpy as np

from seedbus.agents import messages
from seedbus.agents.catch_up.commit_window import CommitWindow, Reload
from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.catch_up.snapshot_bytes import SnapshotBytes
from seedbus.agents.catch_up.snapshots import Snapshot, Snapshots
from seedbus.agents.messages import Outgoing, PackedReplica
from seedbus.algorithms.contract import Algorithm, ReportRefused
from seedbus.bus import Envelope, Kind, Tally
from seedbus.bus.records import Count, Whole
from seedbus.bus.transport import Client

_new = tuple.__new__  # faster than a named tuple's own constructor, and called for each client of a round
_WINDOW = 8
"""Where the cheapest way is sought, commits of so many times the bytes of a replica are kept, each packed alone. Packed
together they take more than a snapshot, so the journal need not be read to see that."""
MAX_LOST = 2  # times in a round that a client may say where it is: once back, once for a plan that was on its way


class LagsTooFar(ReportRefused):
    """A client asks for a snapshot that is held no more, and not by the open round."""


class CatchUpState(NamedTuple):
    """What a checkpoint stores of catching up, beside the snapshot itself; in this order.

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


class CatchUp(Snapshots):
    """The commits and the snapshot that the server gives to lagging clients.

    Attributes:
        history: the commits that it holds.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        lag: Lag | None,
        versions: Mapping[int, int],
        *,
        replica_bytes: int = 0,
        patience: int = 0,
        reload: Reload | None = None,
        proofs: Callable[[], Mapping[str, bytes]] = dict,
    ) -> None:
        """Begin with no commits, and no round open.

        Args:
            algorithm: the run's.
            lag: when clients get snapshots; None: never.
            versions: the version of each client that ever joined; the server keeps it up to date.
            replica_bytes: bytes of a replica's fields; needed with `snapshot_after_bytes: snapshot`.
            patience: for how many versions an offer may go unanswered before its client counts as lost.
            reload: reads commits back that are not held any more.
            proofs: returns what a client's JOIN shows.
        """
        self._algorithm = algorithm
        self._versions = versions
        commits, size = (lag.snapshot_after_commits, lag.bytes_of_commits) if lag else (None, None)
        self._is_cheapest = lag is not None and lag.is_cheapest and not algorithm.facts.is_dense
        window = _WINDOW * replica_bytes if self._is_cheapest else size
        self.history = CommitWindow(reload, commits, window, is_dense=algorithm.facts.is_dense)
        fields = algorithm.replica(np.zeros(1, np.float32)).fields
        super().__init__(lag, {name: field.dtype for name, field in fields.items()})
        self._most_commits = commits
        self._most_bytes = None if algorithm.facts.most_catch_up_bytes is None or commits is not None else size
        self._replica_bytes = replica_bytes
        self._proofs = proofs
        self._patience = patience
        self._plan: Any = None  # the open round's
        self._awaited: Set[int] = frozenset()
        self._plans: dict[int, tuple[Envelope, Tally]] = {}  # version → the PLAN: clients at it differ by address alone
        self._corrections = Counter[int]()

    # -- rounds

    def open(self, plan: Any, awaited: Set[int]) -> None:
        """A round opens; awaited: the clients whose answers it waits for, which the round keeps up to date."""
        self._plan, self._awaited = plan, awaited
        self._plans.clear()
        self._corrections.clear()
        self.round, self.version = plan.round, plan.version

    def crashed(self) -> None:
        """The round is lost, and a snapshot that was being fetched."""
        self._plan, self._awaited = None, frozenset()
        super().crashed()

    def remember(self, commit: Any, slowest: int) -> None:
        """Add a new commit. slowest: the lowest version of a member."""
        is_sized = self.history.counts_bytes
        self.history.append(commit, len(msgpack.packb(self._algorithm.pack_commits([commit]).body)) if is_sized else 0)
        self.history.prune(slowest)

    # -- messages to send

    @property
    def has_messages(self) -> bool:
        """Whether `take` may return any."""
        return bool(self.messages or self.replaying) or self.seeks_peer

    def take(self) -> list[Outgoing]:
        """Return what is to be sent now; to be called after anything has happened in the open round."""
        self.settle(self._awaited)
        replaying, self.replaying = self.replaying, []
        for client in replaying:
            self.resend(client)
        taken, self.messages = self.messages, []
        return taken

    def resend(self, client: int) -> None:
        """Send a client the open round's plan, from the version where it is, if the round waits for it."""
        if client in self._awaited:
            self.messages += self.plan_for(client)

    def plan_for(self, client: int) -> list[Outgoing]:
        """The open round's plan for a client, or nothing if it lags so far that it is to get a snapshot first."""
        version = self._versions[client]
        if version < self.history.base and self.replays(client):
            return []  # neither by commits nor by a snapshot, until another round asks it
        if self.history.is_limited and not self.replays(client):
            is_fresh = self._snapshot_for(client)
            if is_fresh is not None:
                self.request(client, is_fresh=is_fresh)
                return []
        (kind, _, round, base, body), tally = self._plan_from(version)
        return [(_new(Envelope, (kind, client, round, base, body)), tally)]

    def missed_by(self, client: int) -> list[Any] | None:
        """Return the commits that bring a client to the newest version; None: it misses more than it is sent."""
        version = self._versions[client]
        if self.history.is_limited and self._is_beyond(version):
            return None
        return self.history.since(0 if self._algorithm.facts.is_dense else version)

    def _plan_from(self, version: int) -> tuple[Envelope, Tally]:
        """The open round's plan for clients at a version: all get the same."""
        if version not in self._plans:
            # of a dense algorithm every plan has the model: a process that took over a client may not have it
            missed = self.history.since(0 if self._algorithm.facts.is_dense else version)
            self._plans[version] = messages.pack_plan(self._algorithm, 0, self._plan, missed)
        return self._plans[version]

    def _snapshot_for(self, client: int) -> bool | None:
        """Return whether a client is to get a fresh snapshot, and not the one that is held; None: it replays."""
        if self._is_cheapest:
            return self._cheapest(client)
        held = self.held
        if not self._is_beyond(self._versions[client]):
            return None
        return held is None or self._is_beyond(held.title.version)

    def _is_beyond(self, version: int) -> bool:
        """Return whether a client at `version` misses more than it is sent: commits, or their sum if that is sent."""
        if version < self.history.base:  # misses what is deleted
            return True
        if not self.history.is_beyond(version):
            return False
        return self._most_bytes is None or self._missed_bytes(version, self._most_bytes) > self._most_bytes

    def _cheapest(self, client: int) -> bool | None:
        """Return what `_snapshot_for` does, for the way that takes the fewest bytes; of equal ones, the first."""
        version, held = self._versions[client], self.held
        newest, round = self.history.version, self._plan.round
        # from which a client may replay
        oldest = max(self.history.base, 0 if self._most_commits is None else newest - self._most_commits)
        if version >= oldest and self._missed_bytes(version, self._replica_bytes) <= self._replica_bytes:
            return None  # as for nearly all clients: no snapshot has so few bytes
        counts = SnapshotBytes(self._replica_bytes, self.lag, self._proofs())
        snapshot = sum(counts.of_offer(newest, client, round))
        fetch = sum(counts.of_fetch(newest, client, round))
        renewal = self.renewal_bytes(snapshot, fetch, self._patience)
        fresh = snapshot + renewal + self._missed_bytes(newest, 0)
        kept: float = math.inf
        if held is not None and held.title.version > version and held.title.version >= oldest:
            kept = snapshot + self._missed_bytes(held.title.version, fresh)
        if version >= oldest and self._missed_bytes(version, fresh) <= min(kept, fresh):
            return None
        return bool(fresh < kept)

    def _missed_bytes(self, version: int, enough: int) -> int:
        """Return the bytes of the commits after `version`, as a plan has them.

        If those in memory take more than `enough`, it is their bytes: older ones add to them, unless sums are sent.
        """
        is_sum = self._algorithm.facts.most_catch_up_bytes is not None
        newer = version if is_sum else max(version, self.history.first)
        size = self._plan_from(newer)[1].catchup_bytes or 1  # an empty list
        return size if newer == version or size > enough else self._plan_from(version)[1].catchup_bytes

    # -- events

    def received(self, envelope: Envelope) -> None:
        """A client asks for chunks of the snapshot that is held, or sends a piece of one that is fetched.

        Raises:
            BadPayload: the message cannot be read.
            LagsTooFar: the client asks for what is held no more, and the open round does not send it its plan instead.
            ReportRefused: the client may not have them, or was not asked.
        """
        if envelope.kind is Kind.PIECE:
            self.take_piece(envelope)
            return
        client = envelope.client
        if client not in self._versions:
            raise ReportRefused("not-a-member", f"client {client} never joined")
        if self.pulled(envelope):
            return
        if client not in self._awaited or not self.is_lost(client):
            raise LagsTooFar("no-snapshot", f"there is no snapshot of version {envelope.base} (any more)")
        self.resend(client)

    def is_lost(self, client: int) -> bool:
        """Note that a client is not where the server believed; false if it says so too often in the open round."""
        if self._plan is None:
            return True
        self._corrections[client] += 1
        return self._corrections[client] <= MAX_LOST

    # -- checkpoints

    def pack(self) -> CatchUpState:
        """Return all but the snapshot itself, and the commits."""
        return CatchUpState(self.round, self.version, sorted(self.allowed.items()), self.distrusts_peers)

    def unpack(self, state: CatchUpState, held: bytes, base: PackedReplica | None = None) -> None:
        """Go on from what `pack` and `take_new` returned; b"": no snapshot is held.

        Args:
            base: what the journal has in the place of its first commits: the oldest snapshot that may be held.

        Raises:
            BadPayload: the base does not have its digest.
        """
        self.round, self.version = state.round, state.version
        self.allowed = dict(state.allowed)
        self.distrusts_peers = state.distrusts_peers
        if held:
            self.held = Snapshot.unpack(held, self.lag.chunk_bytes)
        if base is not None:
            oldest = self.of_base(base)
            self.history.begin_at(base.version)
            if self.held is None or self.held.title.version < base.version:
                self.held = oldest
                self.allowed.clear()
