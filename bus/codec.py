"""The bounded codec of envelopes: what it writes is short and plain, and what it reads it does not trust.

Every limit is explicit; anything off raises `MalformedEnvelope` with what, where and from whom, and no other exception
leaves this module. What is short and evidently sound, which nearly every message is, takes a shorter way: to the same
envelope, and whatever else it may be, `_decode_strictly` alone judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from seedbus.bus.errors import EnvelopeTooLong, MalformedEnvelope

# UnpackException, ExtraData, FormatError and StackError are six classes of one fact: this is not msgpack
_NOT_MSGPACK = (ValueError, TypeError, RecursionError, MemoryError, msgpack.UnpackException)
_LIMITS = {"max_str_len": 4096, "max_array_len": ARRAY_LIMIT, "max_map_len": 0, "max_ext_len": 0}
_packer = msgpack.Packer()  # one for all threads: packing what is plain never lets another thread in between
_pack: Callable[[Any], bytes] = _packer.pack
_TAG = FORMAT * 16
_new = tuple.__new__  # not a function of Python's, as a named tuple's own is
_KINDS: dict[int, Kind] = {_TAG + kind: kind for kind in Kind if kind is not Kind.LINK}
_BITS = NUMBER_LIMIT.bit_length() - 1
_SURELY_SHORT = SHORT - HEADER_LIMIT
_SCALARS = frozenset({int, float, str, bytes})
_BRIEF = ARRAY_LIMIT
"""Bytes of a frame in which, whatever they are, no array, map, string or extension can be longer than is accepted."""


def encode(envelope: Envelope) -> tuple[bytes, int]:
    """The envelope's bytes, and how many of them are header. Raises `EnvelopeTooLong`."""
    header, body = _header(envelope), envelope.body
    frame = b"".join((header, *_pieces(body))) if body and _has_long(body) else header + _pack(body)
    if len(frame) > SHORT:
        _refuse_long(envelope, len(frame))
    return frame, len(header)


class Encoder:
    """Encodes envelopes one after the other; a body that several share is packed once. Nobody changes a body."""

    def __init__(self) -> None:
        self._body: list[Any] = []
        self._packed = _pack([])

    def parts(self, envelope: Envelope) -> tuple[bytes, bytes]:
        """The envelope's header and its body, which is that of the one before if theirs are the same object. Raises
        `EnvelopeTooLong`."""
        header, body = _header(envelope), envelope.body
        if body is not self._body:
            self._packed, self._body = b"".join(_pieces(body)) if _has_long(body) else _pack(body), body
        if len(self._packed) > _SURELY_SHORT:
            _refuse_long(envelope, len(header) + len(self._packed))
        return header, self._packed


def first_bytes(kind: Kind) -> bytes:
    """The two bytes with which every envelope of a kind begins, and no other."""
    return bytes((0x95, _TAG + kind))


def decode(frame: bytes, peer: int | None = None, *, most: int | None = None) -> Envelope:
    """The envelope in `frame`. Raises `MalformedEnvelope`, and nothing else, whatever the bytes are.

    most: bytes that are accepted of whoever is not to be trusted with memory; a frame that is longer than `SHORT` may
    then have as many elements as a short one has bytes.
    """
    return decode_parts(frame, peer, most)[0]


def decode_parts(frame: bytes, peer: int | None, most: int | None) -> tuple[Envelope, int]:
    """As `decode`; and how many bytes are header."""
    if len(frame) <= _BRIEF and (most is None or most >= _BRIEF):
        try:
            tag, client, round, base, body = msgpack.unpackb(frame)
            kind = _KINDS[tag]
            header = _pack((tag, client, round, base, 0))[:-1]
        except (KeyError, *_NOT_MSGPACK):
            return _decode_strictly(frame, peer, most)
        if (
            type(tag) is type(client) is type(round) is type(base) is int
            and not (client | round | base) >> _BITS  # all of them in 0 … 2³² − 1
            and type(body) is list
            and frame[: len(header)] == header
            and (not body or _is_plain(body, DEPTH_LIMIT - 1))
        ):
            return _new(Envelope, (kind, client, round, base, body)), len(header)
    return _decode_strictly(frame, peer, most)


def _decode_strictly(frame: bytes, peer: int | None, most: int | None) -> tuple[Envelope, int]:
    limit = FRAME_LIMIT if most is None else most
    if len(frame) > limit:
        raise MalformedEnvelope(f"has {len(frame):,} bytes, more than the {limit:,} accepted", "the frame", peer)
    if most is not None and len(frame) > SHORT and has_more_than(frame, SHORT):
        raise MalformedEnvelope(f"has more than {SHORT:,} elements", "the frame", peer)
    try:
        parts = msgpack.unpackb(frame, **_LIMITS)
    except _NOT_MSGPACK as error:
        raise MalformedEnvelope(
            f"is not acceptable msgpack ({type(error).__name__}: {error})", "the frame", peer
        ) from None
    if not isinstance(parts, list) or len(parts) != 5:
        raise MalformedEnvelope("is not an array of five", "the frame", peer)
    tag, client, round, base, body = parts
    kind = _kind(tag, peer)
    if len(frame) > kind.limit:
        raise MalformedEnvelope(f"has {len(frame):,} bytes; {kind.name} may have {kind.limit:,}", "the frame", peer)
    _whole(client, LOWEST_ADDRESS, "client", peer)
    _whole(round, 0, "round", peer)
    _whole(base, 0, "base version", peer)
    if type(body) is not list:
        raise MalformedEnvelope(f"is {type(body).__name__}, not an array", "the body", peer)
    _plain(body, DEPTH_LIMIT, peer)
    header = _pack((tag, client, round, base, 0))[:-1]
    if not frame.startswith(header):
        raise MalformedEnvelope("is not written in the shortest way", "the header", peer)
    return Envelope(kind, client, round, base, body), len(header)


def _header(envelope: Envelope) -> bytes:
    """The bytes before the body. Raises `EnvelopeTooLong`."""
    kind, client, round, base, _ = envelope
    header = _pack((_TAG + kind, client, round, base, 0))[:-1]  # the body takes the place of the 0, a byte
    if len(header) > HEADER_LIMIT:
        raise EnvelopeTooLong(f"the header of {_name(envelope)}", len(header), HEADER_LIMIT)
    return header


def _refuse_long(envelope: Envelope, size: int) -> None:
    if size > envelope.kind.limit:
        raise EnvelopeTooLong(_name(envelope), size, envelope.kind.limit)


def _name(envelope: Envelope) -> str:
    return f"the {envelope.kind.name} of round {envelope.round} for client {envelope.client}"


def _pieces(values: list[Any]) -> Iterator[bytes]:
    """A packed array, in which long byte strings are pieces of their own and no copies."""
    if not _has_long(values):
        yield _pack(values)
        return
    yield _packer.pack_array_header(len(values))
    for value in values:
        if type(value) is list:
            yield from _pieces(value)
        elif type(value) is bytes and len(value) >= SHORT:
            yield b"\xc6" + len(value).to_bytes(4, "big")  # msgpack's bin 32
            yield value
        else:
            yield _pack(value)


def _has_long(values: list[Any]) -> bool:
    for value in values:
        if type(value) is list:
            if _has_long(value):
                return True
        elif type(value) is bytes and len(value) >= SHORT:
            return True
    return False


def _kind(tag: object, peer: int | None) -> Kind:
    known = _whole(tag, 0, "the tag", peer)
    version, number = divmod(known, 16)
    if version != FORMAT:
        raise MalformedEnvelope(f"is format {version}; this bus speaks format {FORMAT}", "the tag", peer)
    if known not in _KINDS:
        raise MalformedEnvelope(f"names kind {number}, which does not exist", "the tag", peer)
    return _KINDS[known]


def _whole(value: object, lowest: int, where: str, peer: int | None) -> int:
    if type(value) is not int:  # bool is an int to isinstance, and not to us
        raise MalformedEnvelope(f"is {type(value).__name__}, not a whole number", where, peer)
    if not lowest <= value < NUMBER_LIMIT:
        raise MalformedEnvelope(f"is {value}, outside {lowest} … {NUMBER_LIMIT - 1}", where, peer)
    return value


def _plain(value: object, depth: int, peer: int | None) -> None:
    """Arrays nested to `depth`, of numbers, strings and byte strings; no maps, no null, no extension types."""
    if type(value) is list:
        if depth == 0:
            raise MalformedEnvelope(f"nests deeper than {DEPTH_LIMIT} arrays", "the body", peer)
        for element in value:
            if type(element) not in _SCALARS:
                _plain(element, depth - 1, peer)
    elif type(value) not in _SCALARS:
        raise MalformedEnvelope(f"holds {type(value).__name__}", "the body", peer)


def _is_plain(values: list[Any], depth: int) -> bool:
    """Whether `_plain` has nothing against a body, or an array `depth` arrays short of the limit."""
    for value in values:
        if type(value) not in _SCALARS and not (type(value) is list and depth and _is_plain(value, depth - 1)):
            return False
    return True
