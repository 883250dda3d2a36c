"""The members of a run, and the versions at which the server believes clients to be."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from functools import cache

from seedbus.agents.journal.records import MemberPosition
from seedbus.agents.server.member_index import MemberIndex


class ClientPositions:
    """The clients' positions, as far as the server knows them.

    Args:
        clients: number of clients in the run.

    Attributes:
        versions: client → version, of all clients that ever joined.
        members: those of them that have not left.
    """

    def __init__(self, clients: int) -> None:
        self.versions: dict[int, int] = {}
        self.members = MemberIndex(clients)
        self._lowest = LowestVersion()
        self._moved: set[int] = set()

    def enter(self, joined: Iterable[tuple[int, int]]) -> None:
        """Make clients members, or move those that are members already. `joined`: (client, version) of each."""
        joined = list(joined)
        new = [client for client, _ in joined if client not in self.members]
        for client, version in joined:
            self.move(client, version)
        for client in new:
            self._lowest.add(self.versions[client])
        self.members.update(new)

    def move(self, client: int, version: int) -> None:
        """Set a client's version; it need not be a member."""
        before = self.versions.get(client)
        self._moved.add(client)
        if before == version:
            return
        self.versions[client] = version
        if before is not None and client in self.members:
            self._lowest.replace(before, version)

    def leave(self, client: int) -> None:
        """Remove a client from the members; its version stays known."""
        if client in self.members:
            self.members.discard(client)
            self._lowest.discard(self.versions[client])
            self._moved.add(client)

    def slowest(self, default: int) -> int:
        """Return the lowest version of a member; `default` if there are no members."""
        return self._lowest.get(default)

    @property
    def by_version(self) -> Mapping[int, int]:
        """Version → number of members at it."""
        return self._lowest.counts

    def take_moved(self) -> list[tuple[int, MemberPosition]]:
        """Return the clients that joined, moved or left since the last call, ascending."""
        position = cache(MemberPosition)  # nearly all are at the same
        versions, members = self.versions, self.members
        has_left = len(members) < len(versions)
        moved = [(each, position(versions[each], not has_left or each in members)) for each in sorted(self._moved)]
        self._moved.clear()
        return moved

    def restore(self, positions: Mapping[int, MemberPosition], *, with_members: bool) -> None:
        """Go on from a checkpoint.

        Args:
            positions: the newest position of each client that `take_moved` returned.
            with_members: whether those that were members are members again.
        """
        self.versions.clear()
        self.versions.update((client, position.version) for client, position in positions.items())
        if with_members:
            self.members.update(client for client, position in positions.items() if position.is_member)
        self._lowest = LowestVersion()
        for client in self.members:
            self._lowest.add(self.versions.setdefault(client, 0))


class LowestVersion:
    """The minimum of a multiset of versions; the cost of a change depends on the number of distinct versions only."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._heap: list[int] = []

    def add(self, version: int) -> None:
        count = self._counts.get(version, 0)
        if not count:
            heapq.heappush(self._heap, version)
        self._counts[version] = count + 1

    def discard(self, version: int) -> None:
        count = self._counts[version] - 1
        if count:
            self._counts[version] = count
        else:
            del self._counts[version]

    def replace(self, before: int, version: int) -> None:
        counts = self._counts
        if counts[before] > 1 and version in counts:  # as for nearly all clients of a round
            counts[before] -= 1
            counts[version] += 1
        else:
            self.discard(before)
            self.add(version)

    @property
    def counts(self) -> dict[int, int]:
        """Version → how often it is in the multiset."""
        return dict(self._counts)

    def get(self, default: int) -> int:
        """Return the lowest version; `default` if there are none."""
        while self._heap and self._heap[0] not in self._counts:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else default
