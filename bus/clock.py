"""Clocks: virtual (simulated) time and wall time behind one interface, which agents and the bus use for both.

Virtual time is an asyncio event loop that jumps to the next event when every task waits. Its rules:
- Time is in integer nanoseconds. It never advances while a task can run: it jumps, and only when every task waits.
- Events of one instant run in the order of their keys, not in the order in which they were scheduled.
- Events run one at a time, each only after all work caused by the one before is done. So whenever an actor acts, no
  other actor has work left, and a checkpoint taken then misses nothing.
- Time stands still while work runs outside the loop, on another thread or in another process (`offload`, `hold`).
- If every task waits, no event is scheduled and no work runs outside the loop, `Deadlock` is raised at once.
- asyncio keeps time in float seconds, exact to a nanosecond below 2²² s (48 days). A run may not go past that.

Wall time cannot be held. Events run when they are due, or as soon as possible after. It is the machine's monotonic
time, which nobody sets; a federation may go on for as long as a checkpoint has room, a century.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, Protocol, TypeVar, TypeVarTuple

from seedbus.bus.errors import Deadlock, EndOfTime
from seedbus.bus.event_queue import FIRST, LAST_NS, Event, EventQueue

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_UNPOLLED = 64  # events, or iterations of the loop, before it polls sockets again


class Clock(Protocol):
    """The current time, and callbacks scheduled for later.

    Attributes:
        now_ns: current time, in nanoseconds since the run began.
        is_virtual: whether time is simulated.
        last_ns: the last instant for which events are scheduled, in nanoseconds.
        waiting: names of the actors that wait for a message; a dictionary serves as an ordered set.
    """

    now_ns: int
    is_virtual: bool
    last_ns: int
    waiting: dict[str, None]

    def at(self, when_ns: int, key: tuple[Any, ...], callback: Callable[[], None], priority: int = FIRST) -> Event:
        """Schedule `callback` for `when_ns`; the event that is returned can be cancelled.

        In virtual time, events of one instant run in the order of priority, then key, lower ones first.

        Raises:
            EndOfTime: `when_ns` is after `last_ns`.
        """
        ...

    def post(self, when_ns: int, key: tuple[Any, ...], callback: Callable[[T], None], subject: T) -> None:
        """Schedule `callback(subject)` for `when_ns`; it cannot be cancelled, and after `last_ns` it never runs."""
        ...

    def hold(self) -> None:
        """Stop simulated time until `release` has been called once for each call of this."""
        ...

    def release(self) -> None:
        """Undo one call of `hold`."""
        ...

    async def offload(self, executor: Executor, work: Callable[..., T], *arguments: Any) -> T:
        """Run `work(*arguments)` on another thread; simulated time stands still until it is done."""
        ...

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, as `asyncio.run` does."""
        ...


class VirtualClock(EventQueue):
    """Simulated time: an event queue, and an event loop that jumps from event to event.

    Attributes:
        is_held: whether time stands still because work runs outside the loop.
    """

    is_virtual = True
    last_ns = LAST_NS

    def __init__(self, now_ns: int = 0) -> None:
        super().__init__(now_ns)
        self.waiting: dict[str, None] = {}
        self.is_held = False
        self._holds = 0

    def at(self, when_ns: int, key: tuple[Any, ...], callback: Callable[[], None], priority: int = FIRST) -> Event:
        if when_ns > LAST_NS:
            raise EndOfTime(when_ns, LAST_NS)
        event = Event(callback)
        self.post(when_ns, key, Event.fire, event, priority)
        return event

    def hold(self) -> None:
        self._holds += 1
        self.is_held = self.has_pending_work = True

    def release(self) -> None:
        self._holds -= 1
        self.is_held = self._holds > 0

    async def offload(self, executor: Executor, work: Callable[..., T], *arguments: Any) -> T:
        self.hold()
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, work, *arguments)
        finally:
            self.release()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=lambda: _VirtualLoop(self)) as runner:
            return runner.run(_guarded(main))

    def jump(self, latest_ns: int | None) -> None:
        """Move to the next event and run it, and the events after it until one causes work for the loop.

        Args:
            latest_ns: when the loop's next timer is due; time moves there if no event comes before. None: no timer.

        Raises:
            Deadlock: there is neither an event nor a timer.
            EndOfTime: the timer is after `LAST_NS`.
        """
        if self.run_events(latest_ns, MAX_UNPOLLED):
            return
        if latest_ns is None:
            raise Deadlock(self.now_ns, list(self.waiting))
        if latest_ns > LAST_NS:
            raise EndOfTime(latest_ns, LAST_NS)
        self.now_ns = latest_ns


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that moves the clock instead of sleeping."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self._unpolled = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        waits = timeout is None or timeout > 0
        if self._clock.is_held and waits:
            return super().select(None)
        self._unpolled += 1
        if not waits and self._unpolled < MAX_UNPOLLED:
            return []
        self._unpolled = 0
        ready = super().select(0)
        if not ready and waits:
            latest_ns = None if timeout is None else self._clock.now_ns + max(1, round(timeout * 1e9))
            self._clock.jump(latest_ns)
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that sets its clock's `has_pending_work` when it has something to do.

    A new timer counts, because the selector's timeout does not include it yet.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        super().__init__(_JumpingSelector(clock))

    def time(self) -> float:
        return self._clock.now_ns / 1e9

    def call_soon(
        self, callback: Callable[[*Ts], object], *arguments: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._clock.has_pending_work = True
        return super().call_soon(callback, *arguments, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *arguments: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._clock.has_pending_work = True
        return super().call_soon_threadsafe(callback, *arguments, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *arguments: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._clock.has_pending_work = True
        return super().call_at(when, callback, *arguments, context=context)


class WallClock:
    """Real time in integer nanoseconds since the run began; in a resumed run it continues where it stopped.

    Attributes:
        now_ns: current time; if it is set, time continues from that value.
    """

    is_virtual = False
    last_ns = 2**62

    def __init__(self) -> None:
        self.waiting: dict[str, None] = {}
        self._offset_ns = -time.monotonic_ns()

    @property
    def now_ns(self) -> int:
        return time.monotonic_ns() + self._offset_ns

    @now_ns.setter
    def now_ns(self, value: int) -> None:
        self._offset_ns = value - time.monotonic_ns()

    def at(self, when_ns: int, key: tuple[Any, ...], callback: Callable[[], None], priority: int = FIRST) -> Event:
        if when_ns > self.last_ns:
            raise EndOfTime(when_ns, self.last_ns)
        event = Event(callback)
        asyncio.get_running_loop().call_later(max(0, when_ns - self.now_ns) / 1e9, event.fire)
        return event

    def post(self, when_ns: int, key: tuple[Any, ...], callback: Callable[[T], None], subject: T) -> None:
        if when_ns <= self.last_ns:
            asyncio.get_running_loop().call_later(max(0, when_ns - self.now_ns) / 1e9, callback, subject)

    def hold(self) -> None:
        pass

    def release(self) -> None:
        pass

    async def offload(self, executor: Executor, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(executor, work, *arguments)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(_guarded(main))


async def _guarded(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` until it ends or a callback fails; asyncio would only log the failure, and the run would hang."""
    failures: list[BaseException] = []
    task = asyncio.ensure_future(main)

    def fail(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        failures.append(context.get("exception") or RuntimeError(context["message"]))
        if not loop.is_closed():  # a task that a second signal has left behind is complained of later
            task.cancel()

    asyncio.get_running_loop().set_exception_handler(fail)
    try:
        return await task
    except asyncio.CancelledError:
        if failures:
            raise failures[0] from None
        raise


def wall_seconds() -> float:
    """Return real time in seconds, for reporting durations and for detecting dead peers; no result depends on it."""
    return time.perf_counter()


def local_time() -> time.struct_time:
    """Return the date and the time of day where this process is, for limits of its user; no result depends on it."""
    return time.localtime()


def calendar_seconds() -> float:
    """Return the seconds since 1970, to be compared with dates of files and of logs; no result depends on it."""
    return time.time()


def cpu_seconds() -> float:
    """Return the CPU time of this process in seconds, for reporting."""
    return time.process_time()
