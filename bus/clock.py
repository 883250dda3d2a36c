"""Virtual time: an asyncio loop that jumps to the next event when everybody waits.

Rules
- Time is whole nanoseconds. It never passes while anything can run: it jumps, and only when every task waits.
- Events of one instant happen in the order of their keys, never in the order in which they were scheduled.
- One event happens at a time, and the next only when all that follows from it has been done. So whenever an actor
  acts, no other actor has anything left to do: a checkpoint taken then misses nothing.
- While work is under way outside the loop (`offload`), time stands still.
- If everybody waits, nothing is scheduled and nothing is under way, that is a `Deadlock`, raised at once.
- asyncio keeps time in float seconds, exact to a nanosecond below 2²² s (48 days): past that a run is refused.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import selectors
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from seedbus.bus.errors import Deadlock, EndOfTime

T = TypeVar("T")

LAST_NS = 2**22 * 10**9
FIRST = 0  # priorities of events that fall on one instant: what arrives comes before what expires
LAST = 1


class Event:
    """A callback due at an instant; `cancel` makes it never happen."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualClock:
    """Simulated time in whole nanoseconds, and what is due when."""

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns
        self.waiting: dict[str, None] = {}
        self._due: list[tuple[int, int, tuple[Any, ...], int, Event]] = []
        self._counter = itertools.count()
        self._work_outside = 0

    def at(self, when_ns: int, key: tuple[Any, ...], callback: Callable[[], None], priority: int = FIRST) -> Event:
        """Run `callback` at `when_ns`; of one instant, lower priorities first, then lower keys. Raises `EndOfTime`."""
        if when_ns > LAST_NS:
            raise EndOfTime(when_ns, LAST_NS)
        event = Event(callback)
        heapq.heappush(self._due, (max(when_ns, self.now_ns), priority, key, next(self._counter), event))
        return event

    async def offload(self, executor: Executor, work: Callable[..., T], *arguments: Any) -> T:
        """Run `work` on another thread; simulated time stands still until it is done."""
        self._work_outside += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, work, *arguments)
        finally:
            self._work_outside -= 1

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end in simulated time, as `asyncio.run` does in real time."""
        with asyncio.Runner(loop_factory=lambda: _VirtualLoop(self)) as runner:
            return runner.run(main)

    @property
    def is_held(self) -> bool:
        """True while work outside the loop is under way."""
        return self._work_outside > 0

    def jump(self, latest_ns: int | None) -> None:
        """Move to the next event (at most to `latest_ns`) and let it, and it alone, happen."""
        while self._due and self._due[0][-1].callback is None:
            heapq.heappop(self._due)
        next_ns = self._due[0][0] if self._due else None
        if next_ns is None or (latest_ns is not None and latest_ns < next_ns):
            if latest_ns is None:
                raise Deadlock(self.now_ns, list(self.waiting))
            if latest_ns > LAST_NS:
                raise EndOfTime(latest_ns, LAST_NS)
            self.now_ns = latest_ns
            return
        self.now_ns = next_ns
        callback = heapq.heappop(self._due)[-1].callback
        assert callback is not None, "cancelled events were dropped above"
        callback()


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that, instead of sleeping, moves the clock."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._clock.is_held and (timeout is None or timeout > 0):
            return super().select(None)
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            latest = None if timeout is None else self._clock.now_ns + max(1, round(timeout * 1e9))
            self._clock.jump(latest)
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        super().__init__(_JumpingSelector(clock))

    def time(self) -> float:
        return self._clock.now_ns / 1e9


def wall_seconds() -> float:
    """Real seconds, for reporting how long something took; nothing is decided by it."""
    return time.perf_counter()


def cpu_seconds() -> float:
    """CPU seconds of this process, for reporting."""
    return time.process_time()
