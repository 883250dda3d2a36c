"""Packets survive a round trip and have one encoding; any other bytes are refused with no other effect."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedbus.bus import HOST, HostRequest, Offer
from seedbus.bus.envelope import LOWEST_ADDRESS
from seedbus.bus.errors import MalformedPacket
from seedbus.bus.text import printable
from seedbus.bus.transport import MAX_SPANS
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.packet import (
    FAREWELLS,
    HEAD,
    HEARTBEAT_MS,
    HELLO_BYTES,
    MOST_ANSWERS,
    NO_SESSION,
    PROTOCOL,
    Type,
)
from seedbus.pieces import Frame

RUN = b"this run"
SESSION = b"\x01\x02\x03\x04\x05\x06\x07\x08"
NUMBERS = 2**35  # the first number that does not fit into five bytes


def delivered(first: int, each: Sequence[Frame]) -> bytes:
    """The content of a DELIVER of these frames."""
    return b"".join(packet.deliveries(first, [(frame, b"") for frame in each]))


frames = st.lists(st.one_of(st.binary(max_size=40), st.integers(120, 300).map(bytes)), max_size=8)


def disjoint(most: int) -> st.SearchStrategy[tuple[tuple[int, int], ...]]:
    """Draw up to `most` disjoint spans of clients, ascending."""
    edges = st.lists(st.integers(0, 2**24 - 1), max_size=2 * most, unique=True).map(sorted)
    return edges.map(lambda numbers: tuple(zip(numbers[::2], numbers[1::2], strict=False)))


wishes = st.builds(HostRequest, disjoint(64), st.integers(0, 2**32 - 1), st.booleans())
offers = st.builds(
    Offer,
    st.integers(LOWEST_ADDRESS, HOST),
    disjoint(200),
    st.booleans(),
    st.binary(max_size=60),
)


@given(st.sampled_from(Type), st.binary(min_size=8, max_size=8), st.binary(max_size=60))
def test_a_packet_survives_a_round_trip(type: Type, session: bytes, content: bytes) -> None:
    data = packet.packet(type, session, content)
    assert packet.read(data) == (type, session, content) and len(data) == HEAD + len(content)


@given(st.sampled_from([b"", RUN]), wishes)
def test_a_hello_survives_a_round_trip(run: bytes, asked: HostRequest) -> None:
    assert packet.read_hello(packet.hello(run, asked)) == (run, asked)


def test_a_hello_has_a_limited_number_of_spans() -> None:
    request = HostRequest(tuple((client, client) for client in range(0, 2 * MAX_SPANS, 2)))
    assert packet.read_hello(packet.hello(RUN, request)) == (RUN, request)
    with pytest.raises(MalformedPacket, match="65 spans"):
        packet.read_hello(packet.hello(RUN, HostRequest((*request.spans, (1000, 1000)))))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(offers, st.integers(*HEARTBEAT_MS))
def test_an_offer_survives_a_round_trip(offered: Offer, heartbeat_ms: int) -> None:
    assert packet.read_offer(packet.offer(RUN, offered, heartbeat_ms)) == (RUN, offered, heartbeat_ms)


@given(st.text(max_size=64), st.text(max_size=1024))
def test_a_decline_survives_a_round_trip(reason: str, detail: str) -> None:
    assert packet.read_decline(packet.decline(reason, detail)) == (printable(reason), printable(detail, 1024))


def test_a_long_decline_is_cut_short() -> None:
    reason, detail = packet.read_decline(packet.decline("r" * 10_000, "日" * 10_000))
    assert (reason, detail) == ("r" * 64, "日" * 1024)


@given(st.sampled_from(sorted(FAREWELLS)) | st.text(max_size=100), st.binary(max_size=100))
def test_a_farewell_is_always_one_of_a_few_codes(why: str, content: bytes) -> None:
    assert packet.read_farewell(packet.farewell(why)) == (why if why in FAREWELLS else "failed")
    assert packet.read_farewell(content) in {*FAREWELLS, "unknown", ""}
    assert (packet.read_farewell(content) == "") == (content == b"")


@given(st.integers(0, NUMBERS - 1), frames)
def test_deliveries_survive_a_round_trip(first: int, each: list[bytes]) -> None:
    assert packet.read_deliveries(delivered(first, each)) == (first, each)


@pytest.mark.slow
@given(st.integers(0, NUMBERS - 1), st.lists(frames, max_size=8))
def test_answers_survive_a_round_trip(first: int, each: list[list[bytes]]) -> None:
    assert packet.read_answers(b"".join(packet.answers(first, each))) == (first, each)


@given(st.integers(0, NUMBERS - 1), frames, st.integers(0, 300))
def test_a_delivery_does_not_depend_on_where_its_frame_is_split(first: int, each: list[bytes], at: int) -> None:
    cut = b"".join(packet.deliveries(first, [(frame[:at], frame[at:]) for frame in each]))
    assert cut == delivered(first, each)
    assert packet.read_deliveries(memoryview(cut)) == (first, each)


@given(frames)
def test_entries_survive_a_round_trip_and_cost_their_framing(each: list[bytes]) -> None:
    content = b"".join(map(packet.entry, each))
    assert packet.read_entries(content) == each
    assert len(content) == sum(len(frame) + packet.number_bytes(len(frame)) for frame in each)


@given(st.integers(0, NUMBERS - 1))
def test_a_number_is_encoded_in_the_fewest_bytes(value: int) -> None:
    encoded = packet.number(value)
    assert packet.read_deliveries(encoded) == (value, [])
    assert len(encoded) == packet.number_bytes(value) == next(n for n in range(1, 6) if value < 2 ** (7 * n))


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (65_536, "808004")]
)
def test_numbers_are_leb128(value: int, encoded: str) -> None:
    assert packet.number(value) == bytes.fromhex(encoded)


@given(st.integers(0, 2**28 - 1), st.integers(1, 4))
def test_a_number_in_more_bytes_than_it_needs_is_refused(value: int, more: int) -> None:
    short = packet.number(value)
    long = short[:-1] + bytes([short[-1] | 0x80]) + b"\x80" * (more - 1) + b"\x00"
    with pytest.raises(MalformedPacket, match=r"shortest way|more than five bytes") as caught:
        packet.read_deliveries(long)
    assert caught.value.reason == "long-number"


@settings(max_examples=500)
@given(st.binary(max_size=40))
def test_readable_bytes_are_the_only_encoding_of_their_content(content: bytes) -> None:
    with suppress(MalformedPacket):
        assert delivered(*packet.read_deliveries(content)) == content
    with suppress(MalformedPacket):
        assert b"".join(packet.answers(*packet.read_answers(content))) == content


READERS: dict[str, Callable[[bytes], Any]] = {
    "read": packet.read,
    "hello": packet.read_hello,
    "offer": packet.read_offer,
    "decline": packet.read_decline,
    "deliveries": packet.read_deliveries,
    "answers": packet.read_answers,
    "entries": packet.read_entries,
}
SOUND = {
    "read": packet.packet(Type.PING, SESSION, b"content"),
    "hello": packet.hello(RUN, HostRequest(((0, 4), (7, 7)), 3, True)),
    "offer": packet.offer(RUN, Offer(HOST, ((0, 4), (7, 7)), True, b"{}"), 2000),
    "decline": packet.decline("taken", "client 3 is hosted by another process"),
    "deliveries": delivered(300, [b"", b"a frame", bytes(200)]),
    "answers": b"".join(packet.answers(300, [[], [b"a frame"], [b"", bytes(200)]])),
    "entries": packet.entry(b"a frame") + packet.entry(bytes(200)),
}


@pytest.mark.few(5)
@pytest.mark.parametrize("name", READERS)
@settings(max_examples=200)
@given(content=st.binary(max_size=80))
def test_bytes_of_any_kind_are_read_or_refused(name: str, content: bytes) -> None:
    try:
        READERS[name](content)
    except MalformedPacket as error:
        assert error.reason and str(error)


fields = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(), st.binary()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=8,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hello", "offer", "decline"])
@settings(max_examples=200)
@given(content=st.lists(fields, max_size=7))
def test_msgpack_of_any_shape_is_read_or_refused(name: str, content: list[Any]) -> None:
    try:
        READERS[name](msgpack.packb(content))
    except MalformedPacket as error:
        assert error.reason and str(error)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("count", [2_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_mutated_packets_are_read_or_refused(name: str, count: int) -> None:
    rng, refused = np.random.Generator(np.random.Philox(2025)), 0
    for _ in range(count):
        content = bytearray(SOUND[name])
        for _ in range(int(rng.integers(1, 4))):
            place = int(rng.integers(len(content) + 1))
            match rng.integers(4):
                case 0 if place < len(content):
                    content[place] ^= 1 << int(rng.integers(8))
                case 1:
                    content[place:place] = rng.bytes(int(rng.integers(1, 5)))
                case 2:
                    del content[place : place + int(rng.integers(1, 5))]
                case _ if place < len(content):
                    content[place] = int(rng.integers(256))
        try:
            READERS[name](bytes(content))
        except MalformedPacket:
            refused += 1
    assert 0 < refused < count, "a fuzz that refuses all or nothing tests nothing"


def column(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def hello(**changes: Any) -> bytes:
    packed: bytes = msgpack.packb(list(({"run": RUN, "spans": b"", "count": 0, "evaluates": 1} | changes).values()))
    return packed


def offer(**changes: Any) -> bytes:
    sound = {"run": RUN, "host": HOST, "spans": column(0, 4), "evaluates": 1, "heartbeat": 2000, "nonce": bytes(16)}
    sound |= {"scenario": b"{}"}
    packed: bytes = msgpack.packb(list((sound | changes).values()))
    return packed


BAD: list[tuple[str, bytes, str]] = [
    ("read", b"", "short-packet"),
    ("read", packet.packet(Type.PING, SESSION)[:-1], "short-packet"),
    ("read", bytes([(PROTOCOL + 1) * 16 + 1]) + SESSION, "protocol"),
    ("read", b"GET / HTTP/1.1", "protocol"),
    ("read", bytes([PROTOCOL * 16]) + SESSION, "packet-type"),
    ("read", bytes([PROTOCOL * 16 + 13]) + SESSION, "packet-type"),
    ("hello", b"", "not-msgpack"),
    ("hello", hello() + b"\x00", "not-msgpack"),
    ("hello", b"\x91" * 4000, "not-msgpack"),
    ("hello", b"\x91" * HELLO_BYTES, "too-long"),
    ("hello", b"\xdd\xff\xff\xff\xff", "not-msgpack"),
    ("hello", b"\x81\x01\x02", "not-msgpack"),
    ("hello", hello(evaluates=True), "wrong-fields"),
    ("hello", hello(run="this run"), "wrong-fields"),
    ("hello", hello(spans=[]), "wrong-fields"),
    ("hello", hello(more=5), "wrong-fields"),
    ("hello", hello(run=b"run"), "bad-hello"),
    ("hello", hello(count=-1), "bad-hello"),
    ("hello", hello(count=2**32), "bad-hello"),
    ("hello", hello(evaluates=2), "bad-hello"),
    ("hello", hello(spans=column(3)), "bad-spans"),
    ("hello", hello(spans=column(0, 4)[:-1]), "bad-spans"),
    ("hello", hello(spans=column(3, 2)), "bad-spans"),
    ("hello", hello(spans=column(0, 2**24)), "bad-spans"),
    ("hello", hello(spans=column(0, 3, 3, 5)), "bad-spans"),
    ("hello", hello(spans=column(4, 4, 4, 4)), "bad-spans"),
    ("hello", hello(spans=column(7, 9, 0, 2)), "bad-spans"),
    ("offer", offer(spans=column(3, 2)), "bad-spans"),
    ("offer", offer(spans=column(7, 9, 0, 2)), "bad-spans"),
    ("offer", offer(host=-2), "bad-offer"),
    ("offer", offer(host=7), "bad-offer"),
    ("offer", offer(host=LOWEST_ADDRESS - 1), "bad-offer"),
    ("offer", offer(run=b""), "bad-offer"),
    ("offer", offer(evaluates=2), "bad-offer"),
    *[("offer", offer(heartbeat=heartbeat), "bad-offer") for heartbeat in (-1, 0, 9, 60_001, 2**60)],
    ("offer", offer(nonce=bytes(65)), "bad-offer"),
    ("offer", offer(scenario="{}"), "wrong-fields"),
    ("offer", offer(scenario=bytes(2**22 + 1)), "not-msgpack"),
    ("decline", msgpack.packb(["r" * 4097, ""]), "not-msgpack"),
    ("decline", msgpack.packb(["taken"]), "wrong-fields"),
    ("deliveries", b"", "cut-short"),
    ("deliveries", b"\x80", "cut-short"),
    ("deliveries", b"\x00\x05abcd", "cut-short"),
    ("deliveries", b"\x00\xff\xff\xff\xff\x7f", "cut-short"),
    ("deliveries", b"\xff\xff\xff\xff\xff\x01", "long-number"),
    ("deliveries", b"\x00\x85\x00abcde", "long-number"),
    ("answers", b"\x00\x02\x00", "cut-short"),
    ("answers", b"\x00" + packet.number(MOST_ANSWERS + 1), "too-many-entries"),
    ("entries", b"\x01", "cut-short"),
]


@pytest.mark.parametrize(("name", "content", "reason"), BAD)
def test_a_malformed_packet_is_refused_by_reason(name: str, content: bytes, reason: str) -> None:
    assert READERS[name](SOUND[name])
    with pytest.raises(MalformedPacket) as caught:
        READERS[name](content)
    assert caught.value.reason == reason and str(caught.value) == caught.value.detail


def test_a_packet_just_within_the_limits_is_read() -> None:
    assert packet.read(packet.packet(Type.HELLO, NO_SESSION)).session == bytes(8)
    assert packet.read_answers(b"".join(packet.answers(0, [[b""] * MOST_ANSWERS])))[1] == [[b""] * MOST_ANSWERS]
    assert len(packet.read_offer(offer(scenario=bytes(2**22)))[1].scenario) == 2**22
    assert packet.read_hello(hello(spans=column(0, 2**24 - 1), count=2**32 - 1))[1].count == 2**32 - 1


@given(st.lists(st.integers(0, 300)))
def test_the_bytes_of_entries_follow_from_their_frames_sizes(sizes: list[int]) -> None:
    assert packet.entries_bytes(sizes) == sum(len(packet.entry(bytes(size))) for size in sizes)
