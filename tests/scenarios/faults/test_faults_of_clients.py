"""Faults of clients and their links, against results computed by hand or, if drawn, expected frequencies."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from bus_harness import MS, SECOND, Harness, plan, report, reported
from hypothesis import given
from hypothesis import strategies as st

from seedbus.agents.server.outages import Outages
from seedbus.bus import (
    EVALUATOR,
    Compute,
    Envelope,
    Fate,
    FaultHooks,
    KeyedRandom,
    Kind,
    MemoryTransport,
    Network,
    Pace,
    Slowed,
)
from seedbus.bus.errors import Unusable
from seedbus.bus.network import Constant, Exponential, Lognormal, Pareto
from seedbus.scenarios.faults.bandwidth import Bandwidth
from seedbus.scenarios.faults.device_classes import DeviceClass, DeviceClasses
from seedbus.scenarios.faults.dropout import Dropout
from seedbus.scenarios.faults.duplicate import Duplicate
from seedbus.scenarios.faults.straggler import Straggler

BIT_MS = 117  # payload size in bytes such that the whole frame takes 1 ms at 1 Mbit/s
WORK = Compute(evaluation=Constant(value=0.001))  # 1 ms per evaluation


def arrivals(harness: Harness, *envelopes: Any) -> list[int]:
    for envelope in envelopes:
        harness.bus.send(envelope)
    harness.run()
    return harness.arrivals_ns


# -- bandwidth


def test_of_several_limits_the_lowest_holds_in_any_order() -> None:
    limits = [Bandwidth(up_mbps=1), Bandwidth(up_mbps=0.5, down_mbps=9), Bandwidth(up_mbps=4)]
    for order in itertools.permutations(limits):
        harness = Harness(Network(up_mbps=2), order)
        assert arrivals(harness, report(size=BIT_MS), plan(size=BIT_MS)) == [-(-MS // 9), 2 * MS]


def test_a_limit_above_the_links_own_bandwidth_changes_nothing_and_is_not_counted() -> None:
    harness = Harness(Network(up_mbps=1), [Bandwidth(up_mbps=2), Bandwidth(up_mbps=0.5)])
    assert arrivals(harness, report(size=BIT_MS)) == [2 * MS]
    assert harness.bus.rules.counts() == [{}, {"throttled": 1, "throttled_s": 0.001}]


def test_a_limit_holds_for_its_clients_its_rounds_and_its_direction() -> None:
    harness = Harness(rules=[Bandwidth(up_mbps=1, clients=[1], at_round=2, for_rounds=1)])
    crowd = [make(client, round, size=BIT_MS) for make in (plan, report) for client in (1, 2) for round in (1, 2, 3)]
    arrivals(harness, *crowd)
    late = [(row.kind, row.sender, row.round) for row in harness.rows if row.arrived_ns]
    assert late == [(Kind.REPORT, 1, 2)]


def test_messages_queue_on_a_narrow_link() -> None:
    harness = Harness(rules=[Bandwidth(down_mbps=1)])
    assert arrivals(harness, *(plan(1, round, size=BIT_MS) for round in range(3))) == [MS, 2 * MS, 3 * MS]


# -- a link shared by all clients


def test_a_shared_link_is_granted_in_the_order_of_sending() -> None:
    harness = Harness(Network(shared_up_mbps=1, shared_down_mbps=2))
    arrivals(harness, *(make(client, size=BIT_MS) for client in (2, 0, 1) for make in (report, plan)))
    arrived = {(receipt.address, receipt.at_ns) for receipt in harness.receipts}
    assert arrived == {(-1, MS), (-1, 2 * MS), (-1, 3 * MS), (2, MS // 2), (0, MS), (1, 3 * MS // 2)}
    assert [row.sender for row in harness.rows if row.kind == Kind.REPORT] == [2, 0, 1]


def test_a_message_passes_the_shared_link_and_then_its_clients_own() -> None:
    harness = Harness(Network(shared_up_mbps=2, up_mbps=1))
    arrived = arrivals(harness, report(0, 0, size=BIT_MS), report(1, 0, size=BIT_MS), report(0, 1, size=BIT_MS))
    assert arrived == [3 * MS // 2, 2 * MS, 5 * MS // 2]


def test_a_slow_client_holds_up_nobody_who_shares_a_link_with_it() -> None:
    harness = Harness(Network(shared_up_mbps=1000), [Bandwidth(up_mbps=0.001, clients=[0])])
    assert arrivals(harness, report(0, size=BIT_MS), report(1, size=BIT_MS)) == [2000, SECOND + 1000]


def test_instruments_do_not_use_the_shared_link_and_copies_do() -> None:
    harness = Harness(Network(shared_down_mbps=1), [Duplicate()])
    arrived = arrivals(harness, plan(size=BIT_MS), Envelope(Kind.COMMIT, EVALUATOR, 0, 0))
    assert arrived == [0, MS, 2 * MS]


# -- stragglers and devices


def work_ns(*faults: object, client: int = 0, round: int = 0, seed: int = 0, compute: Compute = WORK) -> int:
    return Pace(compute, seed, FaultHooks(faults, seed, 100)).time_ns(client, round, 10)


def test_factors_multiply_and_pauses_add() -> None:
    faults = [Straggler(factor=Constant(value=2)), Straggler(pause_s=1), Straggler(factor=Constant(value=3), pause_s=2)]
    for order in itertools.permutations(faults):
        assert work_ns(*order) == 10 * MS * 6 + 3 * SECOND


drags = st.tuples(st.floats(0, 1e6), st.integers(0, 10**15))


class Fixed:
    """A fault that slows all work equally."""

    def __init__(self, factor: float, pause_ns: int) -> None:
        self.slowed = Slowed(factor, pause_ns)

    def slows(self, client: int, round: int, random: KeyedRandom) -> Slowed:
        return self.slowed


@pytest.mark.parametrize(
    "slowed",
    [2.0, None, ("2", 0), (-1.0, 0), (float("nan"), 0), (float("inf"), 0), (1.0, 0.5), (1.0, -1)],
    ids=str,
)
def test_what_cannot_slow_work_is_refused_in_a_sentence_that_names_the_fault(slowed: Any) -> None:
    fault = Fixed(1.0, 0)
    fault.slowed = Slowed(*slowed) if isinstance(slowed, tuple) else slowed
    with pytest.raises(Unusable, match=r"^the fault Fixed slowed work by .*; expected a Slowed with a finite factor"):
        work_ns(fault)
    fault.slowed = Slowed(np.float32(2), np.int64(5))  # type: ignore[arg-type]
    assert work_ns(fault) == 20 * MS + 5 and type(work_ns(fault)) is int


@pytest.mark.parametrize("factors", [[2.0], None, {0: "2"}, {0: -1.0}, {0: float("nan")}], ids=str)
def test_what_cannot_be_factors_of_devices_is_refused_in_a_sentence_that_names_the_fault(factors: Any) -> None:
    class Uneven:
        def factors(self, clients: int, random: KeyedRandom) -> Any:
            return factors

    with pytest.raises(Unusable, match=r"^the fault Uneven gave clients the factors .*; expected a mapping from"):
        work_ns(Uneven())
    factors = {0: np.float32(2)}
    assert work_ns(Uneven()) == 2 * work_ns(Uneven(), client=1) and type(work_ns(Uneven())) is int


@pytest.mark.parametrize("speeds", [[(0, True)], None, {(0, True): 2.0}], ids=str)
def test_what_cannot_be_speeds_of_links_is_refused_in_a_sentence_that_names_the_fault(speeds: Any) -> None:
    class Uneven:
        def speeds(self, clients: int, random: KeyedRandom) -> Any:
            return speeds

    with pytest.raises(Unusable, match=r"^the fault Uneven gave links the speeds .*; expected a mapping from"):
        Harness(Network(), [Uneven()])


@pytest.mark.parametrize("limit", ["fast", 0, -1.0, float("nan"), 1e-7], ids=str)
def test_what_cannot_limit_a_link_is_refused_in_a_sentence_that_names_the_fault(limit: Any) -> None:
    class Narrow:
        def mbps(self, client: int, round: int, upward: bool, random: KeyedRandom) -> Any:
            return limit

    harness = Harness(Network(), [Narrow()])
    with pytest.raises(Unusable, match=r"^the fault Narrow limited a link to .*; expected None, or Mbit/s, at least"):
        arrivals(harness, plan())


@pytest.mark.parametrize("lasts", [2.5, "long", -5], ids=str)
def test_an_outage_that_cannot_be_is_refused_in_a_sentence_that_names_the_fault(lasts: Any) -> None:
    class Away:
        def outage_ns(self, round: int, phase: str) -> Any:
            return lasts

    with pytest.raises(Unusable, match=r"^the fault Away keeps the server away for .* ns; expected None, or a whole"):
        Outages(FaultHooks([Away()], 1)).crash_ns(0, "asking")


@given(st.lists(drags, max_size=5), st.data())
def test_work_takes_the_same_time_to_the_nanosecond_in_whatever_order_it_is_slowed(
    parts: list[tuple[float, int]], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(parts))
    one, another = (work_ns(*(Fixed(*part) for part in each)) for each in (parts, order))
    exact = Fraction(10 * MS)
    for factor, _ in parts:
        exact *= Fraction(factor)
    assert one == another == min(round(exact) + sum(pause_ns for _, pause_ns in parts), 10**15)


def test_a_factor_is_drawn_every_round_or_once() -> None:
    tail = Pareto(minimum=2, shape=1)
    for drawn, different in (("once", 1), ("every_round", 40)):
        fault = Straggler.model_validate({"factor": tail.model_dump(), "drawn": drawn})
        assert len({work_ns(fault, round=round) for round in range(40)}) == different
        assert len({work_ns(fault, client=client) for client in range(40)}) == 40
        assert min(work_ns(fault, client=client) for client in range(40)) >= 20 * MS


@pytest.mark.parametrize("factor", [Lognormal(median=4, sigma=0.5), Exponential(mean=4), Constant(value=4)], ids=str)
def test_a_factor_has_its_distribution(factor: Any) -> None:
    fault = Straggler(factor=factor)
    slowed = sorted(work_ns(fault, client=client, round=round) for client in range(50) for round in range(8))
    assert slowed[200] / (10 * MS) == pytest.approx(factor.quantile(0.5), rel=0.2)


@pytest.mark.slow
def test_a_straggler_is_chosen_by_probability_in_every_round() -> None:
    fault = Straggler(pause_s=1, probability=0.25, fraction=0.5)
    slow = Counter(
        client for client in range(100) for round in range(40) if work_ns(fault, client=client, round=round) > SECOND
    )
    assert len(slow) == 50 and sum(slow.values()) == pytest.approx(500, abs=60)


def test_what_slows_is_counted_for_what_it_does_alone() -> None:
    rules = FaultHooks(
        [Straggler(factor=Constant(value=3)), Straggler(pause_s=1.5), Straggler(pause_s=1, clients=[9])], 0
    )
    Pace(WORK, 0, rules).time_ns(0, 0, 10)
    assert rules.counts() == [{"slowed": 1, "slowed_s": 0.02}, {"slowed": 1, "slowed_s": 1.5}, {}]


def test_every_client_has_one_device_and_the_shares_are_kept() -> None:
    classes = [DeviceClass(share=0.5, factor=1), DeviceClass(share=0.3, factor=10), DeviceClass(share=0.2, factor=0.5)]
    fault = DeviceClasses(classes=classes)
    pace = Pace(WORK, 0, FaultHooks([fault], 0, 1000))
    work_times = [{pace.time_ns(client, round, 10) for round in range(3)} for client in range(1000)]
    assert all(len(times) == 1 for times in work_times)
    share = Counter(times.pop() for times in work_times)
    assert share.keys() == {10 * MS, 100 * MS, 5 * MS}
    assert [share[ns] for ns in (10 * MS, 100 * MS, 5 * MS)] == [pytest.approx(n, abs=60) for n in (500, 300, 200)]


def test_a_device_is_slow_in_the_rounds_of_its_fault_and_rounding_leaves_nobody_without_one() -> None:
    tenths = [DeviceClass(share=0.1, factor=number + 2) for number in range(10)]
    pace = Pace(WORK, 0, FaultHooks([DeviceClasses(classes=tenths, at_round=2, for_rounds=2)], 0, 40))
    slowed = [{client for client in range(40) if pace.time_ns(client, round, 10) > 10 * MS} for round in range(6)]
    assert slowed == [set(), set(), set(range(40)), set(range(40)), set(), set()]

    class Highest:
        def draw(self, *_: Any) -> float:
            return 1 - 2**-53  # above the sum of ten floating-point tenths

    highest: Any = Highest()
    assert DeviceClasses(classes=tenths).slows(0, 0, highest).factor == 11


# -- dropout


def dropped_out(fault: Dropout, clients: int = 60, rounds: int = 40, seed: int = 3) -> list[set[int]]:
    """Return the clients that drop out of each round."""
    rules = FaultHooks([fault], seed, clients)

    def is_out(client: int, round: int) -> bool:
        moment = (Kind.REPORT if fault.when == "before-landing" else Kind.PLAN, client, round, 0, 0)
        return rules.judge(moment, 0).drop or rules.is_silent(client, round)

    return [{client for client in range(clients) if is_out(client, round)} for round in range(rounds)]


@pytest.mark.parametrize(
    ("when", "asked", "left"),
    [
        ("before-training", 0, [(Kind.PLAN, Fate.DROPPED)]),
        ("after-training", 1, [(Kind.PLAN, Fate.DELIVERED)]),
        ("before-landing", 1, [(Kind.PLAN, Fate.DELIVERED), (Kind.REPORT, Fate.DROPPED)]),
    ],
)
def test_a_client_drops_out_before_or_after_its_work_or_when_it_has_reported(when: Any, asked: int, left: Any) -> None:
    harness = Harness(rules=[Dropout(when=when)], answers=reported)
    harness.bus.send(plan(1, base=3))
    harness.run(SECOND)
    assert (len(harness.asked), [(row.kind, row.fate) for row in harness.rows]) == (asked, left)
    assert harness.positions.actual == ({1: 3} if asked else {}), "who has trained has folded what it was sent"
    assert harness.bus.rules.counts() == [{"silenced" if when == "after-training" else "dropped": 1}]


def test_an_answer_that_is_never_sent_was_on_the_wire_all_the_same() -> None:
    class Wire(MemoryTransport):
        is_wire = True

        def framing_bytes(self, size: int) -> int:
            return 7

    harness = Harness(rules=[Dropout(when="after-training")], answers=reported, transport=Wire)
    harness.bus.send(plan(1, size=50))
    harness.run(SECOND)
    assert {(row.kind, row.sender, row.recipient) for row in harness.rows} == {(Kind.PLAN, -1, 1), (Kind.LINK, 1, -1)}
    sizes = {row.kind: row.header_bytes + row.payload_bytes + row.framing_bytes for row in harness.rows}
    assert sizes[Kind.LINK] == sizes[Kind.PLAN]


@pytest.mark.parametrize("when", ["before-training", "after-training", "before-landing"])
def test_clients_drop_out_by_themselves_and_of_all_messages_of_a_round(when: Any) -> None:
    rounds = dropped_out(Dropout(when=when, probability=0.3))
    assert sum(map(len, rounds)) == pytest.approx(0.3 * 60 * 40, abs=80)
    assert len(set(map(frozenset, rounds))) == 40
    assert rounds == dropped_out(Dropout(when=when, probability=0.3))


def test_the_rates_of_clients_lie_evenly_between_the_two_and_the_higher_one_says_whether_any_drops_out() -> None:
    fault, rounds = Dropout(rates=(0.2, 1.0)), 60
    draws = KeyedRandom(3, 60, repr(fault))
    rates = sorted(sum(fault.drops_out(client, n, draws) for n in range(rounds)) / rounds for client in range(60))
    assert rates[15] == pytest.approx(0.4, abs=0.15) and rates[45] == pytest.approx(0.8, abs=0.15)
    assert Dropout(rates=(0.0, 0.1)).may_lose and not Dropout(rates=(0.0, 0.0)).may_lose


@pytest.mark.slow
def test_each_client_has_a_rate_of_its_own_between_the_two() -> None:
    rounds = dropped_out(Dropout(rates=(0.2, 0.8)), clients=300, rounds=100)
    rate = sorted(sum(client in out for out in rounds) / 100 for client in range(300))
    assert rate[0] > 0.05 and rate[-1] < 0.95
    assert rate[75] == pytest.approx(0.35, abs=0.08) and rate[225] == pytest.approx(0.65, abs=0.08)
    assert {len(out) for out in dropped_out(Dropout(rates=(1.0, 1.0)))} == {60}


@pytest.mark.parametrize("how", [{"probability": 0.5}, {"rates": (0.2, 0.8)}], ids=str)
def test_a_group_drops_out_together(how: dict[str, Any]) -> None:
    rounds = dropped_out(Dropout(groups=4, **how))
    groups = {frozenset(round for round, out in enumerate(rounds) if client in out) for client in range(60)}
    assert len(groups) == 4 and 4 < len(set(map(frozenset, rounds))) <= 2**4
