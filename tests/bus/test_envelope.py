"""Envelopes survive a round trip; any other bytes are refused with one sentence and no other effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.bus import (
    EVALUATOR,
    HOST,
    Envelope,
    EnvelopeTooLong,
    Kind,
    MalformedEnvelope,
    codec,
    decode,
    encode,
)
from seedbus.bus.codec import Decoder, Encoder
from seedbus.bus.elements import has_more_than
from seedbus.bus.envelope import (
    ARRAY_LIMIT,
    DEPTH_LIMIT,
    FORMAT,
    FRAME_LIMIT,
    HEADER_LIMIT,
    LOWEST_ADDRESS,
    SHORT,
)
from seedbus.pieces import Pieces

PLAN = FORMAT * 16 + Kind.PLAN
REPORT = FORMAT * 16 + Kind.REPORT
PEER = 7
TRAVELLING = [kind for kind in Kind if kind is not Kind.LINK]

leaves = st.one_of(
    st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(max_size=20), st.binary(max_size=40)
)
bodies = st.lists(st.recursive(leaves, lambda inner: st.lists(inner, max_size=4), max_leaves=12), max_size=8)
envelopes = st.builds(
    Envelope,
    st.sampled_from(TRAVELLING),
    st.integers(LOWEST_ADDRESS, 2**16 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    bodies.filter(lambda body: depth(body) <= DEPTH_LIMIT),
)


def depth(value: object) -> int:
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def nested(levels: int) -> list[Any]:
    body: list[Any] = []
    for _ in range(levels - 1):
        body = [body]
    return body


def pack(*parts: Any) -> bytes:
    packed: bytes = msgpack.packb(parts)
    return packed


def with_body(raw: bytes) -> bytes:
    """A REPORT whose body is these bytes of msgpack."""
    return b"\x95" + pack(REPORT, 3, 4, 5)[1:] + raw


REAL = encode(Envelope(Kind.REPORT, 300, 70_000, 69_999, [b"\x00\x01\x02\x03" * 5, 2.5, "ok", [1, -1]]))[0]


@pytest.mark.slow
@given(envelopes)
def test_an_envelope_survives_a_round_trip(envelope: Envelope) -> None:
    frame, header = encode(envelope)
    assert decode(frame) == envelope
    assert header <= HEADER_LIMIT and header + len(msgpack.packb(envelope.body)) == len(frame)


@pytest.mark.parametrize("kind", TRAVELLING)
def test_a_header_takes_sixteen_bytes_at_most_for_every_kind(kind: Kind) -> None:
    sizes = {
        encode(Envelope(kind, client, round, base))[1]
        for client in (LOWEST_ADDRESS, HOST, EVALUATOR, 0, 127, 128, 2**16 - 1)
        for round, base in ((0, 0), (2**16, 2**16), (2**32 - 1, 2**32 - 1))
    }
    assert min(sizes) == 5 and max(sizes) <= HEADER_LIMIT


@pytest.mark.parametrize("kind", TRAVELLING)
def test_a_header_of_three_long_numbers_is_refused_before_it_is_sent(kind: Kind) -> None:
    with pytest.raises(
        EnvelopeTooLong, match=rf"the header of the {kind.name} .* is 17 bytes; at most 16 are accepted"
    ):
        encode(Envelope(kind, 2**16, 2**16, 2**16))


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind.limit == SHORT])
def test_an_envelope_above_its_kinds_limit_is_refused_before_it_is_sent(kind: Kind) -> None:
    longest = Envelope(kind, 3, 4, 5, [bytes(kind.limit - 5 - 4)])
    assert len(encode(longest)[0]) == kind.limit
    with pytest.raises(EnvelopeTooLong, match=rf"the {kind.name} of round 4 for client 3 is 65,537 bytes"):
        encode(Envelope(kind, 3, 4, 5, [bytes(kind.limit - 5 - 3)]))


def test_only_kinds_that_carry_vectors_may_be_long() -> None:
    long = {Kind.WELCOME, Kind.COMMIT, Kind.PLAN, Kind.REPORT}
    assert {kind for kind in TRAVELLING if kind.is_upward and kind.limit > SHORT} == {Kind.REPORT}
    assert all(kind.limit == FRAME_LIMIT for kind in long)


VECTOR = bytes(range(256)) * 512


@pytest.mark.parametrize(
    "body",
    [
        [VECTOR],
        [VECTOR, VECTOR, b"digest"],
        [[7, 1, VECTOR], [[b"short", VECTOR], [], [1.5, "x", [2, VECTOR]]]],
        [VECTOR[:SHORT], VECTOR[: SHORT - 1], VECTOR[: SHORT + 1]],
    ],
)
def test_long_bodies_are_plain_msgpack(body: list[Any]) -> None:
    envelope = Envelope(Kind.PLAN, 3, 4, 5, body)
    frame, header = encode(envelope)
    assert frame == pack(PLAN, 3, 4, 5, body) and decode(frame) == envelope
    assert Encoder().parts(envelope) == (frame[:header], frame[header:])


def test_an_encoder_packs_a_shared_body_once_and_mixes_up_none() -> None:
    encoder, first, second = Encoder(), [1, VECTOR], [2, VECTOR]
    packed = encoder.parts(Envelope(Kind.PLAN, 1, 4, 5, first))[1]
    assert encoder.parts(Envelope(Kind.PLAN, 2, 4, 5, first))[1] is packed
    for body in (second, first, list(first), []):
        envelope = Envelope(Kind.PLAN, 3, 4, 5, body)
        header, packed = encoder.parts(envelope)
        assert header + packed == encode(envelope)[0]


def test_a_report_may_be_as_long_as_its_run_allows_and_no_longer() -> None:
    frame, _ = encode(Envelope(Kind.REPORT, 3, 4, 5, [VECTOR]))
    assert decode(frame, PEER, most=len(frame)).body == [VECTOR]
    with pytest.raises(MalformedEnvelope, match=r"the frame has 131,083 bytes, more than the 131,082 accepted"):
        decode(frame, PEER, most=len(frame) - 1)


@pytest.mark.parametrize("kind", sorted(kind for kind in TRAVELLING if kind.limit == SHORT))
def test_limits_of_other_kinds_do_not_depend_on_the_runs_reports(kind: Kind) -> None:
    with pytest.raises(MalformedEnvelope, match=rf"{kind.name} may have 65,536"):
        decode(pack(16 + kind, 3, 4, 5, [VECTOR]), PEER, most=2**20)


@pytest.mark.slow
def test_a_long_frame_of_very_many_elements_is_refused_before_they_are_made() -> None:
    frame = pack(REPORT, 3, 4, 5, [[[[]] * 60] * 60] * 60)
    assert SHORT < len(frame) and decode(frame).body
    with pytest.raises(MalformedEnvelope, match="the frame has more than 65,536 elements"):
        decode(frame, PEER, most=2**20)


@pytest.mark.slow
@given(bodies, st.integers(0, 30))
def test_elements_are_counted_as_they_are_decoded(body: list[Any], more: int) -> None:
    def count(value: Any) -> int:
        return 1 + sum(map(count, value)) if isinstance(value, list) else 1

    exactly = count(body)
    assert not has_more_than(msgpack.packb(body), exactly + more)
    assert has_more_than(msgpack.packb(body), exactly - 1)


class Bad(NamedTuple):
    """A frame that must be refused, the part that is wrong, and words of the message."""

    name: str
    frame: bytes
    where: str
    what: str


def bad_numbers() -> list[Bad]:
    """Yield frames with each wrong value in the place of each number of the header."""
    values: list[tuple[str, Any, str]] = [
        ("true", True, "is bool, not a whole number"),
        ("false", False, "is bool, not a whole number"),
        ("float", 1.0, "is float, not a whole number"),
        ("nan", float("nan"), "is float, not a whole number"),
        ("infinity", float("inf"), "is float, not a whole number"),
        ("text", "1", "is str, not a whole number"),
        ("bytes", b"1", "is bytes, not a whole number"),
        ("nil", None, "is NoneType, not a whole number"),
        ("array", [1], "is list, not a whole number"),
        ("too-low", LOWEST_ADDRESS - 1, "is -32769, outside"),
        ("lowest-of-all", -(2**63), "is -9223372036854775808, outside"),
        ("too-high", 2**32, "is 4294967296, outside"),
        ("highest-of-all", 2**64 - 1, "is 18446744073709551615, outside"),
    ]
    places = ("the tag", "client", "round", "base version")
    cases = []
    for place, where in enumerate(places):
        for name, value, what in values:
            parts: list[Any] = [REPORT, 3, 4, 5, []]
            parts[place] = value
            cases.append(Bad(f"{name}-for-{where.replace(' ', '-')}", pack(*parts), where, what))
    return cases


def long_forms() -> list[Bad]:
    """Yield headers whose numbers take more bytes than needed; only the shortest encoding is valid."""
    short = [bytes([REPORT]), b"\x03", b"\x04", b"\x05"]
    longer = {"u8": b"\xcc", "u16": b"\xcd\x00", "u32": b"\xce\x00\x00\x00", "i8": b"\xd0", "i64": b"\xd3" + bytes(7)}
    cases = [
        Bad(
            f"{where}-as-{form}",
            b"\x95" + b"".join([*short[:place], prefix + short[place], *short[place + 1 :], b"\x90"]),
            "the header",
            "is not written in the shortest way",
        )
        for place, where in enumerate(("tag", "client", "round", "base"))
        for form, prefix in longer.items()
    ]
    return cases + [
        Bad(f"array-of-{form}", prefix + b"".join(short) + b"\x90", "the header", "is not written in the shortest way")
        for form, prefix in (("u16", b"\xdc\x00\x05"), ("u32", b"\xdd\x00\x00\x00\x05"))
    ]


CASES = [
    *bad_numbers(),
    *long_forms(),
    *(Bad(f"cut-after-{end}-bytes", REAL[:end], "the frame", "msgpack") for end in range(1, len(REAL))),
    Bad("empty", b"", "the frame", "msgpack"),
    Bad("one-byte-too-many", REAL + b"\x00", "the frame", "ExtraData"),
    Bad("two-envelopes-in-one-frame", REAL + REAL, "the frame", "ExtraData"),
    Bad("a-byte-that-msgpack-never-uses", b"\xc1", "the frame", "msgpack"),
    Bad("nil-alone", b"\xc0", "the frame", "is not an array of five"),
    Bad("a-number-alone", b"\x05", "the frame", "is not an array of five"),
    Bad("bytes-of-length-five", pack(b"12345")[1:], "the frame", "is not an array of five"),
    Bad("text-of-length-five", pack("12345")[1:], "the frame", "is not an array of five"),
    Bad("an-array-of-none", pack(), "the frame", "is not an array of five"),
    Bad("an-array-of-four", pack(REPORT, 3, 4, 5), "the frame", "is not an array of five"),
    Bad("an-array-of-six", pack(REPORT, 3, 4, 5, [], []), "the frame", "is not an array of five"),
    Bad("an-array-said-to-be-four-thousand-million", b"\xdd\xff\xff\xff\xff", "the frame", "max_array_len"),
    Bad("an-empty-map", b"\x80", "the frame", "is not an array of five"),
    Bad("a-map-of-one", b"\x81\x01\x02", "the frame", "max_map_len"),
    Bad("an-older-format", pack(Kind.REPORT, 3, 4, 5, []), "the tag", "is format 0; this bus speaks format 1"),
    Bad("a-newer-format", pack(REPORT + 16, 3, 4, 5, []), "the tag", "is format 2; this bus speaks format 1"),
    Bad("kind-zero", pack(FORMAT * 16 + Kind.LINK, 3, 4, 5, []), "the tag", "names kind 0, which does not exist"),
    Bad("a-negative-tag", pack(-1, 3, 4, 5, []), "the tag", "is -1, outside"),
    Bad("a-negative-round", pack(REPORT, 3, -1, 5, []), "round", "is -1, outside 0 … 4294967295"),
    Bad("a-negative-version", pack(REPORT, 3, 4, -1, []), "base version", "is -1, outside 0 … 4294967295"),
    Bad("body-nil", with_body(b"\xc0"), "the body", "is NoneType, not an array"),
    Bad("body-true", with_body(b"\xc3"), "the body", "is bool, not an array"),
    Bad("body-a-number", with_body(b"\x07"), "the body", "is int, not an array"),
    Bad("body-text", with_body(b"\xa1x"), "the body", "is str, not an array"),
    Bad("body-bytes", with_body(b"\xc4\x01x"), "the body", "is bytes, not an array"),
    Bad("body-an-empty-map", with_body(b"\x80"), "the body", "is dict, not an array"),
    Bad("body-a-map", with_body(b"\x81\xa1a\x01"), "the frame", "max_map_len"),
    Bad("body-a-map-with-one-key-twice", with_body(b"\x82\xa1a\x01\xa1a\x02"), "the frame", "max_map_len"),
    Bad("body-a-map-with-a-number-as-key", with_body(b"\x81\x01\x01"), "the frame", "max_map_len"),
    Bad("nil-in-the-body", with_body(b"\x91\xc0"), "the body", "holds NoneType"),
    Bad("true-in-the-body", with_body(b"\x91\xc3"), "the body", "holds bool"),
    Bad("a-map-in-the-body", with_body(b"\x91\x80"), "the body", "holds dict"),
    Bad("nil-deep-in-the-body", with_body(b"\x91\x91\x91\xc0"), "the body", "holds NoneType"),
    Bad("an-extension", with_body(b"\x91\xd4\x05\x00"), "the frame", "max_ext_len"),
    Bad("an-empty-extension", with_body(b"\x91\xc7\x00\x05"), "the body", "holds ExtType"),
    Bad("a-timestamp", with_body(b"\x91\xd6\xff\x00\x00\x00\x01"), "the frame", "max_ext_len"),
    Bad("an-empty-timestamp", with_body(b"\x91\xc7\x00\xff"), "the frame", "msgpack"),
    Bad("one-array-too-deep", pack(REPORT, 3, 4, 5, nested(DEPTH_LIMIT + 1)), "the body", "nests deeper than 6 arrays"),
    Bad("a-thousand-arrays-deep", with_body(b"\x91" * 1000 + b"\x90"), "the body", "nests deeper"),
    Bad("sixty-thousand-arrays-deep", with_body(b"\x91" * 60_000), "the frame", "msgpack"),
    Bad(
        "one-element-too-many", pack(REPORT, 3, 4, 5, [0] * (ARRAY_LIMIT + 1)), "the frame", "65 exceeds max_array_len"
    ),
    Bad("one-too-many-inside", pack(REPORT, 3, 4, 5, [[0] * (ARRAY_LIMIT + 1)]), "the frame", "65 exceeds"),
    Bad("text-of-4097-bytes", pack(REPORT, 3, 4, 5, ["x" * 4097]), "the frame", "max_str_len"),
    Bad("text-that-is-not-utf-8", with_body(b"\x91\xa2\xc3\x28"), "the frame", "UnicodeDecodeError"),
    Bad("text-with-half-a-surrogate", with_body(b"\x91\xa3\xed\xa0\x80"), "the frame", "UnicodeDecodeError"),
    Bad("bytes-said-to-be-longer-than-the-frame", with_body(b"\x91\xc4\x05abc"), "the frame", "msgpack"),
    Bad("bytes-said-to-be-four-gigabytes", with_body(b"\x91\xc6\xff\xff\xff\xff"), "the frame", "incomplete"),
    Bad("text-said-to-be-four-gigabytes", with_body(b"\x91\xdb\xff\xff\xff\xff"), "the frame", "incomplete"),
    Bad(
        "a-pull-of-65537-bytes",
        pack(FORMAT * 16 + Kind.PULL, 3, 4, 5, [bytes(65_528)]),
        "the frame",
        "PULL may have 65,536",
    ),
    Bad("another-protocol", b"GET / HTTP/1.1\r\n\r\n", "the frame", "ExtraData"),
    Bad("a-pickle", b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00", "the frame", "ExtraData"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_malformed_frame_is_refused_by_part_reason_and_peer(case: Bad) -> None:
    with pytest.raises(MalformedEnvelope) as caught:
        decode(case.frame, PEER)
    error = caught.value
    assert (error.where, error.peer) == (case.where, PEER)
    assert case.what in error.what
    assert str(error) == f"malformed envelope from address {PEER}: {case.where} {error.what}"


def test_every_malformed_case_has_a_distinct_name() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 100


def test_a_frame_above_every_limit_is_refused_without_being_read() -> None:
    megabytes = Pieces([bytes(2**20)] * (FRAME_LIMIT // 2**20) + [b"x"])
    sentence = r"the frame has 17,179,869,185 bytes, more than the 17,179,869,184 accepted"
    with pytest.raises(MalformedEnvelope, match=sentence):
        decode(megabytes)


def test_a_stranger_is_called_an_unknown_peer() -> None:
    with pytest.raises(MalformedEnvelope, match="malformed envelope from an unknown peer: the frame"):
        decode(b"")


@pytest.mark.parametrize(
    "body",
    [[0] * ARRAY_LIMIT, nested(DEPTH_LIMIT), ["x" * 4096], [bytes(65_527)], [float("inf")], [2**64 - 1, -(2**63)]],
    ids=["64-elements", "six-deep", "text-of-4096-bytes", "65536-bytes-in-all", "infinity", "widest-numbers"],
)
def test_a_frame_just_within_the_limits_is_accepted(body: list[Any]) -> None:
    assert decode(pack(REPORT, 2**32 - 1, 2**32 - 1, 2**32 - 1, [])).client == 2**32 - 1
    assert decode(pack(REPORT, 3, 4, 5, body)).body == body


def mutate(rng: np.random.Generator, frames: list[bytes]) -> bytes:
    """Return a valid frame after one to four mutations, or random bytes."""
    frame = bytearray(frames[rng.integers(len(frames))])
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(len(frame) + 1))
        match rng.integers(6):
            case 0 if at < len(frame):
                frame[at] ^= 1 << int(rng.integers(8))
            case 1 if at < len(frame):
                frame[at] = int(rng.integers(256))
            case 2:
                frame[at:at] = rng.bytes(int(rng.integers(1, 6)))
            case 3:
                del frame[at : at + int(rng.integers(1, 6))]
            case 4:
                other = frames[rng.integers(len(frames))]
                frame[at:] = other[int(rng.integers(len(other))) :]
            case _ if rng.integers(8) == 0:
                frame = bytearray(rng.bytes(int(rng.integers(64))))
    return bytes(frame)


@pytest.mark.parametrize("count", [5_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_mutated_frames_are_refused_or_are_valid_envelopes(count: int) -> None:
    rng = np.random.Generator(np.random.Philox(2024))
    frames = [encode(Envelope(kind, 3, 4, 5, [b"\x00" * 8, [1.5, "x"], 70_000]))[0] for kind in Kind] + [REAL]
    accepted = 0
    for _ in range(count):
        frame = mutate(rng, frames)
        try:
            envelope = decode(frame, PEER)
        except MalformedEnvelope as error:
            assert error.peer == PEER and error.where and error.what
            continue
        accepted += 1
        again = pack(FORMAT * 16 + envelope.kind, envelope.client, envelope.round, envelope.base, envelope.body)
        assert pack(*msgpack.unpackb(again)) == again and decode(again).kind is envelope.kind
        assert frame.startswith(again[: len(again) - len(msgpack.packb(envelope.body))])
    assert 0 < accepted < count, "a fuzz that accepts all or nothing tests nothing"


brief = st.one_of(
    st.binary(max_size=ARRAY_LIMIT + 2),
    st.lists(st.one_of(leaves, bodies, st.booleans(), st.none()), min_size=4, max_size=6).map(msgpack.packb),
    envelopes.map(lambda envelope: encode(envelope)[0]),
    st.sampled_from([case.frame for case in CASES]),
)


@pytest.mark.slow
@settings(max_examples=400)
@given(brief, st.integers(-1, 80), st.integers(0, 255), st.sampled_from([None, 0, 10, ARRAY_LIMIT, SHORT]))
def test_the_fast_decoder_agrees_with_the_strict_one(frame: bytes, at: int, byte: int, most: int | None) -> None:
    if 0 <= at < len(frame):
        frame = frame[:at] + bytes([byte]) + frame[at + 1 :]

    def outcome(read: Callable[..., tuple[Envelope, int]]) -> object:
        try:
            envelope, header = read(frame, PEER, most)
        except MalformedEnvelope as error:
            return error.where, str(error)
        return repr(envelope), header

    assert outcome(codec.decode_parts) == outcome(codec._decode_strictly)


def test_a_body_that_frames_share_is_one_object_and_headers_are_judged_as_ever() -> None:
    body = [[2**63, 1, 1, b"rate"], [[7, b""]]]
    frames = [encode(Envelope(Kind.PLAN, client, 300, 2, body))[0] for client in (0, 1, 2**20)]
    decoder = Decoder()
    first, second, third = map(decoder.decode, frames)
    assert [first, second, third] == [decode(frame) for frame in frames]
    assert second.body is third.body
    header = len(frames[1]) - len(msgpack.packb(body))
    long_way = frames[1][:2] + b"\xcc\x01" + frames[1][3:]  # client 1 in two bytes in place of one
    for damaged in (long_way, frames[1][1:], frames[1][: header - 1] + frames[1][header:]):
        with pytest.raises(MalformedEnvelope) as strict:
            decode(damaged)
        with pytest.raises(MalformedEnvelope) as shared:
            decoder.decode(damaged)
        assert str(shared.value) == str(strict.value)


def test_a_frame_that_is_the_body_of_the_last_one_is_judged_as_ever() -> None:
    inner = Envelope(Kind.WAKE, 3, 5, 0, [0])
    decoder = Decoder()
    with pytest.raises(MalformedEnvelope):
        decoder.decode(msgpack.packb([]))
    decoder.decode(encode(Envelope(Kind.PLAN, 1, 2, 3, [16 + inner.kind, *inner[1:]]))[0])
    assert decoder.decode(encode(inner)[0]) == inner


@pytest.mark.slow
@settings(max_examples=400)
@given(envelopes.map(lambda envelope: encode(envelope)[0]), brief, st.integers(-1, 20), st.integers(0, 255))
def test_a_decoder_of_many_frames_agrees_with_one_of_each(before: bytes, frame: bytes, at: int, byte: int) -> None:
    decoder = Decoder()
    decoder.decode(before)
    changed = before[:at] + bytes([byte]) + before[at + 1 :] if 0 <= at < len(before) else before

    def outcome(read: Callable[[bytes], Envelope], frame: bytes) -> object:
        try:
            return repr(read(frame))
        except MalformedEnvelope as error:
            return error.where, str(error)

    for each in (changed, frame, before):
        assert outcome(decoder.decode, each) == outcome(decode, each)
