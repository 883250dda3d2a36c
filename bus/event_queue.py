"""What is due when: one list of events for each instant, and a heap of the instants alone.

Messages are sent in the order of their keys, or nearly so. A list of them is sorted in about one comparison each when
its instant comes, where a heap of all events would take as many for each as it is deep.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import insort
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

LAST_NS = 2**22 * 10**9
FIRST = 0  # priorities of events that fall on one instant: what arrives comes before what expires
LAST = 1

_Entry = tuple[int, tuple[Any, ...], int, Callable[[Any], None], Any]
"""Priority, key, how many were added before, what happens, and to what: an `Event` may be cancelled."""
_HAPPENED: Any = None


class Event:
    """A callback due at an instant; `cancel` makes it never happen."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def happen(self) -> None:
        if self.callback is not None:
            self.callback()


class EventQueue:
    """Simulated time in whole nanoseconds, and events by instant; of one in the order of priority, key and adding."""

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns
        self._instants: list[int] = []
        self._later: dict[int, list[_Entry]] = {}
        self._instant = -1  # the one whose events are in order; those before `_at` have happened
        self._entries: list[_Entry] = []
        self._at = 0
        self._counter = itertools.count()
        self.has_pending_work = False
        """Set by whoever has something to do that follows from what has just happened; nothing happens before it."""

    def post(
        self, when_ns: int, key: tuple[Any, ...], callback: Callable[[T], None], subject: T, priority: int = FIRST
    ) -> None:
        """Run `callback` with `subject` at `when_ns`, or now if that is past; after the end of time, never."""
        if when_ns < self.now_ns:
            when_ns = self.now_ns
        entry = (priority, key, next(self._counter), callback, subject)
        if when_ns == self._instant:
            entries, at = self._entries, self._at
            if at == len(entries):  # all have happened
                entries.clear()
                entries.append(entry)
                self._at = 0
            elif entries[-1] < entry:
                entries.append(entry)
            elif at and entry < entries[at]:
                entries[at - 1] = entry
                self._at = at - 1
            else:
                insort(entries, entry, lo=at)
        elif when_ns in self._later:
            self._later[when_ns].append(entry)
        elif when_ns <= LAST_NS:
            self._later[when_ns] = [entry]
            heapq.heappush(self._instants, when_ns)

    def happen(self, latest_ns: int | None, most: int) -> bool:
        """Move from event to event and let each happen: `most` of them, as long as nothing follows from any, and no
        later than `latest_ns`, of which it is one at a time. False if nothing is due by then."""
        entries, self.has_pending_work = self._entries, False
        for number in range(most):
            if not number or self._at == len(entries):
                next_ns = self._next_ns()
                if next_ns is None or (latest_ns is not None and latest_ns < next_ns):
                    return number > 0
                self.now_ns, entries = next_ns, self._entries
            at = self._at
            _, _, _, callback, subject = entries[at]
            self._at, entries[at] = at + 1, _HAPPENED
            if type(subject) is not Event or subject.callback is not None:
                callback(subject)
                if self.has_pending_work or self.now_ns == latest_ns:
                    break
        return True

    def _next_ns(self) -> int | None:
        """When the next event is due; None if there is none."""
        while True:
            if self._instants and self._instants[0] < self._instant:
                self._put_back()
            entries = self._entries
            while self._at < len(entries):
                subject = entries[self._at][4]
                if type(subject) is not Event or subject.callback is not None:
                    return self._instant
                self._at += 1
            if not self._instants:
                return None
            self._instant, self._at = heapq.heappop(self._instants), 0
            self._entries = self._later.pop(self._instant)
            self._entries.sort()

    def _put_back(self) -> None:
        """Time has not come to the instant that was next, and something is due before it."""
        if self._at < len(self._entries):
            self._later[self._instant] = self._entries[self._at :]
            heapq.heappush(self._instants, self._instant)
        self._instant, self._entries, self._at = -1, [], 0
