"""How a client gets to the version at which a round starts: by the commits that it missed, or by a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

from seedbus.agents import messages
from seedbus.agents.messages import AnyAlgorithm, Outgoing
from seedbus.agents.policies.snapshot_budget import Lag
from seedbus.agents.server.commit_window import CommitWindow, Reload
from seedbus.agents.server.outbox import Outbox
from seedbus.agents.server.round import Round
from seedbus.agents.server.snapshot_offers import NoSnapshot
from seedbus.agents.server.snapshots import Snapshots
from seedbus.algorithms.contract import ReportRefused
from seedbus.bus import Envelope

_new = tuple.__new__  # faster than a named tuple's own constructor, and called for each client of a round
MAX_LOST = 2  # times in a round that a client may say where it is: once back, once for a plan that was on its way


class CatchUp:
    """The commits and the snapshot that the server gives to lagging clients.

    Attributes:
        history: the commits that it holds.
        snapshots: the snapshot that it holds, and where the next one comes from.
    """

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        versions: Mapping[int, int],
        lag: Lag | None,
        reload: Reload | None,
        outbox: Outbox,
    ) -> None:
        """Begin with no commits.

        Args:
            algorithm: packs plans and commits.
            versions: the version of each client that ever joined; kept up to date by `ClientPositions`.
            lag: when a client gets a snapshot; None: never.
            reload: reads commits back that are not held any more.
            outbox: where messages go.
        """
        self._algorithm = algorithm
        self._versions = versions
        self._outbox = outbox
        budget = (lag.snapshot_after_commits, lag.bytes_of_commits) if lag else (None, None)
        self.history = CommitWindow(reload, *budget, is_dense=algorithm.is_dense)
        self.snapshots = Snapshots(lag, outbox)
        self._most_bytes = None if algorithm.most_catch_up_bytes is None or budget[0] is not None else budget[1]
        self._catch_up_bytes: dict[tuple[int, int], int] = {}

    def plan_for(self, client: int, now: Round) -> list[Outgoing]:
        """The open round's plan for a client, or nothing if it lags so far that it is to get a snapshot first."""
        version = self._versions[client]
        if self.history.is_limited and self._is_beyond(version) and not self.snapshots.replays(client):
            self.snapshots.request_snapshot(client, lambda version: not self._is_beyond(version))
            return []
        if version not in now.cached_plans:  # clients at one version get the same plan
            # of a dense algorithm every plan has the model: a process that took over a client may not have it
            missed = self.history.since(0 if self._algorithm.is_dense else version)
            now.cached_plans[version] = messages.pack_plan(self._algorithm, client, now.plan, missed)
        (kind, _, round, base, body), tally = now.cached_plans[version]
        return [(_new(Envelope, (kind, client, round, base, body)), tally)]

    def _is_beyond(self, version: int) -> bool:
        """Return whether a client at `version` misses more than it is sent: commits, or their sum if that is sent."""
        if not self.history.is_beyond(version):
            return False
        if self._most_bytes is None:
            return True
        where = version, self.history.version
        if where not in self._catch_up_bytes:
            if any(newest != self.history.version for _, newest in self._catch_up_bytes):
                self._catch_up_bytes.clear()
            missed = self._algorithm.pack_commits(self.history.since(version))
            self._catch_up_bytes[where] = len(msgpack.packb(missed.body))
        return self._catch_up_bytes[where] > self._most_bytes

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
