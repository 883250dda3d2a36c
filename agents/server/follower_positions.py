"""Where a run's followers really are, and what they have of snapshots: learnt from what each answers."""

from __future__ import annotations

from seedbus.bus.codec import first_bytes
from seedbus.bus.envelope import Kind
from seedbus.bus.in_flight import Key
from seedbus.bus.pending_replies import JOIN_REQUESTS

_JOINS = first_bytes(Kind.JOIN)
_BRINGS_ON = frozenset({Kind.PLAN, Kind.COMMIT, Kind.SNAPSHOT})


class FollowerPositions:
    """The followers' versions, as their answers show them; the bus calls `answered` for each answer.

    This is what the simulation knows. The server believes what reports and JOINs have told it (`ClientPositions`), and
    learns nothing from here: a report that shows a client's version may still be lost on its way.
    """

    def __init__(self) -> None:
        self.actual_versions: dict[int, int] = {}
        """follower → version to which what it was sent, and has answered, brought it."""
        self.partial_downloads: dict[int, bytes] = {}
        """client → what it says that it has of a snapshot, a frame; opaque here."""
        self._moved: set[int] = set()

    def restore(self, actual_versions: dict[int, int], partial_downloads: dict[int, bytes]) -> None:
        """Go on from a checkpoint."""
        self.actual_versions = actual_versions
        self.partial_downloads = partial_downloads

    def take_moved(self) -> tuple[list[tuple[int, int]], list[tuple[int, bytes]]]:
        """(follower, version) and (client, note) of all that have answered since this was last called, in order."""
        moved = sorted(self._moved)
        self._moved.clear()
        versions = [(client, self.actual_versions.get(client, 0)) for client in moved]
        notes = [(client, self.partial_downloads[client]) for client in moved if client in self.partial_downloads]
        return versions, notes

    def answered(self, message: Key, base: int, frames: list[bytes], notes: list[bytes]) -> bool:
        """Learn from an answer. Returns whether its notes count, as bytes that were carried.

        message: what was answered. base: the version of that message. frames: what the follower sends. notes: what it
        tells the simulation alone.
        """
        kind, client = message[:2]
        joins = sum(frame[:2] == _JOINS for frame in frames)
        has_joined = 0 < joins == len(frames)  # a JOIN that is not alone is what a liar says
        before = self.actual_versions.get(client, 0)
        sets_back = kind in JOIN_REQUESTS
        self._moved.add(client)
        if sets_back:  # it may have lost its state
            self.actual_versions[client] = min(base, before)
        elif base >= before and has_joined == (kind is Kind.SNAPSHOT) and kind in _BRINGS_ON:
            # A client that cannot follow answers a plan with a JOIN, and one that has all of a snapshot answers that
            # with a JOIN. An answer that comes late brings nobody back.
            self.actual_versions[client] = base
        if not (notes or client in self.partial_downloads) or not (kind is Kind.SNAPSHOT or sets_back):
            return False
        self.partial_downloads[client] = notes[-1] if notes else b""
        return True
