"""All that passes a machine's interface, put together by connection and direction."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
import threading
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from namespaces import Machine, Refused

_NEWNET, _ALL_PACKETS, _PACKET, _STATISTICS, _FORCED_BUFFER = 0x40000000, 0x0003, 263, 6, 33
Flow = tuple[str, int, str, int]
"""From address and port, to address and port."""


class Lost(Exception):
    """The kernel has lost packets; the sentence says how many."""


class Capture:
    """Keeps all IP packets that pass the interface of a machine, both ways, until it is closed."""

    def __init__(self, machine: Machine) -> None:
        self._packets: list[bytes] = []
        self._lost = 0
        opened: list[socket.socket | OSError] = []
        maker = threading.Thread(target=lambda: opened.append(_packet_socket(machine)))
        maker.start()  # a thread of its own enters the namespace, and ends
        maker.join()
        if isinstance(opened[0], OSError):
            raise Refused(f"a packet socket: {opened[0].strerror}")
        self._socket = opened[0]
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._is_closing = False
        self._thread.start()

    def _keep(self) -> None:
        while True:
            try:
                self._packets.append(self._socket.recv(2**16))
            except TimeoutError:
                if self._is_closing:
                    return

    def close(self) -> None:
        """End it. Raises `Lost` if the kernel has lost packets, of which nobody can say what was in them."""
        if self._is_closing:
            return
        self._is_closing = True
        self._thread.join()
        _, lost = struct.unpack("II", self._socket.getsockopt(_PACKET, _STATISTICS, 8))
        self._socket.close()
        if lost:
            raise Lost(f"the capture has lost {lost} packets; expected none: run it again on a quieter machine")

    def flows(self) -> dict[Flow, bytes]:
        """Return the bytes of each direction of each TCP connection, in their order, each once."""
        pieces = defaultdict[Flow, dict[int, bytes]](dict)
        for packet in self._packets:
            if packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
                continue
            segment = packet[4 * (packet[0] & 15) : int.from_bytes(packet[2:4], "big")]
            near, far, number = struct.unpack_from(">HHI", segment)
            content = segment[4 * (segment[12] >> 4) :]
            if content:
                flow = (socket.inet_ntoa(packet[12:16]), near, socket.inet_ntoa(packet[16:20]), far)
                known = pieces[flow]
                known[number] = max(known.get(number, b""), content, key=len)
        return {flow: joined(found) for flow, found in pieces.items()}


def joined(pieces: dict[int, bytes]) -> bytes:
    """Return the bytes of segments by sequence number; what is sent again overlaps what was sent before."""
    whole, end = bytearray(), None
    for number, content in sorted(pieces.items()):
        fresh = content if end is None or number >= end else content[end - number :]
        whole += fresh
        end = number + len(content) if end is None else max(end, number + len(content))
    return bytes(whole)


def _packet_socket(machine: Machine) -> socket.socket | OSError:
    try:
        with open(machine.namespace) as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _NEWNET):
                return OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL_PACKETS))
        made.setsockopt(socket.SOL_SOCKET, _FORCED_BUFFER, 2**26)
        made.settimeout(0.3)
        return made
    except OSError as error:
        return error
