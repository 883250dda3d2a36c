"""The envelope: what travels, and its strict bounded codec.

On the wire an envelope is one msgpack array of five:

    [tag, client, round, base, body]     tag = format version × 16 + kind

`client` is the party that is not the server (a client, or a negative address: the evaluator, a host of clients), so
sender and recipient follow from the kind. Everything but the body is the header: at most 16 bytes. The body is what
its kind says: msgpack scalars, byte strings and arrays of at most 64 elements; gradient scalars travel raw,
little-endian, in one byte string.

Decoding trusts nothing: every limit is explicit, anything off raises `MalformedEnvelope` with what, where and from
whom, and no other exception leaves this module.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgpack

from seedbus.bus.elements import has_more_than
from seedbus.bus.errors import EnvelopeTooLong, MalformedEnvelope

FORMAT = 1
HEADER_LIMIT = 16
NUMBER_LIMIT = 2**32
ARRAY_LIMIT = 64
DEPTH_LIMIT = 6
FRAME_LIMIT = 2**28
SHORT = 2**16
"""Bytes that a kind has at most that carries no vectors; and of a REPORT, unless a run says that its own are longer."""

SERVER = -1
EVALUATOR = -2
HOST = -3  # hosts of clients take -3, -4, …; the first thirty fit one byte of msgpack, all of them three
LOWEST_ADDRESS = -(2**15)


class Kind(enum.IntEnum):
    """What a message is. The numbers are the wire's; they also order messages that arrive at one instant:
    of those, the evaluator's come first, so that it knows a version before anybody claims to hold it.

    LINK never travels: its rows in the ledger are bytes of a transport that belong to no message. WAKE is no message
    either: the simulation's word to a client that it is there again; and a client's to the simulation, of what it has
    of a snapshot. PEAK tells the largest of what clients said of their reports, and is not answered."""

    LINK = 0
    JOIN = 1
    WELCOME = 2
    REFUSE = 3
    COMMIT = 4
    EVALUATION = 5
    PLAN = 6
    REPORT = 7
    BYE = 8
    DECLINE = 9
    WAKE = 10
    PEAK = 11
    SNAPSHOT = 12
    PULL = 13
    FETCH = 14
    PIECE = 15

    __hash__ = int.__hash__  # Enum's own is a function of Python's, and every message is found by its kind

    @cached_property
    def is_upward(self) -> bool:
        """True if it travels towards the server."""
        return self in _UPWARD

    @cached_property
    def limit(self) -> int:
        """The longest envelope of this kind, in bytes. What a server accepts of a REPORT is a property of its run."""
        return SHORT if self in _SHORT else FRAME_LIMIT


_UPWARD = frozenset({Kind.JOIN, Kind.REPORT, Kind.EVALUATION, Kind.DECLINE, Kind.PULL, Kind.PIECE})
# what clients send for the algorithm's sake, and what they are sent
UP = (Kind.REPORT, Kind.DECLINE, Kind.PULL, Kind.PIECE)
DOWN = (Kind.PLAN, Kind.PEAK, Kind.SNAPSHOT, Kind.FETCH)
_SHORT = _UPWARD - {Kind.REPORT} | {Kind.PEAK, Kind.SNAPSHOT, Kind.FETCH}
_TAGS = {FORMAT * 16 + kind: kind for kind in Kind if kind is not Kind.LINK}


class Tally(NamedTuple):
    """What a payload carries beside its length: the papers' units, and the bytes that the ledger keeps apart."""

    scalars: int = 0
    seeds: int = 0
    catchup_bytes: int = 0
    digest_bytes: int = 0


NO_TALLY = Tally()


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message. round and base are below 2³²; base is the version that the message refers to."""

    kind: Kind
    client: int
    round: int
    base: int
    body: list[Any] = field(default_factory=list)

    @property
    def sender(self) -> int:
        return ends(self.kind, self.client)[0]

    @property
    def recipient(self) -> int:
        return ends(self.kind, self.client)[1]


def ends(kind: Kind, client: int) -> tuple[int, int]:
    """Sender and recipient of a message between the server and `client`."""
    return (client, SERVER) if kind in _UPWARD else (SERVER, client)


def encode(envelope: Envelope) -> tuple[bytes, int]:
    """The envelope's bytes, and how many of them are header. Raises `EnvelopeTooLong`."""
    header = _header(envelope)
    frame = b"".join((header, *_pieces(envelope.body)))
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
        header = _header(envelope)
        if envelope.body is not self._body:
            self._packed, self._body = b"".join(_pieces(envelope.body)), envelope.body
        _refuse_long(envelope, len(header) + len(self._packed))
        return header, self._packed


def header_of(envelope: Envelope) -> bytes:
    """The bytes before the body."""
    # the numbers as an array of four, and its first byte replaced by that of an array of five: the body follows
    return b"\x95" + _pack((FORMAT * 16 + envelope.kind, envelope.client, envelope.round, envelope.base))[1:]


def is_of(frame: bytes, kind: Kind) -> bool:
    """Whether these are the bytes of an envelope of a kind, if of any."""
    return frame[:2] == bytes((0x95, FORMAT * 16 + kind))


_LIMITS = {
    "raw": False,
    "strict_map_key": True,
    "max_bin_len": FRAME_LIMIT,
    "max_str_len": 4096,
    "max_array_len": ARRAY_LIMIT,
    "max_map_len": 0,
    "max_ext_len": 0,
}


def decode(frame: bytes, peer: int | None = None, *, most: int | None = None) -> Envelope:
    """The envelope in `frame`. Raises `MalformedEnvelope`, and nothing else, whatever the bytes are.

    most: bytes that are accepted of whoever is not to be trusted with memory; a frame that is longer than `SHORT` may
    then have as many elements as a short one has bytes.
    """
    limit = FRAME_LIMIT if most is None else most
    if len(frame) > limit:
        raise MalformedEnvelope(f"has {len(frame):,} bytes, more than the {limit:,} accepted", "the frame", peer)
    if most is not None and len(frame) > SHORT and has_more_than(frame, SHORT):
        raise MalformedEnvelope(f"has more than {SHORT:,} elements", "the frame", peer)
    try:
        parts = msgpack.unpackb(frame, **_LIMITS)
    except (ValueError, TypeError, RecursionError, MemoryError, msgpack.UnpackException) as error:
        # UnpackException, ExtraData, FormatError and StackError are six classes of one fact: this is not msgpack
        raise MalformedEnvelope(
            f"is not acceptable msgpack ({type(error).__name__}: {error})", "the frame", peer
        ) from None
    if not isinstance(parts, list) or len(parts) != 5:
        raise MalformedEnvelope("is not an array of five", "the frame", peer)
    tag, client, round, base, body = parts
    kind = (_TAGS.get(tag) if type(tag) is int else None) or _kind(tag, peer)
    if len(frame) > kind.limit:
        raise MalformedEnvelope(f"has {len(frame):,} bytes; {kind.name} may have {kind.limit:,}", "the frame", peer)
    _whole(client, LOWEST_ADDRESS, "client", peer)
    _whole(round, 0, "round", peer)
    _whole(base, 0, "base version", peer)
    if type(body) is not list:
        raise MalformedEnvelope(f"is {type(body).__name__}, not an array", "the body", peer)
    _plain(body, DEPTH_LIMIT, peer)
    envelope = Envelope(kind, client, round, base, body)
    header = header_of(envelope)
    if not frame.startswith(header):
        raise MalformedEnvelope("is not written in the shortest way", "the header", peer)
    return envelope


def _header(envelope: Envelope) -> bytes:
    header = header_of(envelope)
    if len(header) > HEADER_LIMIT:
        raise EnvelopeTooLong(f"the header of {_name(envelope)}", len(header), HEADER_LIMIT)
    return header


def _refuse_long(envelope: Envelope, size: int) -> None:
    if size > envelope.kind.limit:
        raise EnvelopeTooLong(_name(envelope), size, envelope.kind.limit)


def _name(envelope: Envelope) -> str:
    return f"the {envelope.kind.name} of round {envelope.round} for client {envelope.client}"


_packer = msgpack.Packer()  # one for all threads: packing what is plain never lets another thread in between


def _pack(value: Any) -> bytes:
    packed: bytes = _packer.pack(value)
    return packed


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
    _whole(tag, 0, "the tag", peer)
    assert isinstance(tag, int)
    version, number = divmod(tag, 16)
    if version != FORMAT:
        raise MalformedEnvelope(f"is format {version}; this bus speaks format {FORMAT}", "the tag", peer)
    if tag not in _TAGS:
        raise MalformedEnvelope(f"names kind {number}, which does not exist", "the tag", peer)
    return _TAGS[tag]


def _whole(value: object, lowest: int, where: str, peer: int | None) -> None:
    if type(value) is not int:  # bool is an int to isinstance, and not to us
        raise MalformedEnvelope(f"is {type(value).__name__}, not a whole number", where, peer)
    if not lowest <= value < NUMBER_LIMIT:
        raise MalformedEnvelope(f"is {value}, outside {lowest} … {NUMBER_LIMIT - 1}", where, peer)


_SCALARS = frozenset({int, float, str, bytes})


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
