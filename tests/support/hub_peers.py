"""A hub on its own, and peers that connect to it and stall."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from bus_harness import FakeRegistration
from hostile_packets import hello
from hostile_peers import Peer
from hostile_pending import PendingPeer
from processes import HANGS_S
from worlds import scenario

from seedbus.bus import HOST, Declined, Envelope, HostRequest, Kind, Offer, encode
from seedbus.bus.envelope import SHORT
from seedbus.bus.transport import ANYBODY, OPERATOR, Rights
from seedbus.bus.zeromq import Entrance, Hub, Limits
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.packet import Type

HEARTBEAT_S = 0.1
WHAT = scenario(task={"name": "quadratic", "dimension": 50}, stop={"rounds": 60})


class OneClientRegistration(FakeRegistration):
    """A registration for client 0 that offers it again to the next peer once a peer has gone.

    Attributes:
        gone_reasons: why each peer has gone, oldest first.
    """

    def __init__(self, scenario: bytes) -> None:
        super().__init__((0, 0), evaluates=False)
        self._scenario = scenario
        self.gone_reasons: list[str] = []

    def greet(self, request: HostRequest, rights: Rights = OPERATOR) -> Offer | Declined:
        answer = super().greet(request)
        return replace(answer, scenario=self._scenario) if isinstance(answer, Offer) else answer

    def gone(self, host: int, why: str, kept_s: float = 0.0) -> None:
        super().gone(host, why)
        self.left.append((0, 0))
        self.gone_reasons.append(why)


@asynccontextmanager
async def hub_at(
    registration: OneClientRegistration,
    *,
    redelivers: bool = True,
    heartbeat_s: float = HEARTBEAT_S,
    report_limit: int = SHORT,
    **options: Any,
) -> AsyncIterator[tuple[Hub, int]]:
    """Run a hub; yields the hub and its port."""
    limits, here = Limits(heartbeat_s, **options), Entrance("tcp://127.0.0.1:*", rights=lambda is_own, user: ANYBODY)
    hub = Hub(here, bytes(8), limits=limits, redelivers=redelivers, report_limit=report_limit)
    hub.start(registration)
    try:
        yield hub, int(hub.endpoint.rpartition(":")[2])
    finally:
        await hub.close()


class Member:
    """A peer that hosts client 0. It runs on the event loop's thread, and so never blocks on the hub."""

    def __init__(self, port: int, previous: bytes = packet.NO_SESSION) -> None:
        self.peer = Peer(port).send(hello(b"", b"", 0, 0, session=previous))

    async def offered(self) -> None:
        """Read the offer as far as its session number."""
        self.peer.socket.setblocking(False)
        head, loop = b"", asyncio.get_running_loop()
        async with asyncio.timeout(HANGS_S):
            while len(head) < 18:
                part = await loop.sock_recv(self.peer.socket, 18 - len(head))
                assert part, "the hub has hung up"
                head += part
        self.peer.socket.setblocking(True)
        self.session = head[10:] if head[0] & 2 else head[3:11]

    def say(self, type: Type, *content: bytes | memoryview) -> None:
        self.peer.send(packet.packet(type, self.session, *content))

    def join(self) -> None:
        self.say(Type.POST, packet.entry(encode(Envelope(Kind.JOIN, HOST, 0, 0, [[[0, 0]]]))[0]))

    async def pass_time(self, seconds: float) -> None:
        """Send pings for a while."""
        until_s = time.monotonic() + seconds
        await self.until(lambda: time.monotonic() > until_s)

    async def until(self, is_over: Callable[[], bool], *, pings: int = 1) -> None:
        """Send pings until a condition holds."""
        until_s = time.monotonic() + HANGS_S
        while not is_over():
            for _ in range(pings):
                self.say(Type.PING)
            await asyncio.sleep(HEARTBEAT_S / 4)
            assert time.monotonic() < until_s


def pinging(port: int, proof: dict[str, bytes], is_over: Callable[[], bool], *, joins: bool = True) -> threading.Thread:
    """Start a peer that sends pings and nothing else until `is_over`. If it joins, it does so first."""
    pending = PendingPeer(port, proof)
    if joins:
        pending.post(pending.join())

    def ping() -> None:
        with pending.peer:
            while not is_over():
                pending.say(Type.PING)
                time.sleep(0.2)

    thread = threading.Thread(target=ping, daemon=True)
    thread.start()
    return thread
