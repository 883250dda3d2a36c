"""Packets in parts: whatever is sent comes whole, and whatever else comes is refused."""

from __future__ import annotations

import struct
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from in_parts import make_small

from seedbus import pieces
from seedbus.bus.errors import MalformedPacket
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq import parts, sockets
from seedbus.bus.zeromq.checksums import CHECKSUM_BYTES, Checksums
from seedbus.bus.zeromq.packet import HEAD, Packet, Type
from seedbus.bus.zeromq.parts import AHEAD, Inbox, Outbox

SESSION = b"a stay 1"
PART = 1_000
LONG = 70_000
"""Bytes from which a packet is long here."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch.setattr)
    monkeypatch.setattr(parts, "PART", PART)
    monkeypatch.setattr(pieces, "WHOLE", LONG - sockets.BATCH)


def content(seed: int, size: int) -> bytes:
    return (struct.pack("<I", seed) * (size // 4 + 1))[:size]


def parts_of(size: int, seed: int = 1) -> list[Packet]:
    """Return all packets of a long one."""
    outbox, packets = Outbox(Checksums(False)), []
    outbox.put(Type.ANSWER, SESSION, content(seed, size))
    for number in range(-1, size):
        if number > 0:
            outbox.taken(struct.pack("<II", 0, number))
        while (data := outbox.first()) is not None:
            packets.append(packet.read(data))
            outbox.sent()
        if not len(outbox):
            return packets
    raise AssertionError("it has more parts than bytes")


DAMAGES = ["", "cut", "long", "number", "part", "empty"]
sizes = st.integers(0, 3_000) | st.integers(LONG - 100, LONG + 3_000)


@settings(max_examples=60)
@given(st.lists(sizes, max_size=5), st.randoms(use_true_random=False), st.booleans())
def test_packets_come_whole_and_in_order_however_sending_and_taking_interleave(
    lengths: list[int], random: object, has_checksums: bool
) -> None:
    draw = random.random  # type: ignore[attr-defined]
    outbox, inbox = Outbox(Checksums(has_checksums)), Inbox(2 * LONG)
    reading = Checksums(has_checksums)
    wire, acknowledgements, came = deque[bytes](), deque[bytes](), list[Packet]()
    announced, seen, pings, waiting = 0, 0, 0, list(enumerate(lengths))
    while waiting or len(outbox) or wire or acknowledgements:
        choice = draw()
        if waiting and choice < 0.2:
            number, size = waiting.pop(0)
            announced += sum(outbox.put(Type.DELIVER, SESSION, content(number, size)))
        elif choice < 0.25 and pings < 20:
            announced += sum(outbox.put_first(Type.PING, SESSION))
            pings += 1
        elif choice < 0.6 and (data := outbox.first()) is not None:
            wire.append(data)
            outbox.sent()
            assert sum(len(each) > PART for each in wire) <= 2 * AHEAD + 5
        elif choice < 0.85 and wire:
            data = wire.popleft()
            seen += len(data)
            received = packet.read(reading.removed(data))
            if received.type is Type.LONG:
                inbox.open(received)
            elif received.type is Type.PART:
                whole = inbox.add(received)
                acknowledgements.append(inbox.taken)
                came += [whole] if whole is not None else []
            elif received.type is Type.DELIVER:
                came.append(received)
        elif acknowledgements:
            outbox.taken(acknowledgements.popleft())
    assert [bytes(each.content) for each in came] == [content(*each) for each in enumerate(lengths)]
    assert {each.type for each in came} <= {Type.DELIVER} and announced == seen and outbox.bytes == 0


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, 73), st.sampled_from(DAMAGES)), max_size=200),
)
def test_parts_in_any_other_order_or_form_are_refused_and_the_right_ones_are_still_taken(
    moves: list[tuple[int, str]],
) -> None:
    size = LONG + 2_500
    packets = parts_of(size)
    inbox, position = Inbox(size), 0
    for index, damage in [*moves, *((each, "") for each in range(len(packets)))]:
        if position == len(packets):
            break
        received = packets[index % len(packets)]
        data = bytes(received.content)
        if received.type is Type.PART:
            number, part = struct.unpack("<II", data[:8])
            data = {
                "": data,
                "cut": data[:5],
                "long": data + bytes(size),
                "number": struct.pack("<II", number + 1, part) + data[8:],
                "part": struct.pack("<II", number, part + 1) + data[8:],
                "empty": data[:8],
            }[damage]
        is_due = index % len(packets) == position and (not damage or received.type is Type.LONG)
        is_later = damage == "part" and index % len(packets) == position - 1 and position > 1
        try:
            if received.type is Type.LONG:
                inbox.open(received)
                whole = None
            else:
                whole = inbox.add(received._replace(content=data))
        except MalformedPacket as error:
            assert not is_due and error.reason in ("out-of-turn", "too-long", "wrong-fields")
            continue
        if is_later:  # a part that claims to be the next one, and has as many bytes: only its checksum could tell
            return
        assert is_due
        position += 1
        assert (whole is not None) == (position == len(packets)) and inbox.held <= size
        if whole is not None:
            assert bytes(whole.content) == content(1, size) and whole.type is Type.ANSWER
    assert position == len(packets)


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ((Type.ANSWER, 0, 10**12), "too-long"),
        ((Type.ANSWER, 0, LONG + 1), "too-long"),
        ((Type.ANSWER, 0, 0), "too-long"),
        ((Type.ANSWER, 1, LONG), "out-of-turn"),
        ((Type.ANSWER, 0, 4096 * PART + 1), "too-many"),
        ((Type.HELLO, 0, LONG), "out-of-turn"),
        ((Type.PART, 0, LONG), "out-of-turn"),
    ],
)
def test_a_head_of_another_packet_than_is_accepted_takes_no_memory(head: tuple[int, int, int], reason: str) -> None:
    inbox = Inbox(LONG if head[2] < 4096 * PART or head[2] == 10**12 else 2**30)
    with pytest.raises(MalformedPacket) as caught:
        inbox.open(Packet(Type.LONG, SESSION, struct.pack("<BIQI", *head, PART)))
    assert caught.value.reason == reason and inbox.size == 0 and inbox._content.size == 0


def test_the_memory_of_a_long_packet_is_taken_part_by_part() -> None:
    from seedbus.bus.zeromq.heartbeat import resident_bytes

    inbox, before = Inbox(2**34), resident_bytes()
    inbox.open(Packet(Type.LONG, SESSION, struct.pack("<BIQI", Type.ANSWER, 0, 2**33, 2**22)))
    inbox.add(Packet(Type.PART, SESSION, struct.pack("<II", 0, 0) + bytes(2**22)))
    assert resident_bytes() - before < 2**24 and inbox.held == 2**22


def test_a_packet_is_in_parts_from_its_first_byte_too_many() -> None:
    outbox = Outbox(Checksums(True))
    assert outbox.put(Type.ANSWER, SESSION, bytes(LONG - HEAD)) == [LONG + CHECKSUM_BYTES]
    assert len(outbox.put(Type.ANSWER, SESSION, bytes(LONG - HEAD + 1))) == 1 + -(-(LONG - HEAD + 1) // PART)


def sent(outbox: Outbox) -> int:
    """Send all that may be sent; returns how many parts that were."""
    count = 0
    while (data := outbox.first()) is not None:
        count += packet.read(data).type is Type.PART
        outbox.sent()
    return count


def test_each_part_that_was_sent_may_be_taken_once_and_in_turn_and_nothing_else_is_a_taken() -> None:
    outbox, count = Outbox(Checksums(True)), -(-(LONG + 1) // PART)
    outbox.put(Type.ANSWER, SESSION, bytes(LONG + 1))
    outbox.put(Type.ANSWER, SESSION, bytes(LONG + 1))

    def refuses(number: int, taken: int, expected: str) -> None:
        with pytest.raises(MalformedPacket, match=expected) as caught:
            outbox.taken(struct.pack("<II", number, taken))
        assert caught.value.reason == "out-of-turn" and sent(outbox) == 0

    assert outbox.first() is not None  # the head
    with pytest.raises(MalformedPacket, match="of 1 parts of the long packet 0, where none is awaited"):
        outbox.taken(struct.pack("<II", 0, 1))
    assert sent(outbox) == AHEAD
    for forged in [(0, AHEAD + 1), (0, count), (0, 2), (0, 0), (1, 1), (7, 1)]:
        refuses(*forged, "where 1 of 0 are next")
    for taken in range(1, count + 1):
        outbox.taken(struct.pack("<II", 0, taken))
        of_next = AHEAD if taken == count - AHEAD else 0
        assert sent(outbox) == (taken <= count - AHEAD) + of_next
        refuses(0, taken, "are next")
    refuses(1, AHEAD + 1, "where 1 of 1 are next")
    outbox.taken(struct.pack("<II", 1, 1))
    assert sent(outbox) == 1


def test_a_part_is_not_taken_before_its_last_byte_has_come() -> None:
    outbox, end = Outbox(Checksums(False)), 0
    outbox.put(Type.ANSWER, SESSION, bytes(LONG + 1))
    for _ in range(2):  # the head and the first part
        end += len(outbox.first() or b"")
        outbox.sent()
    with pytest.raises(MalformedPacket, match=rf"where {end - 1:,} of {end:,} bytes have come"):
        outbox.taken(struct.pack("<II", 0, 1), end - 1)
    outbox.taken(struct.pack("<II", 0, 1), end)
    assert sent(outbox) == AHEAD
