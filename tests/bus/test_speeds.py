"""Links whose speed changes while a message passes, computed by hand, and against small steps of time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgpack
import pytest
from bus_harness import MS, Harness, plan, report
from hypothesis import given
from hypothesis import strategies as st

from seedbus.bus import KeyedRandom, Network, Speeds
from seedbus.bus.errors import Unusable
from seedbus.bus.event_queue import LAST_NS
from seedbus.bus.speeds import passed_ns
from seedbus.scenarios.faults.bandwidth import Bandwidth

KILOBIT = 125
BIT_MS = 117  # the size of a payload whose whole frame has a thousand bits, 1 ms at 1 Mbit/s
INF = math.inf


class Changing:
    """A fault that gives each link in a mapping its speeds."""

    def __init__(self, links: Mapping[tuple[int, bool], Speeds]) -> None:
        self.links = links

    def speeds(self, clients: int, random: KeyedRandom) -> Mapping[tuple[int, bool], Speeds]:
        return self.links


@pytest.mark.parametrize(
    ("changes", "period_ms", "begins_ms", "passed_ms"),
    [
        ([(0, 1)], None, 5, 6),
        ([(3, 1)], None, 0, 0),  # no limit before the first change
        ([(0, 0.5), (1, 2)], None, 0, 1.25),  # half of it in the first millisecond
        ([(0, 0), (4, 1)], None, 1, 5),  # it waits for a link
        ([(0, 0.25), (1, 0), (2, 0.25), (3, 0), (9, 0.5)], None, 0, 10),
        ([(0, 0.25), (1, 0)], 2, 0, 7),  # a quarter in each period of 2 ms
        ([(0, 0.25), (1, 0)], 2, 1000.5, 1008.5),
        ([(1, 0.5), (3, 0.25)], 4, 0, 2.5),  # before the first change the last of the period before holds
        ([(0, 1), (2, INF)], None, 1.5, 2),
    ],
)
def test_a_message_passes_as_fast_as_its_link_at_any_time(
    changes: list[tuple[int, float]], period_ms: int | None, begins_ms: float, passed_ms: float
) -> None:
    speeds = Speeds([(when * MS, mbps) for when, mbps in changes], period_ms and period_ms * MS)
    assert passed_ns(KILOBIT, round(begins_ms * MS), INF, speeds) == round(passed_ms * MS)


@pytest.mark.parametrize("changing", [None, Speeds([(0, 3.0)]), Speeds([(0, 0.0), (MS, 3.0)], 9 * MS)])
def test_a_message_has_passed_when_its_last_bit_has(changing: Speeds | None) -> None:
    """A byte at 3 Mbit/s takes 2,666⅔ ns."""
    assert passed_ns(1, 2 * MS, 3.0, changing) == 2 * MS + 2667


def test_an_empty_frame_passes_a_link_that_is_down() -> None:
    """A malicious client may send one at any time."""
    assert passed_ns(0, MS, INF, Speeds([(0, 1.0), (MS, 0.0), (2 * MS, 1.0)])) == MS


class Counted(Speeds):
    """Speeds that are asked a few times for a message, however long it lasts."""

    asked = 0

    def at(self, now_ns: int) -> tuple[float, float]:
        self.asked += 1
        assert self.asked <= 8
        return super().at(now_ns)


def test_a_message_that_lasts_for_millions_of_periods_costs_no_more_than_one_that_lasts_for_two() -> None:
    speeds = Counted([(0, 0.0), (MS, 1e-6)], 2 * MS)
    assert passed_ns(10**9 * KILOBIT, MS // 2, INF, speeds) == 2 * 10**15 * MS


STEPS = st.lists(st.sampled_from([0, 16, 32, 64, 128, 256, INF]), min_size=1, max_size=6)


@pytest.mark.slow
@given(
    st.lists(st.integers(1, 9), min_size=6, max_size=6), STEPS, st.booleans(), st.integers(0, 99), st.integers(0, 9),
    st.sampled_from([16, 64, INF]),
)  # fmt: skip
def test_it_is_what_steps_of_a_nanosecond_give(
    gaps: list[int], mbps: list[float], again: bool, begins: int, size: int, limit: float
) -> None:
    times = [sum(gaps[:number]) for number in range(len(mbps))]
    period = sum(gaps) if again else None
    if not (any(mbps) if again else mbps[-1]):
        mbps[-1] = 1
    speeds = Speeds([*zip(times, mbps, strict=True)], period)
    left, now = size * 8000.0, begins
    while left > 0 and now < begins + 10**6:
        at = now % period if period else now
        speed = min(limit, next((mbps[n] for n in reversed(range(len(mbps))) if times[n] <= at), INF))
        if speed == INF:
            break
        left, now = left - speed, now + 1
    if now < begins + 10**6:
        assert passed_ns(size, begins, limit, speeds) == now


@pytest.mark.parametrize(
    ("changes", "period_ns", "sentence"),
    [
        ([], None, "times of a link's speeds are"),
        ([(5, 1.0), (5, 2.0)], None, "expected ascending nanoseconds from 0"),
        ([(-1, 1.0)], None, "expected ascending nanoseconds from 0"),
        ([(0, 1.0), (5, 2.0)], 5, "expected ascending nanoseconds from 0"),
        ([(0, 1e-9)], None, "a link's speed is 1e-09; expected 0, or at least 1e-06 Mbit/s"),
        ([(0, math.nan)], None, "a link's speed is nan"),
        ([(0, -1.0)], None, "a link's speed is -1.0"),
        ([(0, 1.0), (5, 0.0)], None, "a link's last speed is 0; expected more, since messages would never arrive"),
        ([(0, 0.0), (5, 0.0)], 9, "a link's highest speed is 0"),
    ],
)
def test_speeds_that_no_link_has_are_refused(changes: Any, period_ns: int | None, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Speeds(changes, period_ns)


def test_messages_queue_on_a_link_that_changes_and_other_limits_hold_too() -> None:
    changing = Changing({(0, True): Speeds([(0, 1.0), (2 * MS, 0.0), (4 * MS, 2.0)]), (1, False): Speeds([(0, 4.0)])})
    harness = Harness(Network(up_mbps=1), [changing, Bandwidth(up_mbps=0.5, clients=[0])])
    messages = [report(0, round, size=BIT_MS) for round in range(2)]
    for each in (*messages, plan(0, size=BIT_MS), plan(1, size=BIT_MS), report(1, size=BIT_MS)):
        harness.send(each, 0)
    harness.run()
    # the first report takes 2 ms at 0.5 Mbit/s; the second waits until 4 ms, and takes 2 more
    assert harness.arrivals_ns == [0, MS // 4, MS, 2 * MS, 6 * MS]
    # alone it delays only the second report, which the link's own 1 Mbit/s would end at 3 ms
    counts = harness.bus.rules.counts()
    assert counts[0] == {"throttled": 2, "throttled_s": 0.00225} and counts[1] == {"throttled": 2, "throttled_s": 0.002}


def test_a_later_message_does_not_overtake_one_that_a_slow_link_still_sends() -> None:
    harness = Harness(rules=[Changing({(0, True): Speeds([(0, 0.5), (MS, INF)])})])
    harness.bus.send(report(0, 0, size=BIT_MS))
    harness.run(MS // 2)
    harness.bus.send(report(0, 1, size=BIT_MS))
    harness.run()
    assert harness.arrivals_ns == [MS, MS]


def test_two_faults_that_change_one_link_are_refused() -> None:
    faults = [Changing({(0, True): Speeds([(0, 1.0)])}) for _ in range(2)]
    with pytest.raises(Unusable, match="changes the uplink of client 0, as another does; expected one such fault"):
        Harness(rules=faults)


def test_a_message_that_passes_after_the_end_of_time_is_under_way_in_a_checkpoint() -> None:
    harness = Harness(rules=[Changing({(0, True): Speeds([(0, 0.0), (10**30, 1.0)])})])
    for round in range(2):
        harness.bus.send(report(0, round, size=BIT_MS))
    harness.run(MS)
    now_ns, busy, in_flight, *_ = msgpack.unpackb(msgpack.packb(harness.bus.checkpoint()))
    assert (now_ns, busy, len(in_flight)) == (MS, [[0, True, LAST_NS + 1]], 2)
    assert harness.arrivals_ns == []
