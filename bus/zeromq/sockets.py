"""Sockets as they must be set, and what the operating system must grant."""

from __future__ import annotations

import resource
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq

from seedbus.bus.envelope import FRAME_LIMIT, SHORT
from seedbus.bus.errors import BadEndpoint, TooFewFiles
from seedbus.bus.zeromq.keys import Identity

BATCH = SHORT  # bytes at which a batch is closed; what is longer than that travels alone
MOST_UP = SHORT + BATCH  # bytes of a packet that a hub accepts, unless its run has longer reports
MOST_DOWN = FRAME_LIMIT + BATCH
WATERMARK = 64  # packets that ZeroMQ keeps for a peer, each way; more wait in an outbox of ours, which is watched
_SERVER = "a server's address, like tcp://host:5555"
_FREE = "a free address of this machine, like tcp://*:5555"
# a failure to accept is not asked for: at the limit of open files there are 100,000 of them a second
FAILURES = {
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "it ended before its greeting did",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "it does not speak ZMTP",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "it could not prove who it is",
}
FILES_APART = 64  # descriptors that a process needs beside its connections'


def check_files(connections: int, each: int) -> None:
    """Raise the soft limit on open files if need be. Raises `TooFewFiles` if the hard one is too low."""
    needed = FILES_APART + connections * each
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise TooFewFiles(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def allow_files(wanted: int) -> None:
    """Raise the soft limit on open files towards what may be needed, as far as it goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES_APART + wanted if hard == resource.RLIM_INFINITY else min(FILES_APART + wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_open() -> int:
    """How many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if soft == resource.RLIM_INFINITY else soft


def is_crowded(descriptor: int) -> bool:
    """Whether one with this number leaves too few for what else a process opens: each gets the lowest that is free."""
    return descriptor >= most_open() - min(FILES_APART, most_open() // 4)


def most_up(report_limit: int) -> int:
    """Bytes of a packet that a hub accepts of a run's followers."""
    return max(report_limit, SHORT) + BATCH


def make(
    context: zmq.Context[Any], kind: int, most: int = MOST_DOWN, identity: Identity | None = None
) -> zmq.Socket[bytes]:
    """A ROUTER or a DEALER with the settings that both need.

    most: bytes of a packet that it accepts; identity: a DEALER's keys, if its server asks for some.
    """
    made: zmq.Socket[bytes] = context.socket(kind)
    made.linger = 0  # −1, the default, would hang the end of the process on a peer that does not read
    made.sndhwm = made.rcvhwm = WATERMARK
    made.maxmsgsize = most + CURVE.sealed
    made.handshake_ivl = 5000
    made.heartbeat_ivl = 0  # ZeroMQ's own heartbeats tell the server nothing; ours do, and are counted to the byte
    if kind == zmq.ROUTER:
        made.router_mandatory = 1  # without it, what cannot be sent is dropped without an error
        made.rcvhwm = max(2, WATERMARK * MOST_UP // most)  # what one peer can have waiting to be read is bounded
        made.backlog = 4096
    else:
        if identity is not None:
            made.curve_serverkey, made.curve_publickey = identity.server_key, identity.own.public
            made.curve_secretkey = identity.own.secret
        made.immediate = 1  # nothing is queued for a connection that does not stand
        made.reconnect_ivl, made.reconnect_ivl_max = 100, 10_000
    return made


def connect(dealer: zmq.Socket[bytes], endpoint: str) -> None:
    """Connect to a server, now or when it is there. Raises `BadEndpoint`, the socket closed, for what is no address."""
    try:
        _check(endpoint, ("tcp", "ipc", "inproc"), _SERVER)
        dealer.connect(endpoint)
    except (zmq.ZMQError, BadEndpoint) as error:
        dealer.close()
        raise error if isinstance(error, BadEndpoint) else BadEndpoint(endpoint, _why(error), _SERVER) from None


def bind(router: zmq.Socket[bytes], endpoint: str) -> None:
    """Listen at an address of this machine. Raises `BadEndpoint` if it is none, or somebody listens there."""
    try:
        if not endpoint.startswith("inproc:"):
            check_bind(endpoint)
        if endpoint.startswith("ipc:") and _is_taken(endpoint.removeprefix("ipc://")):
            raise zmq.ZMQError(zmq.EADDRINUSE)
        router.bind(endpoint)
    except zmq.ZMQError as error:
        raise BadEndpoint(endpoint, _why(error), _FREE) from None


def check_bind(endpoint: str) -> None:
    """Raises `BadEndpoint` for what other processes could not connect to."""
    _check(endpoint, ("tcp", "ipc"), _FREE, ("*", "0"))


def _check(endpoint: str, ways: tuple[str, ...], expected: str, ports: tuple[str, ...] = ()) -> None:
    """Raises `BadEndpoint` for what ZeroMQ would take for another address, or does not carry between processes.

    ports: what stands for any port.
    """
    way, _, rest = endpoint.partition("://")
    if way not in ways:
        raise BadEndpoint(endpoint, "it begins neither with tcp:// nor with ipc://", expected)
    address, _, port = rest.rpartition(":") if way == "tcp" else (rest, "", "1")
    if not address:
        raise BadEndpoint(endpoint, "it has no address", expected)
    is_port = port.isascii() and port.isdecimal() and 0 < int(port) < 2**16  # ZeroMQ takes 99999 for another port
    if not is_port and port not in ports:
        raise BadEndpoint(endpoint, f"{port or 'nothing'} is no port", expected)


def _is_taken(path: str) -> bool:
    """Whether there is something that binding would put itself in the place of: whoever listens, or no socket."""
    try:
        if not stat.S_ISSOCK(Path(path).stat().st_mode):
            return True
    except OSError:  # nothing is there, or nothing that ZeroMQ could take away
        return False
    with socket.socket(socket.AF_UNIX) as other:
        other.settimeout(1.0)
        try:
            other.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):  # whoever made it is no more
            return False
        except OSError:
            return True
    return True


def _why(error: zmq.ZMQError) -> str:
    return zmq.strerror(error.errno or 0).lower()


def content(frame: zmq.Frame) -> bytes | memoryview:
    """What a message holds; a view of it, if it is long."""
    return frame.bytes if len(frame) < SHORT else frame.buffer


@dataclass(frozen=True, slots=True)
class Wire:
    """What ZMTP 3.1 adds to frames. up, down: bytes of opening a connection, from who connects and to it; sealed: what
    encryption adds to a frame."""

    up: int
    down: int
    sealed: int = 0
    is_framed: bool = True

    def bytes_of(self, size: int) -> int:
        """What a frame of `size` takes: flags and a length of 1 or 8 stand before it."""
        size += self.sealed
        return size + (2 if size < 256 else 9) if self.is_framed else size


INPROC = Wire(0, 0, is_framed=False)
PLAIN = Wire(107, 107)  # a greeting and a READY, without an identity
CURVE = Wire(567, 301, sealed=33)  # a greeting, HELLO and INITIATE; a greeting, WELCOME and READY (RFC 25 and 26)
