"""What a worker's process can observe of its connection: whether bytes move, why handshakes failed, and whether the
server sends a message that never ends."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from seedbus.bus.envelope import SHORT
from seedbus.bus.wire import Wire
from seedbus.bus.zeromq.checksums import CHECKSUM_BYTES
from seedbus.bus.zeromq.descriptors import BYTES_ACKED, BYTES_RECEIVED, counted, ends
from seedbus.bus.zeromq.heartbeat import resident_bytes
from seedbus.bus.zeromq.packet import HEAD
from seedbus.bus.zeromq.sockets import FAILURES, MOST_DOWN

CHECK_S = 0.25  # between two checks for a message that never ends
# A message counts as endless when it has at least UNFINISHED bytes and the memory of the process has grown by more than
# GROWN bytes and by DEARER times the message.
UNFINISHED = 2**18
GROWN = 2**26
DEARER = 8


class Meter:
    """Whether bytes move over the connection that a message came over, though no message may be whole yet.

    Args:
        frame: a frame of the message.
        wire: what travels over the connection.
    """

    def __init__(self, frame: zmq.Frame, wire: Wire) -> None:
        self._pong_bytes = 2 * wire.bytes_of(HEAD + CHECKSUM_BYTES)
        self._descriptor = -1
        with suppress(zmq.ZMQError):  # inproc has none
            self._descriptor = int(frame.get(zmq.SRCFD))
        self._ends = ends(self._descriptor)
        self._received = self._count(BYTES_RECEIVED)
        self._acked = self._count(BYTES_ACKED)

    def has_moved(self, sent: int) -> bool:
        """Return whether bytes have come since the last call, or bytes of a long message were acknowledged.

        The acknowledgement of a short message proves nothing: the peer's kernel gives it without the peer. Nor do so
        few bytes as PONGs have: a damaged length may swallow them.

        Args:
            sent: bytes that this end has sent in total.
        """
        received = self._received
        acked = self._acked
        self._received = self._count(BYTES_RECEIVED)
        self._acked = self._count(BYTES_ACKED)
        has_taken = self._acked != acked and sent - (acked or 0) > SHORT
        has_come = (self._received or 0) - (received or 0) > self._pong_bytes
        return (has_come or has_taken) and ends(self._descriptor) == self._ends

    def _count(self, offset: int) -> int | None:
        return counted(self._descriptor, offset)


class ConnectionMonitor:
    """Watches the connections that a process's sockets make, one socket at a time.

    Attributes:
        failure: the last event of a failed handshake of the present socket; 0 for none.
        had_failure: a handshake of any socket has failed.
        due_s: when the next check is due; inf without a socket.
    """

    def __init__(self) -> None:
        self.failure = 0
        self.had_failure = False
        self.due_s = inf
        self._socket: tuple[zmq.Socket[bytes], zmq.Socket[bytes]] | None = None  # a DEALER and its monitor
        self._descriptor = -1
        self._messages = 0
        self._last_check: tuple[int, int | None, int] = -1, None, 0  # messages, received bytes, bytes of memory

    def open(self, dealer: zmq.Socket[bytes], now_s: float) -> None:
        """Watch a socket that is about to connect."""
        events = zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED | sum(FAILURES)
        self._socket = dealer, dealer.get_monitor_socket(events)
        self._descriptor = -1
        self._last_check = -1, None, 0
        self.failure = 0
        self.due_s = now_s

    def message_received(self) -> None:
        """A whole message has come."""
        self._messages += 1

    def read_events(self) -> None:
        """Read which connections were made and which handshakes failed."""
        if self._socket is None:
            return
        _, monitor = self._socket
        with suppress(zmq.Again):
            while True:
                event: dict[str, Any] = dict(parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK)))
                if event["event"] in FAILURES:
                    self.failure = int(event["event"])
                    self.had_failure = True
                else:
                    self._descriptor = int(event["value"]) if event["event"] == zmq.EVENT_CONNECTED else -1

    def endless_message(self, now_s: float) -> str | None:
        """Return a sentence about a message that seems to have no end, if there is one and a check is due.

        ZeroMQ hands over whole messages only, and empty frames take thirty times their bytes in memory.
        """
        if now_s < self.due_s:
            return None
        self.due_s = now_s + CHECK_S
        received = counted(self._descriptor, BYTES_RECEIVED)
        memory = resident_bytes()
        messages, last_received, last_memory = self._last_check
        if messages != self._messages or received is None or last_received is None or received < last_received:
            self._last_check = self._messages, received, memory
            return None
        size = received - last_received
        growth = memory - last_memory
        if size > MOST_DOWN + SHORT or (size > UNFINISHED and growth > max(GROWN, DEARER * size)):
            return f"{size:,} bytes of a message that does not end take {growth:,} of memory"
        return None

    def close(self) -> None:
        """Watch the socket no longer; to be called before it is closed."""
        if self._socket is None:
            return
        self.read_events()
        dealer, monitor = self._socket
        if not dealer.closed:
            dealer.disable_monitor()
        monitor.close(linger=0)
        self._socket = None
        self.failure = 0
        self.due_s = inf
