"""Snapshots on the wire: a replica's fields as one run of bytes, in chunks.

    SNAPSHOT  server → client    [count, digest, window]                     the offer of one
                                 [count, digest, index, check, bytes]        a chunk of it
    PULL      client → server    [digest, spans]                             chunks that are wanted; none: it is bad
    FETCH     server → source    [chunk size, spans]                         asks for the replica itself; none: which
    PIECE     source → server    [count, digest]                             one there is; count 0: there is none
                                 [count, digest, index, check, bytes]

Each has the snapshot's version as its base. The digest is the replica's own (`Replica.digest`), so a client that has
put a snapshot together can verify it. The check covers the chunk, its index and the title. Between the source and the
client that installs it, no party reads the content.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta

from seedbus.agents.messages import PackedReplica, read_body
from seedbus.algorithms.contract import BadPayload, Replica
from seedbus.bus import Envelope, Kind
from seedbus.bus.records import Whole

DIGEST_BYTES = 16
CHECK_BYTES = 8
_Number = Annotated[int, Meta(ge=0, lt=2**32)]
Spans = list[tuple[_Number, _Number]]
_Size = Annotated[int, Meta(gt=0, lt=2**16)]
_Digest = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
Shape = Mapping[str, tuple["np.dtype[Any]", int]]


@dataclass(frozen=True, slots=True)
class Title:
    """Identifies a snapshot.

    Attributes:
        version: of the replica.
        count: number of chunks.
        digest: of the replica, 16 bytes.
    """

    version: int
    count: int
    digest: bytes


class _Offer(NamedTuple):
    """The body of an offer, or of a description, which has no window."""

    chunks: _Number
    digest: bytes
    window: Whole = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a snapshot.

    Attributes:
        title: of the snapshot.
        index: of the chunk, from 0.
        data: its bytes.
    """

    title: Title
    index: int
    data: bytes

    def pack(self, kind: Kind, client: int, round: int) -> Envelope:
        """Return a SNAPSHOT or a PIECE with this chunk."""
        title = self.title
        body = [title.count, title.digest, self.index, self.check(), self.data]
        return Envelope(kind, client, round, title.version, body)

    def check(self) -> bytes:
        """Return a digest of title, index and data, `CHECK_BYTES` bytes."""
        title = self.title
        key = struct.pack("<3I", title.version, title.count, self.index) + title.digest
        return hashlib.blake2b(self.data, digest_size=CHECK_BYTES, key=key).digest()


def offer(title: Title, window: int, client: int, round: int) -> Envelope:
    """Return a SNAPSHOT that offers a snapshot; window: how many chunks the client may ask for at a time."""
    return Envelope(Kind.SNAPSHOT, client, round, title.version, [title.count, title.digest, window])


def description(title: Title, client: int, round: int) -> Envelope:
    """Return a PIECE that describes the source's replica; count 0: it is not at that version."""
    return Envelope(Kind.PIECE, client, round, title.version, [title.count, title.digest])


def is_offer(envelope: Envelope) -> bool:
    """Whether a SNAPSHOT offers one, and is no chunk."""
    return len(envelope.body) == len(_Offer._fields)


def unpack(envelope: Envelope) -> Chunk | tuple[Title, int]:
    """Return a chunk, or a snapshot's title with the window of its offer (0 in a description). Raises `BadPayload`."""
    if len(envelope.body) <= len(_Offer._fields):
        count, digest, window = read_body(_Offer, envelope)
        return _title(envelope.base, count, digest), window
    count, digest, index, check, data = read_body(tuple[_Number, bytes, _Number, bytes, bytes], envelope)
    chunk = Chunk(_title(envelope.base, count, digest), index, data)
    if chunk.index >= chunk.title.count:
        raise BadPayload(f"chunk {chunk.index} of a snapshot of {chunk.title.count}")
    if check != chunk.check():
        raise BadPayload(f"chunk {chunk.index} does not match its check")
    return chunk


def pull(title: Title, wanted: Iterable[int], client: int, round: int) -> Envelope:
    """Return a PULL for these chunks, ascending; none: the snapshot does not have its digest."""
    return Envelope(Kind.PULL, client, round, title.version, [title.digest, spans(wanted)])


def unpack_pull(envelope: Envelope, most: int) -> tuple[bytes, list[int]]:
    """Return the digest of the snapshot and the wanted indices, at most `most`. Raises `BadPayload`."""
    digest, wanted = read_body(tuple[_Digest, Spans], envelope)
    return digest, indices(wanted, most)


def fetch(version: int, chunk_bytes: int, wanted: Iterable[int], client: int, round: int) -> Envelope:
    """Return a FETCH for these pieces, ascending, of `chunk_bytes` bytes each; none: for a description."""
    return Envelope(Kind.FETCH, client, round, version, [chunk_bytes, spans(wanted)])


def unpack_fetch(envelope: Envelope, most: int) -> tuple[int, list[int]]:
    """Return the size of chunks in bytes and the wanted indices, at most `most`. Raises `BadPayload`."""
    chunk_bytes, wanted = read_body(tuple[_Size, Spans], envelope)
    return chunk_bytes, indices(wanted, most)


def spans(wanted: Iterable[int]) -> list[list[int]]:
    """Return ascending numbers as [first, last] of each run."""
    runs: list[list[int]] = []
    for index in wanted:
        if runs and runs[-1][1] + 1 == index:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return runs


def indices(runs: Sequence[Sequence[int]], most: int) -> list[int]:
    """Return the inverse of `spans`, at most `most` numbers. Raises `BadPayload`."""
    if any(first > last for first, last in runs):
        raise BadPayload("a span of chunks ends before it begins")
    if any(earlier[1] >= later[0] for earlier, later in pairwise(runs)):
        raise BadPayload("spans of chunks do not ascend")
    if sum(last - first + 1 for first, last in runs) > most:
        raise BadPayload(f"spans of more chunks than the {most} that may be asked for at a time")
    return [index for first, last in runs for index in range(first, last + 1)]


def shape_of(replica: Replica) -> Shape:
    """Return field → (dtype, length)."""
    return {name: (field.dtype, field.size) for name, field in replica.fields.items()}


def bytes_of(shape: Shape) -> int:
    """Return how many bytes a snapshot of this shape has."""
    return sum(dtype.itemsize * size for dtype, size in shape.values())


def title_of(replica: Replica, chunk_bytes: int) -> Title:
    """Return the title of a replica's snapshot in chunks of this size."""
    return Title(replica.version, -(-bytes_of(shape_of(replica)) // chunk_bytes), bytes.fromhex(replica.digest()))


def cut(replica: Replica, title: Title, index: int, chunk_bytes: int) -> Chunk:
    """Return one chunk of a replica, at a cost that grows with the size of the chunk only."""
    first, parts, before = index * chunk_bytes, [], 0
    for _, field in sorted(replica.fields.items()):
        begin, end = max(0, first - before), max(0, first + chunk_bytes - before)
        width = field.dtype.itemsize
        part = field[begin // width : -(-end // width)]  # of a vector on a device, only this is copied to the host
        raw = memoryview(little(part)).cast("B")
        parts.append(bytes(raw[begin % width : begin % width + end - begin]))
        before += field.nbytes
    return Chunk(title, index, b"".join(parts))


def restored(shape: Shape, title: Title, data: bytes) -> Replica:
    """Return the replica that a snapshot holds.

    Raises:
        BadPayload: the data have another length than the shape, or another digest than the title.
    """
    if len(data) != bytes_of(shape):
        raise BadPayload(f"a snapshot of {len(data)} bytes, where {bytes_of(shape)} belong")
    replica, before = Replica(title.version, {}), 0
    for name, (dtype, size) in sorted(shape.items()):
        replica.fields[name] = np.frombuffer(data, dtype.newbyteorder("<"), size, before).astype(dtype)
        before += dtype.itemsize * size
    if bytes.fromhex(replica.digest()) != title.digest:
        raise BadPayload("a snapshot that does not have the digest that was announced")
    return replica


def unpacked(packed: PackedReplica, first: Replica) -> Replica:
    """Return a replica that was packed whole; first: one of the same shape. Raises `BadPayload`, as `restored` does."""
    return restored(shape_of(first), Title(packed.version, 1, packed.digest), bytes(packed.fields))


def little(field: Any) -> Any:
    """Return a field's array in the byte order of snapshots."""
    return np.ascontiguousarray(field, dtype=field.dtype.newbyteorder("<"))


def _title(version: int, count: int, digest: bytes) -> Title:
    if len(digest) != (DIGEST_BYTES if count else 0):
        raise BadPayload(f"a snapshot in {count} chunks with a digest of {len(digest)} bytes")
    return Title(version, count, digest)
