"""What a process knows of the connection that it has made: whether anything moves over it, why it came to nothing, and
whether the other end sends a message that never ends."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from seedbus.bus.envelope import SHORT
from seedbus.bus.zeromq.descriptors import BYTES_ACKED, BYTES_RECEIVED, counted, ends
from seedbus.bus.zeromq.heartbeat import resident_bytes
from seedbus.bus.zeromq.sockets import FAILURES, MOST_DOWN

UNFINISHED, GROWN, DEARER = 2**18, 2**26, 8  # such a message: bytes of it, and of memory, and how much dearer these are


class Meter:
    """Whether anything moves over the connection that a message came over, though nothing may be whole yet."""

    def __init__(self, frame: zmq.Frame) -> None:
        self._descriptor = -1
        with suppress(zmq.ZMQError):  # inproc has none
            self._descriptor = int(frame.get(zmq.SRCFD))
        self._ends, self._received = ends(self._descriptor), self._count(BYTES_RECEIVED)
        self._acked = self._count(BYTES_ACKED)

    def has_moved(self, sent: int) -> bool:
        """Whether there were bytes since this was last asked: from the other end; or to it, of something long.

        sent: bytes that this end has sent, all in all. Something short is taken by the other end's system alone.
        """
        received, acked = self._received, self._acked
        self._received, self._acked = self._count(BYTES_RECEIVED), self._count(BYTES_ACKED)
        has_taken = self._acked != acked and sent - (acked or 0) > SHORT
        return (self._received != received or has_taken) and ends(self._descriptor) == self._ends

    def _count(self, offset: int) -> int | None:
        return counted(self._descriptor, offset)


class Outgoing:
    """What becomes of the connection that a DEALER makes. failure: the last event of a handshake that failed, or 0."""

    def __init__(self, dealer: zmq.Socket[bytes]) -> None:
        self._dealer, self._descriptor, self.failure = dealer, -1, 0
        self._looked: tuple[int, int | None, int] = -1, None, 0
        self._monitor = dealer.get_monitor_socket(zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED | sum(FAILURES))

    def read_events(self) -> None:
        """Take note of what has happened."""
        with suppress(zmq.Again):
            while True:
                event: dict[str, Any] = dict(parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK)))
                if event["event"] in FAILURES:
                    self.failure = int(event["event"])
                else:
                    self._descriptor = int(event["value"]) if event["event"] == zmq.EVENT_CONNECTED else -1

    def unfinished(self, whole: int) -> str | None:
        """What a message has cost by now that seems to have no end, if there is one. whole: messages that have come.

        Frames of nothing take ZeroMQ thirty times their bytes, and it hands over whole messages only.
        """
        state = whole, counted(self._descriptor, BYTES_RECEIVED), resident_bytes()
        before, received, resident = self._looked
        if whole != before or state[1] is None or received is None or state[1] < received:
            self._looked = state
            return None
        came, grown = state[1] - received, state[2] - resident
        if came > MOST_DOWN + SHORT or (came > UNFINISHED and grown > max(GROWN, DEARER * came)):
            return f"{came:,} bytes of a message that does not end take {grown:,} of memory"
        return None

    def close(self) -> None:
        if not self._monitor.closed:
            if not self._dealer.closed:
                self._dealer.disable_monitor()
            self._monitor.close(linger=0)
