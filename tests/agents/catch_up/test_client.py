"""A client's side of snapshots: it asks for missing chunks, verifies everything, and reports what it has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from snapshot_cases import downloads_from

from seedbus.agents.catch_up import chunks
from seedbus.agents.catch_up.chunks import Chunk, Title
from seedbus.agents.catch_up.client import Downloads, SnapshotSource, pack_notes, unpack_notes, version_of
from seedbus.agents.catch_up.settings import MOST_WINDOW
from seedbus.algorithms.contract import BadPayload, Replica
from seedbus.algorithms.scalar_only.hiso import HiSo
from seedbus.bus import Envelope, Kind, MalformedEnvelope, decode, encode
from seedbus.bus.envelope import EVALUATOR

ALGORITHM = HiSo(perturbations=2)
SIZE, WINDOW, VERSION = 100, 4, 6
X0 = np.linspace(-1, 1, 300, dtype=np.float32)  # x and H: 2,400 bytes, 24 chunks


def replica_at(version: int) -> Replica:
    replica = ALGORITHM.replica(X0)
    for number in range(version):
        plan = ALGORITHM.plan(number, number, 7 * number)
        report = np.array([[number + 1.0, -2.0]], np.float32)
        ALGORITHM.apply(replica, [ALGORITHM.aggregate(None, plan, {0: report})[0]])
    return replica


TRUTH = replica_at(VERSION)
TITLE = chunks.title_of(TRUTH, SIZE)


def downloads() -> Downloads:
    return downloads_from(replica_at)


def offer_to(partial: Downloads, client: int = 0, title: Title = TITLE, window: int = WINDOW) -> list[int]:
    """Offer a snapshot to a client; return the chunk indices that it requests."""
    offer = chunks.offer(title, window, client, 9)
    (pull,) = partial.on_offer(offer, title, window)
    assert (pull.kind, pull.client, pull.base) == (Kind.PULL, client, title.version)
    return chunks.unpack_pull(pull, window)[1]


def chunk(index: int) -> Chunk:
    return chunks.cut(TRUTH, TITLE, index, SIZE)


def receive(partial: Downloads, index: int, client: int = 0) -> Any:
    """Deliver a chunk; return the indices that the client requests next, or the complete replica."""
    piece = chunk(index)
    response = partial.on_chunk(piece.pack(Kind.SNAPSHOT, client, 9), piece)
    return response if isinstance(response, Replica) else [chunks.unpack_pull(pull, WINDOW)[1] for pull in response]


def test_chunks_of_any_size_hold_the_replica() -> None:
    for size in (1, 3, 64, 100, 1199, 1200, 2399, 2400, 2401, 10_000):
        title = chunks.title_of(TRUTH, size)
        parts = [chunks.cut(TRUTH, title, index, size).data for index in range(title.count)]
        assert all(len(part) == size for part in parts[:-1]) and 0 < len(parts[-1]) <= size
        restored = chunks.restored(chunks.shape_of(TRUTH), title, b"".join(parts))
        assert restored.digests() == TRUTH.digests() and restored.version == VERSION
        assert all(field.flags.writeable for field in restored.fields.values())


def test_chunks_are_requested_window_by_window_until_complete() -> None:
    partial = downloads()
    window, requested = offer_to(partial), []
    while window:
        requested += window
        for index in window[:-1]:
            assert receive(partial, index) == []
        answer = receive(partial, window[-1])
        window = [] if isinstance(answer, Replica) else answer[0]
    assert requested == list(range(24))
    assert answer.digests() == TRUTH.digests() and partial.note(0, 9) == []


@pytest.mark.slow
@given(st.permutations(range(24)), st.integers(0, 24), st.lists(st.integers(0, 23), max_size=10))
def test_chunks_in_any_order_repeated_or_across_processes_give_the_same_replica(
    order: list[int], moves_at: int, again: list[int]
) -> None:
    partial = downloads()
    offer_to(partial)
    replica = None
    for number, index in enumerate([*order[:12], *again, *order[12:]]):
        if number == moves_at:  # a new process continues from the notes of the old one
            notes = [encode(note)[0] for note in partial.note(0, 9)]
            partial = downloads()
            partial.reset(unpack_notes(pack_notes(notes)))
        answer = receive(partial, index)
        replica = answer if isinstance(answer, Replica) else replica
    assert replica is not None and replica.digests() == TRUTH.digests()


@pytest.mark.parametrize("size", [64, 96, 1200, 2400, 10_000])  # also with a shorter last chunk, or a single one
def test_a_snapshot_in_chunks_of_any_size_survives_its_process(size: int) -> None:
    title = chunks.title_of(TRUTH, size)
    partial = downloads()
    offer_to(partial, title=title)
    for index in [*range(title.count - 1), *range(title.count)]:  # nearly all of them twice
        if index == 1:
            notes = partial.note(0, 9)
            partial = downloads()
            partial.reset(notes)
        piece = chunks.cut(TRUTH, title, index, size)
        answer = partial.on_chunk(piece.pack(Kind.SNAPSHOT, 0, 9), piece)
    assert isinstance(answer, Replica) and answer.digests() == TRUTH.digests()


def test_another_offer_requests_only_the_missing_chunks() -> None:
    partial = downloads()
    assert offer_to(partial) == [0, 1, 2, 3]
    for index in (0, 2, 3):
        assert receive(partial, index) == []
    assert offer_to(partial) == [1, 4, 5, 6]
    assert offer_to(partial, window=2) == [1, 4], "the window of the newest offer"
    for index in (1, 4, 5):
        receive(partial, index)
    assert offer_to(partial) == [6, 7, 8, 9]
    (note,) = partial.note(0, 9)
    assert note.body[5] == [[6, 9]]
    partial.reset([])
    assert partial.note(0, 9) == [] and partial._chunks == {}


def test_a_newer_snapshot_replaces_the_current_download() -> None:
    partial = downloads()
    offer_to(partial)
    receive(partial, 0)
    newer = Title(VERSION + 1, 24, bytes(16))
    assert offer_to(partial, title=newer) == [0, 1, 2, 3]
    assert receive(partial, 1) == []  # a chunk of the old snapshot
    assert partial._chunks == {}, "nobody needs the old one's"
    (note,) = partial.note(0, 9)
    assert (note.base, note.body[4]) == (VERSION + 1, bytes(3))


def test_clients_of_a_process_hold_a_chunk_once() -> None:
    partial = downloads()
    for client in range(5):
        offer_to(partial, client)
        for index in range(3):
            receive(partial, index, client)
    assert [len(shelf) for shelf in partial._chunks.values()] == [3]
    for client in range(5):
        partial.discard_up_to(client, VERSION - 1)
        assert partial.note(client, 9)
        partial.discard_up_to(client, VERSION)
        assert not partial.note(client, 9)
    assert partial._chunks == {} and partial._partial_downloads == {}


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_false_chunk_fails_its_client_alone_in_a_process_that_replaces_its_own_too(is_replaced: bool) -> None:
    """A peer that serves a snapshot may send any bytes with a check that matches."""
    partial, false = downloads(), Chunk(TITLE, 0, bytes(SIZE))
    offer_to(partial)
    partial.on_chunk(false.pack(Kind.SNAPSHOT, 0, 9), false)
    if is_replaced:
        notes = [encode(note)[0] for note in partial.note(0, 9)]
        partial = downloads()
        partial.reset(unpack_notes(pack_notes(notes)))
    offer_to(partial, 1)
    replica = [receive(partial, index, 1) for index in range(24)][-1]
    assert replica.digests() == TRUTH.digests()
    with pytest.raises(BadPayload, match=r"a snapshot (that does not have the digest|whose chunks are not those)"):
        for index in range(24):
            receive(partial, index)


def test_chunks_that_were_not_announced_are_not_kept() -> None:
    partial = downloads()
    assert receive(partial, 0) == []
    assert partial._chunks == {} and partial._partial_downloads == {}


def test_a_snapshot_with_another_digest_is_thrown_away() -> None:
    partial = downloads()
    liar = Title(VERSION, 24, bytes(16))
    offer_to(partial, title=liar)
    with pytest.raises(BadPayload, match="does not have the digest"):
        for index in range(24):
            piece = Chunk(liar, index, chunk(index).data)
            partial.on_chunk(piece.pack(Kind.SNAPSHOT, 0, 9), piece)
    assert partial._chunks == {} and partial.note(0, 9) == []


IMPOSSIBLE = [(0, WINDOW), (2401, WINDOW), (2**31, WINDOW), (24, 0), (24, MOST_WINDOW + 1)]


@pytest.mark.parametrize(("count", "window"), IMPOSSIBLE)
def test_an_offer_with_an_impossible_count_or_window_is_refused(count: int, window: int) -> None:
    title = Title(VERSION, count, bytes(16))
    with pytest.raises(BadPayload):
        downloads().on_offer(chunks.offer(title, window, 0, 9), title, window)


@pytest.mark.parametrize(("count", "window"), [(1, 1), (2400, MOST_WINDOW)])
def test_an_offer_with_the_least_or_the_largest_count_and_window_is_taken(count: int, window: int) -> None:
    title = Title(VERSION, count, bytes(16))
    assert offer_to(downloads(), title=title, window=window) == list(range(min(count, window)))


@pytest.mark.parametrize(
    ("count", "index", "most"), [(24, 0, 2400 // 23), (24, 22, 2400 // 23), (24, 23, 2400), (1, 0, 2400)]
)
def test_a_chunk_that_is_larger_than_the_replica_allows_is_refused(count: int, index: int, most: int) -> None:
    partial, title = downloads(), Title(VERSION, count, bytes(16))
    offer_to(partial, title=title)
    large = Chunk(title, index, bytes(most + 1))
    with pytest.raises(BadPayload, match=f"a chunk of {most + 1} bytes, one of {count}, of a smaller replica"):
        partial.on_chunk(large.pack(Kind.SNAPSHOT, 0, 9), large)
    if count > 1:
        allowed = Chunk(title, index, bytes(most))
        assert partial.on_chunk(allowed.pack(Kind.SNAPSHOT, 0, 9), allowed) is not None


@given(st.integers(0, 23), st.data())
def test_a_chunk_in_which_a_bit_is_flipped_is_refused(index: int, data: st.DataObject) -> None:
    intact, header = encode(chunk(index).pack(Kind.SNAPSHOT, 0, 9))
    frame = bytearray(intact)
    frame[data.draw(st.integers(header, len(frame) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((BadPayload, MalformedEnvelope)):
        chunks.unpack(decode(bytes(frame)))


def test_a_source_answers_only_for_the_version_that_it_holds() -> None:
    source = SnapshotSource()
    for version, count in ((VERSION, 24), (VERSION - 1, 0), (VERSION + 1, 0)):
        (answer,) = source.pieces(chunks.fetch(version, SIZE, (), EVALUATOR, 9), TRUTH)
        assert chunks.unpack(answer) == (Title(version, count, TITLE.digest if count else b""), 0)
    pieces = source.pieces(chunks.fetch(VERSION, SIZE, (0, 22, 23, 24, 99), EVALUATOR, 9), TRUTH)
    assert [chunks.unpack(piece) for piece in pieces] == [chunk(0), chunk(22), chunk(23)]


@given(st.lists(st.integers(0, 300), unique=True, max_size=64).map(sorted))
def test_spans_hold_their_numbers(numbers: list[int]) -> None:
    assert chunks.indices(chunks.spans(numbers), 64) == numbers
    if numbers:
        with pytest.raises(BadPayload):
            chunks.indices(chunks.spans(numbers), len(numbers) - 1)


@pytest.mark.parametrize(
    "runs", [[[3, 1]], [[-1, 1]], [[0, 2], [2, 3]], [[1, 2], [0, 0]], [[1]], [1], [[True, 2]], ["a"]]
)
def test_malformed_spans_are_refused(runs: Any) -> None:
    with pytest.raises(BadPayload):
        chunks.unpack_pull(Envelope(Kind.PULL, 0, 1, 1, [bytes(16), runs]), 64)


def noted(**changes: Any) -> list[Envelope]:
    """Return the note of a download of which nothing is here, with some of its fields changed."""
    partial = downloads()
    offer_to(partial)
    (note,) = partial.note(0, 9)
    names = ("count", "digest", "window", "chunk_bytes", "bits", "wanted", "checked")
    fields = dict(zip(names, note.body, strict=True))
    return [note._replace(body=[*(fields | changes).values()])]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"count": 1, "bits": bytes(1)},
        {"count": 17},
        {"window": 1, "wanted": []},
        {"window": MOST_WINDOW},
        {"chunk_bytes": 1},
    ],
)
def test_a_process_goes_on_from_any_note_that_a_client_can_have_written(changes: dict[str, Any]) -> None:
    partial, note = downloads(), noted(**changes)
    partial.reset(note)
    assert partial.note(0, 9) == note


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 0, "bits": b""},
        {"count": 16},
        {"count": 25},
        {"digest": 7},
        {"window": 0, "wanted": []},
        {"window": MOST_WINDOW + 1},
        {"window": 3},
        {"chunk_bytes": -1},
        {"checked": b"short"},
    ],
)
def test_a_note_that_no_client_can_have_written_is_refused(changes: dict[str, Any]) -> None:
    note = noted(**changes)
    with pytest.raises(BadPayload):
        downloads().reset(note)
    assert version_of(encode(note[0])[0], 0) == 0


def test_the_version_of_a_note_is_that_of_its_snapshot_for_its_own_client() -> None:
    (note,) = noted()
    frame = encode(note)[0]
    assert [version_of(each, client) for each, client in ((frame, 0), (frame, 1), (b"junk", 0))] == [VERSION, 0, 0]


@pytest.mark.parametrize("packed", [b"\1", b"\5\0\0\0ab", b"\0\0\0\0"])
def test_malformed_notes_are_refused(packed: bytes) -> None:
    with pytest.raises((BadPayload, MalformedEnvelope)):
        unpack_notes(packed)
