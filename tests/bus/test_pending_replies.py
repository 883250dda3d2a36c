"""Answers of followers are sent at the simulated time of the scenario, independent of real time, and exactly once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgpack
import pytest
from bus_harness import (
    MS,
    REPORT_TALLY,
    SECOND,
    FakeRegistration,
    Follower,
    Harness,
    Hold,
    Lose,
    ReversedTransport,
    bus_on,
    plan,
    report,
    reported,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.bus import (
    EVALUATOR,
    SERVER,
    Callbacks,
    Envelope,
    Fate,
    Kind,
    MemoryTransport,
    Network,
    Rule,
    Tally,
    VirtualClock,
    WallClock,
    decode,
    encode,
)
from seedbus.bus.bus import BusState
from seedbus.bus.network import Exponential
from seedbus.bus.records import record

JITTER = Network(latency=Exponential(mean=0.02), up_mbps=0.5, down_mbps=2.0)


class OnAThread(MemoryTransport):
    """A memory transport whose follower works slowly on a thread."""

    def __init__(self, recruit: Any) -> None:
        def slow(offer: Any) -> Follower:
            follower = recruit(offer)

            def handle(frame: bytes) -> list[bytes]:
                time.sleep(0.001)
                answers: list[bytes] = follower.handle(frame)
                return answers

            return Follower(offer, handle)

        super().__init__(slow, offload=True)


def answer_ns(client: int, round: int, seeds: int = 0) -> int:
    return (3 * client + 2 * round) % 5 * 5 * MS


def sent_up(harness: Harness) -> list[tuple[int, int, int]]:
    """Return (client, round, time sent in ns) of the followers' messages."""
    return [(row.sender, row.round, row.sent_ns) for row in harness.rows if row.recipient == SERVER]


def test_an_answer_is_sent_after_the_compute_time_of_its_client() -> None:
    harness = Harness(rules=[Hold(7 * MS)], answers=reported, answer_ns=answer_ns)
    for client in range(4):
        harness.bus.send(plan(client, 3))
    harness.run(SECOND)
    assert sorted(sent_up(harness)) == [(client, 3, 7 * MS + answer_ns(client, 3)) for client in range(4)]


def test_only_plans_take_time_to_answer() -> None:
    harness = Harness(answers=reported, answer_ns=lambda client, round, seeds: SECOND)
    harness.bus.send(Envelope(Kind.COMMIT, EVALUATOR, 2, 0))
    harness.bus.send(Envelope(Kind.BYE, 1, 2, 0))
    harness.run(2 * SECOND)
    assert sent_up(harness) == [(EVALUATOR, 2, 0), (1, 2, 0)]


def test_commits_that_a_client_has_take_no_time() -> None:
    harness = Harness(answers=reported, answer_ns=lambda client, round, seeds: seeds * MS)
    harness.bus.send(plan(1, 0, base=2), Tally(seeds=1 + 2, since=0))
    harness.run(SECOND)
    harness.bus.send(plan(1, 1, base=3), Tally(seeds=1 + 3, since=0))  # two of them again
    harness.run(2 * SECOND)
    assert sent_up(harness) == [(1, 0, 3 * MS), (1, 1, SECOND + 2 * MS)]
    assert [row.repeated for row in harness.rows if row.kind == Kind.PLAN] == [0, 2]


def test_an_answer_is_sent_like_any_message() -> None:
    harness = Harness(Network(up_mbps=1), [Hold(3 * MS)], answers=reported)
    harness.bus.send(plan(1, 4, 5, size=117))
    harness.run(SECOND)
    up, frame = harness.rows[1], encode(report(1, 4, 5, size=117))[0]
    assert (up.sent_ns, up.arrived_ns) == (3 * MS, 7 * MS), "1,000 bits at 1 Mbit/s, and the rule's delay"
    assert (up.header_bytes + up.payload_bytes, up.header_bytes, up.scalars) == (len(frame), 5, REPORT_TALLY.scalars)
    assert [receipt.content for receipt in harness.receipts] == [report(1, 4, 5, size=117)]


scripts = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 30 * MS)), max_size=12)
several = st.lists(st.integers(0, 400), max_size=3)


@pytest.mark.slow
@settings(max_examples=40)
@given(scripts, several, st.floats(0, 0.5))
def test_the_real_time_of_an_answer_changes_nothing(
    script: list[tuple[int, int, int]], sizes: list[int], loss: float
) -> None:
    rules: list[Rule] = [Lose(loss), Hold(5 * MS, is_random=True)]

    def answers(request: Envelope) -> list[Envelope]:
        return [report(request.client, request.round, size=size) for size in sizes[: 1 + request.client % 3]]

    outcomes = []
    for transport in (MemoryTransport, ReversedTransport, OnAThread):
        harness = Harness(JITTER, rules, seed=5, transport=transport, answers=answers, answer_ns=answer_ns)
        for client, round, after_ns in script:
            harness.send(plan(client, round), after_ns)
        harness.run(SECOND)
        harness.clock.run(harness.transport.close())
        outcomes.append((harness.rows, harness.receipts))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    delivered = [row for row in outcomes[0][0] if row.kind == Kind.PLAN and row.fate == Fate.DELIVERED]
    expected = sum(len(sizes[: 1 + row.recipient % 3]) for row in delivered)
    assert sum(row.kind == Kind.REPORT for row in outcomes[0][0]) == expected, "every frame of an answer has its row"


def test_time_stands_still_for_an_answer_that_is_due_and_its_client_is_named() -> None:
    go, seen = threading.Event(), list[Any]()

    def late(request: Envelope) -> list[Envelope]:
        go.wait(60)
        return [report(request.client, request.round)]

    class Waiting(MemoryTransport):
        def __init__(self, recruit: Any) -> None:
            super().__init__(recruit, offload=True)

        def flush(self) -> None:
            seen.append((harness.clock.now_ns, harness.clock.is_held, harness.bus.answers.awaited))
            go.set()

    harness = Harness(transport=Waiting, answers=late, answer_ns=lambda client, *_: (20 if client == 1 else 8) * MS)
    harness.bus.send(plan(1, 1))
    harness.bus.send(plan(2, 1))
    harness.send(plan(3, 1), 9 * MS)
    harness.run(SECOND)
    assert seen[0] == (8 * MS, True, [2])
    assert sent_up(harness) == [(2, 1, 8 * MS), (3, 1, 17 * MS), (1, 1, 20 * MS)]
    assert harness.bus.answers.awaited == [] and not harness.clock.is_held


def test_an_answer_given_twice_counts_once() -> None:
    class Stammering(MemoryTransport):
        def deliver(self, address: int, frame: bytes, answered: Any, tail: bytes = b"") -> None:
            super().deliver(address, frame, answered, tail)
            answered([encode(report(address, 9))[0]])

    harness = Harness(transport=Stammering, answers=reported)
    harness.bus.send(plan(1, 2))
    harness.run(SECOND)
    assert [receipt.content for receipt in harness.receipts] == [report(1, 2)]


def test_short_answers_that_come_together_are_decoded_together_and_others_alone() -> None:
    clock, together = VirtualClock(), list[Sequence[Envelope]]()
    sizes = {0: [8], 1: [8], 2: [], 3: [8, 8], 4: [2000], 5: [8]}

    def handle(frame: bytes) -> list[bytes]:
        client = decode(frame).client
        return [encode(report(client, size=size))[0] for size in sizes[client]] or [b"junk"]

    transport = MemoryTransport(lambda offer: Follower(offer, handle))
    bus = bus_on(clock, transport, calls=Callbacks(on_decoded=together.append))
    mailbox = bus.open(SERVER, "the server")
    transport.start(FakeRegistration((0, 5)))

    async def main() -> list[Any]:
        for client in range(5):
            bus.send(plan(client))
        first = [await mailbox.get() for _ in range(6)]
        bus.send(plan(5))
        return [*first, await mailbox.get()]

    arrived = [each.client for each in clock.run(main()) if isinstance(each, Envelope)]
    assert sorted(arrived) == [0, 1, 3, 3, 4, 5] and together == [[report(0), report(1)]]


def test_equal_plans_are_answered_one_by_one() -> None:
    harness = Harness(JITTER, answers=reported, answer_ns=answer_ns)
    for _ in range(20):
        harness.bus.send(plan(1, 2))
    harness.run(SECOND)
    assert len(harness.asked) == len(harness.receipts) == 20
    assert len({row.arrived_ns for row in harness.rows if row.kind == Kind.REPORT}) == 20


BAD: dict[str, tuple[bytes, str]] = {
    "junk": (b"\xc1" * 20, "the frame"),
    "nothing": (b"", "the frame"),
    "another client's report": (encode(report(3, 1))[0], "the client"),
    "a plan": (encode(plan(2, 1))[0], "the kind"),
    "a header in a long form": (b"\x95\xcc\x17\x02\x01\x00\x90", "the header"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_answer_that_is_malformed_is_refused_on_arrival_and_the_others_are_not(name: str) -> None:
    frame, where = BAD[name]
    harness = Harness(rules=[Hold(MS)], answers=lambda request: [frame, report(request.client, request.round)])
    harness.bus.send(plan(2, 1))
    harness.run(SECOND)
    assert harness.bus.refused == {(2, where): 1}
    (refused,) = [row for row in harness.rows if row.fate == Fate.REFUSED]
    assert (refused.kind, refused.sender, refused.round) == (Kind.REPORT, 2, 1)
    assert refused.header_bytes + refused.payload_bytes == len(frame)
    assert (refused.arrived_ns, refused.scalars) == (2 * MS, 0)
    assert report(2, 1) in [receipt.content for receipt in harness.receipts] and len(harness.receipts) == 2
    (counted,) = [row for row in harness.rows if row.kind == Kind.REPORT and row.fate == Fate.DELIVERED]
    assert (counted.header_bytes, counted.scalars) == (encode(report(2, 1))[1], REPORT_TALLY.scalars)


def test_a_clients_version_is_that_of_its_last_answer() -> None:
    harness = Harness(
        transport=ReversedTransport, answers=lambda request: [], answer_ns=lambda client, round, seeds: 5 * MS
    )
    harness.bus.send(plan(1, 1, base=4))
    harness.run(4 * MS)
    assert len(harness.asked) == 1 and harness.positions.actual == {}
    harness.run(SECOND)
    assert harness.positions.actual == {1: 4}


def test_waiting_for_all_answers_takes_no_simulated_time() -> None:
    go, awaited = threading.Event(), list[list[int]]()

    def late(request: Envelope) -> list[Envelope]:
        go.wait(60)
        return reported(request)

    harness = Harness(transport=OnAThread, answers=late, answer_ns=lambda client, round, seeds: SECOND)

    def look() -> None:
        awaited.append(harness.bus.answers.awaited)
        go.set()

    async def main() -> None:
        for client in (2, 1):
            harness.bus.send(plan(client))
        await harness.bus.answers.all_received()
        assert harness.asked == [], "nothing has been delivered yet, so nobody owes an answer"
        await asyncio.sleep(1e-6)
        asyncio.get_running_loop().call_soon(look)
        await harness.bus.answers.all_received()
        assert len(harness.bus.checkpoint()[3]) == 2

    harness.clock.run(main())
    assert (harness.clock.now_ns, harness.clock.is_held) == (1000, False)
    assert awaited == [[1, 2]] and harness.bus.answers.awaited == []


def test_all_answers_are_fetched_and_those_that_have_not_come_are_named() -> None:
    harness, awaited = Harness(transport=ReversedTransport, answers=reported, answer_ns=lambda *_: SECOND), list[Any]()
    replies = {
        client: harness.bus.answers.expect((Kind.PLAN, client, 0, 0, 0), 0, SECOND) for client in (2, 1, EVALUATOR)
    }

    async def main() -> None:
        harness.bus.send(plan(3))
        await asyncio.sleep(1e-3)
        replies[1]([encode(report(1))[0]])
        waiting = asyncio.create_task(harness.bus.answers.all_received())
        await asyncio.sleep(0)
        awaited.append(harness.bus.answers.awaited)
        for client in (2, EVALUATOR):
            replies[client]([])
        await waiting
        assert [client for _, _, client, *_ in harness.bus.checkpoint()[3]] == [EVALUATOR, 1, 2, 3]

    harness.clock.run(main())
    assert awaited == [[EVALUATOR, 2, 3]] and harness.clock.now_ns == MS


def test_pending_answers_are_part_of_a_checkpoint() -> None:
    harness, resumed = (
        Harness(answers=reported, answer_ns=lambda client, round, seeds: 5 * MS, transport=transport)
        for transport in (MemoryTransport, ReversedTransport)
    )
    for _ in range(2):
        harness.bus.send(plan(1, 2, 3))
    harness.run(MS)
    checkpoint = harness.bus.checkpoint()
    resumed.bus.restore(record(BusState, msgpack.unpackb(msgpack.packb(checkpoint))))
    assert resumed.bus.checkpoint() == checkpoint and len(checkpoint[3]) == 2
    for each in (harness, resumed):
        each.bus.send(plan(1, 2, 3))  # not mistaken for those that are still to be answered
        each.run(SECOND)
        assert sent_up(each) == [(1, 2, 5 * MS)] * 2 + [(1, 2, 6 * MS)]
        assert [receipt.content for receipt in each.receipts] == [report(1, 2, 3)] * 3
    assert resumed.asked[0].at_ns == MS and len(resumed.asked) == 1


def test_answers_of_one_instant_keep_their_order_across_a_checkpoint() -> None:
    harness, resumed = (
        Harness(
            answers=lambda request: [report(request.client, request.round, request.kind)],
            answer_ns=lambda client, round, seeds: 5 * MS,
        )
        for _ in range(2)
    )
    checkpoints = list[Any]()
    harness.bus.send(plan(1, 2))
    harness.send(Envelope(Kind.REFUSE, 1, 2, 0, ["because", "of what it said"]), after_ns=5 * MS)
    harness.clock.at(
        5 * MS, (Kind.PLAN,), lambda: checkpoints.append(harness.bus.checkpoint())
    )  # answers are sent later
    harness.run(SECOND)
    resumed.bus.restore(checkpoints[0])
    resumed.run(SECOND)
    for each in (harness, resumed):
        assert [receipt.content for receipt in each.receipts] == [report(1, 2, Kind.REFUSE), report(1, 2, Kind.PLAN)]


def test_an_answer_after_the_bus_is_closed_changes_nothing() -> None:
    harness = Harness(transport=ReversedTransport, answers=reported)
    harness.bus.send(plan(1))
    reply = harness.bus.answers.expect((Kind.PLAN, 2, 0, 0, 0), 7, 0)
    harness.bus.close()
    reply([encode(report(2))[0]])
    harness.run(SECOND)
    assert [row.fate for row in harness.rows] == [Fate.UNDER_WAY]
    assert harness.asked == [] and harness.receipts == [] and harness.positions.actual == {}


def test_real_time_does_not_wait_for_answers_and_batches_deliveries_of_an_instant() -> None:
    clock, flushes = WallClock(), [0]

    class Counting(ReversedTransport):
        def flush(self) -> None:
            flushes[0] += 1
            super().flush()

    transport = Counting(lambda offer: Follower(offer, lambda frame: [frame.replace(b"\x16", b"\x17", 1)]))
    bus = bus_on(clock, transport)
    mailbox = bus.open(SERVER, "the server")
    transport.start(FakeRegistration((0, 9)))

    async def main() -> Sequence[Envelope]:
        bus.answers.expect((Kind.PLAN, 3, 9, 0, 0), 0, 0)
        await bus.answers.all_received()
        assert bus.checkpoint()[3] == [], "an answer that is not there cannot be kept"
        bus.wake(5, 1, [0], 0)
        await asyncio.sleep(0.01)
        assert flushes == [1] and bus.answers.awaited == [3]
        for client in range(10):
            bus.send(plan(client, 1))
        async with asyncio.timeout(60):
            return [await mailbox.get() for _ in range(10)]

    answers = clock.run(main())
    assert Counter(answer.client for answer in answers) == Counter(range(10))
    assert all(answer == report(answer.client, 1) for answer in answers)
    assert flushes == [2] and bus.answers.awaited == [3]


def test_a_message_to_a_process_that_has_gone_is_lost_and_costs_no_framing() -> None:
    class Deserted(ReversedTransport):
        is_wire = True

        def reaches(self, address: int) -> bool:
            return address != 1

        def framing_bytes(self, size: int) -> int:
            return 2

    harness = Harness(transport=Deserted, answers=reported)
    for client in range(3):
        harness.send(plan(client))
    harness.run(SECOND)
    plans = [row for row in harness.rows if row.kind == Kind.PLAN]
    assert [(row.recipient, row.fate, row.framing_bytes, row.arrived_ns, row.repeated) for row in plans] == [
        (0, Fate.DELIVERED, 2, 0, 0),
        (1, Fate.DROPPED, 0, -1, 0),
        (2, Fate.DELIVERED, 2, 0, 0),
    ]
    assert sorted(receipt.address for receipt in harness.asked) == [0, 2] and 1 not in harness.positions.actual


def test_a_client_that_wakes_has_at_most_its_remaining_version_and_none_once_it_is_refused() -> None:
    harness = Harness(answers=lambda request: [])
    for client in range(3):
        harness.bus.send(plan(client, base=7))
    harness.run(MS)
    harness.bus.wake(0, 1, [0], 9)
    harness.bus.wake(1, 1, [1], 0)
    harness.bus.wake(3, 1, [0], 9)
    harness.bus.send(Envelope(Kind.REFUSE, 2, 1, 0, ["foreign-version", "…"]))
    harness.run(SECOND)
    for versions in (harness.positions.actual, harness.positions.delivered):
        assert versions == {0: 7, 1: 0, 2: 0, 3: 0}
    assert [row.kind for row in harness.rows] == [Kind.PLAN] * 3 + [Kind.REFUSE], "a WAKE is no message"
