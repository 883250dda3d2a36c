"""Long frames in pieces: the same bytes and values as msgpack's, wherever they are cut and whatever they are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus import pieces
from seedbus.pieces import Pieces, frame_of, packed, restored, stored, unpacked

LIMITS = {"longest_array": 64, "longest_text": 4096}
SHORT = 50


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "SHORT", SHORT)
    monkeypatch.setattr(pieces, "WHOLE", 100)
    monkeypatch.setattr(pieces, "SLICE", 90)


leaves = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=40) | st.binary(max_size=300)
values = st.recursive(leaves, lambda each: st.lists(each, max_size=8), max_leaves=30)
strings = st.binary(max_size=SHORT - 1) | st.integers(2**16, 2**16 + 9).map(bytes)  # the long ones are bin 32
mapped = st.recursive(
    st.integers(0, 9) | st.text(max_size=40) | strings,
    lambda each: st.lists(each, max_size=4) | st.tuples(each, each) | st.dictionaries(st.text(max_size=3), each),
)


def cut(data: bytes, places: list[int]) -> Pieces:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return Pieces([data[start:end] for start, end in pairwise(ends)])


def plain(value: Any) -> Any:
    """Return a value with bytes in the place of views, of which only long ones may be there."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    assert not isinstance(value, memoryview) or len(value) >= SHORT
    return bytes(value) if isinstance(value, memoryview) else value


@settings(max_examples=300)
@given(mapped)
def test_what_is_packed_in_pieces_is_what_msgpack_packs(value: Any) -> None:
    assert b"".join(packed(value)) == msgpack.packb(value)


def test_a_value_is_walked_once_to_look_and_once_to_pack_however_deep_it_is() -> None:
    class Clients(list[int]):
        walks = 0

        def __iter__(self) -> Iterator[int]:
            self.walks += 1
            return super().__iter__()

    clients, vector = Clients([1, 2, 3]), bytes(2**16)
    pieces_of = list(packed([[{"known": [[clients, vector]]}, (1, vector)], 7]))
    assert clients.walks == 2 and sum(each is vector for each in pieces_of) == 2
    assert b"".join(pieces_of) == msgpack.packb([[{"known": [[[1, 2, 3], vector]]}, (1, vector)], 7])


@settings(max_examples=300)
@given(values, st.lists(st.integers(0, 2**16), max_size=6))
def test_a_frame_in_any_pieces_is_read_as_msgpack_reads_it(value: Any, places: list[int]) -> None:
    frame = cut(msgpack.packb(value), places)
    assert plain(unpacked(frame, **LIMITS)) == value and bytes(frame) == msgpack.packb(value)


@settings(max_examples=500)
@given(
    values,
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=4),
    st.integers(0, 400),
    st.binary(),
)
def test_a_damaged_frame_is_refused_or_is_what_msgpack_reads(
    value: Any, changes: list[tuple[int, int]], end: int, tail: bytes
) -> None:
    data = bytearray(msgpack.packb(value))
    for place, byte in changes:
        data[place % len(data)] = byte
    frame = bytes(data)[: end or None] + tail[: len(changes)]
    try:
        found = plain(unpacked(Pieces([frame]), **LIMITS))
    except ValueError:
        return
    assert repr(found) == repr(msgpack.unpackb(frame))


@given(st.binary(max_size=400), st.lists(st.integers(0, 2**16), max_size=6), st.integers(0, 450), st.integers(0, 450))
def test_parts_of_pieces_are_parts_of_their_bytes(data: bytes, places: list[int], start: int, stop: int) -> None:
    frame = cut(data, places)
    assert len(frame) == len(data) and frame == data
    assert frame[start:stop] == data[start:stop] == b"".join(frame.between(start, min(stop, len(data))))
    assert restored(stored(frame_of([data]))) == data
    assert b"a head" + frame == frame_of([b"a head", data]) and frame + b"a tail" == data + b"a tail"


def test_too_many_elements_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "ELEMENTS", 50)
    frame = Pieces([msgpack.packb([[0] * 10] * 4)])
    assert unpacked(frame, **LIMITS) == [[0] * 10] * 4
    with pytest.raises(ValueError, match="more than 50 elements"):
        unpacked(Pieces([msgpack.packb([[0] * 10] * 5)]), **LIMITS)
    with pytest.raises(ValueError, match="arrays in each other"):
        unpacked(Pieces([b"\x91" * 40 + b"\x90"]), **LIMITS)
    with pytest.raises(ValueError, match="an array of 65 elements"):
        unpacked(Pieces([msgpack.packb([0] * 65)]), **LIMITS)
