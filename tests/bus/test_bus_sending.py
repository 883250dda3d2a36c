"""When a message counts as sent, and the refusal of messages in another client's name."""

from __future__ import annotations

import pytest
from bus_harness import MS, SECOND, Harness, Hold, Lose, bus_on, plan, report, reported

from seedbus.bus import (
    EVALUATOR,
    SERVER,
    Envelope,
    Fate,
    Kind,
    MalformedEnvelope,
    MemoryTransport,
    Network,
    Tally,
    VirtualClock,
    encode,
)
from seedbus.bus.envelope import SHORT
from seedbus.bus.event_queue import LAST_NS
from seedbus.bus.ledger import Row


def test_a_message_due_after_the_end_of_the_run_is_never_sent() -> None:
    harness = Harness(answers=reported, answer_ns=lambda client, round, seeds: SECOND)
    harness.bus.send(plan(1))
    harness.run(SECOND // 2)
    assert harness.asked and harness.bus.sent_bytes(Kind.REPORT) == 0
    harness.bus.close()
    assert [row.kind for row in harness.rows] == [Kind.PLAN]


def test_an_answer_that_is_still_being_computed_does_not_occupy_the_link() -> None:
    seconds = {1: 100, 2: 2}
    harness = Harness(Network(up_mbps=1.0), answers=reported, answer_ns=lambda _, round, seeds: seconds[round] * SECOND)
    harness.bus.send(plan(1, 1))
    harness.bus.send(plan(1, 2))
    harness.run(200 * SECOND)
    reports = [row for row in harness.rows if row.kind == Kind.REPORT]
    assert [(row.round, row.arrived_ns // SECOND) for row in reports] == [(2, 2), (1, 100)]


def test_a_message_is_counted_when_it_is_sent() -> None:
    harness = Harness(rules=[Hold(SECOND)])
    harness.bus.send(report(1))
    counted = harness.bus.sent_bytes(Kind.REPORT)
    harness.run(2 * SECOND)
    (row,) = harness.rows
    assert counted == harness.bus.sent_bytes(Kind.REPORT) == row.header_bytes + row.payload_bytes


def test_bytes_are_counted_by_kind_including_lost_messages_without_digests_and_instruments() -> None:
    harness = Harness(rules=[Hold(SECOND), Lose(0.5)])
    sent = [make(client, round) for make in (plan, report) for client in range(4) for round in range(5)]
    for envelope in sent:
        harness.bus.send(envelope)
    harness.bus.send(report(1, 7, size=8 + 5), Tally(digest_bytes=5))
    sent.append(report(1, 7))
    for kind in (Kind.COMMIT, Kind.EVALUATION):
        harness.bus.send(Envelope(kind, EVALUATOR, 0, 0))
    expected = {kind: sum(len(encode(each)[0]) for each in sent if each.kind is kind) for kind in Kind}
    assert {kind: harness.bus.sent_bytes(kind) for kind in Kind} == expected
    harness.run(2 * SECOND)
    assert {kind: harness.bus.sent_bytes(kind) for kind in Kind} == expected
    assert len(set(harness.fates)) == 2


def test_a_client_computes_from_when_its_plan_is_sent_until_it_has_answered_or_the_plan_is_lost() -> None:
    harness = Harness(rules=[Hold(3 * MS)], answers=reported, answer_ns=lambda *_: 5 * MS)
    lost = Harness(rules=[Lose(arriving=True), Hold(3 * MS)], answers=reported)
    freed = {harness: list[int](), lost: list[int]()}
    for each in (harness, lost):
        each.bus.on_free = lambda each=each: freed[each].append(each.clock.now_ns // MS)
        for client, round in ((1, 2), (3, 4)):
            each.bus.send(plan(client, round))
        each.bus.send(report(2, 4))
        each.run(MS)
        assert each.bus.computing == {(1, 2), (3, 4)} and each.bus.queues == {"in_flight": 3, "answers": 0}
        each.run(4 * MS)
    assert harness.bus.computing == {(1, 2), (3, 4)} and harness.bus.queues == {"in_flight": 0, "answers": 2}
    assert lost.bus.computing == set() and freed == {harness: [], lost: [3, 3]}
    harness.run(SECOND)
    assert harness.bus.computing == set() and freed[harness] == [8, 8]


def test_a_client_cannot_send_in_the_name_of_another() -> None:
    harness = Harness()
    frame, header = encode(report(2))
    harness.bus.send_frame(report(3), frame, header)
    harness.run()
    assert harness.fates == [Fate.REFUSED]
    (error,) = (receipt.content for receipt in harness.receipts)
    assert "the client is 2, which did not send it" in str(error)


@pytest.mark.parametrize("frame", [encode(plan(3))[0], encode(Envelope(Kind.BYE, 3, 0, 0))[0]])
def test_a_client_cannot_send_a_kind_that_only_the_server_sends(frame: bytes) -> None:
    harness = Harness()
    harness.bus.send_frame(report(3), frame, 5)
    harness.run()
    assert harness.fates == [Fate.REFUSED] and harness.bus.refused == {(3, "the kind"): 1}
    assert "which travels the other way" in str(harness.receipts[0].content)


@pytest.mark.parametrize(("limit", "most"), [(10, SHORT), (2 * SHORT, 2 * SHORT)])
def test_a_report_is_refused_above_the_limit_of_the_run_and_never_below_that_of_short_messages(
    limit: int, most: int
) -> None:
    clock = VirtualClock()
    bus = bus_on(clock, MemoryTransport(), report_limit=limit)
    mailbox = bus.open(SERVER, "the server")

    async def arrives(size: int) -> bool:
        frame, header_bytes = encode(report(1, size=size))
        bus.send_frame(report(1), frame, header_bytes)
        return not isinstance(await mailbox.get(), MalformedEnvelope)

    overhead = len(encode(report(1, size=most - 99))[0]) - (most - 99)
    assert clock.run(arrives(most - overhead)) and not clock.run(arrives(most - overhead + 1))


def test_a_message_due_after_the_range_of_the_clock_never_arrives() -> None:
    harness = Harness(rules=[Hold(LAST_NS)])
    harness.run(SECOND)
    harness.bus.send(report(1))
    harness.run(3 * SECOND)
    harness.bus.close()
    assert harness.fates == [Fate.UNDER_WAY]


def test_an_answer_due_after_the_range_of_the_clock_is_never_sent() -> None:
    harness = Harness(answers=reported, answer_ns=lambda client, round, seeds: LAST_NS)
    harness.run(SECOND)
    harness.bus.send(plan(1))
    harness.run(3 * SECOND)
    harness.bus.close()
    assert harness.fates == [Fate.DELIVERED]


def test_a_process_that_joins_or_leaves_has_rows_of_zero_duration() -> None:
    harness = Harness(Network(up_mbps=0.001), [Hold(SECOND), Lose()])
    harness.run(3 * MS)
    join = Envelope(Kind.JOIN, -3, 0, 0, ["proof"])
    assert harness.bus.record(join) == encode(join)[0]
    harness.bus.record_refused_join(-4, encode(report(1))[0])
    assert harness.rows == [
        Row(3 * MS, 3 * MS, 0, Kind.JOIN, -3, SERVER, 5, 7, 0, 0, 0, 0, 0, Fate.DELIVERED),
        Row(3 * MS, 3 * MS, 0, Kind.JOIN, -4, SERVER, 0, 16, 0, 0, 0, 0, 0, Fate.REFUSED),
    ]
