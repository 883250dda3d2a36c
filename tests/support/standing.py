"""Transports with followers that stand ready, for the tests of what every transport promises."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import zmq
from bus_harness import Desk, Follower

from seedbus.bus import Envelope, HostRequest, Kind, MemoryTransport, Offer, Recruit, Transport, encode
from seedbus.bus.zeromq import Hub, Limits, follow
from seedbus.scenarios.transports.transports import TRANSPORTS
from seedbus.scenarios.transports.zeromq import ZeroMQ

Answers = Callable[[bytes], list[bytes]]
WIRES = [name for name, kind in TRANSPORTS.items() if isinstance(kind, ZeroMQ)]
WAYS = ["memory", "together", "a thread", *WIRES]
CLIENTS = (0, 3)


def echo(frame: bytes) -> list[bytes]:
    return [b"answer to " + frame]


class Standing:
    """A transport whose followers are there. asked: what those of each host were asked, in their order."""

    def __init__(self, transport: Transport, desk: Desk, asked: dict[int, list[bytes]]) -> None:
        self.transport, self.desk, self.asked = transport, desk, asked

    async def ask(self, *deliveries: tuple[int, bytes]) -> list[list[bytes]]:
        """Deliver frames; returns what each was answered. Gives up after a minute."""
        got: list[list[list[bytes]]] = [[] for _ in deliveries]
        open_ones, over = set(range(len(deliveries))), asyncio.Event()

        def answered(number: int, frames: list[bytes]) -> None:
            got[number].append(frames)
            open_ones.discard(number)
            if not open_ones:
                over.set()

        for number, (address, frame) in enumerate(deliveries):
            self.transport.deliver(address, frame, partial(answered, number))
        self.transport.flush()
        async with asyncio.timeout(60):
            await over.wait()
        await asyncio.sleep(0.01)
        assert {len(each) for each in got} == {1}, "every delivery is answered once"
        return [frames for (frames,) in got]


@asynccontextmanager
async def standing(way: str, folder: Path, answers: Answers = echo, **options: Any) -> AsyncIterator[Standing]:
    """A transport with followers for the evaluator and clients 0 … 3, in one process or in as many as `wishes` say."""
    wishes: Sequence[HostRequest] = options.pop("wishes", [HostRequest()])
    desk, asked = Desk(*(span for wish in wishes for span in wish.spans or [CLIENTS])), dict[int, list[bytes]]()

    def recruit(offer: Offer) -> Follower:
        heard = asked.setdefault(offer.host, [])

        def handle(frame: bytes) -> list[bytes]:
            heard.append(frame)
            return answers(frame)

        return Follower(offer, handle)

    if way not in WIRES:
        transport = MemoryTransport(recruit, offload=way == "a thread", gathers=way == "together")
        transport.start(desk)
        try:
            yield Standing(transport, desk, asked)
        finally:
            await transport.close()
        return
    async with listening(way, folder, **options) as (hub, context):
        hub.start(desk)
        with following(hub, wishes, recruit, context):
            await until(lambda: not desk.missing)
            try:
                yield Standing(hub, desk, asked)
            finally:
                for host in sorted(desk.hosts):
                    hub.post(host, encode(Envelope(Kind.BYE, host, 0, 0))[0])
                await hub.close()


@asynccontextmanager
async def listening(way: str, folder: Path, **options: Any) -> AsyncIterator[tuple[Hub, zmq.Context[Any]]]:
    """A hub to which nobody has come yet."""
    kind = TRANSPORTS[way]
    assert isinstance(kind, ZeroMQ)
    endpoint = kind.endpoint or f"ipc://{folder}/hub"
    context = zmq.Context[Any]()
    hub = Hub(endpoint, b"this run", limits=Limits(0.2), context=context, **options)
    try:
        yield hub, context
    finally:
        await hub.close()
        context.destroy(linger=0)


@contextmanager
def following(hub: Hub, wishes: Sequence[HostRequest], recruit: Recruit, context: zmq.Context[Any]) -> Iterator[None]:
    """Followers on a thread, which is there until the hub says goodbye."""
    options = {"context": context, "patience_s": 5.0}
    thread = threading.Thread(target=follow, args=(hub.endpoint, wishes, recruit), kwargs=options)
    thread.start()
    try:
        yield
    finally:
        thread.join(60)
    assert not thread.is_alive(), "the followers have not heard the goodbye"


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - what is waited for happens on another thread
            await asyncio.sleep(0.001)
