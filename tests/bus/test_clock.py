"""Simulated time: it jumps only when all tasks wait, one event at a time, in an order that no real speed changes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from seedbus.bus import Deadlock, EndOfTime, Mailbox, VirtualClock
from seedbus.bus import clock as clock_module
from seedbus.bus.event_queue import LAST_NS

SECOND = 10**9


def noting(log: list[str], name: str) -> Callable[[], None]:
    return lambda: log.append(name)


async def forever() -> None:
    await asyncio.Event().wait()


def test_a_year_of_sleep_takes_no_real_time_to_speak_of() -> None:
    clock = VirtualClock()
    clock.run(asyncio.sleep(40 * 24 * 3600))
    assert clock.now_ns == 40 * 24 * 3600 * SECOND


def test_time_does_not_pass_while_a_task_can_run() -> None:
    clock, seen = VirtualClock(), set[int]()

    async def busy() -> None:
        clock.at(1, (), lambda: None)
        for _ in range(1000):
            await asyncio.sleep(0)
            seen.add(clock.now_ns)

    clock.run(busy())
    assert seen == {0}


def test_time_jumps_to_the_next_event_and_not_past_it() -> None:
    clock, seen = VirtualClock(), list[int]()

    async def main() -> None:
        for when_ns in (30, 10, 20):
            clock.at(when_ns, (), lambda: seen.append(clock.now_ns))
        await asyncio.sleep(1)

    clock.run(main())
    assert seen == [10, 20, 30] and clock.now_ns == SECOND


def test_an_event_fires_before_a_timer_of_the_same_instant() -> None:
    clock, log = VirtualClock(), list[str]()

    async def main() -> None:
        clock.at(SECOND, (), noting(log, "event"))
        await asyncio.sleep(1)
        log.append("timer")

    clock.run(main())
    assert log == ["event", "timer"]


def test_consequences_of_an_event_finish_before_the_next_event_of_the_same_instant() -> None:
    clock, log = VirtualClock(), list[str]()
    tasks: list[asyncio.Task[None]] = []

    async def aftermath() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        log.append("all that followed from the first")

    def first() -> None:
        log.append("first")
        tasks.append(asyncio.get_running_loop().create_task(aftermath()))

    async def main() -> None:
        clock.at(5, (1,), first)
        clock.at(5, (2,), noting(log, "second"))
        await asyncio.sleep(1)

    clock.run(main())
    assert log == ["first", "all that followed from the first", "second"]


def test_a_callback_from_another_thread_runs_before_the_next_event() -> None:
    clock, log = VirtualClock(), list[str]()

    def first() -> None:  # like a thread's work that ends before anything waits for it
        asyncio.get_running_loop().call_soon_threadsafe(log.append, "asked for")

    async def main() -> None:
        clock.at(5, (1,), first)
        clock.at(5, (2,), noting(log, "next"))
        await asyncio.sleep(1)

    clock.run(main())
    assert log == ["asked for", "next"]


def test_a_timer_that_an_event_sets_comes_before_later_events() -> None:
    clock, log = VirtualClock(), list[str]()

    def first() -> None:
        asyncio.get_running_loop().call_later(10e-9, log.append, "timer")

    async def main() -> None:
        clock.at(5, (), first)
        clock.at(99, (), noting(log, "later"))
        await asyncio.sleep(1)

    clock.run(main())
    assert log == ["timer", "later"]


def test_a_cancelled_event_never_fires_and_does_not_advance_time() -> None:
    clock, log = VirtualClock(), list[str]()

    async def main() -> None:
        clock.at(5, (), noting(log, "cancelled")).cancel()
        clock.at(9, (), noting(log, "kept"))
        await asyncio.sleep(0.000001)

    clock.run(main())
    assert log == ["kept"]
    with pytest.raises(Deadlock, match=r"0\.000 simulated seconds"):
        late = VirtualClock()
        late.at(50 * SECOND, (), lambda: None).cancel()
        late.run(forever())


def test_a_deadlock_names_all_waiting_tasks_and_since_when() -> None:
    clock = VirtualClock()

    async def main() -> None:
        readers = [asyncio.create_task(Mailbox(name, clock).get()) for name in ("the server", "a host of 3 clients")]
        clock.at(2 * SECOND, (), lambda: None)
        await asyncio.gather(*readers)

    with pytest.raises(Deadlock) as caught:
        clock.run(main())
    assert caught.value.waiting == ("the server", "a host of 3 clients") and caught.value.now_ns == 2 * SECOND
    assert str(caught.value) == (
        "nothing can happen any more at 2.000 simulated seconds; waiting: the server; a host of 3 clients"
    )


def test_a_mailbox_that_has_its_message_is_not_listed_as_waiting() -> None:
    clock = VirtualClock()
    served, starved = Mailbox("served", clock), Mailbox("starved", clock)

    async def main() -> None:
        clock.at(5, (), lambda: served.put("a letter"))
        await asyncio.gather(served.get(), starved.get())

    with pytest.raises(Deadlock) as caught:
        clock.run(main())
    assert caught.value.waiting == ("starved",)


def test_time_stands_still_while_another_thread_works() -> None:
    clock, log = VirtualClock(), list[str]()

    def work(number: int) -> tuple[int, int]:
        threading.Event().wait(0.05)  # real time passes that would suffice for any event
        return number, threading.get_ident()

    async def main() -> tuple[int, int]:
        clock.at(1, (), noting(log, "event"))
        sleeper = asyncio.create_task(asyncio.sleep(0.000001))
        with ThreadPoolExecutor(1) as pool:
            done = await clock.offload(pool, work, 42)
        assert clock.now_ns == 0 and log == [] and not sleeper.done()
        await sleeper
        return done

    number, thread = clock.run(main())
    assert number == 42 and thread != threading.get_ident()
    assert log == ["event"] and clock.now_ns == 1000


def test_other_tasks_run_while_another_thread_works() -> None:
    clock, go = VirtualClock(), threading.Event()

    async def main() -> bool:
        asyncio.get_running_loop().call_soon(go.set)
        with ThreadPoolExecutor(1) as pool:
            return await clock.offload(pool, go.wait, 5.0)

    assert clock.run(main()), "the work waited for something that only the loop could do"


def test_events_near_the_end_of_the_clocks_range_are_exact_to_the_nanosecond() -> None:
    clock, seen = VirtualClock(LAST_NS - SECOND), list[int]()
    due = [LAST_NS - SECOND + offset for offset in (1, 2, 3, 1000, 10**6 + 1, 10**9 - 1, 10**9)]

    async def main() -> None:
        over = asyncio.Event()
        for when_ns in reversed(due):
            clock.at(when_ns, (1,), lambda: seen.append(clock.now_ns))
        clock.at(due[-1], (2,), over.set)
        await over.wait()

    clock.run(main())
    assert seen == due


@pytest.mark.parametrize("start_s", [0, 1, 3600, 2**21, 2**22 - 2])
def test_sleep_is_exact_to_a_nanosecond_wherever_it_starts(start_s: int) -> None:
    clock, errors = VirtualClock(start_s * SECOND), list[int]()

    async def main() -> None:
        for delay_ns in (1_000, 123_457, 999_999_999):
            began_ns = clock.now_ns
            await asyncio.sleep(delay_ns / 1e9)
            errors.append(abs(clock.now_ns - began_ns - delay_ns))

    clock.run(main())
    assert max(errors) <= 1


def test_a_run_past_the_range_of_the_clock_is_refused() -> None:
    clock = VirtualClock()
    clock.at(LAST_NS, (), lambda: None)
    with pytest.raises(EndOfTime, match=r"time would reach 4,194,305 s; it ends at 4,194,304 s"):
        clock.at(LAST_NS + SECOND, (), lambda: None)
    with pytest.raises(EndOfTime):
        VirtualClock().run(asyncio.sleep(2**23))
    late = VirtualClock(LAST_NS - SECOND)
    late.run(asyncio.sleep(1))
    assert late.now_ns == LAST_NS


def test_a_timeout_passes_in_simulated_time() -> None:
    clock = VirtualClock()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await forever()
        async with asyncio.timeout(600):
            await asyncio.sleep(599)

    clock.run(main())
    assert clock.now_ns == 1199 * SECOND


def test_a_message_survives_the_timeout_of_its_reader() -> None:
    clock = VirtualClock()
    mailbox = Mailbox("reader", clock)

    async def main() -> object:
        clock.at(SECOND, (), lambda: mailbox.put("a letter"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await mailbox.get()
                await forever()
        mailbox.put("another")
        async with asyncio.timeout(1):
            return await mailbox.get()

    assert clock.run(main()) == "another"


def test_a_complaint_that_comes_after_the_loop_is_closed_is_no_error() -> None:
    """As when a second signal ends a run that is just stopping: its tasks are left behind."""
    loop = asyncio.new_event_loop()
    left = loop.create_task(clock_module._guarded(forever()))
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    complain = loop.get_exception_handler()
    assert complain is not None and not left.done()
    loop.close()
    complain(loop, {"message": "Task was destroyed but it is pending!"})
