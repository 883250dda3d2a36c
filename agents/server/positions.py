"""Where the clients of a run are: which are members, and the version that each has reached."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from seedbus.agents.journal.records import MemberPosition
from seedbus.agents.server.member_index import MemberIndex
from seedbus.bus.codec import first_bytes
from seedbus.bus.envelope import ADVANCES, MEASURE, PLAN, SNAPSHOT, Kind, Tally
from seedbus.bus.in_flight import Key
from seedbus.bus.pending_replies import JOIN_REQUESTS
from seedbus.pieces import Frame

_JOINS = first_bytes(Kind.JOIN)


class Positions:
    """The members of a run, and for each follower three versions.

    What the server decides depends on `members` and `believed` alone: a report that shows a client's version may still
    be lost on its way. The other two are the simulation's. Answers of processes come at any time before they are due,
    so what depends on `actual` between two deliveries would not be the same on every transport; that is why `delivered`
    is kept apart. Once all messages are answered, as at a checkpoint, both are the same.

    Attributes:
        members: the clients that have joined and have not left.
        believed: client → the version that its JOINs and reports have shown, of all clients that ever joined.
        delivered: client → the version that it holds after the last message that was delivered to it.
        actual: follower → the version that it holds after the last message that it answered.
        partial_downloads: client → its latest note of what it has of a snapshot, a frame; opaque here.
    """

    def __init__(self, clients: int, count_seeds: Callable[[int, int], int] = lambda after, last: last - after) -> None:
        """Begin with no members and all followers at version 0.

        Args:
            clients: number of clients in the run.
            count_seeds: (version, later version) → the seeds of the commits between them.
        """
        self.members = MemberIndex(clients)
        self.believed: dict[int, int] = {}
        self.delivered: dict[int, int] = {}
        self.actual: dict[int, int] = {}
        self.partial_downloads: dict[int, bytes] = {}
        self._count_seeds = count_seeds
        self._lowest = LowestVersion()
        self._moved: set[int] = set()  # who joined, moved or left
        self._answered: set[int] = set()

    # -- what the server knows

    def enter(self, joined: Iterable[tuple[int, int]]) -> None:
        """Make clients members, or move those that are members already. `joined`: (client, version) of each."""
        joined = list(joined)
        new = [client for client, _ in joined if client not in self.members]
        for client, version in joined:
            self.move(client, version)
        for client in new:
            self._lowest.add(self.believed[client])
        self.members.update(new)

    def move(self, client: int, version: int) -> None:
        """Believe a client at a version; it need not be a member."""
        before = self.believed.get(client)
        self._moved.add(client)
        if before == version:
            return
        self.believed[client] = version
        if before is not None and client in self.members:
            self._lowest.replace(before, version)

    def leave(self, client: int) -> None:
        """Remove a client from the members; its version stays known."""
        if client in self.members:
            self.members.discard(client)
            self._lowest.discard(self.believed[client])
            self._moved.add(client)

    def slowest(self, default: int) -> int:
        """Return the lowest version at which a member is believed; `default` if there are no members."""
        return self._lowest.get(default)

    @property
    def by_version(self) -> Mapping[int, int]:
        """Version → number of members that are believed to be at it."""
        return self._lowest.counts

    def take_believed(self) -> list[tuple[int, MemberPosition]]:
        """Return the clients that joined, moved or left since the last call, ascending."""
        position = cache(MemberPosition)  # nearly all are at the same
        believed, members = self.believed, self.members
        has_left = len(members) < len(believed)
        moved = [(each, position(believed[each], not has_left or each in members)) for each in sorted(self._moved)]
        self._moved.clear()
        return moved

    def restore_believed(self, known: Mapping[int, MemberPosition], *, with_members: bool) -> None:
        """Go on from a checkpoint.

        Args:
            known: the newest position of each client that `take_believed` returned.
            with_members: whether those that were members are members again.
        """
        self.believed.clear()
        self.believed.update((client, position.version) for client, position in known.items())
        if with_members:
            self.members.update(client for client, position in known.items() if position.is_member)
        self._lowest = LowestVersion()
        for client in self.members:
            self._lowest.add(self.believed.setdefault(client, 0))

    # -- what the simulation knows

    def lags(self, clients: Iterable[int], newest: int) -> list[int]:
        """Return how many commits each client lacks, at the newest version; what is on its way does not count."""
        return [newest - self.delivered.get(client, 0) for client in clients]

    def begin_anew(self, clients: Iterable[int]) -> None:
        """In real time a process has joined with these clients, or is gone with them: its replicas begin where the
        server believes the clients to be."""
        for client in clients:
            self.delivered[client] = self.believed.get(client, 0)

    def on_delivery(self, message: Key, base: int, tally: Tally) -> int:
        """Update the position of a client that gets a message.

        Args:
            message: identity of the message.
            base: its version.
            tally: what is known of it.

        Returns:
            How many of the seeds in a plan are of commits that the client does not fold: it has them, or lacks one
            before them. Of a message of another kind 0.
        """
        kind, client, _, _, _ = message
        before = self.delivered.get(client, 0)
        if kind is not PLAN and kind is not MEASURE:
            if kind in JOIN_REQUESTS:  # the client may have lost its state
                self.delivered[client] = min(base, before)
            return 0
        if before == tally.since:  # as for nearly all plans
            self.delivered[client] = base
            return 0
        sent = max(0, tally.seeds - (kind is PLAN))  # one is the plan's own
        if tally.is_sum or not tally.since < before < base:
            return sent  # it has all commits, or cannot follow
        self.delivered[client] = base
        return max(0, sent - self._count_seeds(before, base)) if sent else 0

    def on_answer(self, message: Key, base: int, frames: list[Frame], notes: list[Frame]) -> bool:
        """Update the position of a follower that answers.

        Args:
            message: identity of the message that it answers.
            base: the version of that message.
            frames: the frames of the answer.
            notes: the follower's notes to the simulation, which are not sent.

        Returns:
            Whether the notes count as carried bytes.
        """
        kind, client, _, _, _ = message
        is_join = bool(frames)
        for frame in frames:  # honest clients never send a JOIN together with other frames
            is_join = is_join and frame[:2] == _JOINS
        before = self.actual.get(client, 0)
        sets_back = kind in JOIN_REQUESTS
        self._answered.add(client)
        if sets_back:  # the client may have lost its state
            self.actual[client] = min(base, before)
        elif base >= before and is_join == (kind is SNAPSHOT) and kind in ADVANCES:
            # A client that cannot follow answers a plan with a JOIN, and so is not at its version. A client that has
            # a complete snapshot answers its last chunk with a JOIN. A late answer moves no client back.
            self.actual[client] = base
            if kind is SNAPSHOT:
                # its answer is due at once, so simulated time has not gone on since the last chunk was delivered
                self.delivered[client] = max(base, self.delivered.get(client, 0))
        if not (notes or client in self.partial_downloads) or not (kind is Kind.SNAPSHOT or sets_back):
            return False
        self.partial_downloads[client] = bytes(notes[-1]) if notes else b""
        return True

    def take_actual(self) -> tuple[list[tuple[int, int]], list[tuple[int, bytes]]]:
        """Return (follower, version) and (client, note) of all that have answered since the last call, ascending."""
        answered = sorted(self._answered)
        self._answered.clear()
        versions = [(client, self.actual.get(client, 0)) for client in answered]
        notes = [(client, self.partial_downloads[client]) for client in answered if client in self.partial_downloads]
        return versions, notes

    def restore_actual(self, versions: Mapping[int, int], partial_downloads: Mapping[int, bytes]) -> None:
        """Go on from a checkpoint, before which all messages were answered."""
        self.actual, self.delivered = dict(versions), dict(versions)
        self.partial_downloads = dict(partial_downloads)


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
