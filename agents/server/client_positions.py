"""Who is a member of a run, and at which version the server believes everybody to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from seedbus.agents.journal.records import MemberPosition
from seedbus.agents.server.commit_window import Slowest
from seedbus.agents.server.member_index import MemberIndex


class ClientPositions:
    """versions: of all who ever joined; members: of them, those who are there."""

    def __init__(self, clients: int) -> None:
        self.versions: dict[int, int] = {}
        self.members = MemberIndex(clients)
        self._slowest = Slowest()
        self._moved: set[int] = set()

    def enter(self, came: Iterable[tuple[int, int]]) -> None:
        """Clients join, at versions; those who were members already are there from now on."""
        came = list(came)
        new = [client for client, _ in came if client not in self.members]
        for client, version in came:
            self.move(client, version)
        for client in new:
            self._slowest.add(self.versions[client])
        self.members.update(new)

    def move(self, client: int, version: int) -> None:
        if client in self.members:
            self._slowest.discard(self.versions[client])
            self._slowest.add(version)
        self.versions[client] = version
        self._moved.add(client)

    def leave(self, client: int) -> None:
        if client in self.members:
            self.members.discard(client)
            self._slowest.discard(self.versions[client])
            self._moved.add(client)

    def slowest(self, default: int) -> int:
        """The lowest version of a member, or `default` if there are none."""
        return self._slowest.among(default)

    def take_moved(self) -> list[tuple[int, MemberPosition]]:
        """Return the clients that joined, moved or left since the last call, ascending."""
        moved = [(each, MemberPosition(self.versions[each], each in self.members)) for each in sorted(self._moved)]
        self._moved.clear()
        return moved

    def restore(self, known: Mapping[int, MemberPosition], *, with_members: bool) -> None:
        """Go on from a checkpoint.

        Args:
            known: the newest position of each client that `take_moved` returned.
            with_members: whether those that were members are members again.
        """
        self.versions.clear()
        self.versions.update((client, position.version) for client, position in known.items())
        if with_members:
            self.members.update(client for client, position in known.items() if position.is_member)
        self._slowest = Slowest()
        for client in self.members:
            self._slowest.add(self.versions.setdefault(client, 0))
