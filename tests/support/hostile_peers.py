"""Peers that speak for themselves, byte by byte: what the tests of a hub among strangers send with."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

HOST = "127.0.0.1"
PATIENCE_S = 60.0
SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
MORE, LONG, COMMAND = 1, 2, 4


def greeting(major: int = 3, minor: int = 1, mechanism: bytes = b"NULL") -> bytes:
    """The 64 bytes by which ZMTP begins."""
    return SIGNATURE + bytes([major, minor]) + mechanism.ljust(20, b"\0") + bytes(32)


def frame(content: bytes, flags: int = 0) -> bytes:
    """One frame of ZMTP, in the shortest form."""
    if len(content) < 256:
        return bytes([flags, len(content)]) + content
    return struct.pack(">BQ", flags | LONG, len(content)) + content


def ready(socket_type: bytes = b"DEALER", **properties: bytes) -> bytes:
    """The command by which a peer says what it is."""
    named = {b"Socket-Type": socket_type, b"Identity": b""} | {k.encode(): v for k, v in properties.items()}
    body = b"".join(bytes([len(k)]) + k + struct.pack(">I", len(v)) + v for k, v in named.items())
    return frame(b"\x05READY" + body, COMMAND)


class Caller:
    """A TCP connection to a hub, and its name there."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.name = f"{HOST}:{self.socket.getsockname()[1]}"
        self.sent = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def raw(self, data: bytes) -> Self:
        """Send bytes as they are; a hub that has hung up already is no failure."""
        self.sent += data
        with suppress(ConnectionError):
            self.socket.sendall(data)
        return self

    def read(self, size: int) -> bytes:
        """Exactly so many bytes. Raises `ConnectionError` if the hub hangs up first."""
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError("the hub has hung up")
            data += part
        return data

    def is_hung_up(self, within_s: float = PATIENCE_S) -> bool:
        """Whether the hub ends the connection in time; what it says before is skipped."""
        until = time.monotonic() + within_s
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
        """Say that nothing more is said."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """End it without a goodbye."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.socket.close()


class Peer(Caller):
    """A caller that speaks ZMTP as a DEALER does, without a library that would keep it from mistakes."""

    def __init__(self, port: int, socket_type: bytes = b"DEALER", **properties: bytes) -> None:
        super().__init__(port)
        self.raw(greeting() + ready(socket_type, **properties))
        self.read(64)  # whoever speaks before the other's READY has come is hung up on by libzmq
        self._frame()

    def send(self, *contents: bytes) -> Self:
        """One message of these frames."""
        last = len(contents) - 1
        return self.raw(b"".join(frame(each, MORE * (number < last)) for number, each in enumerate(contents)))

    def receive(self) -> bytes:
        """The content of the next frame from the hub."""
        return self._frame()

    def _frame(self) -> bytes:
        (flags,) = self.read(1)
        size = int.from_bytes(self.read(8 if flags & LONG else 1), "big")
        return self.read(size)


@dataclass(frozen=True)
class Case:
    """Something that a peer does, and what comes of it.

    play: does it, at the hub with this port, and returns the caller, who stays; refusals: reason → how often it is
    refused; is_hung_up: the hub ends the connection; is_patient: that takes it some heartbeats.
    """

    name: str
    play: Callable[[int], Caller]
    refusals: Mapping[str, int]
    is_hung_up: bool = False
    is_patient: bool = False

    def __str__(self) -> str:
        return self.name
