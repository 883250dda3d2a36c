"""The header of a GGUF file: what it says about a model, and where each tensor lies in it.

A file has a mark, a version and two counts, then its fields (a name, a type and a value each), then a name, a shape, a
type and a place for each tensor, then the tensors. All numbers are little-endian.

The invariant: no count, length or size in the file is believed before it was compared with the bytes that are there. So
a file takes memory in proportion to its length, and what is returned describes tensors that are wholly in the file and
do not overlap.
"""

from __future__ import annotations

import math
import os
import reprlib
import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from seedbus.models.data.untrusted import regular
from seedbus.models.errors import DataError

SUFFIX = ".gguf"
_MARK, _VERSIONS = b"GGUF", (2, 3)
_LONGEST_HEADER = 2**27  # bytes; a vocabulary of 256,000 tokens with its merges has 12 MB
_MOST_FIELDS, _MOST_TENSORS, _MOST_IN_ARRAY = 4_096, 100_000, 2**22
_LONGEST_NAME, _LONGEST_TEXT = 2**16, 2**24
_MOST_DIMENSIONS = 4
_ALIGNMENT, _MOST_ALIGNED = 32, 2**16
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9


class Place(NamedTuple):
    """Where a tensor lies in its file.

    Attributes:
        shape: its shape, the rows first.
        kind: the number of its type, a `gguf.GGMLQuantizationType`.
        begin: of its bytes, from the begin of the file.
        size: their number.
    """

    shape: tuple[int, ...]
    kind: int
    begin: int
    size: int


class Header(NamedTuple):
    """The fields of a file, and the places of its tensors, by name."""

    fields: dict[str, Any]
    tensors: dict[str, Place]


def read_header(path: Path) -> Header:
    """Return the header of a GGUF file. Raises `DataError`."""
    try:
        with regular(path).open("rb") as file:
            return _header(file)
    except DataError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(
            path, f"no GGUF file that can be read ({why})", "a complete GGUF file, version 2 or 3"
        ) from None


def block(kind: int) -> tuple[int, int] | None:
    """Return how many weights a block of a type has, and how many bytes; None: there is no such type.

    Raises:
        DataError: the package gguf is not installed.
    """
    try:
        from gguf import GGML_QUANT_SIZES
    except ImportError as error:
        raise DataError("task.model", f"no package gguf ({error})", '`pip install "seedbus[hub]"`') from error
    return next((sizes for known, sizes in GGML_QUANT_SIZES.items() if known == kind), None)


class _Reader:
    """Reads the values of a header, whose length is limited by the file's."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.length = os.fstat(file.fileno()).st_size
        self._left = min(self.length, _LONGEST_HEADER)

    def bytes(self, count: int) -> bytes:
        self._left -= count
        if self._left < 0 or len(found := self._file.read(count)) < count:
            raise ValueError(f"its header announces more than its {self.length:,} bytes have")
        return found

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.bytes(struct.calcsize(form)))[0]

    def count(self, what: str, most: int, form: str = "Q") -> int:
        count: int = self.number(form)
        if count > most:
            raise ValueError(f"it announces {count:,} {what}, and at most {most:,} are read")
        return count

    def text(self, most: int = _LONGEST_TEXT) -> str:
        return self.bytes(self.count("bytes of a text", most)).decode()

    def value(self) -> Any:
        """Return a field's value: a number, a text, or a list of them."""
        kind = self.number("I")
        if kind != _ARRAY:
            return self.text() if kind == _TEXT else self.number(_form(kind))
        kind, count = self.number("I"), self.count("values of a field", _MOST_IN_ARRAY)
        if kind == _TEXT:
            return [self.text() for _ in range(count)]
        form = f"{count}{_form(kind)}"
        return list(struct.unpack(f"<{form}", self.bytes(count * struct.calcsize(_form(kind)))))

    def position(self) -> int:
        return self._file.tell()


def _header(file: BinaryIO) -> Header:
    reader = _Reader(file)
    if reader.bytes(len(_MARK)) != _MARK:
        raise ValueError("it does not begin with GGUF")
    if (version := reader.number("I")) not in _VERSIONS:
        raise ValueError(f"its version is {version}")
    tensors, count = reader.count("tensors", _MOST_TENSORS), reader.count("fields", _MOST_FIELDS)
    fields: dict[str, Any] = {}
    for _ in range(count):
        name = _new(reader, fields)
        fields[name] = reader.value()
    places: dict[str, Place] = {}
    for _ in range(tensors):
        name = _new(reader, places)
        places[name] = _place(reader, name)
    return Header(fields, _moved(places, reader, fields.get("general.alignment", _ALIGNMENT)))


def _new(reader: _Reader, known: dict[str, Any]) -> str:
    name = reader.text(_LONGEST_NAME)
    if name in known:
        raise ValueError(f"it has {reprlib.repr(name)} twice")
    return name


def _form(kind: int) -> str:
    if kind not in _NUMBERS:
        raise ValueError(f"a field has the type {kind}, of which there is none")
    return _NUMBERS[kind]


def _place(reader: _Reader, name: str) -> Place:
    """Return the place of a tensor, counted from the first one."""
    dimensions = reader.count(f"dimensions of {reprlib.repr(name)}", _MOST_DIMENSIONS, "I")
    shape = tuple(reader.number("Q") for _ in range(dimensions))[::-1]
    kind, begin = reader.number("I"), reader.number("Q")
    if (sizes := block(kind)) is None:
        raise ValueError(f"{reprlib.repr(name)} has the type {kind}, of which there is none")
    weights, size = sizes
    if not shape or shape[-1] % weights:
        raise ValueError(f"{reprlib.repr(name)} has the shape {shape} and blocks of {weights} weights")
    return Place(shape, kind, begin, math.prod(shape) // weights * size)


def _moved(places: dict[str, Place], reader: _Reader, alignment: Any) -> dict[str, Place]:
    """Return the places counted from the begin of the file, all of them within it and none over another."""
    if not isinstance(alignment, int) or not 0 < alignment <= _MOST_ALIGNED:
        raise ValueError(f"general.alignment is {reprlib.repr(alignment)}, no whole number from 1 to {_MOST_ALIGNED}")
    end = first = -(-reader.position() // alignment) * alignment
    moved = {name: place._replace(begin=first + place.begin) for name, place in places.items()}
    for name, place in sorted(moved.items(), key=lambda entry: entry[1].begin):
        if place.begin < end:
            raise ValueError(f"{reprlib.repr(name)} begins within another tensor")
        end = place.begin + place.size
        if end > reader.length:
            found = f"{reprlib.repr(name)} of shape {place.shape} ends at byte {end:,}"
            raise ValueError(f"{found}, and the file has {reader.length:,}")
    return moved
