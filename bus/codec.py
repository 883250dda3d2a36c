"""The codec of envelopes: it writes compact msgpack and does not trust what it reads.

Every limit is explicit. A frame that breaks one raises `MalformedEnvelope`, which says what is wrong, where, and who
sent it; decoding raises nothing else. Short, plainly valid frames, which are nearly all, take a fast path that gives
the same envelope. Any other frame is left to `_decode_strictly`, the only judge of what is malformed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

from seedbus.bus.elements import has_more_than
from seedbus.bus.envelope import (
    ARRAY_LIMIT,
    DEPTH_LIMIT,
    FORMAT,
    FRAME_LIMIT,
    HEADER_LIMIT,
    LOWEST_ADDRESS,
    NUMBER_LIMIT,
    SHORT,
    Envelope,
    Kind,
)
from seedbus.bus.errors import EnvelopeTooLong, MalformedEnvelope, Unusable
from seedbus.pieces import Frame, Pieces, frame_of, packed, unpacked

# What `msgpack.unpackb` raises for bytes that are not msgpack. ExtraData is a ValueError.
_NOT_MSGPACK = (ValueError, TypeError, RecursionError, MemoryError, msgpack.UnpackException)
_LIMITS = {"max_str_len": 4096, "max_array_len": ARRAY_LIMIT, "max_map_len": 0, "max_ext_len": 0}
_packer = msgpack.Packer()  # shared by all threads: packing plain values never releases the interpreter lock
_pack: Callable[[Any], bytes] = _packer.pack
_unpack = msgpack.unpackb
_TAG = FORMAT * 16
_new = tuple.__new__  # faster than a named tuple's own constructor, which is written in Python
_KINDS: dict[int, Kind] = {_TAG + kind: kind for kind in Kind if kind is not Kind.LINK}
_BITS = NUMBER_LIMIT.bit_length() - 1
_SHORT_BODY = SHORT - HEADER_LIMIT
_SCALARS = frozenset({int, float, str, bytes, memoryview})  # views, of byte strings in a long frame
_FAST_PATH_LIMIT = ARRAY_LIMIT
"""Maximum bytes of a frame on the fast path: too few for an array or a string that is longer than accepted."""


def encode(envelope: Envelope) -> tuple[bytes, int]:
    """Return what `encoded` does, with a frame that is never in pieces."""
    frame, header_bytes = encoded(envelope)
    return bytes(frame), header_bytes


def encoded(envelope: Envelope) -> tuple[Frame, int]:
    """Return the envelope's frame and the number of its header bytes. Raises `EnvelopeTooLong`."""
    kind, client, round, base, body = envelope
    header = _header(kind, client, round, base)
    try:
        long = bool(body) and _has_long(body)
        frame: Frame = frame_of([header, *packed(body)]) if long else header + _pack(body)
    except (TypeError, OverflowError, ValueError) as error:
        raise _unpackable(envelope, error) from error
    if len(frame) > SHORT:
        _check_length(envelope, len(frame))
    return frame, len(header)


class Encoder:
    """Encodes a sequence of envelopes; a body that consecutive envelopes share is packed once.

    Bodies must not be changed: they are compared by identity.
    """

    def __init__(self) -> None:
        self._body: list[Any] = []
        self._packed: Frame = _pack([])

    def parts(self, envelope: Envelope) -> tuple[bytes, Frame]:
        """Return the envelope's header and its packed body. Raises `EnvelopeTooLong`.

        If the previous envelope had the same body object, the same packed bytes object is returned.
        """
        kind, client, round, base, body = envelope
        header = _header(kind, client, round, base)
        if body is not self._body:
            try:
                self._packed = frame_of(list(packed(body))) if _has_long(body) else _pack(body)
            except (TypeError, OverflowError, ValueError) as error:
                raise _unpackable(envelope, error) from error
            self._body = body
        tail = self._packed
        if len(tail) > _SHORT_BODY:
            _check_length(envelope, len(header) + len(tail))
        return header, tail


class Decoder:
    """Decodes a sequence of frames; a body that consecutive frames share is unpacked once, and is the same object then.

    Bodies must not be changed. Those of frames longer than `SHORT` are not kept.
    """

    def __init__(self) -> None:
        self._body: list[Any] = []
        self._packed = _pack([])

    def decode(self, frame: Frame) -> Envelope:
        """Return what `decode` returns for a frame of a trusted peer. Raises `MalformedEnvelope`."""
        if isinstance(frame, Pieces):
            return decode(frame)
        shared = self._packed
        if frame.endswith(shared):
            header = frame[: -len(shared)]
            try:
                tag, client, round, base, _ = _unpack(header + b"\0")  # with 0 in the body's place
                kind = _KINDS[tag]
                shortest = _pack((tag, client, round, base, 0))[:-1]
            except (KeyError, *_NOT_MSGPACK):
                shortest = b""
            if (
                header  # empty, where a frame is what the last one had as its body
                and header == shortest
                and type(tag) is type(client) is type(round) is type(base) is int
                and not (client | round | base) >> _BITS  # each of them is in 0 … 2³² − 1
                and len(frame) <= kind.limit
            ):
                return _new(Envelope, (kind, client, round, base, self._body))
        envelope, header_bytes = decode_parts(frame, None, None)
        if len(frame) <= SHORT:
            self._body, self._packed = envelope.body, frame[header_bytes:]
        return envelope


def first_bytes(kind: Kind) -> bytes:
    """Return the two bytes with which every envelope of this kind begins, and no envelope of another kind."""
    return bytes((0x95, _TAG + kind))


def decode(frame: Frame, peer: int | None = None, *, most: int | None = None) -> Envelope:
    """Decode a frame.

    Args:
        frame: any bytes.
        peer: address of the sender, for the error; None if unknown.
        most: maximum bytes of a frame from a peer that is not trusted. The number of elements of a frame that is longer
            than `SHORT` is then limited to `SHORT` too. None: the format's own limits only.

    Raises:
        MalformedEnvelope: the bytes are not a valid envelope; nothing else is raised.
    """
    return decode_parts(frame, peer, most)[0]


def decode_parts(frame: Frame, peer: int | None, most: int | None) -> tuple[Envelope, int]:
    """Decode a frame as `decode` does; return the envelope and the number of its header bytes."""
    if type(frame) is bytes and len(frame) <= _FAST_PATH_LIMIT and (most is None or most >= _FAST_PATH_LIMIT):
        try:
            tag, client, round, base, body = _unpack(frame)
            kind = _KINDS[tag]
            header = _pack((tag, client, round, base, 0))[:-1]
        except (KeyError, *_NOT_MSGPACK):
            return _decode_strictly(frame, peer, most)
        if (
            type(tag) is type(client) is type(round) is type(base) is int
            and not (client | round | base) >> _BITS  # each of them is in 0 … 2³² − 1
            and type(body) is list
            and frame.startswith(header)
            and (not body or _is_plain(body, DEPTH_LIMIT - 1))
        ):
            return _new(Envelope, (kind, client, round, base, body)), len(header)
    return _decode_strictly(frame, peer, most)


def _decode_strictly(frame: Frame, peer: int | None, most: int | None) -> tuple[Envelope, int]:
    limit = FRAME_LIMIT if most is None else most
    if len(frame) > limit:
        raise MalformedEnvelope(f"has {len(frame):,} bytes, more than the {limit:,} accepted", "the frame", peer)
    if isinstance(frame, bytes) and most is not None and len(frame) > SHORT and has_more_than(frame, SHORT):
        raise MalformedEnvelope(f"has more than {SHORT:,} elements", "the frame", peer)
    try:
        if isinstance(frame, Pieces):
            parts = unpacked(frame, longest_array=ARRAY_LIMIT, longest_text=_LIMITS["max_str_len"])
        else:
            parts = msgpack.unpackb(frame, **_LIMITS)
    except _NOT_MSGPACK as error:
        raise MalformedEnvelope(
            f"is not acceptable msgpack ({type(error).__name__}: {error})", "the frame", peer
        ) from None
    if not isinstance(parts, list) or len(parts) != 5:
        raise MalformedEnvelope("is not an array of five", "the frame", peer)
    tag, client, round, base, body = parts
    kind = _checked_kind(tag, peer)
    if len(frame) > kind.limit:
        raise MalformedEnvelope(f"has {len(frame):,} bytes; {kind.name} may have {kind.limit:,}", "the frame", peer)
    _check_integer(client, LOWEST_ADDRESS, "client", peer)
    _check_integer(round, 0, "round", peer)
    _check_integer(base, 0, "base version", peer)
    if type(body) is not list:
        raise MalformedEnvelope(f"is {type(body).__name__}, not an array", "the body", peer)
    _check_plain(body, DEPTH_LIMIT, peer)
    header = _pack((tag, client, round, base, 0))[:-1]
    if frame[: len(header)] != header:
        raise MalformedEnvelope("is not written in the shortest way", "the header", peer)
    return Envelope(kind, client, round, base, body), len(header)


def _header(kind: Kind, client: int, round: int, base: int) -> bytes:
    """The encoded bytes before the body. Raises `EnvelopeTooLong`."""
    header = _pack((_TAG + kind, client, round, base, 0))[:-1]  # without the last byte, the 0 in the body's place
    if len(header) > HEADER_LIMIT:
        name = _name(Envelope(kind, client, round, base))
        raise EnvelopeTooLong(f"the header of {name}", len(header), HEADER_LIMIT)
    return header


def _check_length(envelope: Envelope, size: int) -> None:
    if size > envelope.kind.limit:
        raise EnvelopeTooLong(_name(envelope), size, envelope.kind.limit)


def _unpackable(envelope: Envelope, error: Exception) -> Unusable:
    return Unusable(
        f"{_name(envelope)} cannot be packed ({error}); expected numbers, strings, bytes and lists of these"
    )


def _name(envelope: Envelope) -> str:
    return f"the {envelope.kind.name} of round {envelope.round} for client {envelope.client}"


def _has_long(values: list[Any]) -> bool:
    for value in values:
        if type(value) is list:
            if _has_long(value):
                return True
        elif (type(value) is bytes or type(value) is memoryview) and len(value) >= SHORT:
            return True
    return False


def _checked_kind(tag: object, peer: int | None) -> Kind:
    checked_tag = _check_integer(tag, 0, "the tag", peer)
    version, number = divmod(checked_tag, 16)
    if checked_tag not in _KINDS and version != FORMAT:
        raise MalformedEnvelope(f"is format {version}; this bus speaks format {FORMAT}", "the tag", peer)
    if checked_tag not in _KINDS:
        raise MalformedEnvelope(f"names kind {number}, which does not exist", "the tag", peer)
    return _KINDS[checked_tag]


def _check_integer(value: object, lowest: int, where: str, peer: int | None) -> int:
    if type(value) is not int:  # isinstance would accept a bool
        raise MalformedEnvelope(f"is {type(value).__name__}, not a whole number", where, peer)
    if not lowest <= value < NUMBER_LIMIT:
        raise MalformedEnvelope(f"is {value}, outside {lowest} … {NUMBER_LIMIT - 1}", where, peer)
    return value


def _check_plain(value: object, depth: int, peer: int | None) -> None:
    """Accept numbers, strings, byte strings, and arrays of these nested to `depth`; no map, null or extension type.

    Raises `MalformedEnvelope`.
    """
    if type(value) is list:
        if depth == 0:
            raise MalformedEnvelope(f"nests deeper than {DEPTH_LIMIT} arrays", "the body", peer)
        for element in value:
            if type(element) not in _SCALARS:
                _check_plain(element, depth - 1, peer)
    elif type(value) not in _SCALARS:
        raise MalformedEnvelope(f"holds {type(value).__name__}", "the body", peer)


def _is_plain(values: list[Any], depth: int) -> bool:
    """Whether `_check_plain` accepts these values of an array, in which arrays may nest `depth` levels deep."""
    for value in values:
        if type(value) not in _SCALARS and not (type(value) is list and depth and _is_plain(value, depth - 1)):
            return False
    return True
