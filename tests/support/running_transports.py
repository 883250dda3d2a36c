"""Every transport with its followers connected, for the tests of what every transport promises."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import zmq
from bus_harness import FakeRegistration, Follower
from processes import HANGS_S

from seedbus.bus import Envelope, HostRequest, Kind, MemoryTransport, Offer, Recruit, Transport, encode
from seedbus.bus.zeromq import Entrance, Hub, Joining, Limits, follow
from seedbus.scenarios.transports.transports import TRANSPORTS
from seedbus.scenarios.transports.zeromq import ZeroMQ

Answers = Callable[[bytes], list[bytes]]
SOCKET_TRANSPORTS = [name for name, kind in TRANSPORTS.items() if isinstance(kind, ZeroMQ)]
TRANSPORT_NAMES = ["memory", "together", "a thread", *SOCKET_TRANSPORTS]
CLIENTS = (0, 3)


def echo(frame: bytes) -> list[bytes]:
    return [b"answer to " + frame]


class RunningTransport:
    """A transport whose followers have joined.

    Attributes:
        asked: host → the frames that its followers were asked, oldest first.
    """

    def __init__(self, transport: Transport, registration: FakeRegistration, asked: dict[int, list[bytes]]) -> None:
        self.transport = transport
        self.registration = registration
        self.asked = asked

    async def ask(self, *deliveries: tuple[int, bytes]) -> list[list[bytes]]:
        """Deliver frames to addresses and return the answers to each."""
        answers: list[list[list[bytes]]] = [[] for _ in deliveries]
        unanswered = set(range(len(deliveries)))
        is_over = asyncio.Event()

        def answered(number: int, frames: list[bytes]) -> None:
            answers[number].append(frames)
            unanswered.discard(number)
            if not unanswered:
                is_over.set()

        for number, (address, frame) in enumerate(deliveries):
            self.transport.deliver(address, frame, partial(answered, number))
        self.transport.flush()
        async with asyncio.timeout(HANGS_S):
            await is_over.wait()
        await asyncio.sleep(0.01)
        assert {len(each) for each in answers} == {1}, "every delivery is answered once"
        return [frames for (frames,) in answers]


@asynccontextmanager
async def running_transport(
    way: str, folder: Path, answers: Answers = echo, **options: Any
) -> AsyncIterator[RunningTransport]:
    """Run a transport with followers for the evaluator and clients 0 … 3.

    Args:
        way: one of `TRANSPORT_NAMES`.
        folder: where a socket of the file system is created.
        answers: the answers to a frame.
        options: of the hub; `requests`: one for each process with followers, by default one for all.
    """
    requests: Sequence[HostRequest] = options.pop("requests", [HostRequest()])
    registration = FakeRegistration(*(span for request in requests for span in request.spans or [CLIENTS]))
    asked: dict[int, list[bytes]] = {}

    def recruit(offer: Offer) -> Follower:
        frames = asked.setdefault(offer.host, [])

        def handle(frame: bytes) -> list[bytes]:
            frames.append(frame)
            return answers(frame)

        return Follower(offer, handle)

    if way not in SOCKET_TRANSPORTS:
        transport = MemoryTransport(recruit, offload=way == "a thread", gathers=way == "together")
        transport.start(registration)
        try:
            yield RunningTransport(transport, registration, asked)
        finally:
            await transport.close()
        return
    async with listening_hub(way, folder, **options) as (hub, context):
        hub.start(registration)
        with followers_on_threads(hub, requests, recruit, context):
            await until(lambda: not registration.missing)
            try:
                yield RunningTransport(hub, registration, asked)
            finally:
                for host in sorted(registration.hosts):
                    hub.post(host, encode(Envelope(Kind.BYE, host, 0, 0))[0])
                await hub.close()


@asynccontextmanager
async def listening_hub(
    way: str, folder: Path, heartbeat_s: float = 2.0, **options: Any
) -> AsyncIterator[tuple[Hub, zmq.Context[Any]]]:
    """Run a hub that no peer has connected to yet."""
    kind = TRANSPORTS[way]
    assert isinstance(kind, ZeroMQ)
    endpoint = kind.endpoint or f"ipc://{folder}/hub"
    context = zmq.Context[Any]()
    hub = Hub(Entrance(endpoint), b"this run", limits=Limits(heartbeat_s), context=context, **options)
    try:
        yield hub, context
    finally:
        await hub.close()
        context.destroy(linger=0)


@contextmanager
def followers_on_threads(
    hub: Hub, requests: Sequence[HostRequest], recruit: Recruit, context: zmq.Context[Any]
) -> Iterator[None]:
    """Run followers, those of each request on a thread, until the hub says goodbye."""
    threads = [
        threading.Thread(target=partial(follow, Joining(hub.endpoint, request), recruit, context=context))
        for request in requests
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(HANGS_S)
    assert not any(thread.is_alive() for thread in threads), "the followers have not heard the goodbye"


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANGS_S):
        while not is_so():  # noqa: ASYNC110 - the condition changes on another thread
            await asyncio.sleep(0.001)
