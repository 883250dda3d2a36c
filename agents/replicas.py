"""The replicas of one process: clients at the same version share one, so memory goes by versions and not by heads.

With `private` every client has its own: verification compares digests, and comparing an object with itself proves
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from seedbus.agents.messages import AnyAlgorithm
from seedbus.algorithms.contract import CommitGap, Replica, unseen


class Replicas:
    """Replicas by client, advanced by commits.

    versions: at which version each client starts (0 if absent: x₀); history(v): the commits 1 … v, asked only for
    clients that a resumed run finds at version v.
    """

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        x0: Callable[[], Replica],
        *,
        private: bool = False,
        versions: dict[int, int] | None = None,
        history: Callable[[int], Sequence[Any]] | None = None,
    ) -> None:
        self._algorithm, self._x0, self._private, self._history = algorithm, x0, private, history
        self._start = versions or {}
        self._held: dict[int, Replica] = {}
        self._shared: dict[int, Replica] = {}
        self._holders: Counter[int] = Counter()

    def version(self, client: int) -> int:
        held = self._held.get(client)
        return self._start.get(client, 0) if held is None else held.version

    def get(self, client: int) -> Replica:
        """The client's replica; not to be written to."""
        if client not in self._held:
            self._hold(client, self._at(self._start.get(client, 0)))
        return self._held[client]

    def advance(self, client: int, commits: Sequence[Any], version: int) -> Replica:
        """Fold what the client missed; it then stands at `version`. Raises `CommitGap`, leaving it where it was."""
        replica = self.get(client)
        fresh = unseen(replica, commits)
        reached = fresh[-1].version if fresh else replica.version
        if reached != version:
            raise CommitGap(reached, version)
        if not fresh:
            return replica
        if self._private:
            self._algorithm.apply(replica, fresh)
            return replica
        self._release(client)
        # whoever is nearest to the new version has folded most of it already, and the same bits
        nearest = max((held for held in self._shared if replica.version < held <= version), default=replica.version)
        replica = self._shared.get(nearest, replica)
        if nearest < version:
            replica = replica.copy() if self._holders[nearest] else replica
            self._algorithm.apply(replica, fresh)
        self._hold(client, replica)
        return replica

    def _at(self, version: int) -> Replica:
        if version in self._shared:
            return self._shared[version]
        below = [held for held in self._shared if held <= version]
        replica = self._shared[max(below)].copy() if below else self._x0()
        if version > replica.version:
            assert self._history is not None, "only a resumed run has clients beyond version 0"
            self._algorithm.apply(replica, self._history(version))
        return replica

    def _hold(self, client: int, replica: Replica) -> None:
        self._held[client] = replica
        if not self._private:
            self._shared[replica.version] = replica
            self._holders[replica.version] += 1

    def _release(self, client: int) -> None:
        version = self._held.pop(client).version
        self._holders[version] -= 1
        if not self._holders[version]:
            del self._holders[version], self._shared[version]
