"""A reader of `Mailbox.read` is called for each message on arrival, and for none after the last one it wants."""

from __future__ import annotations

import asyncio

import pytest

from seedbus.bus import Mailbox, VirtualClock


def test_messages_are_handled_at_the_instant_of_arrival_until_the_last_one() -> None:
    clock, seen = VirtualClock(), list[tuple[int, str]]()
    mailbox = Mailbox("reader", clock)
    mailbox.put("one that waited")

    def act(letter: str) -> bool:
        seen.append((clock.now_ns, letter))
        return letter == "the last"

    async def main() -> tuple[int, object]:
        for due_ns, letter in ((5, "early"), (7, "the last"), (7, "too late")):
            clock.post(due_ns, (due_ns, letter == "too late"), mailbox.put, letter)
        await mailbox.read(act)
        return clock.now_ns, await mailbox.get()

    assert clock.run(main()) == (7, "too late")
    assert seen == [(0, "one that waited"), (5, "early"), (7, "the last")] and not clock.waiting


def test_time_does_not_advance_before_the_reader_finishes() -> None:
    clock, woken = VirtualClock(), list[int]()
    mailbox = Mailbox("reader", clock)

    async def main() -> None:
        for due_ns in (3, 3, 4):
            clock.post(due_ns, (), mailbox.put, due_ns)
        for _ in range(3):
            await mailbox.read(lambda letter: True)
            woken.append(clock.now_ns)

    clock.run(main())
    assert woken == [3, 3, 4]


def test_a_message_that_arrives_while_the_reader_runs_waits_its_turn() -> None:
    clock, log = VirtualClock(), list[str]()
    mailbox = Mailbox("reader", clock)

    def act(letter: int) -> bool:
        log.append(f"begins {letter}")
        if letter < 3:
            mailbox.put(letter + 1)
        log.append(f"ends {letter}")
        return letter == 3

    async def main() -> None:
        clock.post(1, (), mailbox.put, 1)
        await mailbox.read(act)

    clock.run(main())
    assert log == [f"{what} {letter}" for letter in (1, 2, 3) for what in ("begins", "ends")]


@pytest.mark.parametrize("due_ns", [0, 5], ids=["waiting", "arriving"])
def test_an_error_in_the_reader_is_raised_where_it_reads(due_ns: int) -> None:
    clock = VirtualClock()
    mailbox = Mailbox("reader", clock)

    def act(letter: object) -> bool:
        raise ZeroDivisionError(letter)

    async def main() -> None:
        if due_ns:
            clock.post(due_ns, (), mailbox.put, "a letter")
        else:
            mailbox.put("a letter")
        with pytest.raises(ZeroDivisionError, match="a letter"):
            await mailbox.read(act)

    clock.run(main())


def test_a_cancelled_reader_gets_no_message_and_loses_none() -> None:
    clock, seen = VirtualClock(), list[str]()
    mailbox = Mailbox("reader", clock)

    def act(letter: str) -> bool:
        seen.append(letter)
        return False

    async def main() -> object:
        reading = asyncio.create_task(mailbox.read(act))
        await asyncio.sleep(1e-6)
        mailbox.put("read")
        reading.cancel()
        mailbox.put("kept")
        with pytest.raises(asyncio.CancelledError):
            await reading
        return await mailbox.get()

    assert clock.run(main()) == "kept" and seen == ["read"] and not clock.waiting


def test_a_reader_that_is_cancelled_while_it_runs_is_cancelled() -> None:
    clock = VirtualClock()
    mailbox = Mailbox("reader", clock)

    async def main() -> None:
        def act(letter: str) -> bool:
            reading.cancel()
            return True

        reading = asyncio.create_task(mailbox.read(act))
        await asyncio.sleep(1e-6)
        mailbox.put("a letter")
        with pytest.raises(asyncio.CancelledError):
            await reading

    clock.run(main())
