"""Fuzzed packets over real sockets during a run: all are refused and counted, and nothing else happens."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hostile_peers import Peer, frame
from hostile_run import HostileRun
from worlds import go, scenario

from seedbus.agents.messages import Join, Span
from seedbus.bus import Envelope, HostRequest, Kind, encode
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.packet import NO_SESSION, Type

MOST_GROWTH = 50 * 10**6
TOGETHER = 9  # frames on one connection: the hub hangs up at ten
ENVELOPES = [
    encode(Join(-3, (Span(0, 7, 0),), b"s" * 16, b"x" * 8).pack())[0],
    encode(Envelope(Kind.REPORT, 3, 5, 4, [b"\0" * 12]))[0],
    encode(Envelope(Kind.EVALUATION, -2, 5, 4, [["loss"], b"\0" * 8, []]))[0],
    encode(Envelope(Kind.PLAN, 3, 5, 4, [[7, 1, 3, b"\0" * 4], []]))[0],
]
CONTENTS = [
    packet.hello(b"", HostRequest()),
    packet.hello(b"", HostRequest(((0, 3), (5, 7)), 0, False)),
    b"".join(map(packet.entry, ENVELOPES)),
    b"".join(packet.deliveries(3, [(frame, b"") for frame in ENVELOPES])),
    b"".join(packet.answers(2, [ENVELOPES, [], ENVELOPES[:1]])),
    packet.decline("reason", "detail"),
    b"",
]


def fuzzed(seed: int) -> Iterator[bytes]:
    """Yield mutated packets: bytes are changed, deleted, repeated or inserted, or the end is another packet's."""
    draw = random.Random(seed)
    while True:
        session = NO_SESSION if draw.random() < 0.3 else draw.randbytes(8)
        data = bytearray(packet.packet(draw.choice(list(Type)), session, draw.choice(CONTENTS)))
        for _ in range(draw.randrange(5)):
            at, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
            match draw.randrange(5):
                case 0:
                    data[at : at + 1] = draw.randbytes(1)
                case 1:
                    del data[at:end]
                case 2:
                    data[at:at] = data[at:end]
                case 3:
                    data[at:at] = draw.randbytes(draw.randrange(40))
                case 4:
                    data[at:] = draw.choice(CONTENTS)[end:]
        yield bytes(data) if draw.random() < 0.9 else draw.randbytes(draw.randrange(300))


def send(port: int, frames: list[bytes]) -> None:
    """Send frames on a connection of their own, and wait until the hub has read all."""
    with Peer(port) as peer:
        peer.raw(b"".join(map(frame, frames)))
        peer.socket.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while peer.socket.recv(2**16):
                pass


def packets_refused(hostile_run: HostileRun) -> int:
    """Count the packets that the server has refused; a refusal for silence is of a connection, not of a packet."""
    return sum(count for reason, count in hostile_run.server.refusals().items() if reason != "said-nothing")


@pytest.mark.slow
@pytest.mark.parametrize(
    "count",
    [2_000, pytest.param(30_000, marks=pytest.mark.soak), pytest.param(1_000_000, marks=pytest.mark.soak)],
)
def test_fuzzed_packets_change_nothing(tmp_path: Path, count: int) -> None:
    what, packets, began = scenario(stop={"rounds": 200}), fuzzed(11), time.monotonic()
    with HostileRun(what, tmp_path / "run") as hostile_run:
        before, resident = packets_refused(hostile_run), hostile_run.server.resident
        for first in range(0, count, TOGETHER):
            send(hostile_run.server.port, [next(packets) for _ in range(min(TOGETHER, count - first))])
            if first % (TOGETHER * 5000) == 0:
                hostile_run.step()
        hostile_run.server.wait_for(lambda: packets_refused(hostile_run) >= before + count, "has refused them all")
        refusals, growth = hostile_run.server.refusals(), hostile_run.server.resident - resident
        took = time.monotonic() - began
        print(f"{count:,} packets at {count / took:,.0f}/s; {growth / 1e6:.1f} MB more; {dict(refusals)}")
        assert packets_refused(hostile_run) == before + count
        assert growth < MOST_GROWTH
        hostile_run.gate.open_to(2**32)
        summary = hostile_run.server.results()
    undisturbed = go(tmp_path / "undisturbed", what).summary
    same = ("digest", "ledger_hash", "metrics", "rounds")
    assert {name: summary[name] for name in same} == {name: undisturbed[name] for name in same}
    counted = {reason: sum(summary["refusals"][reason].values()) for reason in refusals}
    assert all(counted[reason] >= count for reason, count in refusals.items())
