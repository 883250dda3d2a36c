"""Message durations computed by hand, and faults drawn by key and not by order."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import pytest
from bus_harness import HORIZON_S, MS, SECOND, Harness, Hold, Lose, plan, report
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.bus import (
    EVALUATOR,
    HOST,
    PASS,
    Compute,
    Envelope,
    Fate,
    Kind,
    Network,
    Passage,
    Rule,
    Verdict,
)
from seedbus.bus.codec import encode
from seedbus.bus.keyed_random import KeyedRandom, sample, uniform
from seedbus.bus.ledger import Row
from seedbus.bus.network import Constant, Duration, Exponential, Lognormal, Pareto, Uniform
from seedbus.scenarios.faults.delay import Delay

BIT_MS = 117  # the size of a payload whose whole frame has 125 bytes: a thousand bits, 1 ms at 1 Mbit/s
FIFTY_MS = Constant(value=0.05)


def sending(harness: Harness, envelopes: Sequence[Envelope], after_ns: int = 0) -> Harness:
    for envelope in envelopes:
        harness.send(envelope, after_ns)
    harness.run()
    return harness


def test_a_frame_of_the_arithmetic_below_has_a_thousand_bits() -> None:
    assert len(encode(report(size=BIT_MS))[0]) == len(encode(plan(3, 9, 9, size=BIT_MS))[0]) == 125


def test_without_a_network_a_message_arrives_when_it_is_sent() -> None:
    assert sending(Harness(), [plan(), report()], after_ns=7).arrivals_ns == [7, 7]


def test_latency_is_paid_once_by_every_message() -> None:
    harness = sending(Harness(Network(latency=FIFTY_MS)), [plan(0), plan(0, 1), report(1)], after_ns=3 * MS)
    assert harness.arrivals_ns == [53 * MS] * 3


def test_messages_queue_on_a_clients_own_uplink_and_then_pay_latency() -> None:
    network = Network(latency=FIFTY_MS, up_mbps=1)
    harness = sending(Harness(network), [report(0, round, size=BIT_MS) for round in range(3)])
    assert harness.arrivals_ns == [51 * MS, 52 * MS, 53 * MS]


def test_links_of_different_clients_and_directions_do_not_delay_each_other() -> None:
    network = Network(up_mbps=1, down_mbps=4)
    crowd = [make(client, size=BIT_MS) for make in (plan, report) for client in range(3)]
    harness = sending(Harness(network), crowd)
    assert harness.arrivals_ns == [MS // 4] * 3 + [MS] * 3


def test_an_idle_link_delays_no_message() -> None:
    harness = Harness(Network(up_mbps=1))
    harness.bus.send(report(0, 0, size=BIT_MS))
    harness.run(10 * MS)
    harness.bus.send(report(0, 1, size=BIT_MS))
    harness.run()
    assert harness.arrivals_ns == [MS, 11 * MS]


def test_a_link_that_is_busy_at_a_checkpoint_stays_busy_and_an_idle_one_is_forgotten() -> None:
    harness, resumed = (Harness(Network(latency=FIFTY_MS, up_mbps=1)) for _ in range(2))
    harness.bus.send(report(1, 0, size=0))
    harness.bus.send(report(0, 0, size=BIT_MS))
    harness.run(MS // 2)
    resumed.bus.restore(harness.bus.checkpoint())
    for each in (harness, resumed):
        assert each.bus.links.busy == {(0, True): MS}
        each.bus.send(report(0, 1, size=BIT_MS))
        each.run()
        assert each.arrivals_ns[-2:] == [51 * MS, 52 * MS]


def test_a_dropped_message_occupies_its_link() -> None:
    class LoseTheFirst:
        def judge(self, passage: Passage) -> Verdict:
            return Verdict(drop=passage.round == 0)

    harness = sending(Harness(Network(up_mbps=1), [LoseTheFirst()]), [report(0, r, size=BIT_MS) for r in (0, 1)])
    assert harness.arrivals_ns == [2 * MS]


def test_a_fraction_of_a_nanosecond_on_the_link_is_rounded_up() -> None:
    assert sending(Harness(Network(up_mbps=7)), [report(size=BIT_MS)]).arrivals_ns == [math.ceil(1_000_000 / 7)]


def test_instruments_have_ideal_links_and_no_faults() -> None:
    network = Network(latency=FIFTY_MS, up_mbps=0.001, down_mbps=0.001)
    envelopes = [Envelope(Kind.COMMIT, EVALUATOR, 0, 0), Envelope(Kind.BYE, HOST, 0, 0)]
    harness = Harness(network, [Lose()])
    harness.bus.open(HOST, "a host")
    assert sending(harness, envelopes).fates == [Fate.DELIVERED] * 2 and harness.rows[0].arrived_ns == 0


JITTER = Network(latency=Lognormal(median=0.02, sigma=1.5))
TRAFFIC = [make(client, round) for make in (plan, report) for client in range(4) for round in range(10)]


def by_message(harness: Harness) -> set[Row]:
    return set(harness.rows)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.permutations(TRAFFIC))
def test_faults_of_a_message_do_not_depend_on_the_order_of_sending(order: list[Envelope]) -> None:
    rules: list[Rule] = [Lose(0.3), Hold(40 * MS, is_random=True), Lose(0.2, arriving=True)]
    expected, actual = (sending(Harness(JITTER, rules, seed=5), envelopes) for envelopes in (TRAFFIC, order))
    assert by_message(actual) == by_message(expected) and len(expected.rows) == len(TRAFFIC)


def test_another_seed_gives_other_faults() -> None:
    fortunes = [sending(Harness(JITTER, [Lose(0.3)], seed=seed), TRAFFIC) for seed in (1, 1, 2)]
    assert fortunes[0].rows == fortunes[1].rows != fortunes[2].rows


def test_a_retry_is_a_new_draw() -> None:
    harness = sending(Harness(JITTER, [Lose(0.5)], seed=3), [plan(0, 0)] * 200)
    arrivals = [row.arrived_ns for row in harness.rows if row.fate == Fate.DELIVERED]
    assert 60 < len(arrivals) < 140 and len(set(arrivals)) == len(arrivals)


def test_a_retry_after_a_checkpoint_is_not_mistaken_for_a_message_in_flight() -> None:
    harness, resumed = Harness(rules=[Hold(SECOND)]), Harness(rules=[Hold(SECOND)])
    harness.bus.send(plan(0, 0))
    resumed.bus.restore(harness.bus.checkpoint())
    for each in (harness, resumed):
        each.bus.send(plan(0, 0))
        each.run()
        assert each.fates == [Fate.DELIVERED] * 2


def test_a_rule_judges_on_sending_and_on_arrival_with_its_documented_inputs() -> None:
    asked: list[tuple[object, ...]] = []

    class Witness:
        def __repr__(self) -> str:
            return "Witness()"

        def judge(self, passage: Passage) -> Verdict:
            p = passage
            asked.append((p.kind, p.client, p.round, p.occurrence, p.now_ns, p.arriving, p.draw("x")))
            return PASS

    sending(Harness(Network(latency=FIFTY_MS), [Hold(0), Witness()], seed=9), [report(2, 7)] * 2, after_ns=MS)
    says = hashlib.blake2b(b"Witness()", digest_size=8).hexdigest()
    draws = [uniform(9, "rule", says, 0, 2, "REPORT", 7, occurrence, "x") for occurrence in (0, 1)]
    sent = [(Kind.REPORT, 2, 7, occurrence, MS, False, draws[occurrence]) for occurrence in (0, 1)]
    assert asked == sent + [(*passage[:4], 51 * MS, True, passage[6]) for passage in sent]


def test_a_rule_affects_the_same_messages_with_any_other_rules() -> None:
    def struck(rules: list[Rule]) -> set[tuple[int, int, int]]:
        rows = sending(Harness(JITTER, rules, seed=5), TRAFFIC).rows
        return {(row.kind, row.sender, row.round) for row in rows if row.fate == Fate.DROPPED}

    alone = struck([Lose(0.3)])
    assert alone == struck([Lose(0.0), Hold(MS), Lose(0.3)])
    assert alone < struck([Lose(0.3), Lose(0.3)])  # two of a kind do not lose the same


def test_delays_add_up_and_a_drop_prevails() -> None:
    assert sending(Harness(rules=[Hold(3 * MS), Hold(4 * MS)]), [plan()]).arrivals_ns == [7 * MS]
    assert sending(Harness(rules=[Hold(3 * MS), Lose(), Hold(4 * MS)]), [plan()]).fates == [Fate.DROPPED]


DURATIONS: dict[str, tuple[Duration, float]] = {
    "constant": (Constant(value=2.5), 2.5),
    "uniform": (Uniform(low=1.0, high=4.0), 2.5),
    "lognormal": (Lognormal(median=2.5, sigma=0.7), 2.5),
    "exponential": (Exponential(mean=2.5 / math.log(2)), 2.5),
    "pareto": (Pareto(minimum=2.5 / 2 ** (1 / 3), shape=3), 2.5),
}


@pytest.mark.parametrize("name", DURATIONS)
def test_half_of_a_durations_draws_are_below_its_median(name: str) -> None:
    duration, median = DURATIONS[name]
    draws = [duration.draw_s(4, "latency", number) for number in range(2000)]
    assert duration.quantile(0.5) == pytest.approx(median)
    assert draws == [duration.quantile(uniform(4, "latency", number)) for number in range(2000)]
    assert name == "constant" or sum(draw < median for draw in draws) == pytest.approx(1000, abs=90)


@pytest.mark.parametrize("heavy", [Pareto(minimum=1, shape=0.001), Lognormal(median=10**6, sigma=10)], ids=str)
def test_no_heavy_tail_exceeds_the_range_of_the_clock(heavy: Duration) -> None:
    assert heavy.quantile(1 - 2**-53) == 10**6 and heavy.quantile(0.999) == 10**6
    harness = sending(Harness(rules=[Delay(by=heavy)]), [plan(0, round) for round in range(50)])
    assert all(receipt.at_ns <= HORIZON_S * SECOND for receipt in harness.receipts)


@pytest.mark.parametrize("number", [0, 2**64 - 1])
def test_no_draw_is_an_end_point_of_the_unit_interval(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbus.bus.keyed_random.bits", lambda *key: number)
    assert 0 < uniform(1, "latency") < 1
    assert all(0 <= duration.draw_s(1, "latency") <= 10**6 for duration, _ in DURATIONS.values())


def test_compute_time_is_the_clients_slowness_times_its_evaluations() -> None:
    compute = Compute(evaluation=Constant(value=0.002), slowness=Constant(value=3))
    assert compute.time_ns(0, client=1, round=4, evaluations=10) == 60 * MS
    drawn = Compute(evaluation=Exponential(mean=1), slowness=Lognormal(median=1, sigma=1))
    slowness, each = drawn.slowness.draw_s(8, "slowness", 1), drawn.evaluation.draw_s(8, "evaluation", 1, 4)
    assert drawn.time_ns(8, client=1, round=4, evaluations=10) == round(slowness * each * 10 * SECOND)


@given(st.integers(1, 60), st.integers(0, 2**64 - 1), st.data())
def test_a_sample_has_distinct_members_in_order_and_is_keyed(members: int, seed: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, members))
    chosen = sample(members, count, seed, "cohort", 3)
    assert chosen == sorted(set(chosen)) and len(chosen) == count and set(chosen) <= set(range(members))
    assert chosen == sample(members, count, seed, "cohort", 3)


@given(st.integers(-5, 2**64), st.lists(st.integers(0, 99) | st.text("a1 ", max_size=3), min_size=1, max_size=3))
def test_a_faults_draws_are_those_of_its_whole_key(seed: int, key: list[int | str]) -> None:
    identity = hashlib.blake2b(b"drop()", digest_size=8).hexdigest()
    assert KeyedRandom(seed, 9, "drop()", 2).draw(*key) == uniform(seed, "rule", identity, 2, *key)
