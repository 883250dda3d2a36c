"""Bytes that are damaged on the wire, where there are no keys, change no bit of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import ClientsThread, ServerThread
from tcp_proxy import CountingProxy, FlippedBytes
from worlds import HISO, lossy, outcome

from seedbus.bus import HostRequest
from seedbus.bus.errors import MalformedPacket
from seedbus.bus.zeromq.checksums import Checksums
from seedbus.bus.zeromq.packet import NO_SESSION, Type, decline, packet
from seedbus.scenarios.running.run import run

HALVES = (HostRequest(((0, 3),)), HostRequest(((4, 7),), 0, False))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "seed"),
    [(6_000, 1), *(pytest.param(10_000, seed, marks=pytest.mark.soak) for seed in range(2, 12))],
)
def test_a_run_over_a_wire_that_flips_bytes_has_the_bits_of_a_run_in_memory(
    tmp_path: Path, every: int, seed: int
) -> None:
    what = lossy(algorithm=HISO, stop={"rounds": 60})
    reference, flips = run(what, tmp_path / "whole"), FlippedBytes(every, seed)
    with (
        ServerThread(what, tmp_path / "run", expect=2, heartbeat_s=0.5) as server,
        CountingProxy(server.port, damage=flips) as proxy,
    ):
        clients = [ClientsThread(what, proxy.endpoint, request) for request in HALVES]
        results = server.results()
        for client in clients:
            client.join()
            assert client.failure is None
    (mine, my_lines), (its, its_lines) = outcome(results), outcome(reference)
    refusals = mine.pop("refusals")
    print(f"{flips.count} bytes changed of {proxy.up + proxy.down}; refused: {refusals}")
    assert refusals["damaged"] and flips.count
    its.pop("refusals")
    for table in (mine, its):
        table.pop("refusal_details")
    assert (mine, my_lines) == (its, its_lines)


def test_a_changed_byte_and_a_lost_packet_are_found_and_a_decline_comes_out_of_turn() -> None:
    sends, gets = Checksums(True), Checksums(True)
    first, lost, third = (sends.added(packet(Type.PING, bytes(8), b"content %d" % n)) for n in range(3))
    for at in range(len(first)):
        for bit in range(8):
            changed = bytearray(first)
            changed[at] ^= 1 << bit
            with pytest.raises(MalformedPacket, match="damaged"):
                gets.removed(bytes(changed))
    assert gets.removed(first) == first[:-4]
    with pytest.raises(MalformedPacket, match="lost"):
        gets.removed(third)
    goodbye = packet(Type.DECLINE, NO_SESSION, decline("over", ""))
    assert gets.removed(sends.added(goodbye)) == goodbye
    assert gets.removed(lost) == lost[:-4]
