"""Rows of a data set that an owner has, and rows that are nobody's."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedbus.models.generators import generator
from seedbus.models.hub.rows import Columns, Row
from seedbus.models.partitions.own import SPECIMENS

_SIDE = 32  # pixels
_TEXT = "the {number} best of all, a great journey; or the worst, as they say"


def nobodys_rows(columns: Columns, classes: int) -> list[Row]:
    """Return rows that are nobody's: noise as images, sentences as texts, and a class after the other."""
    count = max(SPECIMENS, classes)
    source = [_content(columns, number) for number in range(count)]
    return [Row(source, number, number % max(1, classes), -1) for number in range(count)]


def kept(rows: list[Row]) -> list[Row]:
    """Return rows with what they hold in memory, so that a file that changes afterwards changes nothing of a run."""
    source = [
        {name: _kept_image(value) if isinstance(value, dict) else value for name, value in row.content.items()}
        for row in rows
    ]
    return [Row(source, number, row.label, row.owner) for number, row in enumerate(rows)]


def _kept_image(image: Mapping[str, Any]) -> dict[str, Any]:
    return {"bytes": _bytes(image), "path": None}


def content_of(row: Row) -> bytes:
    """Return what a row is, wherever it is read."""
    values = [
        _bytes(value) if isinstance(value, dict) else repr(value).encode() for _, value in sorted(row.content.items())
    ]
    return b"\0".join([b"%d" % row.label, *values])


def _bytes(image: Mapping[str, Any]) -> bytes:
    return bytes(image["bytes"]) if image["bytes"] is not None else Path(image["path"]).read_bytes()


def _content(columns: Columns, number: int) -> dict[str, Any]:
    texts = {str(name): _TEXT.format(number=number) for name in (columns.text, columns.text_pair) if name is not None}
    if columns.image is None:
        return texts
    from PIL import Image

    file = io.BytesIO()
    pixels = generator("specimens", "hugging-face", number).integers(0, 256, (_SIDE, _SIDE, 3), dtype="uint8")
    Image.fromarray(pixels).save(file, format="png")
    return {**texts, columns.image: {"bytes": file.getvalue(), "path": None}}
