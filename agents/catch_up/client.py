"""The client's side of snapshots: what the clients of one process download, and what a source gives out.

    an offer ─► PULL ─► chunks ─► PULL ─► … ─► complete: it is installed, and the client states its version (JOIN)
                                               or has another digest: a PULL of nothing

A chunk that several clients have pulled is kept once. What a client has of a snapshot is also stated to the simulation,
in a note: a WAKE message that is never sent. A process that replaces this one is given the notes, and computes the
chunks anew from the log. A note's sum of checks shows whether these are what the client received: a peer may have sent
false ones, and then this snapshot fails here as it would have there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Annotated, Protocol

from msgspec import Meta

from seedbus.agents.catch_up import chunks
from seedbus.agents.catch_up.chunks import Chunk, Shape, Title
from seedbus.agents.catch_up.settings import MOST_WINDOW
from seedbus.agents.messages import read_body
from seedbus.agents.observer import Observer
from seedbus.algorithms.contract import BadPayload, CommitGap, Replica
from seedbus.bus import Envelope, Kind, MalformedEnvelope, decode
from seedbus.bus.records import Count

_Positive = Annotated[int, Meta(ge=1)]


@dataclass(slots=True)
class _PartialDownload:
    """What one client has of a snapshot.

    Attributes:
        title: which snapshot.
        window: how many chunks to request at a time.
        chunk_bytes: the size of all chunks but the last; 0 while it is unknown.
        wanted: chunks that were requested and are not here yet.
        bits: one bit for each chunk that is here.
        checked: the exclusive or of the checks of all chunks that are here.
        checks: index → check, of those that this process received.
        complete_to: all chunks before this one are here.
    """

    title: Title
    window: int
    chunk_bytes: int = 0
    wanted: set[int] = field(default_factory=set)
    bits: bytearray = field(default_factory=bytearray)
    checked: int = 0
    checks: dict[int, bytes] = field(default_factory=dict)
    complete_to: int = 0

    def __post_init__(self) -> None:
        self.bits = self.bits or bytearray(-(-self.title.count // 8))

    def has(self, index: int) -> bool:
        return bool(self.bits[index // 8] >> index % 8 & 1)

    def add(self, index: int, check: bytes) -> None:
        self.bits[index // 8] |= 1 << index % 8
        self.checked ^= _number(check)
        self.checks[index] = check
        self.wanted.discard(index)
        self._update_complete_to()

    @property
    def is_complete(self) -> bool:
        return self.complete_to == self.title.count

    def next_wanted(self) -> list[int]:
        """Want the next chunks that are missing, a window of them; returns their indices, ascending."""
        missing = (index for index in range(self.complete_to, self.title.count) if not self.has(index))
        self.wanted = set(islice(missing, self.window))
        return sorted(self.wanted)

    def _update_complete_to(self) -> None:
        while not self.is_complete and self.has(self.complete_to):
            self.complete_to += 1


class Replicas(Protocol):
    """What is asked of a process's replicas (`agents/client/replicas.py`)."""

    def version(self, client: int) -> int: ...

    def get(self, client: int) -> Replica: ...

    def at(self, version: int) -> Replica: ...

    def install(self, client: int, replica: Replica) -> None: ...


class Downloads:
    """The downloads of one process's clients, at most one each.

    Attributes:
        handlers: kind → what answers a message of it.
    """

    def __init__(self, replicas: Replicas, observer: Observer, join: Callable[[Envelope], list[Envelope]]) -> None:
        """Begin without any.

        Args:
            replicas: the process's.
            observer: is told of messages that cannot be acted upon.
            join: returns the JOIN of a message's client, which states the version that it holds.
        """
        self._replicas = replicas
        self._observer = observer
        self._join = join
        self._source = SnapshotSource()
        self._partial_downloads: dict[int, _PartialDownload] = {}
        self._chunks: dict[Title, dict[bytes, bytes]] = {}  # title → check → chunk
        self.handlers: Mapping[Kind, Callable[[Envelope], list[Envelope]]] = {
            Kind.SNAPSHOT: self.on_snapshot,
            Kind.FETCH: self.on_fetch,
        }

    def on_fetch(self, envelope: Envelope) -> list[Envelope]:
        """Return pieces of a follower's replica, for the server's snapshot."""
        try:
            return self._source.pieces(envelope, self._replicas.get(envelope.client))
        except (BadPayload, CommitGap) as error:
            self._observer.noted("bad-fetch", client=envelope.client, detail=str(error))
            return []

    def on_snapshot(self, envelope: Envelope) -> list[Envelope]:
        """A client receives the offer of a snapshot, or a chunk of one; returns its answers and its note."""
        client = envelope.client
        if envelope.base <= self._replicas.version(client):
            self._observer.noted("stale-snapshot", client=client, version=envelope.base)
            answers = self._join(envelope) if chunks.is_offer(envelope) else []
            return answers + self.note(client, envelope.round)
        title = None
        try:
            unpacked = chunks.unpack(envelope)
            if not isinstance(unpacked, Chunk):
                return self.on_offer(envelope, *unpacked) + self.note(client, envelope.round)
            title = unpacked.title
            outcome = self.on_chunk(envelope, unpacked)
        except (BadPayload, CommitGap) as error:
            self._observer.noted("bad-snapshot", client=client, detail=str(error))
            if title is None:
                return self.note(client, envelope.round)
            return [chunks.pull(title, (), client, envelope.round)]
        if isinstance(outcome, list):
            return outcome + self.note(client, envelope.round)
        self._replicas.install(client, outcome)
        return self._join(envelope)

    def on_offer(self, envelope: Envelope, title: Title, window: int) -> list[Envelope]:
        """A client is offered a snapshot. Returns its PULL for the next chunks that it lacks.

        Raises:
            BadPayload: no snapshot of this run has so many chunks, or the window is out of range.
        """
        client = envelope.client
        if not 0 < title.count <= chunks.bytes_of(self._shape) or not 0 < window <= MOST_WINDOW:
            raise BadPayload(f"an offer of {title.count} chunks, {window} at a time")
        if client not in self._partial_downloads or self._partial_downloads[client].title != title:
            self.forget(client)
            self._partial_downloads[client] = _PartialDownload(title, window)
        download = self._partial_downloads[client]
        download.window = window
        return self._pull_next(download, envelope)

    def on_chunk(self, envelope: Envelope, chunk: Chunk) -> Replica | list[Envelope]:
        """A client receives a chunk. Returns the replica if that was the last one, else its next PULL, if it is due.

        Raises:
            BadPayload: the chunk is larger than the replica allows, or the complete snapshot does not have the digest
                that was announced; its chunks are deleted then.
        """
        download = self._partial_downloads.get(envelope.client)
        if download is None or download.title != chunk.title:
            return []  # it has lost its chunks, or has begun with a newer snapshot
        before = chunk.title.count - 1 if chunk.index + 1 < chunk.title.count else 1  # all but the last are of one size
        if len(chunk.data) * before > chunks.bytes_of(self._shape):
            raise BadPayload(f"a chunk of {len(chunk.data)} bytes, one of {chunk.title.count}, of a smaller replica")
        if not download.has(chunk.index):
            check = chunk.check()
            self._chunks.setdefault(download.title, {}).setdefault(check, chunk.data)
            download.add(chunk.index, check)
        if chunk.index + 1 < download.title.count or not download.chunk_bytes:
            download.chunk_bytes = len(chunk.data)
        if not download.is_complete:
            return [] if download.wanted else self._pull_next(download, envelope)
        try:
            return chunks.restored(self._shape, download.title, self._joined(download))
        finally:
            self.forget(envelope.client)

    @cached_property
    def _shape(self) -> Shape:
        return chunks.shape_of(self._replicas.at(0))

    def discard_up_to(self, client: int, version: int) -> None:
        """A client has reached a version: a snapshot that is no newer is of no use to it."""
        if client in self._partial_downloads and self._partial_downloads[client].title.version <= version:
            self.forget(client)

    def forget(self, client: int) -> None:
        """A client has lost its chunks, or does not need them any more."""
        download = self._partial_downloads.pop(client, None)
        if download is not None and all(each.title != download.title for each in self._partial_downloads.values()):
            self._chunks.pop(download.title, None)

    def _pull_next(self, download: _PartialDownload, envelope: Envelope) -> list[Envelope]:
        return [chunks.pull(download.title, download.next_wanted(), envelope.client, envelope.round)]

    def _joined(self, download: _PartialDownload) -> bytes:
        """Return all of a snapshot. The chunks that the process before this one received follow from the log.

        Raises:
            BadPayload: it received others.
        """
        title, shared = download.title, self._chunks.get(download.title, {})
        here = {index: shared[check] for index, check in download.checks.items()}
        lost = [index for index in range(title.count) if index not in here]
        checked = download.checked
        for check in download.checks.values():
            checked ^= _number(check)
        if lost:
            replica = self._replicas.at(title.version)
            for index in lost:
                chunk = chunks.cut(replica, title, index, download.chunk_bytes)
                here[index] = chunk.data
                checked ^= _number(chunk.check())
        if checked:
            raise BadPayload("a snapshot whose chunks are not those of its version")
        return b"".join(here[index] for index in range(title.count))

    # -- notes to the simulation

    def note(self, client: int, round: int) -> list[Envelope]:
        """Return a note of what a client has; none if it downloads nothing."""
        download = self._partial_downloads.get(client)
        if download is None:
            return []
        title, wanted = download.title, chunks.spans(sorted(download.wanted))
        checked = download.checked.to_bytes(chunks.CHECK_BYTES, "little")
        body = [title.count, title.digest, download.window, download.chunk_bytes, bytes(download.bits), wanted, checked]
        return [Envelope(Kind.WAKE, client, round, title.version, body)]

    def reset(self, notes: list[Envelope]) -> None:
        """Go on from these notes, whatever was downloaded before. Raises `BadPayload`."""
        self._partial_downloads.clear()
        self._chunks.clear()
        for note in notes:
            self._partial_downloads[note.client] = _unpack_note(note)


class SnapshotSource:
    """Answers requests for a replica. It caches the last title, whose digest takes a pass over the replica."""

    def __init__(self) -> None:
        self._cached: tuple[Title, int] | None = None  # with the size of its chunks in bytes

    def pieces(self, envelope: Envelope, replica: Replica) -> list[Envelope]:
        """Return the answer to a FETCH: pieces, a description, or that the replica is at another version.

        Raises:
            BadPayload: the FETCH cannot be unpacked.
        """
        chunk_bytes, wanted = chunks.unpack_fetch(envelope, MOST_WINDOW)
        client, round = envelope.client, envelope.round
        if replica.version != envelope.base:
            return [chunks.description(Title(envelope.base, 0, b""), client, round)]
        title = self._title(replica, chunk_bytes)
        if not wanted:
            return [chunks.description(title, client, round)]
        pieces = [chunks.cut(replica, title, index, chunk_bytes) for index in wanted if index < title.count]
        return [piece.pack(Kind.PIECE, client, round) for piece in pieces]

    def _title(self, replica: Replica, chunk_bytes: int) -> Title:
        if self._cached is None or (self._cached[0].version, self._cached[1]) != (replica.version, chunk_bytes):
            self._cached = chunks.title_of(replica, chunk_bytes), chunk_bytes
        return self._cached[0]


def _unpack_note(note: Envelope) -> _PartialDownload:
    """Raises `BadPayload`."""
    count, digest, window, chunk_bytes, bits, wanted, checked = read_body(
        tuple[_Positive, bytes, _Positive, Count, bytes, chunks.Spans, bytes], note
    )
    if len(bits) != -(-count // 8):
        raise BadPayload(f"a note of {len(bits)} bytes about {count} chunks")
    if window > MOST_WINDOW or len(checked) != chunks.CHECK_BYTES:
        raise BadPayload(f"a note of {window} chunks at a time, and of {len(checked)} bytes of checks")
    requested = set(chunks.indices(wanted, window))
    title, sum_of_checks = Title(note.base, count, digest), _number(checked)
    return _PartialDownload(title, window, chunk_bytes, requested, bytearray(bits), sum_of_checks)


def _number(check: bytes) -> int:
    return int.from_bytes(check, "little")


def version_of(note: bytes, client: int) -> int:
    """Return the version of the snapshot that a client's note is about; 0 if the frame is no valid note of it."""
    try:
        envelope = decode(note, client)
        _unpack_note(envelope)
    except (MalformedEnvelope, BadPayload):
        return 0
    return envelope.base if envelope.client == client else 0


def pack_notes(notes: list[bytes]) -> bytes:
    """Return notes, each a frame, as one run of bytes."""
    return b"".join(struct.pack("<I", len(note)) + note for note in notes)


def unpack_notes(packed: bytes) -> list[Envelope]:
    """Return each note of `pack_notes`, decoded. Raises `BadPayload`, `MalformedEnvelope`."""
    notes, start = [], 0
    while start < len(packed):
        if start + 4 > len(packed):
            raise BadPayload("the last of a WELCOME's notes is cut off")
        (size,) = struct.unpack_from("<I", packed, start)
        start += 4
        notes.append(decode(packed[start : start + size]))
        start += size
    return notes
