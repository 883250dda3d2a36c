"""The bus end to end: recipients, the ledger row of every message, and a restart with messages in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from bus_harness import MS, REPORT_TALLY, SECOND, Copy, Flip, Harness, Hold, Lose, Receipt, plan, report, reported
from hypothesis import given
from hypothesis import strategies as st

from seedbus.bus import (
    EVALUATOR,
    SERVER,
    Envelope,
    EnvelopeTooLong,
    Fate,
    Kind,
    Mailbox,
    MalformedEnvelope,
    MemoryTransport,
    Network,
    Rule,
    Tally,
    UnknownAddress,
    VirtualClock,
    encode,
)
from seedbus.bus.bus import BusState
from seedbus.bus.ledger import Row
from seedbus.bus.network import Exponential, Lognormal
from seedbus.bus.records import record

numbers = st.integers(0, 3)
messages = st.lists(
    st.tuples(st.sampled_from([plan, report]), numbers, numbers, st.integers(0, 30 * MS), st.integers(0, 400)),
    max_size=25,
)
rules = st.lists(
    st.one_of(st.builds(Lose, st.floats(0, 1), st.booleans()), st.builds(Hold, st.integers(0, 50 * MS), st.booleans())),
    max_size=3,
)
meddling = st.lists(st.one_of(st.builds(Copy, st.integers(0, 2)), st.builds(Flip, st.floats(0, 1))), max_size=2)
SLOW = Network(latency=Exponential(mean=0.02), up_mbps=0.5, down_mbps=2.0)


class Framed(MemoryTransport):
    """A transport whose framing costs seven bytes and one in a hundred."""

    is_wire = True

    def framing_bytes(self, size: int) -> int:
        return 7 + size // 100


def send(harness: Harness, script: list[Any]) -> None:
    for make, client, round, after_ns, size in script:
        harness.send(make(client, round, size=size), after_ns)


def test_a_message_reaches_its_recipient_and_nobody_else() -> None:
    harness = Harness()
    for envelope in (plan(2, 5), report(3, 5), Envelope(Kind.COMMIT, EVALUATOR, 5, 6, ["x", 1.5])):
        harness.bus.send(envelope)
    harness.run()
    assert {receipt.address: receipt.content for receipt in harness.receipts} == {
        2: plan(2, 5),
        SERVER: report(3, 5),
        EVALUATOR: Envelope(Kind.COMMIT, EVALUATOR, 5, 6, ["x", 1.5]),
    }


def test_messages_are_read_in_the_order_of_their_arrival() -> None:
    clock = VirtualClock()
    mailbox = Mailbox("reader", clock)
    for receipt in range(5):
        mailbox.put(receipt)

    async def read() -> list[int]:
        return [await mailbox.get() for _ in range(5)]

    assert clock.run(read()) == [0, 1, 2, 3, 4]


def test_a_delivered_message_leaves_a_row_with_all_its_costs() -> None:
    harness = Harness(rules=[Hold(3 * MS)], transport=Framed)
    envelope = report(300, 70_000, 7, size=220)
    frame, header = encode(envelope)
    harness.run(2 * MS)
    harness.bus.send(envelope, Tally(scalars=50, seeds=1, catchup_bytes=9, digest_bytes=32))
    harness.run()
    assert (header, len(frame)) == (11, 234)
    assert harness.rows == [
        Row(2 * MS, 5 * MS, 70_000, Kind.REPORT, 300, SERVER, 11, 223, 9, 32, 9, 50, 1, Fate.DELIVERED)
    ]


def test_totals_are_the_sums_of_the_rows() -> None:
    harness = Harness(SLOW, [Lose(0.3)], transport=Framed)
    for number in range(40):
        harness.bus.send(plan(number % 4, number, size=number), Tally(number, 1, 2 * number, 0))
    harness.run()
    summed = Counter[tuple[Kind, str]]()
    for row in harness.rows:
        summed[Kind(row.kind), "messages"] += 1
        for name in ("header_bytes", "payload_bytes", "framing_bytes", "catchup_bytes", "scalars", "seeds"):
            summed[Kind(row.kind), name] += getattr(row, name)
    assert harness.ledger.totals == summed and summed[Kind.PLAN, "messages"] == 40


@pytest.mark.parametrize("arriving", [False, True], ids=["on-sending", "on-arrival"])
@pytest.mark.parametrize("make", [plan, report])
def test_a_message_dropped_by_a_rule_still_costs_its_bytes(make: Callable[..., Envelope], arriving: bool) -> None:
    rules: list[Rule] = [Hold(1), Lose(arriving=arriving), Lose(arriving=arriving)]
    harness, faultless = Harness(rules=rules, transport=Framed), Harness(transport=Framed)
    for bus in (harness.bus, faultless.bus):
        bus.send(make(1, size=100), Tally(scalars=4))
    harness.run()
    faultless.run()
    (row,) = faultless.rows
    assert harness.receipts == [] and (row.payload_bytes, row.framing_bytes) == (103, 8)
    # an upward message is on the wire before a rule can lose it; a lost downward message never is
    framing = 8 if make is report else 0
    # the first of the two that lose it is named
    assert harness.rows == [row._replace(arrived_ns=-1, fate=Fate.DROPPED, framing_bytes=framing, fault=1)]


def test_a_message_in_flight_at_the_end_has_a_row() -> None:
    harness = Harness(rules=[Hold(SECOND)], transport=Framed)
    harness.bus.send(report(1))
    harness.bus.send(plan(2))
    harness.run(SECOND // 2)
    harness.bus.close()
    harness.run(2 * SECOND)
    assert [(row.kind, row.arrived_ns, row.fate, row.framing_bytes) for row in harness.rows] == [
        (Kind.PLAN, -1, Fate.UNDER_WAY, 0),
        (Kind.REPORT, -1, Fate.UNDER_WAY, 7),
    ]
    assert harness.receipts == []


@given(messages, rules, st.integers(0, 100 * MS))
def test_nothing_is_dropped_silently(script: list[Any], chosen: list[Rule], until_ns: int) -> None:
    harness = Harness(SLOW, chosen)
    send(harness, script)
    harness.run(max(until_ns, 1))
    harness.bus.close()
    fates = Counter(harness.fates)
    assert fates[Fate.DELIVERED] == len(harness.receipts)
    ended_ns = harness.clock.now_ns
    departed = [entry for entry in script if entry[3] < ended_ns or entry[3] == 0]
    waiting = [entry for entry in script if entry[3] == ended_ns > 0]  # of this very instant, sent or not
    assert len(departed) <= fates.total() <= len(departed) + len(waiting)
    if waiting:
        return
    sent = Counter((make(0).kind, client, round) for make, client, round, _, _ in departed)
    assert sent == Counter(
        (row.kind, row.sender if row.recipient == SERVER else row.recipient, row.round) for row in harness.rows
    )


def test_a_malformed_frame_is_refused_counted_by_peer_and_put_into_the_mailbox() -> None:
    harness = Harness()
    harness.bus.send_frame(report(3), b"\xc1" * 20, 5)
    harness.bus.send_frame(report(3, 1), b"\xc1" * 20, 5)
    harness.bus.send_frame(report(2), b"\x05", 1)
    harness.bus.send(report(1))
    harness.run()
    assert harness.fates == [Fate.DELIVERED, Fate.REFUSED, Fate.REFUSED, Fate.REFUSED]
    assert harness.bus.refused == {(3, "the frame"): 2, (2, "the frame"): 1}
    contents = [receipt.content for receipt in harness.receipts if isinstance(receipt.content, MalformedEnvelope)]
    assert [error.peer for error in contents] == [2, 3, 3]
    assert [row.payload_bytes for row in harness.rows if row.sender == 3] == [15, 15]


def test_a_peer_cannot_fill_the_memory_with_ever_new_error_texts() -> None:
    harness = Harness()
    for number in range(500):
        frame: bytes = msgpack.packb([23, 3, 2**32 + number, 0, []])
        harness.bus.send_frame(report(3, number), frame, 5)
    harness.run()
    assert harness.bus.refused == {(3, "round"): 500}


def test_only_a_readable_plan_advances_a_clients_version() -> None:
    harness = Harness(rules=[Lose(0.0)], answers=lambda asked: [])
    harness.bus.send(plan(0, 1, base=4))
    harness.bus.send(plan(0, 2, base=3))
    harness.bus.send_frame(plan(1, 1, base=4), b"\xc1", 1)
    harness.bus.send(report(2, 1, base=4))
    harness.run()
    assert harness.positions.actual == {0: 4}
    assert len(harness.asked) == 2, "a frame that cannot be read reaches no follower"


def test_a_host_receives_the_messages_to_its_clients() -> None:
    harness = Harness(clients=9, answers=reported)
    for envelope in (plan(7), plan(8), plan(0), Envelope(Kind.COMMIT, EVALUATOR, 0, 0)):
        harness.bus.send(envelope)
    harness.run(SECOND)
    assert [asked.content for asked in harness.asked] == [
        Envelope(Kind.COMMIT, EVALUATOR, 0, 0),
        plan(0),
        plan(7),
        plan(8),
    ]
    assert [row.recipient for row in harness.rows if row.sender == SERVER] == [EVALUATOR, 0, 7, 8]
    assert [row.sender for row in harness.rows if row.recipient == SERVER] == [EVALUATOR, 0, 7, 8]


def test_a_message_to_an_unknown_address_ends_the_run_by_name_and_keeps_its_row() -> None:
    harness = Harness()
    harness.bus.send(plan(99))
    with pytest.raises(UnknownAddress, match="no mailbox is open at address 99"):
        harness.run()
    harness.bus.close()
    assert harness.fates == [Fate.UNDER_WAY]


def test_a_message_above_its_size_limit_is_refused_before_it_is_counted() -> None:
    harness = Harness()
    with pytest.raises(EnvelopeTooLong):
        harness.bus.send(Envelope(Kind.PULL, 0, 0, 0, [bytes(2**16)]))
    harness.run()
    assert harness.rows == []


def test_messages_of_one_instant_arrive_in_the_order_of_kind_client_and_round() -> None:
    sent = [report(1), plan(2), plan(1, 1), plan(1, 0), Envelope(Kind.EVALUATION, EVALUATOR, 0, 0)]
    arrived = []
    for script in (sent, sent[::-1]):
        harness = Harness()
        for envelope in script:
            harness.bus.send(envelope)
        harness.run()
        arrived.append([receipt.content for receipt in harness.receipts])
    assert arrived[0] == arrived[1] == [sent[4], sent[3], sent[2], sent[1], sent[0]]


def later(harness: Harness, since: int, rows: int) -> tuple[list[Receipt], list[Row]]:
    return harness.receipts[since:], harness.rows[rows:]


def answer_ns(client: int, round: int, seeds: int = 0) -> int:
    """Return a client's compute time: up to 20 ms, sometimes 0."""
    return (3 * client + 2 * round) % 5 * 5 * MS


@given(messages, messages, rules, meddling, st.integers(1, 80 * MS), st.booleans())
@pytest.mark.slow
def test_a_bus_restored_with_messages_in_flight_delivers_the_same(
    before: list[Any],
    after: list[Any],
    chosen: list[Rule],
    meddlers: list[Rule],
    cut_ns: int,
    are_answered: bool,
) -> None:
    network = Network(latency=Lognormal(median=0.03, sigma=1.0), up_mbps=0.1, down_mbps=0.3, shared_up_mbps=0.4)

    def harness() -> Harness:
        return Harness(
            network, [*chosen, *meddlers], seed=11, answers=reported if are_answered else None, answer_ns=answer_ns
        )

    uninterrupted, resumed, restored_only = (harness() for _ in range(3))
    send(uninterrupted, before)
    uninterrupted.run(cut_ns)
    seen, counted = len(uninterrupted.receipts), len(uninterrupted.rows)
    checkpoint = msgpack.packb(uninterrupted.bus.checkpoint())
    for each in (resumed, restored_only):
        each.bus.restore(record(BusState, msgpack.unpackb(checkpoint)))
    assert msgpack.packb(restored_only.bus.checkpoint()) == checkpoint
    for due_ns, envelope in uninterrupted.unsent.values():
        resumed.send_at(due_ns, envelope)
    for each in (uninterrupted, resumed):
        send(each, after)
        each.run(each.clock.now_ns + 60 * MS)
        each.bus.close()
    assert later(uninterrupted, seen, counted) == (resumed.receipts, resumed.rows)
    assert uninterrupted.bus.rules.counts() == resumed.bus.rules.counts()
    scripted = [row for row in uninterrupted.rows if row.scalars != REPORT_TALLY.scalars]
    times = 1 + sum(each.copies for each in meddlers if isinstance(each, Copy))
    assert len(scripted) == times * (len(before) + len(after) - len(uninterrupted.unsent))
