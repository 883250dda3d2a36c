"""How far a journal goes, kept outside of it: `journal.head` names the last durable round and its digest.

SQLite's recovery ends at the first frame of a write-ahead log that does not verify, and takes whatever follows for
something that was never committed. One flipped bit there would take back many durable rounds, and no error would say
so. A journal that does not hold the round of its head has lost it.

The head is written when its round is durable, so it is never ahead of the journal. It is not synced: after a power cut
it may be rounds behind, and then it vouches for less. Two slots are written in turn, on pages of their own, so that a
write that is cut off leaves the one before.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from seedbus.agents.journal.digests import digest
from seedbus.bus.files import check_file, descriptor

HEAD = "journal.head"
_PAGE = 4096
_FIELDS = struct.Struct("<QQ16s")  # number of the write, round, link of the chain: 32 bytes
_SLOT = struct.Struct("<32s16s")  # these, and their digest


@dataclass(frozen=True, slots=True)
class Head:
    """The newest write that is sound: the round (None: no write is there) and its link of the chain, 16 bytes.

    number: of the next write. is_damaged: some write is there and is not sound.
    """

    number: int = 0
    round: int | None = None
    link: bytes = b""
    is_damaged: bool = False


class HeadWriter:
    """The head of a journal that is locked by this process."""

    def __init__(self, folder: Path) -> None:
        self._file = descriptor(folder / HEAD, os.O_RDWR | os.O_CREAT)
        self._number = _newest(self._file).number

    def put(self, round: int, link: bytes) -> None:
        """Vouch for a round that is durable."""
        fields = _FIELDS.pack(self._number, round, link)
        os.pwrite(self._file, _SLOT.pack(fields, digest(fields)), self._number % 2 * _PAGE)
        self._number += 1

    def close(self) -> None:
        os.close(self._file)


def read_head(folder: Path) -> Head:
    """Of a journal that is read, even while another process writes it. An older build's journal has none."""
    if not check_file(folder / HEAD):
        return Head()
    file = descriptor(folder / HEAD, os.O_RDONLY)
    try:
        return _newest(file)
    finally:
        os.close(file)


def _newest(file: int) -> Head:
    newest, is_damaged = Head(), False
    for place in (0, _PAGE):
        content = os.pread(file, _SLOT.size, place)
        if not any(content):  # never written, or lost in a power cut before it was on the disk
            continue
        fields, its_digest = _SLOT.unpack(content.ljust(_SLOT.size, b"\0"))
        if digest(fields) != its_digest:
            is_damaged = True
            continue
        number, round, link = _FIELDS.unpack(fields)
        if number >= newest.number:
            newest = Head(number + 1, round, link)
    return Head(newest.number, newest.round, newest.link, is_damaged)
