"""Time: simulated, or the wall's. Agents and the bus see one interface and cannot tell which it is.

Rules of virtual time, an asyncio loop that jumps to the next event when everybody waits:
- Time is whole nanoseconds. It never passes while anything can run: it jumps, and only when every task waits.
- Events of one instant happen in the order of their keys, never in the order in which they were scheduled.
- One event happens at a time, and the next only when all that follows from it has been done. So whenever an actor
  acts, no other actor has anything left to do: a checkpoint taken then misses nothing.
- While work is under way outside the loop (`offload`, `hold`: another thread, another process), time stands still.
- If everybody waits, nothing is scheduled and nothing is under way, that is a `Deadlock`, raised at once.
- asyncio keeps time in float seconds, exact to a nanosecond below 2²² s (48 days): past that a run is refused.

Wall time passes by itself: nothing holds it, and events happen when they are due or as soon after as can be.
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

UNPOLLED = 64  # events, or turns of the loop, before it looks at sockets again


class Clock(Protocol):
    """What time it is, and what is due when."""

    now_ns: int
    is_virtual: bool
    waiting: dict[str, None]
    """Who waits for a letter."""

    def at(self, when_ns: int, key: tuple[Any, ...], callback: Callable[[], None], priority: int = FIRST) -> Event:
        """Run `callback` at `when_ns`; of one instant, lower priorities first, then lower keys. Raises `EndOfTime`."""
        ...

    def post(self, when_ns: int, key: tuple[Any, ...], callback: Callable[[T], None], subject: T) -> None:
        """As `at`, for what is never cancelled; what would come after the end of time just never does."""
        ...

    def hold(self) -> None:
        """Simulated time stands still until `release`, as often as this was called."""
        ...

    def release(self) -> None: ...

    async def offload(self, executor: Executor, work: Callable[..., T], *arguments: Any) -> T:
        """Run `work` on another thread; simulated time stands still until it is done."""
        ...

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end, as `asyncio.run` does."""
        ...


class VirtualClock(EventQueue):
    """Simulated time in whole nanoseconds, and what is due when."""

    is_virtual = True

    def __init__(self, now_ns: int = 0) -> None:
        super().__init__(now_ns)
        self.waiting: dict[str, None] = {}
        self.is_held = False
        """True while work outside the loop is under way."""
        self._work_outside = 0

    def at(self, when_ns: int, key: tuple[Any, ...], callback: Callable[[], None], priority: int = FIRST) -> Event:
        if when_ns > LAST_NS:
            raise EndOfTime(when_ns, LAST_NS)
        event = Event(callback)
        self.post(when_ns, key, Event.happen, event, priority)
        return event

    def hold(self) -> None:
        self._work_outside += 1
        self.is_held = self.has_pending_work = True

    def release(self) -> None:
        self._work_outside -= 1
        self.is_held = self._work_outside > 0

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
        """Move to the next event (at most to `latest_ns`) and let it happen; and those after it, as long as nothing
        follows from any, for the loop to do."""
        if self.happen(latest_ns, UNPOLLED):
            return
        if latest_ns is None:
            raise Deadlock(self.now_ns, list(self.waiting))
        if latest_ns > LAST_NS:
            raise EndOfTime(latest_ns, LAST_NS)
        self.now_ns = latest_ns


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that, instead of sleeping, moves the clock."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self._unpolled = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        waits = timeout is None or timeout > 0
        if self._clock.is_held and waits:
            return super().select(None)
        self._unpolled += 1
        if not waits and self._unpolled < UNPOLLED:
            return []
        self._unpolled = 0
        ready = super().select(0)
        if not ready and waits:
            latest_ns = None if timeout is None else self._clock.now_ns + max(1, round(timeout * 1e9))
            self._clock.jump(latest_ns)
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that tells its clock when it has something to do; a timer that is new counts, for the selector does not
    know it yet."""

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
    """Real time in whole nanoseconds since the run began; a resumed run's clock goes on where it stopped.

    `now_ns` may be set: what passes from then on is counted from there.
    """

    is_virtual = False

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
        if when_ns > LAST_NS:
            raise EndOfTime(when_ns, LAST_NS)
        event = Event(callback)
        asyncio.get_running_loop().call_later(max(0, when_ns - self.now_ns) / 1e9, event.happen)
        return event

    def post(self, when_ns: int, key: tuple[Any, ...], callback: Callable[[T], None], subject: T) -> None:
        if when_ns <= LAST_NS:
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
    """`main`, ended by the first callback that fails: asyncio would only log it, and the run would wait for ever."""
    failures: list[BaseException] = []
    task = asyncio.ensure_future(main)

    def fail(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        failures.append(context.get("exception") or RuntimeError(context["message"]))
        task.cancel()

    asyncio.get_running_loop().set_exception_handler(fail)
    try:
        return await task
    except asyncio.CancelledError:
        if failures:
            raise failures[0] from None
        raise


def wall_seconds() -> float:
    """Real seconds: for reporting how long something took, and for telling whether a peer lives. No result of a run
    depends on them."""
    return time.perf_counter()


def cpu_seconds() -> float:
    """CPU seconds of this process, for reporting."""
    return time.process_time()
