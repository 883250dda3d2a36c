"""When a message counts as sent, and that nobody sends in another's name."""

from __future__ import annotations

from bus_harness import SECOND, Harness, Hold, report

from seedbus.bus import Fate, Kind, Network, encode
from seedbus.bus.clock import LAST_NS


def test_what_a_run_ended_too_early_to_send_was_never_sent() -> None:
    harness = Harness()
    harness.bus.send(report(1), after_ns=SECOND)
    harness.run(SECOND // 2)
    assert harness.bus.sent_bytes(Kind.REPORT) == 0
    harness.bus.close()
    assert harness.rows == []


def test_an_answer_that_is_still_computed_does_not_take_up_the_link() -> None:
    harness = Harness(Network(up_mbps=1.0))
    harness.bus.send(report(1, 1), after_ns=100 * SECOND)
    harness.bus.send(report(1, 2), after_ns=2 * SECOND)
    harness.run(200 * SECOND)
    assert [(row.round, row.arrived_ns // SECOND) for row in harness.rows] == [(2, 2), (1, 100)]


def test_what_is_sent_is_counted_when_it_is_sent() -> None:
    harness = Harness(rules=[Hold(SECOND)])
    harness.bus.send(report(1))
    counted = harness.bus.sent_bytes(Kind.REPORT)
    harness.run(2 * SECOND)
    (row,) = harness.rows
    assert counted == harness.bus.sent_bytes(Kind.REPORT) == row.header_bytes + row.payload_bytes


def test_nobody_speaks_for_another() -> None:
    harness = Harness()
    frame, header = encode(report(2))
    harness.bus.send_frame(report(3), frame, header)
    harness.run()
    assert harness.fates == [Fate.REFUSED]
    (error,) = (letter.content for letter in harness.letters)
    assert "the client is 2, who did not send it" in str(error)


def test_what_would_arrive_after_the_end_of_time_just_never_does() -> None:
    harness = Harness(rules=[Hold(LAST_NS)])
    harness.run(SECOND)
    harness.bus.send(report(1))
    harness.run(3 * SECOND)
    harness.bus.close()
    assert harness.fates == [Fate.UNDER_WAY]
