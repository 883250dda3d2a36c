"""What every transport promises. A new transport joins by one line in `TRANSPORTS` and inherits every test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from seedbus.bus import EVALUATOR, SERVER, MemoryTransport, Transport, UnknownAddress

TRANSPORTS: dict[str, Callable[[], Transport]] = {"memory": MemoryTransport}
MEBIBYTE = 2**20


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    made = TRANSPORTS[request.param]()
    yield made
    made.close()


class Inbox:
    """What arrived at one address."""

    def __init__(self, transport: Transport, address: int) -> None:
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        transport.listen(address, self._frames.put_nowait)

    async def after(self, count: int) -> list[bytes]:
        """The frames once `count` are there, and those that should not have come; gives up after ten seconds."""
        async with asyncio.timeout(10):
            arrived = [await self._frames.get() for _ in range(count)]
        await asyncio.sleep(0.01)
        return arrived + [self._frames.get_nowait() for _ in range(self._frames.qsize())]


async def test_a_frame_arrives_unchanged(transport: Transport) -> None:
    inbox, frame = Inbox(transport, SERVER), bytes(range(256))
    transport.carry(SERVER, frame)
    arrived = await inbox.after(1)
    assert arrived == [frame] and type(arrived[0]) is bytes


async def test_frames_arrive_once_and_in_the_order_in_which_they_were_carried(transport: Transport) -> None:
    inbox, frames = Inbox(transport, 3), [number.to_bytes(4, "big") for number in range(1000)]
    for frame in frames:
        transport.carry(3, frame)
    assert await inbox.after(1000) == frames


async def test_a_frame_reaches_its_address_and_no_other(transport: Transport) -> None:
    inboxes = {address: Inbox(transport, address) for address in (SERVER, EVALUATOR, 0, 1, 2**32 - 1)}
    for address in inboxes:
        transport.carry(address, str(address).encode())
    assert {address: await inbox.after(1) for address, inbox in inboxes.items()} == {
        address: [str(address).encode()] for address in inboxes
    }


async def test_equal_frames_are_not_taken_for_one(transport: Transport) -> None:
    inbox = Inbox(transport, 1)
    for _ in range(3):
        transport.carry(1, b"same")
    assert await inbox.after(3) == [b"same"] * 3


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_536, MEBIBYTE])
async def test_frames_of_any_size_arrive_whole(transport: Transport, size: int) -> None:
    inbox, frame = Inbox(transport, SERVER), bytes(number % 251 for number in range(size))
    transport.carry(SERVER, frame)
    transport.carry(SERVER, b"the next")
    assert await inbox.after(2) == [frame, b"the next"]


async def test_a_receiver_may_answer_at_once(transport: Transport) -> None:
    inbox = Inbox(transport, SERVER)
    transport.listen(3, lambda frame: transport.carry(SERVER, b"answer to " + frame))
    transport.carry(3, b"question")
    assert await inbox.after(1) == [b"answer to question"]


@pytest.mark.parametrize("address", [5, -9])
def test_an_address_where_nobody_listens_is_refused_by_name(transport: Transport, address: int) -> None:
    transport.listen(SERVER, lambda frame: None)
    with pytest.raises(UnknownAddress, match=f"no mailbox is open at address {address}") as caught:
        transport.carry(address, b"frame")
    assert caught.value.address == address


@pytest.mark.parametrize("size", [0, 1, 255, 256, MEBIBYTE])
def test_framing_is_a_whole_number_of_bytes_that_does_not_depend_on_when(transport: Transport, size: int) -> None:
    before = transport.framing_bytes(size)
    transport.listen(SERVER, lambda frame: None)
    transport.carry(SERVER, bytes(size))
    assert type(before) is int and before >= 0 and transport.framing_bytes(size) == before


def test_closing_twice_is_closing_once(transport: Transport) -> None:
    transport.listen(SERVER, lambda frame: None)
    transport.close()
    transport.close()


def test_a_closed_transport_moves_nothing(transport: Transport) -> None:
    arrived: list[bytes] = []
    transport.listen(SERVER, arrived.append)
    transport.close()
    with pytest.raises(UnknownAddress):
        transport.carry(SERVER, b"too late")
    assert arrived == []
