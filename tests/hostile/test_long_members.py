"""Members that announce, double, mix or never end what they send in parts: bounded, named, and no harm to the run."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hub_peers import HEARTBEAT_S, Member, OneClientRegistration, hub_at
from in_parts import make_small

from seedbus.bus import Envelope, HostRequest, Kind, Offer, encode
from seedbus.bus.errors import BadServer
from seedbus.bus.zeromq import Hub, parts
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.heartbeat import resident_bytes
from seedbus.bus.zeromq.packet import Packet, Type
from seedbus.bus.zeromq.worker.protocol import LinkProtocol
from seedbus.bus.zeromq.worker.session import WorkerSession

SESSION = b"a stay 1"
LIMIT = 300_000
PART = 30_000
ANSWER = bytes(range(256)) * 1000
CONTENT = b"".join(packet.answers(0, [[ANSWER]]))
PARTS = [CONTENT[start : start + PART] for start in range(0, len(CONTENT), PART)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch.setattr)


def head(size: int = len(CONTENT), number: int = 0, part: int = PART, type: Type = Type.ANSWER) -> tuple[Type, bytes]:
    return Type.LONG, struct.pack("<BIQI", type, number, size, part)


def part(index: int, number: int = 0, data: bytes | None = None) -> tuple[Type, bytes]:
    return Type.PART, struct.pack("<II", number, index) + (PARTS[index] if data is None else data)


@asynccontextmanager
async def asked(
    limit: int = LIMIT, **options: Any
) -> AsyncIterator[tuple[Hub, Member, OneClientRegistration, list[Any]]]:
    """A member that has joined, and owes an answer."""
    registration, answers = OneClientRegistration(b""), list[Any]()
    async with hub_at(registration, report_limit=limit, **options) as (hub, port):
        member = Member(port)
        await member.offered()
        member.join()
        await member.until(lambda: bool(registration.hosts))
        hub.deliver(0, b"a question", answers.append)
        hub.flush()
        yield hub, member, registration, answers
        member.peer.close()


HOSTILE: dict[str, tuple[list[tuple[Type, bytes]], str]] = {
    "a-terabyte": ([head(10**12, part=2**31)], "too-long"),
    "a-byte-too-many": ([head(LIMIT + 2**16 + 1)], "too-long"),
    "tiny-parts": ([head(part=1)], "too-many"),
    "parts-of-nothing": ([head(part=0)], "too-many"),
    "another-number": ([head(number=1)], "out-of-turn"),
    "a-hello-in-parts": ([head(type=Type.HELLO)], "out-of-turn"),
    "no-head": ([part(0)], "out-of-turn"),
    "two-heads": ([head(), part(0), head(), head(number=1)], "out-of-turn"),
    "twice": ([head(), part(0), part(0), part(1), part(1), part(0)], "out-of-turn"),
    "out-of-order": ([head(), part(1), part(0), part(2)], "out-of-turn"),
    "of-another": ([head(), part(0), part(1, number=1), part(1, number=2**32 - 1)], "out-of-turn"),
    "too-long-a-part": ([head(), part(0), part(1, data=bytes(PART + 1))], "wrong-fields"),
    "too-short-a-part": ([head(), part(0), part(1, data=b"")], "wrong-fields"),
    "a-short-head": ([(Type.LONG, b"x"), (Type.PART, b""), (Type.TAKEN, b"x")], "wrong-fields"),
    "a-taken-of-nothing": ([(Type.TAKEN, struct.pack("<II", 7, 1))], "out-of-turn"),
}


TAKEN = {"two-heads": 1, "twice": 2, "out-of-order": 1, "of-another": 1, "too-long-a-part": 1, "too-short-a-part": 1}
"""How many of its parts are accepted, where its head is."""


@pytest.mark.parametrize("case", HOSTILE)
async def test_what_is_not_due_is_refused_by_name_and_the_honest_parts_are_still_taken(case: str) -> None:
    sent, reason = HOSTILE[case]
    async with asked() as (_, member, registration, answers):
        for each in sent:
            member.say(*each)
        await member.until(lambda: reason in registration.refusals)
        if case not in TAKEN:
            member.say(*head())
        for index in range(TAKEN.get(case, 0), len(PARTS)):
            member.say(*part(index))
        await member.until(lambda: bool(answers))
        assert [[bytes(frame) for frame in each] for each in answers] == [[ANSWER]]
        assert set(registration.refusals) == {reason} and registration.gone_reasons == []


@pytest.mark.parametrize("limit", [LIMIT, 2**33])
async def test_a_member_that_never_sends_the_last_part_is_gone_and_has_taken_no_more_memory_than_it_sent(
    limit: int,
) -> None:
    before = resident_bytes()
    async with asked(limit) as (_, member, registration, answers):
        member.say(*head(limit, part=max(PART, limit // 4000)))
        if limit == LIMIT:
            member.say(*part(0))
        await member.until(lambda: bool(registration.gone_reasons))
        sent = f"it sent {PART if limit == LIMIT else 0:,} of the {limit:,} bytes of a packet, and no more of it"
        assert sent in registration.gone_reasons[0] and answers == []
        assert resident_bytes() - before < 2**25


async def test_a_member_that_owes_nothing_may_send_nothing_in_parts() -> None:
    async with asked() as (_, member, registration, answers):
        member.say(Type.ANSWER, *packet.answers(0, [[b"an answer"]]))
        await member.until(lambda: bool(answers))
        member.say(*head())
        await member.until(lambda: "unasked" in registration.refusals)
        member.say(*part(0))
        await member.until(lambda: "out-of-turn" in registration.refusals)
        assert answers == [[b"an answer"]] and registration.gone_reasons == []


async def test_a_connection_that_sends_too_many_wrong_parts_is_closed() -> None:
    async with asked() as (_, member, registration, _answers):
        for _ in range(100):
            member.say(*part(3))
        await member.until(lambda: "too-many-refusals" in registration.refusals)
        assert registration.gone_reasons


async def test_a_farewell_ends_a_packet_that_is_half_there() -> None:
    async with asked() as (_, member, registration, answers):
        member.say(*head())
        member.say(*part(0))
        member.say(Type.FAREWELL, packet.farewell("data"))
        await member.until(lambda: bool(registration.gone_reasons))
        assert "it gave up: data" in registration.gone_reasons[0] and answers == []
        assert set(registration.refusals) <= {"stale-session"}  # of PINGs after it


async def test_a_farewell_that_crosses_the_end_of_its_session_is_no_offence_and_a_second_one_is() -> None:
    async with asked() as (hub, member, registration, _answers):
        (session,) = hub._sessions.values()
        hub._end_session(session, "its key was revoked")
        for refused in (0, 1):
            member.say(Type.FAREWELL)
            await asyncio.sleep(HEARTBEAT_S)
            assert registration.refusals.count("stale-session") == refused


async def test_a_member_that_takes_no_part_is_gone() -> None:
    async with asked() as (hub, member, registration, answers):
        member.say(Type.ANSWER, *packet.answers(0, [[b""]]))
        await member.until(lambda: bool(answers))
        hub.deliver(0, bytes(10 * PART), answers.append)
        hub.flush()
        await member.until(lambda: bool(registration.gone_reasons))
        assert "it took nothing for 3 heartbeats" in registration.gone_reasons[0]


@pytest.mark.parametrize("claims", [[10**6], [250] * 99, range(1, 251)], ids=["all", "again", "one-by-one"])
async def test_a_member_that_says_to_have_taken_what_it_never_read_is_sent_no_more_of_it(
    claims: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, honest = [0], parts._Long.next

    def counted(long: parts._Long) -> bytes:
        sent[0] += 1
        return honest(long)

    monkeypatch.setattr(parts._Long, "next", counted)
    monkeypatch.setattr(parts, "PART", 2**18)
    async with asked() as (hub, member, registration, answers):
        member.say(Type.ANSWER, *packet.answers(0, [[b""]]))
        await member.until(lambda: bool(answers))
        hub.deliver(0, bytes(250 * 2**18), answers.append)
        hub.flush()
        for count in claims:
            member.say(Type.TAKEN, struct.pack("<II", 0, count))
        await member.until(lambda: bool(registration.gone_reasons))
        assert "out-of-turn" in registration.refusals
        assert sent[0] < 50  # what the kernels' buffers take, and `AHEAD` parts; all of them are 65 MB


def linked(longest: int) -> LinkProtocol:
    """A link's state machine whose followers can use messages of `longest` bytes, and have sent their JOIN."""
    protocol = LinkProtocol("a server", HostRequest(count=4), patience_s=60.0, most_clients=9, now_s=0.0)
    protocol.connected(0.0)
    offer = packet.offer(b"this run", Offer(-3, ((0, 3),), False, b"a scenario"), 1000)
    assert list(protocol.receive(Packet(Type.OFFER, SESSION, offer), 0.0))
    protocol.join(protocol.session, [b"a JOIN"], longest)
    return protocol


def sent_by(session: WorkerSession) -> list[Packet]:
    """Return the packets that may be sent now, and send them."""
    packets = []
    while (data := session.outbox.first()) is not None:
        packets.append(packet.read(data))
        session.outbox.sent()
    return packets


def link(longest: int = LIMIT) -> Callable[[Type, bytes], object]:
    """Return what handles a packet of the server of such a link."""
    protocol = linked(longest)
    return lambda type, content: list(protocol.receive(Packet(type, SESSION, content), 0.0))


@pytest.mark.parametrize("is_dismissed", [True, False])
def test_a_farewell_does_not_wait_until_a_long_answer_is_taken(is_dismissed: bool) -> None:
    protocol = linked(LIMIT)
    session = protocol.session
    delivery = b"".join(packet.deliveries(0, [(b"one", b""), (b"two", b""), (b"three", b"")]))
    assert list(protocol.receive(Packet(Type.DELIVER, session.id, delivery), 0.0))
    assert sent_by(session)[-1].type is Type.POST
    protocol.answer(session, [[b"short"]])
    protocol.answer(session, [[ANSWER]])
    protocol.answer(session, [[b"short"]])
    before = sent_by(session)
    assert [each.type for each in before] == [Type.ANSWER, Type.LONG, Type.PART, Type.PART]
    if is_dismissed:
        bye = packet.entry(encode(Envelope(Kind.BYE, -3, 0, 0, []))[0])
        assert list(protocol.receive(Packet(Type.POST, session.id, bye), 0.0)) == []
    else:
        protocol.give_up("data")
    assert sent_by(session) == [Packet(Type.FAREWELL, session.id, b"" if is_dismissed else packet.farewell("data"))]
    assert session.outbox.bytes == 0 == len(session.outbox)


def test_a_server_that_announces_a_terabyte_is_left_by_name() -> None:
    with pytest.raises(
        BadServer, match=r"it sent a packet of 1,000,000,000,000 bytes in parts; 268,500,992 are accepted"
    ):
        link()(*head(10**12, part=2**31, type=Type.DELIVER))
    receive = link(2**30)
    receive(*head(2**30, part=2**26, type=Type.DELIVER))
    with pytest.raises(BadServer, match="1,073,807,361 bytes in parts; 1,073,807,360 are accepted"):
        link(2**30)(*head(2**30 + 2**16 + 1, part=2**26, type=Type.DELIVER))
