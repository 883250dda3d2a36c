"""What the operating system says of a connection, by its descriptor: both ends, and how many bytes have moved.

The descriptor is ZeroMQ's own, and its number is given out again once the connection has ended: whoever keeps one
compares names.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

GONE = "a peer that has gone"
BYTES_ACKED = 120  # offsets of tcpi_bytes_acked and tcpi_bytes_received in Linux' struct tcp_info
BYTES_RECEIVED = 128


@contextmanager
def borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A socket of our own over a connection of ZeroMQ's, which stays open. Raises `OSError` if it is none any more."""
    connection = socket.socket(fileno=descriptor)  # a duplicate would take a file, and there may be none left
    try:
        yield connection
    finally:
        connection.detach()


def name_of(descriptor: int) -> str:
    with suppress(OSError), borrowed(descriptor) as connection:
        peer = connection.getpeername()
        return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "a process of this machine"
    return GONE


def own_path(descriptor: int) -> str:
    """The path of this end, where the connection is one within this machine; read from the system, not from a peer."""
    with suppress(OSError), borrowed(descriptor) as connection:
        if connection.family == socket.AF_UNIX:
            return os.fsdecode(connection.getsockname())
    return ""


def ends(descriptor: int) -> tuple[object, object] | None:
    """The addresses of both ends: another connection that has got the same number has others."""
    with suppress(OSError, ValueError), borrowed(descriptor) as connection:
        return connection.getsockname(), connection.getpeername()
    return None


def counted(descriptor: int, offset: int) -> int | None:
    with suppress(OSError, ValueError, struct.error), borrowed(descriptor) as connection:
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            return int(struct.unpack_from("=Q", info, offset)[0])
    return None
