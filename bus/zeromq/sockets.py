"""ZeroMQ's sockets with the options that both ends need, addresses, and limits of the operating system."""

from __future__ import annotations

import resource
import socket
import stat
from pathlib import Path
from typing import Any

import zmq

from seedbus import pieces
from seedbus.bus.envelope import SHORT
from seedbus.bus.errors import BadEndpoint, TooFewFiles
from seedbus.bus.wire import CURVE
from seedbus.bus.zeromq.keys import Identity

BATCH = SHORT  # bytes at which a batch is closed; a longer envelope travels alone
MOST_UP = SHORT + BATCH  # bytes of the longest packet that a hub accepts, unless its run has longer reports
MOST_DOWN = pieces.WHOLE + BATCH  # bytes of the longest packet that a link accepts in one
# TCP holds further ones up for a second: a few who come and go all the time wait too, and are not thousands in a queue
BACKLOG = 128  # connections that wait to be accepted
WATERMARK = 64  # packets that ZeroMQ queues for a peer, each way; more wait in an outbox of ours, which is limited
_SERVER = "a server's address, like tcp://host:5555"
_FREE = "a free address of this machine, like tcp://*:5555"
# Failures to accept a connection are not among these: at the limit of open files there are 100,000 of them a second.
FAILURES = {
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "it ended before its greeting did",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "it does not speak ZMTP",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "it could not prove who it is",
}
_KEY_FAILURES: dict[int, str] = {  # a failure of the protocol that the keys explain, by its value
    zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC: "it expects a server with another key",
    zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH: "it has no key where the server has one, or the other way round",
}
FILES_APART = 64  # descriptors that a process needs for other things than connections


def longest_packet() -> int:
    """Return the bytes of the longest packet that is sent in one; a longer one travels in parts."""
    return pieces.WHOLE + BATCH


def failure(event: int, value: int) -> str:
    """Return the sentence about a failed handshake, from an event of `FAILURES` and the value that came with it."""
    sentence = FAILURES[zmq.Event(event)]
    return _KEY_FAILURES.get(value, sentence) if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL else sentence


def check_files(connections: int, each: int) -> None:
    """Raise the soft limit on open files if need be.

    Args:
        connections: how many connections the process will have.
        each: descriptors that each connection takes.

    Raises:
        TooFewFiles: the hard limit is too low.
    """
    needed = FILES_APART + connections * each
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise TooFewFiles(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def allow_files(wanted: int) -> None:
    """Raise the soft limit on open files for `wanted` connections' descriptors, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = FILES_APART + wanted if hard == resource.RLIM_INFINITY else min(FILES_APART + wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def most_open() -> int:
    """Return how many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if soft == resource.RLIM_INFINITY else soft


def is_crowded(descriptor: int) -> bool:
    """Return whether a connection with this descriptor leaves too few descriptors for the rest of the process.

    The system gives out the lowest free number, so a high one means that few are free.
    """
    return descriptor >= most_open() - min(FILES_APART, most_open() // 4)


def most_up(report_limit: int) -> int:
    """Return the bytes of the longest packet, also in parts, that a hub accepts from members of a run.

    Args:
        report_limit: bytes of the run's longest REPORT.
    """
    return max(report_limit, SHORT) + BATCH


def make(
    context: zmq.Context[Any], kind: int, packet_limit: int = MOST_DOWN, identity: Identity | None = None
) -> zmq.Socket[bytes]:
    """Return a ROUTER or a DEALER with its options set.

    Args:
        context: the context of ZeroMQ that it is made in.
        kind: `zmq.ROUTER` or `zmq.DEALER`.
        packet_limit: bytes of the longest packet that it accepts.
        identity: a DEALER's keys, if its server asks for some.
    """
    made: zmq.Socket[bytes] = context.socket(kind)
    made.linger = 0  # with −1, the default, the process could not end while a peer does not read
    made.sndhwm = WATERMARK
    made.rcvhwm = WATERMARK
    made.maxmsgsize = packet_limit + CURVE.sealed
    made.handshake_ivl = 5000
    made.heartbeat_ivl = 0  # ZeroMQ's own heartbeats tell the server nothing; ours do, and are counted to the byte
    if kind == zmq.ROUTER:
        made.router_mandatory = 1  # without it, messages that cannot be sent are dropped without an error
        made.rcvhwm = max(2, WATERMARK * MOST_UP // packet_limit)  # limits the unread bytes of one peer
        made.backlog = BACKLOG
    else:
        if identity is not None:
            made.curve_serverkey = identity.server_key
            made.curve_publickey = identity.own.public
            made.curve_secretkey = identity.own.secret
        made.immediate = 1  # nothing is queued before the connection is complete
        made.reconnect_ivl = 100
        made.reconnect_ivl_max = 10_000
    return made


def connect(dealer: zmq.Socket[bytes], endpoint: str) -> None:
    """Connect to a server, now or as soon as it is there.

    Raises:
        BadEndpoint: `endpoint` is not a server's address; the socket is closed then.
    """
    try:
        _check(endpoint, ("tcp", "ipc", "inproc"), _SERVER)
        dealer.connect(endpoint)
    except (zmq.ZMQError, BadEndpoint) as error:
        dealer.close()
        raise error if isinstance(error, BadEndpoint) else BadEndpoint(endpoint, _why(error), _SERVER) from None


def bind(router: zmq.Socket[bytes], endpoint: str) -> None:
    """Listen at an address of this machine.

    Raises:
        BadEndpoint: `endpoint` is not an address of this machine, or another process listens there.
    """
    try:
        if not endpoint.startswith("inproc:"):
            check_bind(endpoint)
        if endpoint.startswith("ipc:") and _is_taken(endpoint.removeprefix("ipc://")):
            raise zmq.ZMQError(zmq.EADDRINUSE)
        router.bind(endpoint)
    except zmq.ZMQError as error:
        raise BadEndpoint(endpoint, _why(error), _FREE) from None


def check_bind(endpoint: str) -> None:
    """Check that other processes could connect to an address. Raises `BadEndpoint`."""
    _check(endpoint, ("tcp", "ipc"), _FREE, ("*", "0"))


def _check(endpoint: str, schemes: tuple[str, ...], expected: str, any_port: tuple[str, ...] = ()) -> None:
    """Check an address. ZeroMQ itself would read some wrong ones as other addresses. Raises `BadEndpoint`."""
    scheme, _, rest = endpoint.partition("://")
    if scheme not in schemes:
        raise BadEndpoint(endpoint, "it begins neither with tcp:// nor with ipc://", expected)
    address, _, port = rest.rpartition(":") if scheme == "tcp" else (rest, "", "1")
    if not address:
        raise BadEndpoint(endpoint, "it has no address", expected)
    is_number = port.isascii() and port.isdecimal() and len(port) <= 5
    is_port = is_number and 0 < int(port) < 2**16  # ZeroMQ takes 99999 for another port
    if not is_port and port not in any_port:
        raise BadEndpoint(endpoint, f"{port or 'nothing'} is no port", expected)


def _is_taken(path: str) -> bool:
    """Return whether binding would replace something: a socket with a listener, or a file that is not a socket."""
    try:
        if not stat.S_ISSOCK(Path(path).stat().st_mode):
            return True
    except OSError:  # nothing is there, or nothing that ZeroMQ could replace
        return False
    with socket.socket(socket.AF_UNIX) as other:
        other.settimeout(1.0)
        try:
            other.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):  # the process that made it has ended
            return False
        except OSError:
            return True
    return True


def _why(error: zmq.ZMQError) -> str:
    return zmq.strerror(error.errno or 0).lower()


def content(frame: zmq.Frame) -> bytes | memoryview:
    """Return the bytes of a frame; a view of them, if they are many."""
    return frame.bytes if len(frame) < SHORT else frame.buffer
