"""The replicas of one process: clients at the same version share one, so memory grows with versions, not with clients.

Without `shares` every client has its own. Verification needs that: it compares digests, and the digest of a shared
object would be compared with itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from seedbus.algorithms.contract import Algorithm, CommitGap, Replica, Vector, pending
from seedbus.vector import is_on_host


class Replicas:
    """Replicas by client, advanced by commits. They start from x₀, or where `reset` puts them.

    Attributes:
        base: the replica from which the log of `reset` leads on; None: x₀.
    """

    base: Replica | None = None

    def __init__(
        self,
        algorithm: Algorithm,
        x0: Callable[[], Replica],
        *,
        shares: bool = True,
        place: Callable[[Vector], Vector] = lambda vector: vector,
    ) -> None:
        """Begin with no replica in memory.

        Args:
            algorithm: the run's.
            x0: makes a replica at version 0.
            shares: whether clients at one version have one replica; False: each has its own.
            place: moves a vector into the memory in which this process computes.
        """
        self._algorithm = algorithm
        self._facts = algorithm.facts
        self._is_dense = self._facts.is_dense
        self._x0 = x0
        self._shares = shares
        self._place = place
        self._start: dict[int, int] = {}
        self._log: Sequence[Any] = ()
        self._by_client: dict[int, Replica] = {}
        self._by_version: dict[int, Replica] = {}
        self._holders: Counter[int] = Counter()

    def reset(self, versions: Mapping[int, int], log: Sequence[Any]) -> None:
        """Put each client at a version, whatever it was at before.

        Args:
            versions: client → version.
            log: the commits from 1 on, or from that of `base`, at least to the newest of these versions. Of a dense
                algorithm it may hold the newest commit alone; clients at an earlier version are then soon brought to a
                newer one. Empty: the log of before still leads them there.
        """
        moved = [client for client, replica in self._by_client.items() if replica.version != versions.get(client)]
        for client in moved:
            self._release(client)
        self._start = dict(versions)
        self._log = log or self._log

    def first(self) -> Replica:
        """Return a new replica at version 0, which belongs to no client."""
        replica = self._x0().placed(self._place)
        if not self._is_dense:
            return replica
        # Nothing is folded from an old version of a dense model, yet there may be one for each client: as a file's
        # pages the system may take them out of memory.
        return Replica(replica.version, {name: _in_file(field) for name, field in replica.fields.items()})

    def __contains__(self, client: int) -> bool:
        return client in self._start or client in self._by_client

    def version(self, client: int) -> int:
        """Return the version at which a client is."""
        replica = self._by_client.get(client)
        return self._start.get(client, 0) if replica is None else replica.version

    def get(self, client: int) -> Replica:
        """Return the client's replica; not to be written to."""
        if client not in self._by_client:
            self._hold(client, self.at(self._start.get(client, 0)))
        return self._by_client[client]

    def forget(self, client: int) -> None:
        """A client has lost its state: it starts from x₀ again."""
        if client in self._by_client:
            self._release(client)
        self._start[client] = 0

    def install(self, client: int, replica: Replica) -> None:
        """Give a client a whole replica in the place of its own."""
        if client in self._by_client:
            self._release(client)
        placed = replica.placed(self._place)
        self._hold(client, self._by_version.get(replica.version, placed) if self._shares else placed)

    def advance(self, client: int, commits: Sequence[Any], version: int) -> Replica:
        """Fold the commits that the client missed, and return its replica, which is then at `version`.

        Raises:
            CommitGap: the commits do not lead from the client's version to `version`; the client stays where it was.
        """
        before = self.version(client)
        fresh = pending(self._facts, before, commits)
        reached = fresh[-1].version if fresh else before
        if reached != version:
            raise CommitGap(reached, version)
        if self._is_dense and client not in self._by_client:
            # even for a client that is at `version`: its replica is not in memory
            fresh = pending(self._facts, version - 1, commits)
            if fresh:
                self._hold(client, self._by_version.get(version) or self.first())
        replica = self.get(client)
        if not fresh or replica.version == version:
            return replica
        if not self._shares:
            self._algorithm.apply(replica, fresh)
            return replica
        self._release(client)
        replica = self._by_version.get(version) or self._folded(replica, fresh)
        self._hold(client, replica)
        return replica

    def _folded(self, replica: Replica, commits: Sequence[Any]) -> Replica:
        """Return a replica, or a copy of it if others hold it, with commits folded.

        Another that is nearer to their version has folded most of them already, to the same bits.
        """
        between = [other for other in self._by_version if replica.version < other < commits[-1].version]
        nearest = next((other for other in sorted(between, reverse=True) if self._leads(other, commits)), None)
        if nearest is not None:
            replica = self._by_version[nearest]
        if self._is_dense:
            replica = self.first()
        elif self._holders.get(replica.version):
            replica = replica.copy()
        self._algorithm.apply(replica, commits)
        return replica

    def _leads(self, version: int, commits: Sequence[Any]) -> bool:
        """Return whether commits can be folded from a version; a sum of commits only from the one before it."""
        try:
            pending(self._facts, version, commits)
        except CommitGap:
            return False
        return True

    def at(self, version: int) -> Replica:
        """Return the replica of a version that the log reaches; not to be written to.

        Raises:
            CommitGap: the log does not lead to that version.
        """
        if version in self._by_version:
            return self._by_version[version]
        older = [other for other in self._by_version.values() if other.version <= version and not self._is_dense]
        older += [self.base] if self.base is not None and self.base.version <= version else []
        replica = max(older, key=lambda other: other.version).copy() if older else self.first()
        if version > replica.version:
            self._algorithm.apply(replica, [commit for commit in self._log if commit.version <= version])
        if replica.version != version:
            raise CommitGap(replica.version, version)
        return replica

    def _hold(self, client: int, replica: Replica) -> None:
        self._by_client[client] = replica
        if self._shares:
            self._by_version[replica.version] = replica
            self._holders[replica.version] += 1

    def _release(self, client: int) -> None:
        version = self._by_client.pop(client).version
        if not self._shares:
            return
        self._holders[version] -= 1
        if not self._holders[version]:
            del self._holders[version]
            del self._by_version[version]


def _in_file(field: Vector) -> Vector:
    """Return a copy whose memory is a file without a name; a vector on a device as it is."""
    if not is_on_host(field):
        return field
    with TemporaryFile() as file:
        copy: Vector = np.asarray(np.memmap(file, field.dtype, "w+", shape=field.shape))  # without its Python hooks
    copy[:] = field
    return copy
