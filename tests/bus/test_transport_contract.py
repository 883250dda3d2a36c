"""The contract of every transport. A transport that is added to `TRANSPORT_NAMES` inherits every test."""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from pathlib import Path

import pytest
from bus_harness import FakeRegistration, Follower
from running_transports import (
    CLIENTS,
    SOCKET_TRANSPORTS,
    TRANSPORT_NAMES,
    echo,
    followers_on_threads,
    listening_hub,
    running_transport,
    until,
)

from seedbus.bus import EVALUATOR, HOST, Envelope, HostRequest, Kind, UnknownAddress, encode

MEBIBYTE = 2**20


def digest(frame: bytes) -> list[bytes]:
    return [hashlib.sha256(frame).digest()]


@pytest.mark.parametrize("name", TRANSPORT_NAMES)
async def test_a_frame_arrives_unchanged_and_so_does_its_answer(name: str, tmp_path: Path) -> None:
    async with running_transport(name, tmp_path) as running:
        frame = bytes(range(256))
        ((answer,),) = await running.ask((2, frame))
        assert answer == b"answer to " + frame and type(answer) is bytes
        assert running.asked == {HOST: [frame]} and type(running.asked[HOST][0]) is bytes


@pytest.mark.parametrize("name", TRANSPORT_NAMES)
async def test_a_thousand_deliveries_at_once_are_answered_and_handled_in_order(name: str, tmp_path: Path) -> None:
    async with running_transport(name, tmp_path) as running:
        deliveries = [(number % 5 or EVALUATOR, f"{number % 5} {number}".encode()) for number in range(1000)]
        deliveries = [(address - 1 if address > 0 else address, frame) for address, frame in deliveries]
        assert await running.ask(*deliveries) == [echo(frame) for _, frame in deliveries]
        for first in b"01234":
            sent = [frame for _, frame in deliveries if frame[0] == first]
            assert [frame for frame in running.asked[HOST] if frame[0] == first] == sent and len(sent) == 200


@pytest.mark.parametrize("name", TRANSPORT_NAMES)
async def test_equal_frames_are_separate_deliveries(name: str, tmp_path: Path) -> None:
    numbers = iter(range(10))
    async with running_transport(name, tmp_path, lambda frame: [b"%d" % next(numbers)]) as running:
        assert await running.ask(*[(1, b"same")] * 3) == [[b"0"], [b"1"], [b"2"]]
        assert await running.ask((1, b"same")) == [[b"3"]]


@pytest.mark.parametrize("name", TRANSPORT_NAMES)
async def test_frames_of_any_size_are_delivered_complete(name: str, tmp_path: Path) -> None:
    async with running_transport(name, tmp_path, digest) as running:
        frames = [bytes(n % 251 for n in range(size)) for size in (0, 1, 255, 256, 65_536, MEBIBYTE, 127, 128, 2)]
        for frame in frames:
            assert await running.ask((1, frame)) == [digest(frame)]
        assert await running.ask(*((1, frame) for frame in frames)) == list(map(digest, frames))


@pytest.mark.parametrize("name", TRANSPORT_NAMES)
async def test_answers_of_any_size_are_returned_complete(name: str, tmp_path: Path) -> None:
    def sized(frame: bytes) -> list[bytes]:
        return [bytes(n % 251 for n in range(int(frame)))]

    async with running_transport(name, tmp_path, sized) as running:
        frames = [b"%d" % size for size in (0, 1, 255, 256, 16_384, 60_000)]
        for frame in frames:
            assert await running.ask((1, frame)) == [sized(frame)]
        assert await running.ask(*((1, frame) for frame in frames * 3)) == list(map(sized, frames * 3))


@pytest.mark.parametrize("name", TRANSPORT_NAMES)
async def test_an_answer_has_as_many_frames_as_the_follower_returns(name: str, tmp_path: Path) -> None:
    async with running_transport(name, tmp_path, lambda frame: [b"%d" % n for n in range(int(frame))]) as running:
        counts = [0, 1, 3, 0, 64, 0, 2]
        answers = await running.ask(*((1, b"%d" % count) for count in counts))
        assert answers == [[b"%d" % n for n in range(count)] for count in counts]
        assert await running.ask((1, b"0")) == [[]]


@pytest.mark.parametrize("name", TRANSPORT_NAMES)
async def test_a_frame_is_opaque(name: str, tmp_path: Path) -> None:
    frames_ = [b"", b"\xc1", encode(Envelope(Kind.BYE, HOST, 0, 0))[0], encode(Envelope(Kind.JOIN, HOST, 0, 0))[0]]
    async with running_transport(name, tmp_path, lambda frame: [frame]) as running:
        assert await running.ask(*((1, frame) for frame in frames_)) == [[frame] for frame in frames_]
        assert await running.ask((1, b"still there")) == [[b"still there"]]
        assert running.registration.refusals == []


@pytest.mark.parametrize("name", SOCKET_TRANSPORTS)
async def test_a_frame_reaches_its_clients_process_and_no_other(name: str, tmp_path: Path) -> None:
    requests = [HostRequest(((0, 1),), evaluates=False), HostRequest(((2, 3),), evaluates=True)]
    async with running_transport(name, tmp_path, requests=requests) as running:
        addresses = [0, 2, EVALUATOR, 1, 3, 0]
        frames = [b"to %d" % address for address in addresses]
        assert await running.ask(*zip(addresses, frames, strict=True)) == list(map(echo, frames))
        received = sorted(running.asked.values())
        assert received == [[b"to 0", b"to 1", b"to 0"], [b"to 2", b"to -2", b"to 3"]]


@pytest.mark.parametrize("address", [5, -9])
@pytest.mark.parametrize("name", ["memory", "together", "a thread"])
async def test_an_address_that_cannot_exist_is_refused_by_name_in_memory(
    name: str, address: int, tmp_path: Path
) -> None:
    async with running_transport(name, tmp_path) as running:
        with pytest.raises(UnknownAddress, match=f"no mailbox is open at address {address}") as caught:
            running.transport.deliver(address, b"frame", lambda frames: None)
        assert caught.value.address == address and running.asked == {HOST: []}


@pytest.mark.parametrize("name", SOCKET_TRANSPORTS)
async def test_a_delivery_to_an_unhosted_client_waits_for_the_next_follower(name: str, tmp_path: Path) -> None:
    registration, events = FakeRegistration(CLIENTS), list[str]()

    class Late(Follower):
        def welcome(self, frame: bytes) -> None:
            super().welcome(frame)
            events.append("welcome")

    def handle(frame: bytes) -> list[bytes]:
        events.append(frame.decode())
        return echo(frame)

    async with listening_hub(name, tmp_path) as (hub, context):
        hub.start(registration)
        assert hub.reaches(1), "once somebody comes"
        answers: list[list[bytes]] = []
        for number in range(3):
            hub.deliver(1, b"%d" % number, answers.append)
        hub.flush()
        await asyncio.sleep(0.02)
        assert answers == []
        with followers_on_threads(hub, [HostRequest()], partial(Late, handle=handle), context):
            await until(lambda: len(answers) == 3)
            hub.post(HOST, encode(Envelope(Kind.BYE, HOST, 0, 0))[0])
            await hub.close()
    assert answers == [echo(b"0"), echo(b"1"), echo(b"2")]
    assert events == ["welcome", "0", "1", "2"], "whoever comes knows where it stands before it is asked"


@pytest.mark.parametrize("name", SOCKET_TRANSPORTS)
async def test_a_delivery_to_nobody_gets_an_empty_answer_where_it_is_not_repeated(name: str, tmp_path: Path) -> None:
    async with running_transport(name, tmp_path, redelivers=False) as running:
        assert await running.ask((1, b"there"), (7, b"nobody")) == [echo(b"there"), []]
        assert [running.transport.reaches(address) for address in (1, 7, EVALUATOR)] == [True, False, True]


@pytest.mark.parametrize("name", TRANSPORT_NAMES)
async def test_framing_is_a_whole_number_of_bytes_that_depends_on_the_size_alone(name: str, tmp_path: Path) -> None:
    sizes = [0, 1, 127, 128, 255, 256, 16_383, 16_384, 65_536, MEBIBYTE]
    async with running_transport(name, tmp_path, digest) as running:
        before = [running.transport.framing_bytes(size) for size in sizes]
        await running.ask(*((1, bytes(size)) for size in sizes))
        assert before == [running.transport.framing_bytes(size) for size in sizes] == sorted(before)
        assert all(type(each) is int and each >= running.transport.is_wire for each in before)
        assert running.transport.is_wire or not any(before)


@pytest.mark.parametrize("name", TRANSPORT_NAMES)
async def test_bytes_of_no_message_are_reported_once_by_host_and_direction(name: str, tmp_path: Path) -> None:
    async with running_transport(name, tmp_path) as running:
        await running.ask((1, b"frame"))
        first, again = running.transport.link_bytes(), running.transport.link_bytes()
        assert first == [] or running.transport.is_wire
        assert all(type(size) is int for _, *sizes in first for size in sizes)
        assert [up > 0 and down > 0 for host, up, down in first if host == HOST] == [True] * running.transport.is_wire
        assert not any(up or down for _, up, down in again)


@pytest.mark.parametrize("name", TRANSPORT_NAMES)
async def test_a_flush_without_deliveries_and_a_post_to_nobody_do_nothing(name: str, tmp_path: Path) -> None:
    async with running_transport(name, tmp_path) as running:
        running.transport.flush()
        running.transport.post(-99, b"frame")
        assert await running.ask((1, b"frame")) == [echo(b"frame")]
        assert running.asked == {HOST: [b"frame"]}


@pytest.mark.parametrize("name", TRANSPORT_NAMES)
async def test_closing_is_idempotent_and_a_closed_transport_delivers_nothing(name: str, tmp_path: Path) -> None:
    answers: list[list[bytes]] = []
    async with running_transport(name, tmp_path) as running:
        await running.ask((1, b"before"))
        for host in sorted(running.registration.hosts):
            running.transport.post(host, encode(Envelope(Kind.BYE, host, 0, 0))[0])
        await running.transport.close()
        await running.transport.close()
        if running.transport.is_wire:
            running.transport.deliver(1, b"too late" * 10_000, answers.append)
        else:
            with pytest.raises(UnknownAddress):
                running.transport.deliver(1, b"too late", answers.append)
        running.transport.flush()
        running.transport.post(HOST, b"too late")
        await asyncio.sleep(0.01)
    assert running.asked == {HOST: [b"before"]} and answers == []
