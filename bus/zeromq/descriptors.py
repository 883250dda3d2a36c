"""What the operating system knows about a connection, by its descriptor: both addresses, and bytes sent and received.

The descriptor belongs to ZeroMQ, and its number is used again once the connection has ended. Code that keeps one must
compare the peer's name before each use.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

GONE = "a peer that has gone"
BYTES_ACKED = 120  # offsets of tcpi_bytes_acked and tcpi_bytes_received in Linux' struct tcp_info
BYTES_RECEIVED = 128
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with a time of 0: unsent bytes are dropped
_NOWHERE = bytes(16)  # a sockaddr of AF_UNSPEC


@contextmanager
def borrowed(descriptor: int) -> Iterator[socket.socket]:
    """Yield a socket for a connection of ZeroMQ's, which stays open afterwards.

    Raises:
        OSError: the descriptor is not a socket any more.
    """
    connection = socket.socket(fileno=descriptor)  # a duplicate would need a descriptor, and none may be left
    try:
        yield connection
    finally:
        connection.detach()


def name_of(descriptor: int) -> str:
    """Return the peer's address, host:port; a phrase for a Unix socket; `GONE` if the connection has ended."""
    with suppress(OSError), borrowed(descriptor) as connection:
        peer = connection.getpeername()
        return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "a process of this machine"
    return GONE


def own_path(descriptor: int) -> str:
    """Return the path of this end of a Unix socket, or "". It comes from the system, so no peer can forge it."""
    with suppress(OSError), borrowed(descriptor) as connection:
        if connection.family == socket.AF_UNIX:
            return os.fsdecode(connection.getsockname())
    return ""


def ends(descriptor: int) -> tuple[object, object] | None:
    """Return the addresses of both ends; another connection with the same descriptor has other ones."""
    with suppress(OSError, ValueError), borrowed(descriptor) as connection:
        return connection.getsockname(), connection.getpeername()
    return None


def counted(descriptor: int, offset: int) -> int | None:
    """Return a counter of the kernel's for a TCP connection; None where it has none.

    Args:
        descriptor: the connection's descriptor.
        offset: `BYTES_ACKED` or `BYTES_RECEIVED`.
    """
    with suppress(OSError, ValueError, struct.error), borrowed(descriptor) as connection:
        if sys.platform == "linux" and connection.family in (socket.AF_INET, socket.AF_INET6):
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            return int(struct.unpack_from("=Q", info, offset)[0])
    return None


def abort(descriptor: int) -> None:
    """End a connection at once; nothing that the kernel has received of it can be read any more.

    With a mere shutdown the peer could go on: what it sends is received, and read, until the socket is closed.
    """
    with suppress(OSError), borrowed(descriptor) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        if _libc.connect(descriptor, _NOWHERE, len(_NOWHERE)):  # on Linux, this resets a TCP connection
            connection.shutdown(socket.SHUT_RDWR)


_libc = ctypes.CDLL(None)
