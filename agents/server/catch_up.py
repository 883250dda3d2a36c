"""How a client gets to the version at which a round starts: by the commits that it missed, or by a snapshot.

A budget says which, or `snapshot_after_bytes: snapshot`: then it is the way that takes the fewest bytes, all messages
counted. These are

    replay     the commits that the client missed, as its plan has them
    held       the snapshot that is held, and the commits since
    fresh      a snapshot of the newest version, and what its fetch costs (`Snapshots.renewal_bytes`)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgpack
import numpy as np

from seedbus.agents import messages
from seedbus.agents.catch_up.commit_window import CommitWindow, Reload
from seedbus.agents.catch_up.snapshot_bytes import SnapshotBytes
from seedbus.agents.messages import Outgoing
from seedbus.agents.server.outbox import Outbox
from seedbus.agents.server.round import Round
from seedbus.agents.server.run_spec import RunSpec
from seedbus.agents.server.snapshot_offers import NoSnapshot
from seedbus.agents.server.snapshots import Snapshots
from seedbus.algorithms.contract import ReportRefused
from seedbus.bus import Envelope, Tally

_new = tuple.__new__  # faster than a named tuple's own constructor, and called for each client of a round
_WINDOW = 8
"""Where the cheapest way is sought, commits of so many times the bytes of a replica are kept, each packed alone. Packed
together they take more than a snapshot, so the journal need not be read to see that."""
MAX_LOST = 2  # times in a round that a client may say where it is: once back, once for a plan that was on its way


class CatchUp:
    """The commits and the snapshot that the server gives to lagging clients.

    Attributes:
        history: the commits that it holds.
        snapshots: the snapshot that it holds, and where the next one comes from.
    """

    def __init__(
        self,
        spec: RunSpec,
        versions: Mapping[int, int],
        outbox: Outbox,
        *,
        reload: Reload | None = None,
        proofs: Callable[[], Mapping[str, bytes]] = dict,
    ) -> None:
        """Begin with no commits.

        Args:
            spec: the run.
            versions: the version of each client that ever joined; kept up to date by `Positions`.
            outbox: where messages go.
            reload: reads commits back that are not held any more.
            proofs: returns what a client's JOIN shows.
        """
        self._algorithm = algorithm = spec.algorithm
        self._facts = facts = algorithm.facts
        lag = spec.lag
        self._versions = versions
        self._outbox = outbox
        commits, size = (lag.snapshot_after_commits, lag.bytes_of_commits) if lag else (None, None)
        self._is_cheapest = lag is not None and lag.is_cheapest and not facts.is_dense
        window = _WINDOW * spec.replica_bytes if self._is_cheapest else size
        self.history = CommitWindow(reload, commits, window, is_dense=facts.is_dense)
        fields = algorithm.replica(np.zeros(1, np.float32)).fields
        self.snapshots = Snapshots(lag, outbox, {name: field.dtype for name, field in fields.items()})
        self._most_commits = commits
        self._most_bytes = None if facts.most_catch_up_bytes is None or commits is not None else size
        self._replica_bytes = spec.replica_bytes
        self._proofs = proofs
        # for so many versions an offer may go unanswered before its client counts as lost
        self._patience = spec.participation.staleness

    def plan_for(self, client: int, now: Round) -> list[Outgoing]:
        """The open round's plan for a client, or nothing if it lags so far that it is to get a snapshot first."""
        version = self._versions[client]
        if self.history.is_limited and not self.snapshots.replays(client):
            is_fresh = self._snapshot_for(client, now)
            if is_fresh is not None:
                self.snapshots.request_snapshot(client, is_fresh=is_fresh)
                return []
        (kind, _, round, base, body), tally = self._plan_from(version, now)
        return [(_new(Envelope, (kind, client, round, base, body)), tally)]

    def _plan_from(self, version: int, now: Round) -> tuple[Envelope, Tally]:
        """The open round's plan for clients at a version: all get the same."""
        if version not in now.cached_plans:
            # of a dense algorithm every plan has the model: a process that took over a client may not have it
            missed = self.history.since(0 if self._facts.is_dense else version)
            now.cached_plans[version] = messages.pack_plan(self._algorithm, 0, now.plan, missed)
        return now.cached_plans[version]

    def _snapshot_for(self, client: int, now: Round) -> bool | None:
        """Return whether a client is to get a fresh snapshot, and not the one that is held; None: it replays."""
        if self._is_cheapest:
            return self._cheapest(client, now)
        held = self.snapshots.held
        if not self._is_beyond(self._versions[client], now):
            return None
        return held is None or self._is_beyond(held.title.version, now)

    def _is_beyond(self, version: int, now: Round) -> bool:
        """Return whether a client at `version` misses more than it is sent: commits, or their sum if that is sent."""
        if not self.history.is_beyond(version):
            return False
        return self._most_bytes is None or self._missed_bytes(version, now, self._most_bytes) > self._most_bytes

    def _cheapest(self, client: int, now: Round) -> bool | None:
        """Return what `_snapshot_for` does, for the way that takes the fewest bytes; of equal ones, the first."""
        version, held = self._versions[client], self.snapshots.held
        newest, round = self.history.version, now.plan.round
        oldest = 0 if self._most_commits is None else newest - self._most_commits  # from which a client may replay
        if version >= oldest and self._missed_bytes(version, now, self._replica_bytes) <= self._replica_bytes:
            return None  # as for nearly all clients: no snapshot has so few bytes
        counts = SnapshotBytes(self._replica_bytes, self.snapshots.lag, self._proofs())
        snapshot = sum(counts.of_offer(newest, client, round))
        fetch = sum(counts.of_fetch(newest, client, round))
        renewal = self.snapshots.renewal_bytes(snapshot, fetch, self._patience)
        fresh = snapshot + renewal + self._missed_bytes(newest, now, 0)
        kept: float = math.inf
        if held is not None and held.title.version > version and held.title.version >= oldest:
            kept = snapshot + self._missed_bytes(held.title.version, now, fresh)
        if version >= oldest and self._missed_bytes(version, now, fresh) <= min(kept, fresh):
            return None
        return bool(fresh < kept)

    def _missed_bytes(self, version: int, now: Round, enough: int) -> int:
        """Return the bytes of the commits after `version`, as a plan has them.

        If those in memory take more than `enough`, it is their bytes: older ones add to them, unless sums are sent.
        """
        is_sum = self._facts.most_catch_up_bytes is not None
        newer = version if is_sum else max(version, self.history.first)
        size = self._plan_from(newer, now)[1].catchup_bytes or 1  # an empty list
        return size if newer == version or size > enough else self._plan_from(version, now)[1].catchup_bytes

    def remember(self, commit: Any, slowest: int) -> None:
        """Add a new commit. slowest: the lowest version of a member."""
        is_sized = self.history.counts_bytes
        self.history.append(commit, len(msgpack.packb(self._algorithm.pack_commits([commit]).body)) if is_sized else 0)
        self.history.prune(slowest)

    def is_lost(self, client: int, now: Round) -> bool:
        """Note that a client is not where the server believed; false if it says so too often in a round."""
        now.corrections[client] += 1
        return now.corrections[client] <= MAX_LOST

    def pulled(self, envelope: Envelope, now: Round | None) -> None:
        """A client asks for chunks of the snapshot; if there is none any more, it gets its plan.

        Raises:
            BadPayload: the message cannot be read.
            ReportRefused: the client may not have them.
        """
        client = envelope.client
        if client not in self._versions:
            raise ReportRefused("not-a-member", f"client {client} never joined")
        try:
            self.snapshots.pulled(envelope)
        except NoSnapshot:
            if now is None or client not in now.waiting or not self.is_lost(client, now):
                raise
            self._outbox.extend(self.plan_for(client, now))

    def settle(self, now: Round | None) -> None:
        """After anything has happened in the open round: turn to the evaluator if no peer is left that could give a
        snapshot, and send plans to clients that are to replay after all."""
        if now is None:
            return
        self.snapshots.settle(now.waiting)
        for client in self.snapshots.take_fallback_to_replay():
            if client in now.waiting:
                self._outbox.extend(self.plan_for(client, now))
