"""Long messages in memory: bytes in pieces that are never joined, and msgpack that is written and read without a copy.

A frame of more than `WHOLE` bytes is `Pieces` wherever it is; a shorter one is plain bytes. What is packed keeps its
vectors as the pieces that they were given as, and what is unpacked has views of the frame in their place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

import msgpack

SHORT = 2**16
"""Bytes of a byte string from which on it is not copied when it is packed."""
WHOLE = 2**28
"""Bytes of the longest frame, packet and value of a journal that is handled as a whole. (Read at each use: a test may
make it small.)"""
SLICE = 2**31
"""Bytes at which a vector becomes several byte strings, of which msgpack allows none of 2³² bytes."""
ELEMENTS = 2**16
"""Elements, but byte strings' bytes, that a long frame may have."""
_DEPTH = 16
_ARRAYS = {0xDC: 2, 0xDD: 4}  # first byte → bytes of the length that follows
_STRINGS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_BINS = frozenset({0xC4, 0xC5, 0xC6})
_NUMBERS = {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}
_PLAIN = frozenset({int, float, str, bool, type(None)})
_packer = msgpack.Packer()

Bytes = bytes | memoryview


class Pieces:
    """A long string of bytes in pieces, whose memory is others' and must not change."""

    __slots__ = ("_ends", "_pieces")

    def __init__(self, pieces: Iterable[Bytes]) -> None:
        self._pieces = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        self._ends = list(accumulate(map(len, self._pieces)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __add__(self, tail: Frame) -> Pieces:
        return Pieces([*self._pieces, *buffers(tail)])

    def __radd__(self, head: bytes) -> Pieces:
        return Pieces([head, *self._pieces])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bytes | Pieces) and len(self) == len(other) and bytes(self) == bytes(other)

    __hash__ = None  # type: ignore[assignment]

    def __bytes__(self) -> bytes:
        return b"".join(self._pieces)

    def __getitem__(self, span: slice) -> bytes:
        """Return a copy of some bytes."""
        start, stop, _ = span.indices(len(self))
        return b"".join(self.between(start, stop))

    def __iter__(self) -> Iterator[memoryview]:
        """Yield the pieces."""
        return iter(self._pieces)

    def between(self, start: int, stop: int) -> Iterator[memoryview]:
        """Yield views that together are the bytes from `start` to before `stop`."""
        at = bisect_right(self._ends, start)
        while start < stop and at < len(self._pieces):
            piece = self._pieces[at]
            begin = self._ends[at] - len(piece)
            yield piece[start - begin : stop - begin]
            start = self._ends[at]
            at += 1

    def view(self, start: int, stop: int) -> memoryview:
        """Return these bytes: a view if they are of one piece, which vectors are, otherwise a copy."""
        views = list(self.between(start, stop))
        return views[0] if len(views) == 1 else memoryview(b"".join(views))


Frame = bytes | Pieces
"""The bytes of a message: `Pieces` if they are more than `WHOLE`."""


def buffers(frame: Frame | memoryview) -> Iterable[Bytes]:
    """Return the pieces of a frame."""
    return frame if isinstance(frame, Pieces) else (frame,)


def frame_of(pieces: list[Bytes]) -> Frame:
    """Return the frame that these pieces are."""
    return Pieces(pieces) if sum(map(len, pieces)) > WHOLE else b"".join(pieces)


def stored(frame: Frame) -> Any:
    """Return a frame as plain data that msgpack packs."""
    if not isinstance(frame, Pieces):
        return frame
    return [piece[at : at + SLICE] for piece in frame for at in range(0, len(piece), SLICE)]


def restored(plain: bytes | list[bytes]) -> Frame:
    """Return the frame that `stored` returned."""
    return plain if isinstance(plain, bytes) else frame_of(list(plain))


# -- msgpack


def packed(value: Any) -> Iterator[Bytes]:
    """Yield what `msgpack.packb` returns, in pieces: a long byte string, or a view, is a piece and is not copied."""
    holders = set[int]()
    _find([value], holders)
    return _packed(value, holders)


def _packed(value: Any, holders: set[int]) -> Iterator[Bytes]:
    if isinstance(value, bytes | memoryview) and len(value) >= SHORT:
        yield b"\xc6" + len(value).to_bytes(4, "big")  # msgpack's bin 32
        yield value
    elif id(value) not in holders:
        yield _packer.pack(value)
    elif isinstance(value, dict):
        yield _packer.pack_map_header(len(value))
        for key, each in value.items():
            yield _packer.pack(key)
            yield from _packed(each, holders)
    else:
        yield _packer.pack_array_header(len(value))
        for each in value:
            yield from _packed(each, holders)


def _find(values: Iterable[Any], holders: set[int]) -> bool:
    """Return whether a long byte string is in these values, whose arrays and maps that have one go to `holders`.

    A checkpoint has tuples of numbers of each client, so these are looked at once, and without a call for each.
    """
    is_there = False
    for value in values:
        kind = type(value)
        if kind in _PLAIN or (kind is tuple and _PLAIN.issuperset(map(type, value))):
            continue
        if isinstance(value, bytes | memoryview):
            is_there = is_there or len(value) >= SHORT
        elif isinstance(value, list | tuple | dict) and _find(
            value.values() if isinstance(value, dict) else value, holders
        ):
            holders.add(id(value))
            is_there = True
    return is_there


def unpacked(frame: Pieces, *, longest_array: int, longest_text: int) -> Any:
    """Return the value of a long frame of numbers, strings, byte strings and arrays; long byte strings are views.

    Raises:
        ValueError: it is none, has bytes after it, or exceeds a limit.
    """
    reader = _Reader(frame, longest_array, longest_text)
    value = reader.value(_DEPTH)
    if reader.at != len(frame):
        raise ValueError(f"{len(frame) - reader.at} bytes follow it")
    return value


class _Reader:
    def __init__(self, frame: Pieces, longest_array: int, longest_text: int) -> None:
        self.at = 0
        self._frame = frame
        self._left = ELEMENTS
        self._longest_array = longest_array
        self._longest_text = longest_text

    def value(self, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth == 0:
            raise ValueError(f"more than {ELEMENTS:,} elements, or {_DEPTH} arrays in each other")
        start = self.at
        (first,) = self._take(1)
        if 0x90 <= first < 0xA0:
            return self._array(first & 0x0F, depth)
        if first in _ARRAYS:
            return self._array(self._number(_ARRAYS[first]), depth)
        if first in _STRINGS:
            size = self._number(_STRINGS[first])
            if first in _BINS:
                data = self._take(size)
                return data if size >= SHORT else bytes(data)
            if size > self._longest_text:
                raise ValueError(f"a text of {size:,} bytes")
            self._take(size)
        elif 0xA0 <= first < 0xC0:
            self._take(first & 0x1F)
        elif first in _NUMBERS:
            self._take(_NUMBERS[first] - 1)
        elif not (first < 0x80 or first >= 0xE0):
            raise ValueError(f"an element of type {first:#x}")
        return msgpack.unpackb(self._frame.view(start, self.at))

    def _array(self, count: int, depth: int) -> list[Any]:
        if count > self._longest_array:
            raise ValueError(f"an array of {count:,} elements")
        return [self.value(depth - 1) for _ in range(count)]

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def _take(self, size: int) -> memoryview:
        start, self.at = self.at, self.at + size
        if self.at > len(self._frame):
            raise ValueError(f"it ends {self.at - len(self._frame):,} bytes too soon")
        return self._frame.view(start, self.at)
