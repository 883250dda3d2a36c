"""The event queue: one list of events for each instant, and a heap of the instants.

Messages are sent in nearly the order of their keys. So sorting an instant's list takes about one comparison per event
when its time comes. A heap of all events would take as many comparisons per event as the heap is deep.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import insort
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

LAST_NS = 2**22 * 10**9
"""The end of time: the last instant for which events are scheduled, in nanoseconds."""
FIRST = 0  # priorities of events at one instant: arrivals come before expiries
LAST = 1

_Entry = tuple[int, tuple[Any, ...], int, Callable[[Any], None], Any]
"""Priority, key, number of entries added before, callback, and its argument, which may be an `Event`."""
_DONE: Any = None


class Event:
    """A callback that is due at an instant and can be cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        """Run the callback unless it was cancelled."""
        if self.callback is not None:
            self.callback()


class EventQueue:
    """Events in the order of instant, priority, key and insertion; simulated time in integer nanoseconds.

    Attributes:
        now_ns: the current time.
        has_pending_work: set to True by a callback, or the event loop, when an event has caused work that must be done
            before the next event.
    """

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns
        self._instants: list[int] = []  # a heap of the keys of `_scheduled`
        self._scheduled: dict[int, list[_Entry]] = {}  # instant → its entries, unsorted
        self._instant = -1  # the current instant; its entries are sorted, and those before `_next` are done
        self._entries: list[_Entry] = []
        self._next = 0
        self._counter = itertools.count()
        self.has_pending_work = False

    def post(
        self, when_ns: int, key: tuple[Any, ...], callback: Callable[[T], None], subject: T, priority: int = FIRST
    ) -> None:
        """Schedule `callback(subject)` for `when_ns`, or for now if that is past; after `LAST_NS` it never runs.

        Args:
            when_ns: the instant at which it is due.
            key: order among events of one instant and priority; lower keys first.
            callback: what to run.
            subject: its argument; it is skipped if this is a cancelled `Event`.
            priority: `FIRST` or `LAST`.
        """
        if when_ns < self.now_ns:
            when_ns = self.now_ns
        entry = (priority, key, next(self._counter), callback, subject)
        if when_ns == self._instant:
            entries = self._entries
            index = self._next
            if index == len(entries):  # all are done
                entries.clear()
                entries.append(entry)
                self._next = 0
            elif entries[-1] < entry:
                entries.append(entry)
            elif index and entry < entries[index]:
                entries[index - 1] = entry  # in the place of one that is done
                self._next = index - 1
            else:
                insort(entries, entry, lo=index)
        elif when_ns in self._scheduled:
            self._scheduled[when_ns].append(entry)
        elif when_ns <= LAST_NS:
            self._scheduled[when_ns] = [entry]
            heapq.heappush(self._instants, when_ns)

    def run_events(self, latest_ns: int | None, most: int) -> bool:
        """Move time to the next event and run it; then further events until one of them causes work.

        Args:
            latest_ns: latest instant to move to; at this instant only one event runs per call. None: no limit.
            most: maximum number of events to run.

        Returns:
            False if no event is due by `latest_ns`.
        """
        entries = self._entries
        self.has_pending_work = False
        for number in range(most):
            if not number or self._next == len(entries):
                next_ns = self._next_ns()
                if next_ns is None or (latest_ns is not None and latest_ns < next_ns):
                    return number > 0
                self.now_ns = next_ns
                entries = self._entries
            index = self._next
            _, _, _, callback, subject = entries[index]
            self._next = index + 1
            entries[index] = _DONE
            if type(subject) is not Event or subject.callback is not None:
                callback(subject)
                if self.has_pending_work or self.now_ns == latest_ns:
                    break
        return True

    def _next_ns(self) -> int | None:
        """When the next event is due; None if there is none. Drops cancelled events."""
        while True:
            if self._instants and self._instants[0] < self._instant:
                self._unload()
            entries = self._entries
            while self._next < len(entries):
                subject = entries[self._next][4]
                if type(subject) is not Event or subject.callback is not None:
                    return self._instant
                self._next += 1
            if not self._instants:
                return None
            self._instant = heapq.heappop(self._instants)
            self._next = 0
            self._entries = self._scheduled.pop(self._instant)
            self._entries.sort()

    def _unload(self) -> None:
        """Put the current instant back into the heap: an event before it was added while time had not reached it."""
        if self._next < len(self._entries):
            self._scheduled[self._instant] = self._entries[self._next :]
            heapq.heappush(self._instants, self._instant)
        self._instant = -1
        self._entries = []
        self._next = 0
