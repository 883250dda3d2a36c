"""Sockets as they must be set, and what the operating system must grant."""

from __future__ import annotations

import resource
from typing import Any

import zmq

from seedbus.bus.errors import BadEndpoint, TooFewFiles

MOST_UP = 2**17  # bytes of a parcel that a hub accepts: a report has 64 KiB at most, and a batch is closed at that
MOST_DOWN = 2**26 + 2**12
WATERMARK = 64  # parcels that ZeroMQ keeps for a peer, each way; more wait in an outbox of ours, which is watched
GREETING = 107  # bytes of ZMTP 3.1's greeting and READY command, each way, without security and without an identity
FILES_APART = 64  # descriptors that a process needs beside its connections'


def check_files(connections: int, each: int) -> None:
    """Raise the soft limit on open files if need be. Raises `TooFewFiles` if the hard one is too low."""
    needed = FILES_APART + connections * each
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise TooFewFiles(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def is_crowded(descriptor: int) -> bool:
    """Whether one with this number leaves too few for what else a process opens: each gets the lowest that is free."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and descriptor >= soft - min(FILES_APART, soft // 4)


def make(context: zmq.Context[Any], kind: int) -> zmq.Socket[bytes]:
    """A ROUTER or a DEALER with the settings that both need."""
    made: zmq.Socket[bytes] = context.socket(kind)
    made.linger = 0  # −1, the default, would hang the end of the process on a peer that does not read
    made.sndhwm = made.rcvhwm = WATERMARK
    made.handshake_ivl = 5000
    made.heartbeat_ivl = 0  # ZeroMQ's own heartbeats tell the server nothing; ours do, and are counted to the byte
    if kind == zmq.ROUTER:
        made.router_mandatory = 1  # without it, what cannot be sent is dropped without an error
        made.maxmsgsize = MOST_UP
        made.backlog = 4096
    else:
        made.immediate = 1  # nothing is queued for a connection that does not stand
        made.maxmsgsize = MOST_DOWN
        made.reconnect_ivl, made.reconnect_ivl_max = 100, 10_000
    return made


def connect(dealer: zmq.Socket[bytes], endpoint: str) -> None:
    """Connect to a server, now or when it is there. Raises `BadEndpoint`, the socket closed, for what is no address."""
    port = endpoint.rpartition(":")[2] if endpoint.startswith("tcp:") else "1"
    try:
        if not (port.isascii() and port.isdecimal() and 0 < int(port) < 2**16):  # ZeroMQ takes 99999 for another port
            raise zmq.ZMQError(zmq.EINVAL)
        dealer.connect(endpoint)
    except zmq.ZMQError as error:
        dealer.close()
        why = zmq.strerror(error.errno or 0).lower()
        raise BadEndpoint(endpoint, why, "a server's address, like tcp://host:5555") from None


def on_wire(size: int, endpoint: str) -> int:
    """Bytes that a frame of `size` takes: ZMTP 3.1 puts flags and a length of 1 or 8 before it, but for inproc."""
    if endpoint.startswith("inproc:"):
        return size
    return size + (2 if size < 256 else 9)


def greeting(endpoint: str) -> int:
    """Bytes that opening a connection takes, each way."""
    return 0 if endpoint.startswith("inproc:") else GREETING
