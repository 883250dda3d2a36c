"""When a message counts as sent, and that nobody sends in another's name."""

from __future__ import annotations

import pytest
from bus_harness import MS, SECOND, Harness, Hold, Lose, plan, report, reported

from seedbus.bus import SERVER, Envelope, Fate, Kind, Network, encode
from seedbus.bus.event_queue import LAST_NS
from seedbus.bus.ledger import Row


def test_what_a_run_ended_too_early_to_send_was_never_sent() -> None:
    harness = Harness(answers=reported, answer_ns=lambda client, round, seeds: SECOND)
    harness.bus.send(plan(1))
    harness.run(SECOND // 2)
    assert harness.asked and harness.bus.sent_bytes(Kind.REPORT) == 0
    harness.bus.close()
    assert [row.kind for row in harness.rows] == [Kind.PLAN]


def test_an_answer_that_is_still_computed_does_not_take_up_the_link() -> None:
    seconds = {1: 100, 2: 2}
    harness = Harness(Network(up_mbps=1.0), answers=reported, answer_ns=lambda _, round, seeds: seconds[round] * SECOND)
    harness.bus.send(plan(1, 1))
    harness.bus.send(plan(1, 2))
    harness.run(200 * SECOND)
    reports = [row for row in harness.rows if row.kind == Kind.REPORT]
    assert [(row.round, row.arrived_ns // SECOND) for row in reports] == [(2, 2), (1, 100)]


def test_what_is_sent_is_counted_when_it_is_sent() -> None:
    harness = Harness(rules=[Hold(SECOND)])
    harness.bus.send(report(1))
    counted = harness.bus.sent_bytes(Kind.REPORT)
    harness.run(2 * SECOND)
    (row,) = harness.rows
    assert counted == harness.bus.sent_bytes(Kind.REPORT) == row.header_bytes + row.payload_bytes


def test_bytes_are_counted_by_kind_and_lost_ones_are_among_them() -> None:
    harness = Harness(rules=[Hold(SECOND), Lose(0.5)])
    sent = [make(client, round) for make in (plan, report) for client in range(4) for round in range(5)]
    for envelope in sent:
        harness.bus.send(envelope)
    expected = {kind: sum(len(encode(each)[0]) for each in sent if each.kind is kind) for kind in Kind}
    assert {kind: harness.bus.sent_bytes(kind) for kind in Kind} == expected
    harness.run(2 * SECOND)
    assert {kind: harness.bus.sent_bytes(kind) for kind in Kind} == expected
    assert len(set(harness.fates)) == 2


def test_nobody_speaks_for_another() -> None:
    harness = Harness()
    frame, header = encode(report(2))
    harness.bus.send_frame(report(3), frame, header)
    harness.run()
    assert harness.fates == [Fate.REFUSED]
    (error,) = (receipt.content for receipt in harness.receipts)
    assert "the client is 2, who did not send it" in str(error)


@pytest.mark.parametrize("frame", [encode(plan(3))[0], encode(Envelope(Kind.BYE, 3, 0, 0))[0]])
def test_a_client_does_not_send_what_only_a_server_sends(frame: bytes) -> None:
    harness = Harness()
    harness.bus.send_frame(report(3), frame, 5)
    harness.run()
    assert harness.fates == [Fate.REFUSED] and harness.bus.refused == {(3, "the kind"): 1}
    assert "which travels the other way" in str(harness.receipts[0].content)


def test_what_would_arrive_after_the_end_of_time_just_never_does() -> None:
    harness = Harness(rules=[Hold(LAST_NS)])
    harness.run(SECOND)
    harness.bus.send(report(1))
    harness.run(3 * SECOND)
    harness.bus.close()
    assert harness.fates == [Fate.UNDER_WAY]


def test_an_answer_that_would_be_sent_after_the_end_of_time_never_is() -> None:
    harness = Harness(answers=reported, answer_ns=lambda client, round, seeds: LAST_NS)
    harness.run(SECOND)
    harness.bus.send(plan(1))
    harness.run(3 * SECOND)
    harness.bus.close()
    assert harness.fates == [Fate.DELIVERED]


def test_a_process_that_comes_or_goes_leaves_rows_that_take_no_time() -> None:
    harness = Harness(Network(up_mbps=0.001), [Hold(SECOND), Lose()])
    harness.run(3 * MS)
    join = Envelope(Kind.JOIN, -3, 0, 0, ["proof"])
    assert harness.bus.record(join) == encode(join)[0]
    harness.bus.record_refused_join(-4, encode(report(1))[0])
    assert harness.rows == [
        Row(3 * MS, 3 * MS, 0, Kind.JOIN, -3, SERVER, 5, 7, 0, 0, 0, 0, 0, Fate.DELIVERED),
        Row(3 * MS, 3 * MS, 0, Kind.JOIN, -4, SERVER, 0, 16, 0, 0, 0, 0, 0, Fate.REFUSED),
    ]
