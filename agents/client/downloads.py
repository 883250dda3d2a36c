"""What the clients of one process have of snapshots, until they have all of one and install it.

A chunk that several clients have pulled is held once. What a client has is also said to the simulation (a note, in a
WAKE of its own that is not sent): a process that comes in the place of this one is told it again, and makes the
chunks anew out of the log.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from seedbus.agents import chunks
from seedbus.agents.chunks import Chunk, Shape, Title
from seedbus.agents.policies.snapshot_budget import MOST_WINDOW
from seedbus.algorithms.contract import BadPayload, Replica
from seedbus.bus import Envelope, Kind, MalformedEnvelope, decode


@dataclass(slots=True)
class _Half:
    """What one client has of a snapshot. wanted: what it has asked for and does not have; bits: one for each chunk
    that it has; complete_to: chunks before this one are all there."""

    title: Title
    window: int
    chunk_bytes: int = 0
    wanted: set[int] = field(default_factory=set)
    bits: bytearray = field(default_factory=bytearray)
    complete_to: int = 0

    def __post_init__(self) -> None:
        self.bits = self.bits or bytearray(-(-self.title.count // 8))
        self._rise()

    def has(self, index: int) -> bool:
        return bool(self.bits[index // 8] >> index % 8 & 1)

    def add(self, index: int) -> None:
        self.bits[index // 8] |= 1 << index % 8
        self.wanted.discard(index)
        self._rise()

    @property
    def is_whole(self) -> bool:
        return self.complete_to == self.title.count

    def ask(self) -> list[int]:
        """The next chunks that it lacks, a window of them."""
        lacks = (index for index in range(self.complete_to, self.title.count) if not self.has(index))
        self.wanted = set(islice(lacks, self.window))
        return sorted(self.wanted)

    def _rise(self) -> None:
        while not self.is_whole and self.has(self.complete_to):
            self.complete_to += 1


class Downloads:
    """replica_at: the replica of a version that the log reaches, not to be written to."""

    def __init__(self, replica_at: Callable[[int], Replica]) -> None:
        self._replica_at = replica_at
        self._partial_downloads: dict[int, _Half] = {}
        self._shelves: dict[Title, dict[int, bytes]] = {}

    def offered(self, envelope: Envelope, title: Title, window: int) -> list[Envelope]:
        """A client is offered a snapshot: it asks for the next chunks that it lacks."""
        client = envelope.client
        if not 0 < title.count <= chunks.bytes_of(self._shape) or not 0 < window <= MOST_WINDOW:
            raise BadPayload(f"an offer of {title.count} chunks, {window} at a time")
        if client not in self._partial_downloads or self._partial_downloads[client].title != title:
            self.forget(client)
            self._partial_downloads[client] = _Half(title, window)
        half = self._partial_downloads[client]
        half.window = window
        return self._next(half, envelope)

    def came(self, envelope: Envelope, chunk: Chunk) -> Replica | list[Envelope]:
        """A chunk: the replica, if it was the last; else what the client says to it, which may be nothing.

        Raises `BadPayload` for a chunk beyond what the replica has, and if a snapshot that is whole is not what it was
        said to be; its chunks are gone then.
        """
        half = self._partial_downloads.get(envelope.client)
        if half is None or half.title != chunk.title:
            return []  # it has lost what it had, or has begun with a newer one
        before = chunk.title.count - 1 if chunk.index + 1 < chunk.title.count else 1  # all but the last are of one size
        if len(chunk.data) * before > chunks.bytes_of(self._shape):
            raise BadPayload(f"a chunk of {len(chunk.data)} bytes, one of {chunk.title.count}, of a smaller replica")
        shelf = self._shelves.setdefault(half.title, {})
        shelf.setdefault(chunk.index, chunk.data)
        half.add(chunk.index)
        if chunk.index + 1 < half.title.count or not half.chunk_bytes:
            half.chunk_bytes = len(chunk.data)
        if not half.is_whole:
            return [] if half.wanted else self._next(half, envelope)
        try:
            self._rebuild(half, shelf)
            return chunks.restored(self._shape, half.title, b"".join(shelf[i] for i in range(half.title.count)))
        finally:
            self.forget(envelope.client)

    @cached_property
    def _shape(self) -> Shape:
        return chunks.shape_of(self._replica_at(0))

    def outgrow(self, client: int, version: int) -> None:
        """A client stands at a version: what it has of older snapshots is of no use."""
        if client in self._partial_downloads and self._partial_downloads[client].title.version <= version:
            self.forget(client)

    def forget(self, client: int) -> None:
        """A client has lost its chunks, or needs them no more."""
        half = self._partial_downloads.pop(client, None)
        if half is not None and all(other.title != half.title for other in self._partial_downloads.values()):
            self._shelves.pop(half.title, None)

    def _next(self, half: _Half, envelope: Envelope) -> list[Envelope]:
        return [chunks.pull(half.title, half.ask(), envelope.client, envelope.round)]

    def _rebuild(self, half: _Half, shelf: dict[int, bytes]) -> None:
        """Chunks that came to the process before this one: they follow from the log."""
        lost = [index for index in range(half.title.count) if index not in shelf]
        if lost:
            replica = self._replica_at(half.title.version)
            shelf.update({i: chunks.cut(replica, half.title, i, half.chunk_bytes).data for i in lost})

    # -- what the simulation is told

    def note(self, client: int, round: int) -> list[Envelope]:
        half = self._partial_downloads.get(client)
        if half is None:
            return []
        title, wanted = half.title, chunks.spans(sorted(half.wanted))
        body = [title.count, title.digest, half.window, half.chunk_bytes, bytes(half.bits), wanted]
        return [Envelope(Kind.WAKE, client, round, title.version, body)]

    def stand_at(self, notes: list[Envelope]) -> None:
        """Have what these notes say, and nothing else. Raises `BadPayload`."""
        self._partial_downloads.clear()
        self._shelves.clear()
        for note in notes:
            self._partial_downloads[note.client] = _half_of(note)


def _half_of(note: Envelope) -> _Half:
    """Raises `BadPayload`."""
    if [type(part) for part in note.body] != [int, bytes, int, int, bytes, list]:
        raise BadPayload("a note of half a snapshot that is none")
    count, digest, window, chunk_bytes, bits, wanted = note.body
    if count < 1 or len(bits) != -(-count // 8):
        raise BadPayload(f"a note of {len(bits)} bytes about {count} chunks")
    if not 0 < window <= MOST_WINDOW or chunk_bytes < 0:
        raise BadPayload(f"a note of chunks of {chunk_bytes} bytes, {window} at a time")
    asked = set(chunks.indices(wanted, window))
    return _Half(Title(note.base, count, digest), window, chunk_bytes, asked, bytearray(bits))


def version_of(note: bytes, client: int) -> int:
    """The version of the snapshot that a client's note is about; 0 if it is no such note, as of a client that lies."""
    try:
        found = decode(note, client)
        _half_of(found)
    except (MalformedEnvelope, BadPayload):
        return 0
    return found.base if found.client == client else 0


def pack_notes(notes: list[bytes]) -> bytes:
    """Notes, as frames, in one run of bytes."""
    return b"".join(struct.pack("<I", len(note)) + note for note in notes)


def unpack_notes(packed: bytes, decode: Callable[[bytes], Any]) -> list[Any]:
    """Raises `BadPayload`, and what `decode` raises."""
    found, place = [], 0
    while place < len(packed):
        if place + 4 > len(packed):
            raise BadPayload("notes that end before they are over")
        (size,) = struct.unpack_from("<I", packed, place)
        found.append(decode(packed[place + 4 : place + 4 + size]))
        place += 4 + size
    return found
