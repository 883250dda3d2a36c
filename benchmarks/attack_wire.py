"""The wire format that an attacker needs, written by hand: ZMTP 3.1 without security, some packets, some envelopes.

Nothing is imported from Seedbus, so every version that has checksums gets the same bytes. The format is that of
bus/zeromq/packet.py.
"""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Self

import msgpack

HOST = "127.0.0.1"
MORE, LONG, COMMAND = 1, 2, 4  # flags of a ZMTP frame
HELLO, OFFER, DECLINE, PING, POST, ANSWER, DELIVER, FAREWELL = 1, 2, 3, 4, 6, 8, 7, 9  # types of packets
JOIN, WELCOME, COMMIT, EVALUATION = 17, 18, 20, 21  # tags of envelopes
EVALUATOR, NO_CLIENTS = -2, 2**32 - 1
NO_SESSION = bytes(8)
CHECKSUM_BYTES = 4
MOST = 2**17  # maximum bytes of a packet that a server accepts from a stranger, unless its type has a lower limit


# -- ZMTP


def greeting() -> bytes:
    return b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)


def ready(kind: bytes) -> bytes:
    body = b"\x05READY"
    for name, value in ((b"Socket-Type", kind), (b"Identity", b"")):
        body += bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
    return frame(body, COMMAND)


def frame(content: bytes, flags: int = 0) -> bytes:
    if len(content) < 256:
        return bytes([flags, len(content)]) + content
    return struct.pack(">BQ", flags | LONG, len(content)) + content


class Peer:
    """A connection to a server after greeting and READY. Raises `OSError` if the server closes it.

    Args:
        port: the server's port.
        near: an accepted connection of a client; if given, this end acts as the server.
        source: address of this machine to connect from.
        patience_s: timeout of the socket.
    """

    def __init__(
        self, port: int = 0, *, near: socket.socket | None = None, source: str = HOST, patience_s: float = 5.0
    ) -> None:
        self.socket = near or socket.create_connection((HOST, port), patience_s, (source, 0))
        self.socket.settimeout(patience_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._sent = 0  # packets, by whose numbers their checksums begin
        try:
            self.socket.sendall(greeting() + ready(b"ROUTER" if near else b"DEALER"))
            self._exactly(64)
            self._frame()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, content: bytes) -> None:
        number = 0 if type_of(content) == DECLINE else self._sent
        self._sent += type_of(content) != DECLINE
        self.socket.sendall(frame(content + zlib.crc32(content, number).to_bytes(CHECKSUM_BYTES, "little")))

    def receive(self) -> bytes:
        """The next message of one frame without its checksum; ZMTP's own commands are skipped."""
        while True:
            flags, content = self._frame()
            if not flags & COMMAND:
                return content[:-CHECKSUM_BYTES]

    def close(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads
        self.socket.close()

    def _frame(self) -> tuple[int, bytes]:
        (flags,) = self._exactly(1)
        return flags, self._exactly(int.from_bytes(self._exactly(8 if flags & LONG else 1), "big"))

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            part = self.socket.recv(2**16)
            if not part:
                raise ConnectionResetError("the other end has hung up")
            self._buffer += part
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data


# -- packets


def packet(type: int, session: bytes = NO_SESSION, content: bytes = b"") -> bytes:
    return bytes([16 + type]) + session + content


def type_of(data: bytes) -> int:
    return data[0] % 16 if data else 0


def hello(
    spans: Sequence[tuple[int, int]] = (),
    count: int = 0,
    evaluates: bool = False,
    *,
    session: bytes = NO_SESSION,
    run: bytes = b"",
) -> bytes:
    column = struct.pack(f"<{2 * len(spans)}I", *(end for span in spans for end in span))
    return packet(HELLO, session, msgpack.packb([run, column, count, int(evaluates)]))


class Stay:
    """An offer of a server over a connection. Raises `Refused` if the server offers nothing."""

    def __init__(self, peer: Peer, request: bytes) -> None:
        self.peer = peer
        peer.send(request)
        answer = peer.receive()
        while type_of(answer) not in (OFFER, DECLINE):
            answer = peer.receive()
        try:
            fields = msgpack.unpackb(answer[9:])
            if type_of(answer) == DECLINE:
                raise Refused(str(fields[0]))
            self.session, self.host = answer[1:9], int(fields[1])
            self.spans: list[tuple[int, int]] = list(struct.iter_unpack("<II", fields[2]))
        except (ValueError, TypeError, LookupError, struct.error):
            raise Refused("an answer of another format") from None

    def say(self, type: int, content: bytes = b"") -> None:
        self.peer.send(packet(type, self.session, content))

    def join(self, proofs: Sequence[bytes]) -> bool:
        """Send a JOIN for all offered clients, at version 0; return whether the server accepted it."""
        spans = [[first, last, 0] for first, last in self.spans]
        return self.post(envelope(JOIN, self.host, [spans, *proofs]))

    def post(self, join: bytes) -> bool:
        self.say(POST, entry(join))
        answer = self.peer.receive()
        while type_of(answer) not in (POST, DECLINE):
            answer = self.peer.receive()
        return type_of(answer) == POST and any(tag_of(each) == WELCOME for each in entries(answer[9:]))


class Refused(Exception):
    """A server has declined; the message is its reason, one word."""


# -- what packets hold


def envelope(tag: int, client: int, body: list[Any], round: int = 0, base: int = 0) -> bytes:
    packed: bytes = msgpack.packb([tag, client, round, base, body])
    return packed


def opened(data: bytes) -> list[Any]:
    """Return the fields of an envelope: tag, client, round, base, body."""
    fields: list[Any] = msgpack.unpackb(data)
    return fields


def tag_of(data: bytes) -> int:
    with suppress(ValueError, TypeError, IndexError, msgpack.UnpackException):
        return int(opened(data)[0])
    return 0


def number(value: int) -> bytes:
    """Encode an integer as LEB128."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def entry(data: bytes) -> bytes:
    return number(len(data)) + data


def entries(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        size, at = _number(content, at)
        yield content[at : at + size]
        at += size


def deliveries(content: bytes) -> list[bytes]:
    _, at = _number(content, 0)
    return list(entries(content[at:]))


def answers(content: bytes) -> tuple[int, list[list[bytes]]]:
    """Return the number of the first delivery that is answered, and the answers to it and the following ones."""
    first, at = _number(content, 0)
    each: list[list[bytes]] = []
    while at < len(content):
        count, at = _number(content, at)
        each.append([])
        for _ in range(count):
            size, at = _number(content, at)
            each[-1].append(content[at : at + size])
            at += size
    return first, each


def pack_answers(first: int, each: Sequence[Sequence[bytes]]) -> bytes:
    return number(first) + b"".join(number(len(some)) + b"".join(map(entry, some)) for some in each)


def _number(content: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = content[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at
