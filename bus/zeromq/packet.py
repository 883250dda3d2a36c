"""The packets that travel between a hub and its links; each is one ZeroMQ frame.

    [protocol × 16 + type : 1 byte] [session : 8 bytes] [content] [over TCP without keys, a checksum : 4 bytes]

    HELLO     link → hub   msgpack: run, spans, count, evaluates; its session is the previous one, or zeros
    OFFER     hub → link   msgpack: run, host, spans, evaluates, heartbeat in ms, nonce, scenario
    DECLINE   hub → link   msgpack: reason, detail; also the answer to a packet whose session is unknown
    PING      link → hub   nothing; sent once a heartbeat
    PONG      hub → link   nothing; the answer to a PING
    POST      both ways    entries: JOIN, WELCOME, REFUSE and BYE, which are not numbered
    DELIVER   hub → link   number of the first delivery; entries, one a delivery
    ANSWER    link → hub   number of the first answered delivery; for each delivery: number of entries; entries
    FAREWELL  link → hub   nothing, after a BYE; or before one, a code for the reason
    LONG, PART, TAKEN      both ways: a POST, DELIVER or ANSWER that is too long for one packet (`parts`)

Spans are little-endian pairs of 32-bit integers: the first and the last client. An entry is an envelope after its
length; numbers and lengths are LEB128. The length is the envelope's framing; all other bytes of a packet belong to the
link. A session is a link's stay with one incarnation of a server. Its eight bytes are drawn anew each time, so a packet
that was meant for another session is recognised.

Reading trusts nothing: whatever the bytes are, it raises `MalformedPacket` and nothing else.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgpack

from seedbus import pieces
from seedbus.bus.envelope import ARRAY_LIMIT, EVALUATOR, LOWEST_ADDRESS
from seedbus.bus.errors import MalformedPacket
from seedbus.bus.text import printable
from seedbus.bus.transport import MAX_SPANS, HostRequest, Offer, Span
from seedbus.pieces import Bytes, Frame, Pieces, buffers

PROTOCOL = 1
SESSION_BYTES = 8
HEAD = 1 + SESSION_BYTES
NO_SESSION = bytes(SESSION_BYTES)
MOST_ANSWERS = 64  # entries that may answer one delivery
HELLO_BYTES = 4096  # bytes of the longest HELLO
NONCE_LIMIT = 64  # bytes
_SCENARIO_LIMIT = 2**22  # bytes
HEARTBEAT_MS = (10, 60_000)
"""The shortest and the longest heartbeat that a link accepts from a hub."""
DAMAGED = "damaged"
"""The reason for which a packet with a wrong checksum is refused; the connection is made anew."""
OVER = "over"
"""The reason of a DECLINE to a link that has missed its BYE."""
AWAY = "away"
"""Why a link leaves that comes back when its user lets it."""
FAREWELLS = frozenset({"stopped", "data", "scenario", "limits", "memory", "server", "failed", AWAY, DAMAGED})
"""Why a link gives up, in one word: a sentence could reveal the user's files to the hub."""


class Type(enum.IntEnum):
    """The types of packets."""

    HELLO = 1
    OFFER = 2
    DECLINE = 3
    PING = 4
    PONG = 5
    POST = 6
    DELIVER = 7
    ANSWER = 8
    FAREWELL = 9
    LONG = 10
    PART = 11
    TAKEN = 12


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]
"""The numbers that take one byte."""


class Packet(NamedTuple):
    """A packet in its three parts. A long one's content is a view, so that only its short entries are copied."""

    type: Type
    session: bytes
    content: Bytes


def packet(type: Type, session: bytes, *content: Bytes) -> bytes:
    """Return the bytes of a packet; its content may come in parts."""
    return b"".join((bytes([PROTOCOL * 16 + type]), session, *content))


def read(data: Bytes) -> Packet:
    """Split a packet into its parts; its content is not read yet.

    Raises:
        MalformedPacket: it is too short, or of another protocol, or has a type that does not exist.
    """
    if len(data) < HEAD:
        raise MalformedPacket("short-packet", f"{len(data)} bytes; a packet has at least {HEAD}")
    protocol, number = divmod(data[0], 16)
    if protocol != PROTOCOL:
        raise MalformedPacket("protocol", f"protocol {protocol}; this is protocol {PROTOCOL}")
    if not Type.HELLO <= number <= Type.TAKEN:
        raise MalformedPacket("packet-type", f"type {number} does not exist")
    return Packet(Type(number), bytes(data[1:HEAD]), data[HEAD:])


# -- opening and ending a session


def hello(run: bytes, request: HostRequest) -> bytes:
    """Return the content of a HELLO.

    Args:
        run: the run that the process was part of; empty for none.
        request: the clients that it asks for.
    """
    return _pack([run, _column(request.spans), request.count, int(request.evaluates)])


def read_hello(content: Bytes) -> tuple[bytes, HostRequest]:
    """Read a HELLO; returns the run and the request. Raises `MalformedPacket`."""
    if len(content) > HELLO_BYTES - HEAD:
        raise MalformedPacket("too-long", f"a HELLO of {HEAD + len(content):,} bytes; it has at most {HELLO_BYTES:,}")
    run, spans, count, evaluates = _fields(content, [bytes, bytes, int, int])
    if len(spans) > 8 * MAX_SPANS:
        raise MalformedPacket("bad-spans", f"{len(spans) // 8} spans; a HELLO has at most {MAX_SPANS}")
    if len(run) not in (0, SESSION_BYTES) or not 0 <= count < 2**32 or evaluates not in (0, 1):
        raise MalformedPacket("bad-hello", "its run, its count or its evaluator is out of range")
    return run, HostRequest(_spans(spans), count, bool(evaluates))


def offer(run: bytes, offered: Offer, heartbeat_ms: int) -> bytes:
    """Return the content of an OFFER."""
    spans, evaluates = _column(offered.spans), int(offered.evaluates)
    return _pack([run, offered.host, spans, evaluates, heartbeat_ms, offered.nonce, offered.scenario])


def farewell(code: str) -> bytes:
    """Return the content of a FAREWELL before a BYE; any code that is not one of `FAREWELLS` is sent as `failed`."""
    return (code if code in FAREWELLS else "failed").encode()


def read_farewell(content: Bytes) -> str:
    """Return why a process leaves: one of `FAREWELLS`, "unknown", or "" after a BYE."""
    if not len(content):
        return ""
    code = bytes(content[:64]).decode("ascii", "replace")
    return code if code in FAREWELLS else "unknown"


def read_offer(content: Bytes) -> tuple[bytes, Offer, int]:
    """Read an OFFER; returns the run, the offer and the heartbeat in ms. Raises `MalformedPacket`."""
    types = [bytes, int, bytes, int, int, bytes, bytes]
    run, host, spans, evaluates, heartbeat_ms, nonce, scenario = _fields(content, types)
    if not LOWEST_ADDRESS <= host < EVALUATOR or len(run) != SESSION_BYTES or evaluates not in (0, 1):
        raise MalformedPacket("bad-offer", "its host, its run or its evaluator is out of range")
    if len(nonce) > NONCE_LIMIT:
        raise MalformedPacket("bad-offer", f"a nonce of {len(nonce):,} bytes; at most {NONCE_LIMIT} are accepted")
    shortest, longest = HEARTBEAT_MS
    if not shortest <= heartbeat_ms <= longest:
        raise MalformedPacket(
            "bad-offer", f"a heartbeat of {heartbeat_ms:,} ms; {shortest} to {longest:,} ms are accepted"
        )
    return run, Offer(host, _spans(spans), bool(evaluates), scenario, nonce), heartbeat_ms


def decline(reason: str, detail: str) -> bytes:
    """Return the content of a DECLINE; a word of 64 and a sentence of 1,024 characters at most."""
    return _pack([reason[:64], detail[:1024]])


def read_decline(content: Bytes) -> tuple[str, str]:
    """Read a DECLINE; returns the word and the sentence, without characters that could control a terminal.

    Raises:
        MalformedPacket: these are not its fields.
    """
    reason, detail = _fields(content, [str, str])
    return printable(reason, 64), printable(detail, 1024)


# -- envelopes


def entry(frame: bytes, tail: bytes = b"") -> bytes:
    """Return an entry. `tail` is the frame's end."""
    return b"".join((number(len(frame) + len(tail)), frame, tail))


def _entry_parts(*frame: Frame) -> list[Bytes]:
    """Return an entry in pieces; frame: the frame, and its end."""
    return [number(sum(map(len, frame))), *(piece for each in frame for piece in buffers(each))]


def entry_bytes(size: int) -> int:
    """Return how many bytes an entry takes whose frame has `size` bytes."""
    return 1 + size if size < 0x80 else number_bytes(size) + size


def entries_bytes(sizes: Sequence[int]) -> int:
    """Return how many bytes entries take whose frames have these sizes."""
    if not sizes or max(sizes) < 0x80:
        return len(sizes) + sum(sizes)
    return sum(map(entry_bytes, sizes))


def posted(frames: Iterable[Frame]) -> list[Bytes]:
    """Return the content of a POST in parts."""
    return [part for frame in frames for part in _entry_parts(frame)]


def deliveries(first: int, frames: Iterable[tuple[Frame, Frame]]) -> list[Bytes]:
    """Return the content of a DELIVER in parts, which saves a copy.

    Args:
        first: number of the first delivery.
        frames: the frame of each delivery, and its end.
    """
    parts: list[Bytes] = [number(first)]
    for frame, tail in frames:
        parts += _entry_parts(frame, tail)
    return parts


def read_deliveries(content: Bytes) -> tuple[int, list[Frame]]:
    """Read a DELIVER; returns the number of the first delivery, and the frames. Raises `MalformedPacket`."""
    first, offset = _read_number(content, 0)
    return first, read_entries(content, offset)


def answers(first: int, by_delivery: Sequence[Sequence[Frame]]) -> list[Bytes]:
    """Return the content of an ANSWER in parts.

    Args:
        first: number of the first answered delivery.
        by_delivery: the frames that answer each delivery.
    """
    parts: list[Bytes] = [number(first)]
    for frames in by_delivery:
        parts.append(number(len(frames)))
        for frame in frames:
            parts += _entry_parts(frame)
    return parts


def read_answers(content: Bytes) -> tuple[int, list[list[Frame]]]:
    """Read an ANSWER; returns the number of the first answered delivery, and the frames that answer each.

    Raises:
        MalformedPacket: it ends too soon, or has too many entries for one delivery.
    """
    first, offset = _read_number(content, 0)
    by_delivery = []
    while offset < len(content):
        count = content[offset]
        if count < 0x80:
            offset += 1
        else:
            count, offset = _read_number(content, offset)
        if count > MOST_ANSWERS:
            raise MalformedPacket("too-many-entries", f"{count} entries answer one delivery; at most {MOST_ANSWERS}")
        frames = list[Frame]()
        for _ in range(count):
            frame, offset = _read_entry(content, offset)
            frames.append(frame)
        by_delivery.append(frames)
    return first, by_delivery


def read_entries(content: Bytes, offset: int = 0) -> list[Frame]:
    """Read entries up to the end of `content`. Raises `MalformedPacket`."""
    frames = list[Frame]()
    while offset < len(content):
        frame, offset = _read_entry(content, offset)
        frames.append(frame)
    return frames


def number(value: int) -> bytes:
    """Return a number in LEB128, in the shortest form."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_bytes(value: int) -> int:
    """Return how many bytes a number takes."""
    return 1 if value < 0x80 else -(-value.bit_length() // 7)


def _read_number(content: Bytes, offset: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if offset >= len(content):
            raise MalformedPacket("cut-short", "it ends within a number")
        byte = content[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise MalformedPacket("long-number", "a number is not written in the shortest way")
            return value, offset
    raise MalformedPacket("long-number", "a number has more than five bytes")


def _read_entry(content: Bytes, offset: int) -> tuple[Frame, int]:
    size = content[offset] if offset < len(content) else 0x80
    if size < 0x80:  # as that of nearly all is, and without a call
        offset += 1
    else:
        size, offset = _read_number(content, offset)
    end = offset + size
    if end > len(content):
        raise MalformedPacket("cut-short", f"an entry of {size} bytes, of which {len(content) - offset} are there")
    if size > pieces.WHOLE:
        return Pieces([content[offset:end]]), end
    return bytes(content[offset:end]), end


def _pack(fields: list[Any]) -> bytes:
    packed: bytes = msgpack.packb(fields)
    return packed


def _fields(content: Bytes, types: list[type]) -> Iterator[Any]:
    limits = {"max_array_len": ARRAY_LIMIT, "max_map_len": 0, "max_ext_len": 0, "max_str_len": 4096}
    try:
        fields = msgpack.unpackb(content, max_bin_len=_SCENARIO_LIMIT, **limits)
    except (ValueError, TypeError, RecursionError, MemoryError, msgpack.UnpackException) as error:
        raise MalformedPacket(
            "not-msgpack", f"its content is not acceptable msgpack ({type(error).__name__})"
        ) from None
    if not isinstance(fields, list) or [type(field) for field in fields] != types:
        raise MalformedPacket("wrong-fields", "its fields are not those of its type")
    return iter(fields)


def _column(spans: Sequence[Span]) -> bytes:
    return struct.pack(f"<{2 * len(spans)}I", *(end for span in spans for end in span))


def _spans(column: bytes) -> tuple[Span, ...]:
    """Read spans, which must ascend and must not overlap. Raises `MalformedPacket`."""
    if len(column) % 8:
        raise MalformedPacket("bad-spans", f"{len(column)} bytes of spans; each has 8")
    ends = struct.unpack(f"<{len(column) // 4}I", column)
    spans = tuple(zip(ends[::2], ends[1::2], strict=True))
    if any(first > last or last >= 2**24 for first, last in spans):
        raise MalformedPacket("bad-spans", "one of its spans ends before it begins, or beyond all clients")
    if any(later[0] <= earlier[1] for earlier, later in pairwise(spans)):
        raise MalformedPacket("bad-spans", "its spans overlap, or do not ascend")
    return spans
