"""Events fire in the order of time, priority, key and insertion, also when they add events."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbus.bus.event_queue import FIRST, LAST, LAST_NS, Event, EventQueue


class Script(NamedTuple):
    """An event to add after a delay, and the events that it adds when it fires."""

    after_ns: int
    priority: int
    key: int
    cancelled: bool
    follow_ups: tuple[Script, ...]


flat = st.builds(
    Script, st.integers(-1, 3), st.sampled_from([FIRST, LAST]), st.integers(0, 3), st.booleans(), st.just(())
)
scripts = st.recursive(
    flat,
    lambda inner: st.builds(
        Script,
        st.integers(-1, 3),
        st.sampled_from([FIRST, LAST]),
        st.integers(0, 3),
        st.booleans(),
        st.lists(inner, max_size=3).map(tuple),
    ),
    max_leaves=12,
)


def by_event_queue(plan: list[Script], latest_ns: int | None) -> list[tuple[int, int]]:
    """Run a plan on an `EventQueue`, first up to `latest_ns` if given; return (time, number) of each event that
    fires."""
    queue, log, numbers = EventQueue(), list[tuple[int, int]](), iter(range(10**6))

    def add(each: Script) -> None:
        def happen() -> None:
            log.append((queue.now_ns, number))
            for one in each.follow_ups:
                add(one)

        number, event = next(numbers), Event(happen)
        queue.post(queue.now_ns + each.after_ns, (each.key,), Event.fire, event, each.priority)
        if each.cancelled:
            event.cancel()

    for each in plan:
        add(each)
    if latest_ns is not None:
        while queue.run_events(latest_ns, 2):
            pass
        queue.now_ns = latest_ns
        for each in plan:
            add(each)
    while queue.run_events(None, 64):
        pass
    return log


def by_heap(plan: list[Script], latest_ns: int | None) -> list[tuple[int, int]]:
    """Run the same plan on a single heap of all events."""
    heap, log, numbers, now_ns = (
        list[tuple[int, int, int, int, Script]](),
        list[tuple[int, int]](),
        iter(range(10**6)),
        0,
    )

    def add(each: Script) -> None:
        number = next(numbers)
        heapq.heappush(heap, (max(now_ns, now_ns + each.after_ns), each.priority, each.key, number, each))

    def run(until_ns: int) -> None:
        nonlocal now_ns
        while heap and heap[0][0] <= until_ns:
            due_ns, _, _, number, each = heapq.heappop(heap)
            if not each.cancelled:
                now_ns = due_ns
                log.append((now_ns, number))
                for one in each.follow_ups:
                    add(one)

    for each in plan:
        add(each)
    if latest_ns is not None:
        run(latest_ns)
        now_ns = latest_ns
        for each in plan:
            add(each)
    run(LAST_NS)
    return log


@pytest.mark.slow
@given(st.lists(scripts, max_size=8), st.none() | st.integers(0, 4))
def test_events_fire_in_the_order_of_a_single_heap(plan: list[Script], latest_ns: int | None) -> None:
    assert by_event_queue(plan, latest_ns) == by_heap(plan, latest_ns)


def test_an_event_added_before_the_next_instant_fires_first() -> None:
    queue, log = EventQueue(), list[str]()
    queue.post(9, (), log.append, "late")
    assert not queue.run_events(5, 64) and queue.now_ns == 0
    queue.post(7, (), log.append, "early")
    queue.post(9, (), log.append, "late too")
    assert queue.run_events(None, 64) and log == ["early", "late", "late too"]


def test_no_event_fires_while_work_is_pending_nor_past_the_range_of_the_clock() -> None:
    queue, log = EventQueue(), list[int]()

    def act(number: int) -> None:
        log.append(number)
        queue.has_pending_work |= number == 1

    for number in range(5):
        queue.post(5, (number,), act, number)
    queue.post(LAST_NS + 1, (), act, 9)
    assert queue.run_events(None, 64) and log == [0, 1]
    assert queue.run_events(5, 64) and log == [0, 1, 2]
    assert queue.run_events(None, 64) and log == [0, 1, 2, 3, 4], "what followed once has been done"
    assert not queue.run_events(None, 64)
