"""The actual versions of a run's followers and their incomplete snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from seedbus.bus.codec import first_bytes
from seedbus.bus.envelope import PLAN, SNAPSHOT, Kind, Tally
from seedbus.bus.in_flight import Key
from seedbus.bus.pending_replies import JOIN_REQUESTS

_JOINS = first_bytes(Kind.JOIN)
_ADVANCES = frozenset({Kind.PLAN, Kind.COMMIT, Kind.SNAPSHOT})


class FollowerPositions:
    """The followers' actual versions. The bus calls `delivered` for each message and `answered` for each answer.

    Only the simulation knows these. The coordinator knows what reports and JOINs have told it (`ClientPositions`) and
    does not read them: a report that shows a client's version may still be lost on its way.

    Answers of processes come at any time before they are due. What depends on `actual_versions` between two deliveries
    would not be the same on every transport, so a client's versions at deliveries are kept apart. Once all messages
    are answered, as at a checkpoint, both are the same.

    Attributes:
        actual_versions: follower → the version that it holds after the last message that it answered.
        delivered_versions: client → the version that it holds after the last message that was delivered to it.
        partial_downloads: client → its latest note of what it has of a snapshot, a frame; opaque here.
    """

    def __init__(self, count_seeds: Callable[[int, int], int] = lambda after, last: last - after) -> None:
        """Begin with all followers at version 0.

        Args:
            count_seeds: (version, later version) → the seeds of the commits between them.
        """
        self.actual_versions: dict[int, int] = {}
        self.delivered_versions: dict[int, int] = {}
        self.partial_downloads: dict[int, bytes] = {}
        self._count_seeds = count_seeds
        self._moved: set[int] = set()

    def restore(self, actual_versions: dict[int, int], partial_downloads: dict[int, bytes]) -> None:
        """Go on from a checkpoint, before which all messages were answered."""
        self.actual_versions = actual_versions
        self.delivered_versions = dict(actual_versions)
        self.partial_downloads = partial_downloads

    def lags(self, clients: Iterable[int], newest: int) -> list[int]:
        """Return how many commits each client lacks, at the newest version; what is on its way does not count."""
        versions = self.delivered_versions
        return [newest - versions.get(client, 0) for client in clients]

    def delivered(self, message: Key, base: int, tally: Tally) -> int:
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
        before = self.delivered_versions.get(client, 0)
        if kind is not PLAN:
            if kind in JOIN_REQUESTS:  # the client may have lost its state
                self.delivered_versions[client] = min(base, before)
            return 0
        if before == tally.since:  # as for nearly all plans
            self.delivered_versions[client] = base
            return 0
        sent = max(0, tally.seeds - 1)  # one is the plan's own
        if tally.is_sum or not tally.since < before < base:
            return sent  # it has all commits, or cannot follow
        self.delivered_versions[client] = base
        return max(0, sent - self._count_seeds(before, base)) if sent else 0

    def take_moved(self) -> tuple[list[tuple[int, int]], list[tuple[int, bytes]]]:
        """Return (follower, version) and (client, note) of all that have answered since the last call, ascending."""
        moved = sorted(self._moved)
        self._moved.clear()
        versions = [(client, self.actual_versions.get(client, 0)) for client in moved]
        notes = [(client, self.partial_downloads[client]) for client in moved if client in self.partial_downloads]
        return versions, notes

    def answered(self, message: Key, base: int, frames: list[bytes], notes: list[bytes]) -> bool:
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
        before = self.actual_versions.get(client, 0)
        sets_back = kind in JOIN_REQUESTS
        self._moved.add(client)
        if sets_back:  # the client may have lost its state
            self.actual_versions[client] = min(base, before)
        elif base >= before and is_join == (kind is SNAPSHOT) and kind in _ADVANCES:
            # A client that cannot follow answers a plan with a JOIN, and so is not at its version. A client that has
            # a complete snapshot answers its last chunk with a JOIN. A late answer moves no client back.
            self.actual_versions[client] = base
            if kind is SNAPSHOT:
                # its answer is due at once, so simulated time has not gone on since the last chunk was delivered
                self.delivered_versions[client] = max(base, self.delivered_versions.get(client, 0))
        if not (notes or client in self.partial_downloads) or not (kind is Kind.SNAPSHOT or sets_back):
            return False
        self.partial_downloads[client] = notes[-1] if notes else b""
        return True
