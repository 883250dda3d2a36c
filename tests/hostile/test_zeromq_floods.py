"""Floods: the run goes on, the server's memory does not grow with them, and each flooding peer is named."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hostile_packets import hello
from hostile_peers import COMMAND, MORE, Caller, Peer, frame
from hostile_pending import CLIENT, PendingPeer
from hostile_run import HostileRun
from hostile_wire import PING
from hub_peers import OneClientRegistration, hub_at
from running_transports import until
from worlds import go, scenario

from seedbus.bus.zeromq.packet import HELLO_BYTES
from seedbus.bus.zeromq.server.connection import STRANGERS_STRIKES
from seedbus.bus.zeromq.server.connections import STRANGERS_OF_A_HOST

MOST_GROWTH = 50 * 10**6
MOST_SENT = 500 * 10**6
WHAT = scenario(task={"name": "quadratic", "dimension": 50}, stop={"rounds": 1000})
SAME = ("digest", "ledger_hash", "metrics", "rounds", "reason")
CONNECT_FOR_EVER = """
import socket, sys
while True:
    socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()
"""
WITHOUT_END = {
    "frames-of-64-kib": frame(bytes(2**16), MORE),
    "frames-of-nothing": frame(b"", MORE) * 50_000,
    "frames-of-34-bytes": frame(bytes(34), MORE) * 2000,
    "pings-of-zmtp": frame(b"\x04PING\0\x64", COMMAND) * 10_000,
}


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileRun]:
    with HostileRun(WHAT, tmp_path_factory.mktemp("floods") / "run") as hostile_run:
        yield hostile_run


@pytest.fixture
def bounded_run(hostile_run: HostileRun) -> Iterator[HostileRun]:
    """The run, going on, also afterwards; then its server must have closed what it opened and used little memory."""
    resident, descriptors, threads = hostile_run.before
    with hostile_run.running(50, 0.25):  # the run must not end before the last flood, however long each takes
        yield hostile_run
    hostile_run.step()
    hostile_run.server.wait_for(lambda: hostile_run.server.descriptors == descriptors, "closes what it opened")
    growth = hostile_run.server.peak - resident
    print(f"{growth / 1e6:.1f} MB more at the most, {(hostile_run.server.resident - resident) / 1e6:.1f} MB now")
    assert growth < MOST_GROWTH
    assert hostile_run.server.threads == threads


def pour(caller: Caller, data: bytes) -> int:
    """Send the same bytes again and again until the hub hangs up. Returns how many bytes it accepted."""
    sent = 0
    with caller:
        while sent < MOST_SENT:
            try:
                caller.socket.sendall(data)
            except OSError:
                return sent
            sent += len(data)
    raise AssertionError(f"the hub accepted {sent:,} bytes")


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_END)
def test_a_message_that_never_ends_is_cut_off(bounded_run: HostileRun, name: str) -> None:
    peer = Peer(bounded_run.server.port)
    began = time.monotonic()
    print(f"{pour(peer, WITHOUT_END[name]):,} bytes in {time.monotonic() - began:.2f} s")
    settled(bounded_run, peer.name, {"unfinished-message": 1})


async def test_a_message_that_never_ends_is_cut_off_while_the_loop_is_busy() -> None:
    registration, cut = OneClientRegistration(b""), threading.Event()

    def send(peer: Peer) -> None:
        with suppress(OSError):
            for _ in range(400):  # 29 MB, which take three times as much memory
                peer.socket.sendall(WITHOUT_END["frames-of-34-bytes"])
            return
        cut.set()

    async with hub_at(registration) as (_, port):
        with await asyncio.to_thread(Peer, port) as peer:
            sender = threading.Thread(target=send, args=(peer,))
            sender.start()
            sender.join()  # the loop waits for it
            assert cut.is_set()
            await until(lambda: registration.refusals == ["unfinished-message"])


@pytest.mark.slow
def test_many_messages_that_never_end_are_cut_off_at_once(bounded_run: HostileRun) -> None:
    peers = [Peer(bounded_run.server.port) for _ in range(8)]
    pourers = [threading.Thread(target=pour, args=(peer, WITHOUT_END["frames-of-64-kib"])) for peer in peers]
    for pourer in pourers:
        pourer.start()
    for pourer in pourers:
        pourer.join()
    for peer in peers:
        settled(bounded_run, peer.name, {"unfinished-message": 1})


@pytest.mark.slow
def test_messages_of_very_many_frames_are_cut_off(bounded_run: HostileRun) -> None:
    peer = Peer(bounded_run.server.port)
    pour(peer, frame(b"", MORE) * 30_000 + frame(b""))
    settled(bounded_run, peer.name, {"frames": 1, "too-many-refusals": 1})


@pytest.mark.slow
@pytest.mark.parametrize(("size", "reason"), [(HELLO_BYTES, "said-nothing"), (2**17, "unfinished-message")])
def test_a_frame_that_is_never_filled_is_a_flood_if_it_is_longer_than_any_hello(
    bounded_run: HostileRun, size: int, reason: str
) -> None:
    """A stranger that sends no whole message, and no more bytes than it may, is refused for its silence."""
    with Peer(bounded_run.server.port).raw(frame(bytes(size))[:-1]) as peer:
        settled(bounded_run, peer.name, {reason: 1})


@pytest.mark.soak
@pytest.mark.parametrize(
    "name, message, reason, count",
    [
        ("pings", PING, "stale-session", 50_000),
        ("hellos", hello(b"", b"", 0, 0), "no-clients", 20_000),
        ("noise", b"\xaa" * 20, "protocol", 50_000),
    ],
    ids=["pings", "hellos", "noise"],
)
def test_a_peer_that_floods_is_hung_up_on(
    bounded_run: HostileRun, name: str, message: bytes, reason: str, count: int
) -> None:
    """One connection after the other sends 500 messages and reads nothing that the hub answers."""
    before, began = bounded_run.server.refusals(), time.monotonic()
    for _ in range(count // 500):
        with Peer(bounded_run.server.port).raw(frame(message) * 500) as peer:
            assert peer.is_hung_up()
    found = bounded_run.server.refusals() - before
    print(f"{count:,} {name} over {count // 500} connections in {time.monotonic() - began:.2f} s: {dict(found)}")
    assert found[reason] == STRANGERS_STRIKES * (count // 500) and found["too-many-refusals"] == count // 500


@pytest.mark.slow
@pytest.mark.parametrize("how", [Caller.close, Caller.reset], ids=["closed", "reset"])
def test_ten_thousand_connections_come_and_go(bounded_run: HostileRun, how: Callable[[Caller], None]) -> None:
    before, began = bounded_run.server.refusals("a stranger"), time.monotonic()
    for _ in range(100):
        for caller in [Caller(bounded_run.server.port) for _ in range(100)]:
            how(caller)
    expected = Counter({"no-handshake": 10_000})
    bounded_run.server.wait_for(
        lambda: bounded_run.server.refusals("a stranger") - before == expected, "counts them all"
    )
    print(f"{time.monotonic() - began:.2f} s")


@pytest.mark.soak
def test_three_hundred_that_say_nothing_are_hung_up_on(bounded_run: HostileRun) -> None:
    """The oldest at once, as the connections of one host are limited; the others after three heartbeats."""
    before, callers = bounded_run.server.refusals(), []
    for kind in (Caller, Peer):
        for _ in range(150):
            with suppress(ConnectionError):  # the hub may hang up before the greeting
                callers.append(kind(bounded_run.server.port))
    for caller in callers:
        assert caller.is_hung_up()
        caller.close()

    def found() -> Counter[str]:
        return bounded_run.server.refusals() - before

    bounded_run.server.wait_for(lambda: found()["too-many-connections"] + found()["said-nothing"] == 300, "names them")
    assert found()["too-many-connections"] >= 300 - STRANGERS_OF_A_HOST


@pytest.mark.soak
def test_connections_beyond_the_limit_on_files_are_hung_up_on(bounded_run: HostileRun) -> None:
    limits = resource.prlimit(bounded_run.server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(bounded_run.server.pid, resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        before = bounded_run.server.refusals()
        callers = []
        for _ in range(400):
            with suppress(ConnectionError):  # the hub may hang up while the connection is made
                callers.append(Caller(bounded_run.server.port))
        for caller in callers:
            assert caller.is_hung_up()
            caller.close()

        def found() -> Counter[str]:
            return bounded_run.server.refusals() - before

        bounded_run.server.wait_for(
            lambda: found()["too-many-connections"] + found()["said-nothing"] == 400, "names them"
        )
        assert found()["too-many-connections"] > 100
    finally:
        resource.prlimit(bounded_run.server.pid, resource.RLIMIT_NOFILE, limits)


@pytest.mark.slow
def test_a_message_of_a_peer_with_an_offer_that_never_ends_is_cut_off(hostile_run: HostileRun) -> None:
    """The hub checks a peer that has sent a whole message before in another place."""
    hostile_run.stop_worker()
    resident, descriptors, _ = hostile_run.before
    for content in ("frames-of-64-kib", "frames-of-nothing"):
        pending = PendingPeer(hostile_run.server.port, hostile_run.proof)
        pour(pending.peer, WITHOUT_END[content])
        settled(hostile_run, pending.peer.name, {"unfinished-message": 1})
    hostile_run.start_worker()
    hostile_run.step()
    print(f"{(hostile_run.server.peak - resident) / 1e6:.1f} MB more at the most, for client {CLIENT}")
    assert hostile_run.server.peak - resident < MOST_GROWTH
    hostile_run.server.wait_for(lambda: hostile_run.server.descriptors == descriptors, "closes what it opened")


@pytest.mark.soak
def test_the_run_ends_as_if_nobody_had_come_while_connections_go_on(hostile_run: HostileRun, tmp_path: Path) -> None:
    hostile_run.gate.open_to(2**32)
    hostile_run.server.wait_for(lambda: hostile_run.server.ask()["rounds"] > 950, "is nearly over")
    # in a process of its own, so that it does not hold up the honest workers
    flooder = subprocess.Popen([sys.executable, "-c", CONNECT_FOR_EVER, str(hostile_run.server.port)])
    try:
        summary = hostile_run.server.results()
    finally:
        flooder.kill()
        flooder.wait()
    undisturbed = go(tmp_path / "undisturbed", WHAT).summary
    assert {name: summary[name] for name in SAME} == {name: undisturbed[name] for name in SAME}


def settled(hostile_run: HostileRun, name: str, reasons: dict[str, int]) -> None:
    """Wait until a peer has been refused for these reasons, and for nothing else."""
    expected = Counter(reasons)

    def is_settled() -> bool:
        found = hostile_run.server.refusals(name)
        assert found <= expected, f"{name} was refused for {dict(found)}, and not only for {reasons}"
        return found == expected

    hostile_run.server.wait_for(is_settled, "refuses what it should")
