"""Peers that send their own bytes to a hub, without ZeroMQ, so that they can break the protocol."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from processes import HANGS_S

from seedbus.bus.zeromq.checksums import CHECKSUM_BYTES, Checksums

HOST = "127.0.0.1"
SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
MORE, LONG, COMMAND = 1, 2, 4


def greeting(major: int = 3, minor: int = 1, mechanism: bytes = b"NULL") -> bytes:
    """Return the 64 bytes that begin a ZMTP connection."""
    return SIGNATURE + bytes([major, minor]) + mechanism.ljust(20, b"\0") + bytes(32)


def frame(content: bytes, flags: int = 0) -> bytes:
    """Return a ZMTP frame, in the short form if its size allows it."""
    if len(content) < 256:
        return bytes([flags, len(content)]) + content
    return struct.pack(">BQ", flags | LONG, len(content)) + content


def ready(socket_type: bytes = b"DEALER", **properties: bytes) -> bytes:
    """Return the READY command, which names the type of a peer's socket."""
    named = {b"Socket-Type": socket_type, b"Identity": b""} | {k.encode(): v for k, v in properties.items()}
    body = b"".join(bytes([len(k)]) + k + struct.pack(">I", len(v)) + v for k, v in named.items())
    return frame(b"\x05READY" + body, COMMAND)


class Caller:
    """A TCP connection to a hub.

    Attributes:
        name: what the hub calls it.
        sent: all bytes sent so far.
    """

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), HANGS_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.name = f"{HOST}:{self.socket.getsockname()[1]}"
        self.sent = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def raw(self, data: bytes) -> Self:
        """Send bytes as they are. Does not fail if the hub has already hung up."""
        self.sent += data
        with suppress(ConnectionError):
            self.socket.sendall(data)
        return self

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes. Raises `ConnectionError` if the hub hangs up first."""
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError("the hub has hung up")
            data += part
        return data

    def is_hung_up(self) -> bool:
        """Whether the hub ends the connection. What it sends before is discarded."""
        until = time.monotonic() + HANGS_S
        while (left_s := until - time.monotonic()) > 0:
            self.socket.settimeout(left_s)
            try:
                if not self.socket.recv(2**16):
                    return True
            except TimeoutError:
                return False
            except ConnectionError:
                return True
        return False

    def end(self) -> None:
        """Close the sending half of the connection."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Reset the connection."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.socket.close()


class Peer(Caller):
    """A caller that speaks ZMTP as a DEALER does, without a library that would prevent mistakes."""

    def __init__(self, port: int, socket_type: bytes = b"DEALER", **properties: bytes) -> None:
        super().__init__(port)
        self.raw(greeting() + ready(socket_type, **properties))
        self.read(64)  # libzmq hangs up on a peer that sends before it has received READY
        self._frame()
        self.checksums = Checksums(True)

    def send(self, *contents: bytes) -> Self:
        """Send one message of these frames, with the checksum that the hub asks for."""
        *_, end = contents
        contents, last = (*contents[:-1], self.checksums.added(end)), len(contents) - 1
        return self.raw(b"".join(frame(each, MORE * (number < last)) for number, each in enumerate(contents)))

    def receive(self) -> bytes:
        """Return the content of the next frame from the hub, without its checksum."""
        return self._frame()[:-CHECKSUM_BYTES]

    def _frame(self) -> bytes:
        (flags,) = self.read(1)
        size = int.from_bytes(self.read(8 if flags & LONG else 1), "big")
        return self.read(size)


@dataclass(frozen=True)
class Case:
    """Something that a stranger does, and how the hub reacts.

    Attributes:
        name: the case's test id.
        play: does it at the hub with the given port, and returns the open connection.
        refusals: reason → how often.
        is_hung_up: whether the hub ends the connection.
        is_patient: whether that takes the hub some heartbeats.
    """

    name: str
    play: Callable[[int], Caller]
    refusals: Mapping[str, int]
    is_hung_up: bool = False
    is_patient: bool = False

    def __str__(self) -> str:
        return self.name
