"""How a client gets to the version at which a round starts: by the commits that it missed, or by a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

from seedbus.agents import messages
from seedbus.agents.messages import AnyAlgorithm, Outgoing
from seedbus.agents.policies.snapshot_budget import Lag
from seedbus.agents.server.commit_window import CommitWindow, Reload
from seedbus.agents.server.round import Round
from seedbus.agents.server.snapshot_offers import NoSnapshot
from seedbus.agents.server.snapshots import Snapshots
from seedbus.algorithms.contract import ReportRefused
from seedbus.bus import Envelope

JOINS = 2  # of a client in a round: it has come back, and a plan on its way told it of commits that it has lost


class CatchUp:
    """The server's history and its snapshot. versions: where everybody is, kept by somebody else."""

    def __init__(
        self, algorithm: AnyAlgorithm, versions: Mapping[int, int], lag: Lag | None, reload: Reload | None
    ) -> None:
        self._algorithm, self._versions = algorithm, versions
        budget = (lag.snapshot_after_commits, lag.snapshot_after_bytes) if lag else (None, None)
        self.history = CommitWindow(reload, *budget, is_dense=algorithm.is_dense)
        self.snapshots = Snapshots(lag)

    def told(self, client: int, now: Round) -> list[Outgoing]:
        """The plan of the open round; nothing for who is to have a snapshot, which comes by `take_outbox`."""
        version = self._versions[client]
        if self.history.is_beyond(version) and not self.snapshots.replays(client):
            self.snapshots.request_snapshot(client, lambda version: not self.history.is_beyond(version))
            return []
        if version not in now.cached_plans:  # whoever stands at one version is told the same
            # a dense plan brings the model even to who has it: a process in its host's place has the newest alone
            missed = self.history.since(0 if self._algorithm.is_dense else version)
            now.cached_plans[version] = messages.pack_plan(self._algorithm, client, now.plan, missed)
        (kind, _, round, base, body), tally = now.cached_plans[version]
        return [(Envelope(kind, client, round, base, body), tally)]

    def remember(self, commit: Any, slowest: int) -> None:
        """A new commit. slowest: the lowest version of a member."""
        is_sized = self.history.counts_bytes
        self.history.append(commit, len(msgpack.packb(self._algorithm.pack_commits([commit]).body)) if is_sized else 0)
        self.history.prune(slowest)

    def is_lost(self, client: int, now: Round) -> bool:
        """Note that a client is not where it was believed to be; false if it says so too often in a round."""
        now.corrections[client] += 1
        return now.corrections[client] <= JOINS

    def pulled(self, envelope: Envelope, now: Round | None) -> None:
        """A client asks for chunks of the snapshot. Raises `BadPayload`, `ReportRefused`."""
        client = envelope.client
        if client not in self._versions:
            raise ReportRefused("not-a-member", f"client {client} never joined")
        try:
            self.snapshots.pulled(envelope)
        except NoSnapshot:
            if now is None or client not in now.waiting or not self.is_lost(client, now):
                raise
            self.snapshots.outbox += self.told(client, now)

    def take_outbox(self, now: Round | None) -> list[Outgoing]:
        """What is to be sent, beside plans, because of what came in."""
        snapshots = self.snapshots
        if now is not None:
            snapshots.settle(now.waiting)
            fallback = [client for client in snapshots.take_fallback_to_replay() if client in now.waiting]
            snapshots.outbox += [told for client in fallback for told in self.told(client, now)]
        outbox, snapshots.outbox = snapshots.outbox, []
        return outbox
