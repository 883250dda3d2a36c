"""The head of a journal, a file beside it: `journal.head` names the last durable round and its link of the chain.

SQLite's recovery ends at the first frame of a write-ahead log that does not verify, and treats what follows as never
committed. One flipped bit there would remove many durable rounds without an error. A journal that does not hold the
round of its head has lost rounds.

The head is written once its round is durable, so it is never ahead of the journal. It is not synced: after a power cut
it may be some rounds behind, and then it guards fewer of them. Two slots are written in turn, on pages of their own, so
that a write that is interrupted leaves the other slot intact.
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
_SLOT = struct.Struct("<32s16s")  # these fields and their digest
_LIMIT = 2**63  # SQLite has no larger numbers; anybody can compute the digest of a slot with one


@dataclass(frozen=True, slots=True)
class Head:
    """The newest slot that is sound.

    Attributes:
        number: of the next write.
        round: the last durable round; None if no slot is sound.
        link: that round's link of the chain, 16 bytes.
        is_damaged: whether a slot was written and is not sound.
    """

    number: int = 0
    round: int | None = None
    link: bytes = b""
    is_damaged: bool = False


class HeadWriter:
    """Writes the head of a journal that this process has locked."""

    def __init__(self, folder: Path) -> None:
        self._file = descriptor(folder / HEAD, os.O_RDWR | os.O_CREAT)
        self._number = _newest(self._file).number

    def put(self, round: int, link: bytes) -> None:
        """Name a round that is durable now, and its link of the chain."""
        fields = _FIELDS.pack(self._number, round, link)
        os.pwrite(self._file, _SLOT.pack(fields, digest(fields)), self._number % 2 * _PAGE)
        self._number += 1

    def close(self) -> None:
        os.close(self._file)


def read_head(folder: Path) -> Head:
    """Read the head of a journal, even while another process writes it. Journals of older builds have none."""
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
        if not any(content):  # never written, or lost in a power cut
            continue
        fields, its_digest = _SLOT.unpack(content.ljust(_SLOT.size, b"\0"))
        number, round, link = _FIELDS.unpack(fields)
        if digest(fields) != its_digest or max(number, round) >= _LIMIT:
            is_damaged = True
            continue
        if number >= newest.number:
            newest = Head(number + 1, round, link)
    return Head(newest.number, newest.round, newest.link, is_damaged)
