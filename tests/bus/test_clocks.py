"""Simulated time that is held for work outside the loop, real time that cannot be held, and the contract of both."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from seedbus.bus import Clock, Deadlock, EndOfTime, VirtualClock, WallClock

MS = 10**6
SECOND = 10**9
CLOCKS: list[Callable[[], Clock]] = [VirtualClock, WallClock]
both = pytest.mark.parametrize("make", CLOCKS)


async def forever() -> None:
    await asyncio.Event().wait()


def from_outside(clock: Clock, work: Callable[[], None], after_s: float = 0.02) -> None:
    """Hold the clock, and run a callback on the loop when another thread asks for it."""
    loop = asyncio.get_running_loop()
    clock.hold()
    threading.Timer(after_s, loop.call_soon_threadsafe, (work,)).start()


def test_simulated_time_stands_still_while_it_is_held() -> None:
    clock, log = VirtualClock(), list[tuple[str, int]]()

    def noting(name: str) -> Callable[[], None]:
        return lambda: log.append((name, clock.now_ns))

    def answer() -> None:
        noting("answer")()
        clock.release()

    async def main() -> None:
        clock.at(5, (1,), lambda: from_outside(clock, answer))
        clock.at(5, (2,), noting("another event of that instant"))
        clock.at(6, (), noting("a later event"))
        await asyncio.sleep(1)

    clock.run(main())
    assert log == [("answer", 5), ("another event of that instant", 5), ("a later event", 6)]
    assert clock.now_ns == SECOND and not clock.is_held


def test_time_that_is_held_twice_has_to_be_released_twice() -> None:
    clock, log = VirtualClock(), list[str]()

    def answer() -> None:
        log.append("answer")
        clock.release()

    async def main() -> None:
        clock.at(1, (), lambda: log.append("event"))
        for after_s in (0.01, 0.03):
            from_outside(clock, answer, after_s)
        await asyncio.sleep(1)

    clock.run(main())
    assert log == ["answer", "answer", "event"]


def test_tasks_run_while_time_is_held() -> None:
    clock, seen = VirtualClock(), list[int]()

    async def main() -> None:
        clock.hold()
        for _ in range(100):
            await asyncio.sleep(0)
            seen.append(clock.now_ns)
        clock.release()
        await asyncio.sleep(1)

    clock.run(main())
    assert seen == [0] * 100 and clock.now_ns == SECOND


def test_waiting_is_no_deadlock_while_time_is_held() -> None:
    clock = VirtualClock()

    async def main() -> str:
        answered = asyncio.Event()
        from_outside(clock, answered.set)
        await answered.wait()  # nothing is scheduled: without the hold this is a deadlock
        clock.release()
        return "answered"

    assert clock.run(main()) == "answered"
    with pytest.raises(Deadlock):
        clock.run(forever())


def test_real_events_fire_in_order_and_not_before_they_are_due() -> None:
    clock, seen = WallClock(), list[tuple[int, int]]()

    async def main() -> None:
        over = asyncio.Event()
        for due_ns in (30 * MS, 10 * MS, 20 * MS):
            clock.at(due_ns, (), lambda due_ns=due_ns: seen.append((due_ns, clock.now_ns)))  # type: ignore[misc]
        clock.at(31 * MS, (), over.set)
        await over.wait()

    clock.now_ns = 0
    clock.run(main())
    assert [due_ns for due_ns, _ in seen] == [10 * MS, 20 * MS, 30 * MS]
    assert all(due_ns - 1000 <= at_ns for due_ns, at_ns in seen), "asyncio's own clock may be a microsecond off"


def test_a_past_real_event_fires_at_once_and_a_cancelled_one_never() -> None:
    clock, log = WallClock(), list[str]()

    async def main() -> None:
        clock.now_ns = 50 * SECOND
        clock.at(7, (), lambda: log.append("past"))
        clock.at(7, (), lambda: log.append("cancelled")).cancel()
        await asyncio.sleep(0.005)

    clock.run(main())
    assert log == ["past"]


@pytest.mark.parametrize("start_ns", [0, 17, 3600 * SECOND, 2**52])
def test_real_time_goes_on_from_where_it_is_set(start_ns: int) -> None:
    clock = WallClock()
    clock.now_ns = start_ns
    began_ns = clock.now_ns
    time.sleep(0.01)
    assert start_ns <= began_ns <= clock.now_ns - 10 * MS
    assert clock.now_ns < start_ns + 60 * SECOND


def test_a_new_real_clock_starts_at_zero_and_never_goes_back() -> None:
    clock = WallClock()
    readings = [clock.now_ns for _ in range(1000)]
    assert 0 <= readings[0] < SECOND and readings == sorted(readings)
    assert readings[-1] > readings[0]


def test_an_event_is_due_by_the_clock_that_was_set_and_not_by_the_one_before() -> None:
    clock, seen = WallClock(), list[int]()

    async def main() -> None:
        clock.now_ns = 1000 * SECOND  # a run that is resumed
        clock.at(1000 * SECOND + 10 * MS, (), lambda: seen.append(clock.now_ns))
        await asyncio.sleep(0.1)

    clock.run(main())
    assert len(seen) == 1 and 1000 * SECOND + 9 * MS < seen[0] < 1060 * SECOND


def test_nothing_holds_real_time() -> None:
    clock, seen = WallClock(), list[int]()

    async def main() -> None:
        clock.hold()
        clock.at(0, (), lambda: seen.append(clock.now_ns))
        await asyncio.sleep(0.01)

    clock.run(main())
    assert len(seen) == 1 and clock.now_ns >= 9 * MS


@both
def test_an_event_past_the_range_of_the_clock_is_refused(make: Callable[[], Clock]) -> None:
    clock = make()

    async def main() -> None:
        with pytest.raises(EndOfTime, match=r"time would reach [0-9,]+ s; it ends at"):
            clock.at(clock.last_ns + SECOND, (), lambda: None)
        clock.at(clock.last_ns, (), lambda: None)

    clock.run(main())


@both
def test_what_is_posted_runs_when_it_is_due_and_never_after_the_end_of_time(make: Callable[[], Clock]) -> None:
    clock, seen = make(), list[tuple[int, int]]()
    last_ns = clock.last_ns

    async def main() -> None:
        over = asyncio.Event()

        def posted(due_ns: int) -> None:
            seen.append((due_ns, clock.now_ns))
            if due_ns == last_ns:
                over.set()

        clock.now_ns = last_ns - 40 * MS
        for due_ns in (last_ns + 1, last_ns, last_ns - 20 * MS, 7):
            clock.post(due_ns, (), posted, due_ns)
        await over.wait()
        for _ in range(9):
            await asyncio.sleep(0)

    clock.run(main())
    assert [due_ns for due_ns, _ in seen] == [7, last_ns - 20 * MS, last_ns]
    assert all(due_ns - 1000 <= at_ns for due_ns, at_ns in seen), "asyncio's own clock may be a microsecond off"


@both
def test_work_on_another_thread_gives_its_result_or_its_error(make: Callable[[], Clock]) -> None:
    clock = make()

    async def main() -> tuple[int, int]:
        with ThreadPoolExecutor(1) as pool:
            with pytest.raises(ZeroDivisionError):
                await clock.offload(pool, divmod, 1, 0)
            return await clock.offload(pool, divmod, 17, 5)

    assert clock.run(main()) == (3, 2)


@both
@pytest.mark.parametrize("how", ["event", "callback", "task", "another thread", "complaint"])
def test_any_failure_ends_the_run_and_is_raised(make: Callable[[], Clock], how: str) -> None:
    clock, tidied = make(), list[bool]()

    def broken() -> None:
        raise ZeroDivisionError("it fails")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        if how == "event":
            clock.at(MS, (), broken)
        elif how == "callback":
            loop.call_soon(broken)
        elif how == "another thread":
            from_outside(clock, broken)
        elif how == "complaint":
            loop.call_exception_handler({"message": "it fails, as asyncio says without an exception"})
        try:
            if how == "task":
                broken()
            await forever()
        finally:
            tidied.append(True)

    with pytest.raises(RuntimeError if how == "complaint" else ZeroDivisionError, match=r"^it fails"):
        clock.run(main())
    assert tidied == [True], "whoever runs gets to put things in order"


@both
def test_a_run_that_is_cancelled_from_within_raises_only_the_cancellation(make: Callable[[], Clock]) -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        await forever()

    with pytest.raises(asyncio.CancelledError):
        make().run(main())


@both
def test_a_clock_can_be_run_more_than_once(make: Callable[[], Clock]) -> None:
    clock = make()
    clock.run(asyncio.sleep(0.01))
    between_ns = clock.now_ns
    clock.run(asyncio.sleep(0.01))
    assert 9 * MS <= between_ns <= clock.now_ns - 9 * MS
