"""Faults of messages, one at a time: computed by hand, on a bus whose actors record what they receive."""

from __future__ import annotations

import itertools
import math
from typing import Any

import msgpack
import pytest
from bus_harness import MS, SECOND, Copy, Flip, Harness, Hold, Lose, plan, report, reported
from hypothesis import given
from hypothesis import strategies as st

from seedbus.bus import PASS, Fate, FaultHooks, Kind, MemoryTransport, Network, Passage, Verdict, encode
from seedbus.bus.envelope import NO_TALLY
from seedbus.bus.errors import Unusable
from seedbus.bus.event_queue import LAST_NS
from seedbus.bus.in_flight import InFlightMessage, MessageState
from seedbus.bus.network import Constant, Lognormal, Uniform
from seedbus.bus.records import record
from seedbus.scenarios.faults.corrupt import Corrupt
from seedbus.scenarios.faults.delay import Delay
from seedbus.scenarios.faults.drop import Drop
from seedbus.scenarios.faults.duplicate import Duplicate
from seedbus.scenarios.faults.partition import Partition
from seedbus.scenarios.faults.reorder import Reorder

JITTER = Network(latency=Lognormal(median=0.02, sigma=1.0))
TENTH = Network(latency=Constant(value=0.1))
BIT_MS = 117  # payload size of a frame that takes 1 ms at 1 Mbit/s


def counts(harness: Harness) -> list[dict[str, float]]:
    return harness.bus.rules.counts()


# -- duplicate


def test_a_copy_has_its_own_row_and_latency_and_changes_nothing_of_the_message() -> None:
    alone, copied = Harness(JITTER, seed=4), Harness(JITTER, [Duplicate(copies=3)], seed=4)
    for harness in (alone, copied):
        harness.bus.send(report(2, 7))
        harness.bus.send(report(2, 7))  # a retry is another occurrence, not a copy
        harness.run()
    assert len(copied.rows) == 8 == len(set(copied.arrivals_ns)) and copied.fates == [Fate.DELIVERED] * 8
    assert set(alone.arrivals_ns) < set(copied.arrivals_ns)
    assert {row.header_bytes + row.payload_bytes for row in copied.rows} == {len(encode(report(2, 7))[0])}
    assert counts(copied) == [{"duplicated": 6}]


def test_copies_add_up_and_are_not_copied_again() -> None:
    harness = Harness(rules=[Duplicate(copies=2), Copy(3)])
    harness.bus.send(plan())
    harness.run()
    assert len(harness.receipts) == 1 + 2 + 3
    assert counts(harness) == [{"duplicated": 2}, {"duplicated": 3}]


def test_every_copy_occupies_its_link() -> None:
    harness = Harness(Network(up_mbps=1), [Duplicate(copies=2)])
    harness.bus.send(report(size=BIT_MS))
    harness.run()
    assert harness.arrivals_ns == [MS, 2 * MS, 3 * MS]


def test_every_copy_is_lost_delayed_and_damaged_independently() -> None:
    rules = [Duplicate(copies=999), Drop(probability=0.5), Reorder(window_s=1.0), Corrupt(probability=0.2)]
    harness = Harness(rules=rules, seed=2)
    harness.bus.send(plan())
    harness.run()
    fates = {fate: harness.fates.count(fate) for fate in set(harness.fates)}
    assert sum(fates.values()) == 1000
    assert fates[Fate.DROPPED] == pytest.approx(500, abs=60) and fates[Fate.REFUSED] == pytest.approx(100, abs=40)
    assert len(set(harness.arrivals_ns)) == fates[Fate.DELIVERED] == len(harness.receipts)


@pytest.mark.parametrize(("make", "framing"), [(plan, [7, 7, 7]), (report, [7, 0, 0])])
def test_the_wire_carries_every_downward_copy_and_each_upward_message_once(make: Any, framing: list[int]) -> None:
    class Framed(MemoryTransport):
        is_wire = True

        def framing_bytes(self, size: int) -> int:
            return 7

    harness = Harness(rules=[Duplicate(copies=2)], transport=Framed)
    harness.bus.send(make())
    harness.run()
    assert [row.framing_bytes for row in harness.rows] == framing


def test_a_client_asked_twice_answers_twice() -> None:
    harness = Harness(rules=[Duplicate(kind="plan")], answers=reported)
    harness.bus.send(plan(1, 5))
    harness.run(SECOND)
    assert [row.kind for row in harness.rows] == [Kind.PLAN, Kind.PLAN, Kind.REPORT, Kind.REPORT]


# -- corrupt


@pytest.mark.parametrize("bits", [1, 2, 50])
def test_a_damaged_message_arrives_and_is_discarded_whatever_its_content(bits: int) -> None:
    harness = Harness(TENTH, [Corrupt(bits=bits, kind="report")], answers=reported, seed=bits)
    for client in range(4):
        harness.bus.send(plan(client, size=200))
    harness.run()
    reports = [row for row in harness.rows if row.kind == Kind.REPORT]
    assert [(row.fate, row.arrived_ns) for row in reports] == [(Fate.REFUSED, 200 * MS)] * 4
    assert harness.receipts == [] and counts(harness) == [{"corrupted": 4}]


def test_a_damaged_plan_reaches_no_client_and_advances_no_version() -> None:
    harness = Harness(rules=[Corrupt()], answers=reported)
    harness.bus.send(plan(1, 1, base=4))
    harness.run(SECOND)
    assert harness.fates == [Fate.REFUSED] and harness.asked == [] and harness.positions.actual == {}


def test_a_bit_that_flips_twice_is_unchanged() -> None:
    once, twice = (Harness(rules=[Flip(place=0.5)] * times) for times in (1, 2))
    for harness in (once, twice):
        harness.bus.send(plan())
        harness.run()
    assert (once.fates, twice.fates) == ([Fate.REFUSED], [Fate.DELIVERED])


@given(st.binary(max_size=60), st.integers(0, 60), st.lists(st.floats(0, 1, exclude_max=True), max_size=9))
def test_flips_of_a_message_cancel_in_any_order_and_wherever_its_shared_end_begins(
    content: bytes, end: int, places: list[float]
) -> None:
    envelope = plan()

    def flight(end: int) -> InFlightMessage:
        frame, tail = content[:end], content[end:]
        return InFlightMessage(0, (Kind.PLAN, 0, 0, 0, 0), 0, 0, NO_TALLY, frame, envelope=envelope, tail=tail)

    whole, one, another, reversed_order = flight(60), flight(end), flight(end).copied(0), flight(end)
    assert one.row(Fate.DELIVERED, 0, 0) == another.row(Fate.DELIVERED, 0, 0) == whole.row(Fate.DELIVERED, 0, 0)
    one.flip(places)
    another.flip(places[::-1])
    reversed_order.flip(places * 2)
    whole.flip(places)
    assert one.full_frame == another.full_frame == whole.full_frame and len(one.full_frame) == len(content)
    assert one.is_damaged == (one.full_frame != content) == (one.envelope is None)
    assert (reversed_order.full_frame, reversed_order.is_damaged) == (content, False)
    assert reversed_order.envelope is envelope and InFlightMessage.unpack(one.pack()).full_frame == one.full_frame


# -- reorder


def test_messages_overtake_each_other_within_the_window_and_not_beyond() -> None:
    harness = Harness(TENTH, [Reorder(window_s=0.5)], seed=1)
    for round in range(50):
        harness.bus.send(plan(0, round))
    harness.run()
    rounds = [receipt.content.round for receipt in harness.receipts if not isinstance(receipt.content, Exception)]
    assert rounds != sorted(rounds) == list(range(50))
    assert 100 * MS < min(harness.arrivals_ns) < 200 * MS and 500 * MS < max(harness.arrivals_ns) < 600 * MS


@pytest.mark.parametrize("fault", [Reorder, Delay])
def test_how_long_a_message_is_held_does_not_depend_on_the_draw_that_selects_it(fault: Any) -> None:
    how = {"window_s": 1.0} if fault is Reorder else {"by": Uniform(low=0.0, high=1.0)}
    rules = FaultHooks([fault(probability=0.2, **how)], 3)
    held = [delay_ns for n in range(2000) if (delay_ns := rules.judge((Kind.PLAN, 1, n, 0, 0), 0).delay_ns)]
    assert len(held) == pytest.approx(400, abs=80)
    assert sum(held) / len(held) == pytest.approx(SECOND / 2, rel=0.15) and max(held) > 0.9 * SECOND


# -- partition


def sent_at(harness: Harness, *seconds: float) -> list[float]:
    """Send a plan to client 0 at each of these seconds; return the times whose message arrives."""
    for second in seconds:
        harness.send_at(round(second * SECOND), plan(0, 3))
    harness.run()
    return [arrival / SECOND - 0.1 for arrival in harness.arrivals_ns]


def test_a_partition_cuts_messages_sent_and_in_flight_and_heals() -> None:
    harness = Harness(TENTH, [Partition(at_s=1.0, for_s=1.0)])
    arrivals = sent_at(harness, 0.5, 0.85, 0.95, 1.0, 1.5, 1.95, 1.999, 2.0, 5.0)
    assert arrivals == pytest.approx([0.5, 0.85, 2.0, 5.0])
    assert counts(harness) == [{"dropped": 5}] and harness.fates.count(Fate.DROPPED) == 5


def test_a_partition_repeats() -> None:
    harness = Harness(TENTH, [Partition(at_s=1.0, for_s=0.5, every_s=2.0)])
    assert sent_at(harness, 0.7, 1.2, 2.0, 3.2, 4.0, 5.2) == pytest.approx([0.7, 2.0, 4.0])


@pytest.mark.parametrize(("direction", "arrive"), [("up", [plan]), ("down", [report]), ("both", [])])
def test_a_partition_may_be_one_sided(direction: Any, arrive: list[Any]) -> None:
    harness = Harness(TENTH, [Partition(direction=direction, clients=[2])])
    for make in (plan, report):
        for client in (1, 2):
            harness.bus.send(make(client))
    harness.run()
    assert {row.kind for row in harness.rows if row.fate == Fate.DELIVERED and 2 in (row.sender, row.recipient)} == {
        make().kind for make in arrive
    }
    assert sum(row.fate == Fate.DELIVERED for row in harness.rows) == 2 + len(arrive)


def test_a_partition_of_rounds_and_seconds_needs_both() -> None:
    harness = Harness(TENTH, [Partition(at_round=3, for_rounds=1, at_s=1.0)])
    harness.send_at(SECOND * 2, plan(0, 2))
    assert sent_at(harness, 0.5, 2.0) == pytest.approx([0.5, 2.0])
    assert [row.round for row in harness.rows if row.fate == Fate.DROPPED] == [3]


def test_a_client_is_permanently_behind_the_cut_or_not() -> None:
    harness = Harness(rules=[Partition(probability=0.5)], clients=200, seed=6)
    for client, round in itertools.product(range(200), range(3)):
        harness.bus.send(plan(client, round))
    harness.run()
    lost = [row.recipient for row in harness.rows if row.fate == Fate.DROPPED]
    assert {lost.count(client) for client in range(200)} == {0, 3}
    assert len(set(lost)) == pytest.approx(100, abs=30)


# -- which messages


def test_a_fault_limited_in_seconds_applies_by_the_time_of_sending() -> None:
    harness = Harness(TENTH, [Drop(at_s=1.0, for_s=1.0)])
    assert sent_at(harness, 0.95, 1.0, 1.99, 2.0) == pytest.approx([0.95, 2.0])


def test_a_fault_of_one_kind_affects_no_other_kind() -> None:
    struck = {}
    for kind in (Kind.PLAN, Kind.REPORT, Kind.JOIN):
        rules = FaultHooks([Drop(kind=kind.name.lower())], 0)
        struck[kind] = [each for each in Kind if rules.judge((each, 1, 0, 0, 0), 0).drop]
    assert struck == {Kind.PLAN: [Kind.PLAN], Kind.REPORT: [Kind.REPORT], Kind.JOIN: [Kind.JOIN]}


def test_a_window_as_long_as_its_period_stays_open() -> None:
    rules = FaultHooks([Drop(at_round=2, for_rounds=3, every_rounds=3, at_s=1.0, for_s=0.5, every_s=0.5)], 0)
    struck = [(n, s) for n in range(9) for s in range(5) if rules.judge((Kind.PLAN, 1, n, 0, 0), s * SECOND // 2).drop]
    assert struck == [(n, s) for n in range(2, 9) for s in range(2, 5)]


# -- together

verdicts = st.builds(
    Verdict,
    delay_ns=st.integers(0, 9),
    drop=st.booleans(),
    copies=st.integers(0, 3),
    flips=st.lists(st.sampled_from([0.1, 0.5, 0.9]), max_size=2).map(tuple),
)


class Fixed:
    """A rule with the same verdict for every message, on sending."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    def judge(self, passage: Passage) -> Verdict:
        return PASS if passage.arriving else self.verdict


@given(st.lists(verdicts, min_size=1, max_size=4), st.data())
def test_verdicts_combine_independently_of_order(parts: list[Verdict], data: st.DataObject) -> None:
    order = data.draw(st.permutations(parts))
    one, another = (FaultHooks([Fixed(part) for part in each], 0) for each in (parts, order))
    verdict = one.judge((Kind.PLAN, 1, 0, 0, 0), 0)
    assert verdict == another.judge((Kind.PLAN, 1, 0, 0, 0), 0)
    assert verdict.delay_ns == sum(part.delay_ns for part in parts)
    assert verdict.drop == any(part.drop for part in parts)
    assert verdict.copies == sum(part.copies for part in parts)
    assert verdict.flips == tuple(sorted(place for part in parts for place in part.flips))


def test_a_verdict_on_arrival_can_only_drop() -> None:
    late = Verdict(delay_ns=5, copies=2, flips=(0.5,))

    class OnArrival:
        def judge(self, passage: Passage) -> Verdict:
            return late if passage.arriving else PASS

    harness = Harness(rules=[OnArrival()])
    harness.bus.send(plan())
    harness.run()
    assert harness.fates == [Fate.DELIVERED] and harness.arrivals_ns == [0] and counts(harness) == [{}]


def test_effects_of_each_fault_are_counted_by_its_place_in_the_scenario() -> None:
    harness = Harness(rules=[Lose(0.0), Hold(3 * MS), Lose(), Drop(clients=[1])])
    for client in (0, 1):
        harness.bus.send(plan(client))
    harness.run()
    assert counts(harness) == [{}, {"delayed": 2, "delayed_s": 0.006}, {"dropped": 2}, {"dropped": 1}]


def test_a_sum_of_delays_has_room_in_a_checkpoint_however_many_there_are() -> None:
    harness = Harness(rules=[Hold(LAST_NS)])
    (fault,) = harness.bus.rules.faults
    fault.counts["delayed_ns"] = 2**63 - LAST_NS  # as after 2,200 such messages
    for client in range(2):
        harness.bus.send(plan(client))
    assert harness.bus.rules.checkpoint() == [[("delayed", 2), ("delayed_ns", 2**63 - 1)]]


def test_a_message_that_is_delayed_for_ever_has_room_in_a_checkpoint() -> None:
    harness = Harness(rules=[Hold(10**30)])
    harness.bus.send(plan())
    assert record(MessageState, msgpack.unpackb(msgpack.packb(harness.bus.checkpoint().in_flight[0]))).due_ns > LAST_NS


@pytest.mark.parametrize(
    "verdict",
    [
        *(Verdict(flips=(place,)) for place in (1.0, -0.1, math.nan, math.inf)),
        Verdict(delay_ns=-1),
        Verdict(copies=-1),
        (0, False, 0, ()),
        None,
    ],
)
def test_what_no_message_can_be_given_is_no_verdict(verdict: Any) -> None:
    class Judging:
        def judge(self, passage: Passage) -> Any:
            return verdict

    harness = Harness(rules=[Judging()])
    with pytest.raises(Unusable, match="expected a Verdict with whole numbers delay_ns and copies"):
        harness.bus.send(plan())


def test_the_first_bit_of_a_message_may_flip() -> None:
    harness = Harness(rules=[Flip(place=0.0)])
    harness.bus.send(plan())
    harness.run(SECOND)
    assert harness.fates == [Fate.REFUSED]
