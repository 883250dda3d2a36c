"""The replicas of one process: clients at the same version share one, so memory goes by versions and not by heads.

With `private` every client has its own: verification compares digests, and comparing an object with itself proves
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from seedbus.agents.messages import AnyAlgorithm
from seedbus.algorithms.contract import CommitGap, Replica, Vector


class Replicas:
    """Replicas by client, advanced by commits. They start as x₀, or where `stand_at` says."""

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        x0: Callable[[], Replica],
        *,
        private: bool = False,
    ) -> None:
        self._algorithm, self._x0, self._private = algorithm, x0, private
        self._start: dict[int, int] = {}
        self._log: Sequence[Any] = ()
        self._held: dict[int, Replica] = {}
        self._shared: dict[int, Replica] = {}
        self._holders: Counter[int] = Counter()

    def stand_at(self, versions: Mapping[int, int], log: Sequence[Any]) -> None:
        """Say at which version each client is; log: the commits 1, 2, …, at least to the newest of these.

        Of a dense algorithm the log may hold the newest alone, and nobody stands at an earlier one for long.
        """
        for client in [client for client, replica in self._held.items() if replica.version != versions.get(client)]:
            self._release(client)
        self._start, self._log = dict(versions), log

    def first(self) -> Replica:
        """Version 0, of nobody."""
        replica = self._x0()
        if not self._algorithm.is_dense:
            return replica
        # nobody folds from an old version of a dense model, and yet there may be one for each client: the system may
        # take these out of memory
        return Replica(replica.version, {name: _filed(field) for name, field in replica.fields.items()})

    def __contains__(self, client: int) -> bool:
        return client in self._start or client in self._held

    def version(self, client: int) -> int:
        held = self._held.get(client)
        return self._start.get(client, 0) if held is None else held.version

    def get(self, client: int) -> Replica:
        """The client's replica; not to be written to."""
        if client not in self._held:
            self._hold(client, self._at(self._start.get(client, 0)))
        return self._held[client]

    def forget(self, client: int) -> None:
        """A client has lost what it had: it starts from x₀ again."""
        if client in self._held:
            self._release(client)
        self._start[client] = 0

    def install(self, client: int, replica: Replica) -> None:
        """A client has got a whole replica."""
        if client in self._held:
            self._release(client)
        self._hold(client, replica if self._private else self._shared.get(replica.version, replica))

    def at(self, version: int) -> Replica:
        """The replica of a version that the log reaches; not to be written to."""
        return self._at(version)

    def advance(self, client: int, commits: Sequence[Any], version: int) -> Replica:
        """Fold what the client missed; it then stands at `version`. Raises `CommitGap`, leaving it where it was."""
        stood = self.version(client)
        fresh = self._algorithm.pending(stood, commits)
        reached = fresh[-1].version if fresh else stood
        if reached != version:
            raise CommitGap(reached, version)
        if self._algorithm.is_dense and client not in self._held:
            fresh = self._algorithm.pending(version - 1, commits)  # even for who stood there: nobody held it for it
            if fresh:
                self._hold(client, self._shared.get(version) or self.first())
        replica = self.get(client)
        if not fresh or replica.version == version:
            return replica
        if self._private:
            self._algorithm.apply(replica, fresh)
            return replica
        self._release(client)
        # whoever is nearest to the new version has folded most of it already, and the same bits
        nearest = max((held for held in self._shared if replica.version < held <= version), default=replica.version)
        replica = self._shared.get(nearest, replica)
        if nearest < version:
            if self._algorithm.is_dense:
                replica = self.first()
            elif self._holders[nearest]:
                replica = replica.copy()
            self._algorithm.apply(replica, fresh)
        self._hold(client, replica)
        return replica

    def _at(self, version: int) -> Replica:
        if version in self._shared:
            return self._shared[version]
        below = [held for held in self._shared if held <= version]
        is_of_use = below and not self._algorithm.is_dense
        replica = self._shared[max(below)].copy() if is_of_use else self.first()
        if version > replica.version:
            self._algorithm.apply(replica, [commit for commit in self._log if commit.version <= version])
        if replica.version != version:
            raise CommitGap(replica.version, version)
        return replica

    def _hold(self, client: int, replica: Replica) -> None:
        self._held[client] = replica
        if not self._private:
            self._shared[replica.version] = replica
            self._holders[replica.version] += 1

    def _release(self, client: int) -> None:
        version = self._held.pop(client).version
        if self._private:
            return
        self._holders[version] -= 1
        if not self._holders[version]:
            del self._holders[version], self._shared[version]


def _filed(field: Vector) -> Vector:
    """A copy whose memory is a file without a name."""
    with TemporaryFile() as file:
        filed: Vector = np.memmap(file, field.dtype, "w+", shape=field.shape)
    filed[:] = field
    return filed
