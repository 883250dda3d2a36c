"""Packets of more than `sockets.longest_packet()` bytes, which travel in parts: both ends of that.

    LONG    type of the packet [1], its number in this session and direction [4],
            bytes of the content [8] and of a part [4]
    PART    number of the packet [4], number of the part [4], the next bytes of the content
    TAKEN   number of the packet [4], how many of its parts have come [4]

Each is a packet of its own, with a packet's checksum. A sender is at most `AHEAD` parts ahead of what the receiver has
taken, so no queue holds more than these. It accepts one TAKEN for each part that it has sent, in their order, and none
of bytes that the operating system knows not to have come. A receiver accepts one packet at a time, and each part once
and in turn; it makes room for a packet once its size is accepted, and occupies memory only as parts come.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from itertools import takewhile
from math import ceil

import numpy as np

from seedbus.bus.errors import MalformedPacket
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq import sockets
from seedbus.bus.zeromq.checksums import Checksums
from seedbus.bus.zeromq.packet import HEAD, Packet, Type
from seedbus.pieces import Bytes, Pieces

PART = 2**26
"""Bytes of the content of a long packet that are sent at a time. (Read at each use: a test may make it small.)"""
AHEAD = 2
MOST = 4096  # parts of a packet
_LONG = struct.Struct("<BIQI")
_PART = struct.Struct("<II")
_INNER = frozenset({Type.POST, Type.DELIVER, Type.ANSWER})


class _Long:
    """A packet that is being sent in parts."""

    def __init__(self, type: Type, session: bytes, number: int, content: Pieces) -> None:
        self.type, self.session, self.number = type, session, number
        self._content = content
        self._size = PART
        self.sent = -1  # parts; the head comes before the first
        self.taken = 0

    @property
    def count(self) -> int:
        return ceil(len(self._content) / self._size)

    @property
    def is_whole(self) -> bool:
        return self.sent == self.count

    @property
    def may_go_on(self) -> bool:
        return not self.is_whole and self.sent < self.taken + AHEAD

    def sizes(self) -> Iterator[int]:
        """Yield the bytes of each of its packets."""
        yield HEAD + _LONG.size
        for number in range(self.count):
            yield HEAD + _PART.size + min(self._size, len(self._content) - number * self._size)

    def next(self) -> bytes:
        self.sent += 1
        if self.sent == 0:
            head = _LONG.pack(self.type, self.number, len(self._content), self._size)
            return packet.packet(Type.LONG, self.session, head)
        start = (self.sent - 1) * self._size
        part = self._content.between(start, start + self._size)
        return packet.packet(Type.PART, self.session, _PART.pack(self.number, self.sent - 1), *part)


class Outbox:
    """The packets that wait to be sent over one connection, in order.

    Args:
        checksums: of the connection.

    Attributes:
        bytes: of the packets that wait; of one in parts, no more than those of its next part.
    """

    def __init__(self, checksums: Checksums) -> None:
        self.bytes = 0
        self._checksums = checksums
        self._waiting: deque[bytes | _Long] = deque()
        self._urgent: deque[bytes] = deque()
        self._ready: bytes | None = None  # with its checksum, whose number is that of the packet in the connection
        self._ready_part: tuple[int, int] | None = None  # number of the packet, and how many of its parts it makes
        self._numbers = 0
        self._sent_bytes = 0
        self._untaken: deque[tuple[int, int, int]] = deque()  # the same of parts that were sent, and bytes to their end

    def __len__(self) -> int:
        return len(self._waiting) + len(self._urgent) + (self._ready is not None)

    def put(self, type: Type, session: bytes, *content: Bytes) -> list[int]:
        """Add a packet; return the bytes of each packet that it will be on the wire."""
        if HEAD + sum(map(len, content)) > sockets.longest_packet():
            long = _Long(type, session, self._numbers, Pieces(content))
            self._numbers += 1
            self._waiting.append(long)
            sizes = list(long.sizes())
            self.bytes += max(sizes)
        else:
            data = packet.packet(type, session, *content)
            self._waiting.append(data)
            sizes = [len(data)]
            self.bytes += len(data)
        return [self._checksums.size(size) for size in sizes]

    def put_first(self, type: Type, session: bytes, *content: Bytes) -> list[int]:
        """Add a short packet that goes before all that wait, so that a long one holds up neither PINGs nor TAKENs."""
        data = packet.packet(type, session, *content)
        self._urgent.append(data)
        self.bytes += len(data)
        return [self._checksums.size(len(data))]

    def put_last(self, type: Type, session: bytes, *content: Bytes) -> list[int]:
        """Add the last packet. What waits from the first packet in parts on is sent no more: it could be held up."""
        short = list(takewhile(lambda each: isinstance(each, bytes), self._waiting))
        for each in list(self._waiting)[len(short) :]:
            self.bytes -= max(each.sizes()) if isinstance(each, _Long) else len(each)
        self._waiting = deque(short)
        return self.put(type, session, *content)

    def first(self) -> bytes | None:
        """Return the packet that is to be sent now; None if there is none, or parts must be taken first."""
        if self._ready is None:
            data = self._next()
            self._ready = None if data is None else self._checksums.added(data)
        return self._ready

    def sent(self) -> None:
        """The first packet was sent."""
        self._sent_bytes += len(self._ready or b"")
        self._ready = None
        if self._ready_part is not None:
            self._untaken.append((*self._ready_part, self._sent_bytes))
            self._ready_part = None

    def taken(self, content: Bytes, came: int = 0) -> None:
        """Handle a TAKEN.

        Args:
            content: of the packet.
            came: bytes that have come at the peer over this connection; 0: nobody knows.

        Raises:
            MalformedPacket: it is not about the next part of those that were sent, or that part has not come.
        """
        number, count = _fields(_PART, content)
        awaited, parts, end = self._untaken[0] if self._untaken else (-1, 0, 0)
        what = f"a TAKEN of {count} parts of the long packet {number}"
        if (number, count) != (awaited, parts):
            expected = f"{parts} of {awaited} are next" if parts else "none is awaited"
            raise MalformedPacket("out-of-turn", f"{what}, where {expected}")
        if 0 < came < end:
            raise MalformedPacket("out-of-turn", f"{what}, where {came:,} of {end:,} bytes have come")
        self._untaken.popleft()
        long = self._waiting[0] if self._waiting else None
        if isinstance(long, _Long) and long.number == number:  # otherwise all of it was sent
            long.taken = count

    def _next(self) -> bytes | None:
        if self._urgent:
            data = self._urgent.popleft()
        elif not self._waiting:
            return None
        elif isinstance(self._waiting[0], bytes):
            data = self._waiting.popleft()  # type: ignore[assignment]
        else:
            return self._next_part(self._waiting[0])
        self.bytes -= len(data)
        return data

    def _next_part(self, long: _Long) -> bytes | None:
        if not long.may_go_on:
            return None
        data = long.next()
        if long.sent:
            self._ready_part = (long.number, long.sent)
        if long.is_whole:  # what comes next need not wait until its last parts are taken
            self._waiting.popleft()
            self.bytes -= max(long.sizes())
        return data


class Inbox:
    """The long packet that is coming in over one connection.

    Args:
        limit: bytes of the longest one that is accepted.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        """Bytes of its parts that have come."""
        self.size = 0
        """Bytes of its content; 0 if none is coming in."""
        self._type = Type.POST
        self._number = -1
        self._parts = 0
        self._part_size = 0
        self._content = np.empty(0, np.uint8)

    def open(self, received: Packet) -> None:
        """Handle a LONG. Raises `MalformedPacket`: it is too long, or the one before it is not whole."""
        type, number, size, part_size = _fields(_LONG, received.content)
        if self.size:
            raise MalformedPacket(
                "out-of-turn", f"a long packet, where the one before it lacks {self.size - self.held:,} bytes"
            )
        if number != self._number + 1 or type not in _INNER:
            raise MalformedPacket(
                "out-of-turn", f"long packet {number} of type {type}, where {self._number + 1} is next"
            )
        if not 0 < size <= self.limit:
            raise MalformedPacket("too-long", f"a packet of {size:,} bytes in parts; {self.limit:,} are accepted")
        if size > MOST * part_size:
            raise MalformedPacket("too-many", f"{size:,} bytes in parts of {part_size:,}; {MOST:,} parts are accepted")
        self._type, self._number, self.size, self._part_size = Type(type), number, size, part_size
        self._content = np.empty(size, np.uint8)  # the system gives the memory when it is written
        self.held = self._parts = 0

    def add(self, received: Packet) -> Packet | None:
        """Handle a PART; returns the packet once it is whole. Raises `MalformedPacket`: it is not the next part."""
        number, part = _fields(_PART, received.content[: _PART.size])
        data = received.content[_PART.size :]
        if not self.size or (number, part) != (self._number, self._parts):
            expected = f"part {self._parts} of {self._number} is next" if self.size else "none is awaited"
            raise MalformedPacket("out-of-turn", f"part {part} of the long packet {number}, where {expected}")
        size = min(self._part_size, self.size - self.held)
        if len(data) != size:
            raise MalformedPacket("wrong-fields", f"a part of {len(data):,} bytes, where {size:,} are expected")
        self._content[self.held : self.held + len(data)] = np.frombuffer(data, np.uint8)
        self.held += len(data)
        self._parts += 1
        if self.held < self.size:
            return None
        whole = Packet(self._type, received.session, self._content.data.toreadonly())
        self.clear()
        return whole

    @property
    def taken(self) -> bytes:
        """The content of the TAKEN that answers the last part."""
        return _PART.pack(self._number, self._parts)

    def clear(self) -> None:
        """Nothing more of it will come."""
        self._content = np.empty(0, np.uint8)
        self.size = self.held = 0


def _fields(form: struct.Struct, content: Bytes) -> tuple[int, ...]:
    if len(content) != form.size:
        raise MalformedPacket("wrong-fields", f"{len(content)} bytes, where {form.size} are expected")
    return form.unpack(content)
