"""The checksums of packets over TCP without keys, where nothing else notices a flipped byte but TCP's sum of 16 bits.

A packet's last four bytes are the CRC-32 of what is before them (ISO 3309, as in Ethernet): it finds every change
within four bytes in a row, and misses one in 4 billion of others. It shows accidents; against intent there are keys.

Packets are counted in each direction of a connection, and a packet's number is where its CRC begins. So the packet
after a lost one does not fit either. A DECLINE has number 0 always: it ends the connection, and is not sent in turn.
"""

from __future__ import annotations

import zlib

from seedbus.bus.errors import MalformedPacket
from seedbus.bus.zeromq.packet import DAMAGED, Type
from seedbus.pieces import Bytes

CHECKSUM_BYTES = 4


class Checksums:
    """The checksums of one connection, at one of its ends.

    Args:
        are_used: whether packets have checksums; if not, nothing is added and nothing removed.
    """

    def __init__(self, are_used: bool) -> None:
        self._are_used = are_used
        self._sent = 0
        self._received = 0

    def size(self, size: int) -> int:
        """Return the bytes of a packet of `size` bytes with its checksum."""
        return size + CHECKSUM_BYTES if self._are_used else size

    def added(self, data: bytes) -> bytes:
        """Return the bytes of the next packet to be sent with its checksum."""
        if not self._are_used:
            return data
        if _is_decline(data):
            return data + _checksum(data, 0)
        self._sent += 1
        return data + _checksum(data, self._sent - 1)

    def removed(self, data: Bytes) -> Bytes:
        """Return the bytes of the next packet that has come without its checksum.

        Raises:
            MalformedPacket: the checksum is not that of these bytes, or not that of the next packet.
        """
        if not self._are_used:
            return data
        content = data[:-CHECKSUM_BYTES]
        number = 0 if _is_decline(content) else self._received
        if bytes(data[-CHECKSUM_BYTES:]) != _checksum(content, number):
            what = "a packet was damaged, or the one before it was lost (or it is of another version of Seedbus)"
            raise MalformedPacket(DAMAGED, what)
        self._received += not _is_decline(content)
        return content


def _checksum(data: Bytes, number: int) -> bytes:
    return zlib.crc32(data, number & 0xFFFFFFFF).to_bytes(CHECKSUM_BYTES, "little")


def _is_decline(data: Bytes) -> bool:
    return len(data) > 0 and data[0] % 16 == Type.DECLINE
