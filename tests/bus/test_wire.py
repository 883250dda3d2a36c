"""The model of a wire, against cases that were computed by hand, and against the packets that a hub and a link send."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbus.agents.server.registration import NONCE_BYTES
from seedbus.bus import EVALUATOR, SERVER, Kind, Offer, wire
from seedbus.bus.ledger import COLUMNS, DELIVERED, DROPPED, Columns, Row
from seedbus.bus.transport import HostRequest
from seedbus.bus.wire import CURVE, HEADERS, SEGMENT, Carried
from seedbus.bus.zeromq import packet
from seedbus.scenarios.transports.placement import Placement

MS = 1_000_000


def row(kind: Kind, client: int, sent_ms: float, took_ms: float, size: int, round: int = 0) -> Row:
    ends = (client, SERVER) if kind.is_upward else (SERVER, client)
    arrived_ns = -1 if took_ms < 0 else int((sent_ms + took_ms) * MS)
    fate = DROPPED if took_ms < 0 else DELIVERED
    return Row(int(sent_ms * MS), arrived_ns, round, kind, *ends, 0, size, 0, 0, 0, 0, 0, fate)


def columns(*rows: Row) -> Columns:
    table = np.array(rows, np.int64).reshape(-1, len(COLUMNS))
    return {name: table[:, number].copy() for number, name in enumerate(COLUMNS)}


def rounds(*rows: Row, lasts_ms: float = 0) -> tuple[Carried, Carried]:
    """Return what two clients' wires carry for these messages."""
    found = wire.predict(columns(*rows), clients=2, lasts_ns=int(lasts_ms * MS), scenario_bytes=1000)
    return found.rounds


def exchange(work_ms: float, plan: int = 30, report: int = 20, begins_ms: float = 0, round: int = 0) -> list[Row]:
    """Return a PLAN and its REPORT after so many ms of work, over a link of 10 ms."""
    done_ms = begins_ms + 10 + work_ms
    return [row(Kind.PLAN, 0, begins_ms, 10, plan, round), row(Kind.REPORT, 0, done_ms, 10, report, round)]


def test_sizes_are_those_of_a_hubs_and_a_links_packets() -> None:
    offer = packet.offer(bytes(8), Offer(-4, ((0, 0),), False, bytes(1000), bytes(NONCE_BYTES)), 2000)
    assert wire.OFFERED == len(offer) - 1000
    assert wire.HELLO == len(packet.hello(b"", HostRequest(((7, 7),), 1, False)))
    assert wire.PACKET == packet.HEAD and Placement().heartbeat_s * 1e9 == wire.HEARTBEAT_NS


@given(st.integers(0, 2**34))
def test_columns_of_sizes_are_those_of_single_ones(size: int) -> None:
    sizes = np.array([size])
    assert wire._number_bytes(sizes) == packet.number_bytes(size)
    assert wire._entries(sizes) == packet.entry_bytes(size)
    assert wire._framed(sizes) == CURVE.bytes_of(size)


def test_rounds_at_one_instant_have_packets_of_their_own() -> None:
    instant = [Row(0, 0, number, each.kind, *each[4:]) for number in range(5) for each in exchange(0)]
    together = wire.predict(columns(*instant), clients=2, lasts_ns=0, scenario_bytes=1000).rounds
    up, down = rounds(*(each for number in range(5) for each in exchange(0, begins_ms=30 * number, round=number)))
    assert (together.up.segments, together.up.framed) == (5, up.framed)
    assert (together.down.segments, together.down.framed) == (5, down.framed)


def test_a_plan_and_its_report() -> None:
    up, down = rounds(*exchange(5))
    # a packet's head, its number, the entry's length, the box of CURVE, and a frame's header; of an ANSWER a count more
    assert up == Carried(9 + 1 + 1 + 1 + 20 + 33 + 2, 1, 1, lone=1), "the first PLAN follows a WELCOME: it is hasty"
    assert down == Carried(9 + 1 + 1 + 30 + 33 + 2, 1, 1, lone=1)
    assert up.wire == 67 + 52 * 2


@pytest.mark.parametrize(
    ("work_ms", "acks"),
    [
        pytest.param(5, (1, 5), id="a REPORT carries the acknowledgement of its PLAN, and no PLAN that of a REPORT"),
        pytest.param(50, (5, 1), id="a PLAN is acknowledged after 40 ms, and the next one carries that of its REPORT"),
    ],
)
def test_what_is_answered_within_40_ms_is_not_acknowledged_alone(work_ms: float, acks: tuple[int, int]) -> None:
    up, down = rounds(*[each for n in range(5) for each in exchange(work_ms, begins_ms=100 * n, round=n)])
    assert (up.acks, down.acks) == acks


def test_reports_that_are_answered_soon_are_acknowledged_by_the_next_plan() -> None:
    soon = [each for n in range(5) for each in exchange(5, begins_ms=30 * n, round=n)]
    up, down = rounds(*soon)
    assert (up.acks, down.acks) == (1, 1), "the first PLAN and the last REPORT"
    seldom = [each for n in range(5) for each in exchange(5, begins_ms=3000 * n, round=n)]
    up, down = rounds(*seldom)
    # each REPORT is late, and so is the PING after it hasty; a PONG before each PLAN makes that hasty
    assert (up.acks, down.acks) == (5, 5 + 4)


def test_every_second_segment_of_a_long_message_is_acknowledged_at_once() -> None:
    up, down = rounds(*exchange(5, plan=20_000, report=4 * SEGMENT))
    assert (down.framed, down.segments) == (9 + 1 + 3 + 20_000 + 33 + 9, 14)
    assert (up.segments, up.acks) == (5, 7) and down.acks == 2 + 1, "the fifth one of the REPORT is late"


def test_what_is_lost_is_sent_and_neither_answered_nor_acknowledged() -> None:
    up, down = rounds(row(Kind.PLAN, 0, 0, -1, 30))
    assert up == Carried() and down == Carried(76, 1, 0, lone=1)


def test_a_delivery_without_an_answer_has_an_empty_one() -> None:
    dropped_out = rounds(row(Kind.PLAN, 0, 0, 10, 30))[0]
    assert dropped_out == Carried(9 + 1 + 1 + 33 + 2, 1, 1, lone=1)
    offered = [row(Kind.SNAPSHOT, 0, 0, 10, 26), row(Kind.SNAPSHOT, 0, 20, 10, 90), row(Kind.PULL, 0, 10, 10, 28)]
    up, _ = rounds(*offered)
    assert up.framed == (9 + 1 + 1 + 1 + 28 + wire.NOTE + 35) + (9 + 1 + 1 + wire.NOTE + 35)


def test_messages_for_one_client_at_one_instant_travel_in_one_packet() -> None:
    both = [row(Kind.PLAN, client, 0, 10, 30) for client in (0, 0, 1)]
    _, down = rounds(*both)
    assert (down.segments, down.framed) == (2, (9 + 1 + 31 + 31 + 35) + (9 + 1 + 31 + 35))


def test_the_number_of_a_clients_delivery_grows() -> None:
    many = [each for n in range(130) for each in exchange(5, begins_ms=30 * n, round=n)]
    up, down = rounds(*many)
    assert (up.framed, down.framed) == (130 * 67 + 2, 130 * 76 + 2)


def test_an_instrument_takes_no_wire() -> None:
    evaluator = row(Kind.COMMIT, EVALUATOR, 0, 0, 500)
    assert rounds(evaluator) == (Carried(), Carried())


def test_heartbeats_and_connections() -> None:
    found = wire.predict(columns(), clients=3, lasts_ns=10 * 10**9, scenario_bytes=1000)
    # 15 PINGs of 9 + 33 + 2 bytes, their PONGs, and the acknowledgements of these
    assert found.heartbeats == (Carried(15 * 44, 15, 15, lone=15), Carried(15 * 44, 15, lone=15))
    up, down = found.connections
    assert up.framed == 3 * (567 + (24 + 35) + (49 + 35) + (9 + 35))
    assert down.framed == 3 * (301 + (9 + 1047 + 33 + 9) + (25 + 35) + (16 + 35))
    assert found.total.up.wire == 15 * (96 + 52) + up.wire


def test_what_is_lost_is_sent_again_and_so_is_what_its_answer_acknowledges() -> None:
    long = Carried(100 * SEGMENT, 100)
    assert long.sent_again(0.0) == 0 and long.sent_again(0.5) == 100 * (SEGMENT + HEADERS)
    assert Carried(100 * 48, 100, lone=100).sent_again(0.5) == 2 * 100 * (48 + HEADERS)
