"""Tables and images that somebody else hands over: what would fill the memory, or end the process, is a sentence."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from seedbus.models.data.untrusted import csv_rows
from seedbus.models.errors import DataError
from seedbus.models.images.folder import decoded
from seedbus.models.partitions.file import File
from seedbus.models.tables.columns import TableFile
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.faults.device_speeds import DeviceSpeeds

READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a table": ("a,b", lambda path: TableFile(path).names),
    "a partition": ("client,row", lambda path: File(file=str(path)).split(np.arange(9), 2, 0)),
    "a trace": ("client,factor", lambda path: DeviceSpeeds(file=str(path)).lines(2)),
}
ENDLESS = {
    "zeros": b"",
    "cells": b"1,",
    "lines in quotation marks": b'1,"\n",',
}

# of texts and of lists, with sizes that contradict each other: pyarrow ends the process that asks for those of a column
CONTRADICTORY = {
    "texts": (
        "UEFSMRUEFRQVFEwVBBUAEgAAAQAAAHgBAAAAeRUAFRIVEiwVBBUQFQYVBhw2ACgBeRgBeBERAAAAAgAAAAQBAQMCFQQZLDUAGAZz"
        "Y2hlbWEVAgAVDCUDGAFhJQBMHAAAABYEGRwZHCYAHBUMGTUABhAZGAFhFQAWBBZ8FnwmOCYIHDYAKAF5GAF4EREAGSwVBBUAFQIA"
        "FQAVEBUCADwWBBkGGSYABAAAABZ8FgQmCBZ8ACggcGFycXVldC1jcHAtYXJyb3cgdmVyc2lvbiAyNi4wLjEZHBwAAACYAAAAUEFS"
        "MQ=="
    ),
    "lists": (
        "UEFSMRUAFSgVKCwVBBUAFQYVBhwAAAACAAAABAACAAAABAMBAAAAAgAAABUEGUw1ABgGc2NoZW1hFQIANQIYAWEVAhUGTDwAAAA1"
        "BBgEbGlzdBUCABUCJQIYB2VsZW1lbnQlHkysEwgRAAAAFgQZHBkcJgAcFQIZJQYAGTgBYQRsaXN0B2VsZW1lbnQVABYEFk4WTiYI"
        "SRwVABUAFQIAPCkmBAAZFgAAAAQAAAAWThYEJggWTgAoIHBhcnF1ZXQtY3BwLWFycm93IHZlcnNpb24gMjYuMC4xGRwcAAAAswAA"
        "AFBBUjE="
    ),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "cells", ["zeros", *(pytest.param(cells, marks=pytest.mark.slow) for cells in list(ENDLESS)[1:])]
)
def test_a_row_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path, reader: str, cells: str) -> None:
    header, read = READERS[reader]
    path, row = tmp_path / "table.csv", ENDLESS[cells]
    path.write_bytes(header.encode() + b"\n" + row * (5 * 2**20 // max(1, len(row))))
    os.truncate(path, 200 * 2**20)  # zeros that take no place on the disk
    tracemalloc.start()
    try:
        with pytest.raises((DataError, ScenarioError), match="a row has more than 4,194,304 characters"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()


def test_rows_may_be_as_many_as_they_like_and_a_row_of_several_lines_counts_by_its_last() -> None:
    row = '"' + "1" * 1000 + '\n",2\n'
    rows = list(csv_rows(io.StringIO(row * 5000, newline="")))
    assert len(rows) == 5000 and rows[-1] == (10_000, ["1" * 1000 + "\n", "2"])


@pytest.mark.slow
def test_a_table_may_have_a_hundred_thousand_columns_and_no_more(tmp_path: Path) -> None:
    path, began = tmp_path / "wide.csv", time.process_time()
    path.write_text(",".join(map(str, range(30_000))) + "\n" + ",".join(["1"] * 30_000) + "\n")
    table = TableFile(path)
    assert [table.column(name, "task.features")[0] for name in table.names[::5]] == [1.0] * 6_000
    path.write_text(",".join(map(str, range(100_001))) + "\n")
    with pytest.raises(DataError, match="100,001 columns; expected at most 100,000"):
        len(TableFile(path))
    path.write_text(",".join(map(str, range(99_999))) + ",7\n" + ",".join(["1"] * 100_000) + "\n")
    with pytest.raises(DataError, match="two columns 7"):
        TableFile(path).check("7", "task.target")
    assert time.process_time() - began < 20


@pytest.mark.slow
@pytest.mark.parametrize("cells", CONTRADICTORY)
def test_a_parquet_file_that_contradicts_itself_ends_no_process(tmp_path: Path, cells: str) -> None:
    path = tmp_path / "table.parquet"
    path.write_bytes(base64.b64decode(CONTRADICTORY[cells]))
    reading = f"""
from pathlib import Path
from seedbus.models.errors import DataError
from seedbus.models.tables.columns import TableFile
try:
    TableFile(Path({str(path)!r})).names
except DataError as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", reading], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"{path}: found a file that cannot be read (")


def test_equal_texts_of_a_table_are_one_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b\n" + "a text,1\n" * 50 + "another,1\n" * 50)
    cells = TableFile(path).column("a", "task.features")
    assert cells.tolist() == ["a text"] * 50 + ["another"] * 50 and len({id(cell) for cell in cells}) == 2


@pytest.mark.parametrize("size", [(65_536, 1), (1, 65_536)])
def test_an_image_that_is_a_long_strip_is_refused(tmp_path: Path, size: tuple[int, int]) -> None:
    """Such a strip, of few pixels, would become one of as many rows, each as wide as the resized image."""
    image = pytest.importorskip("PIL.Image", reason="images need pillow")
    path = tmp_path / "strip.png"
    image.new("L", size).save(path)
    with pytest.raises(DataError, match=r"\(.* pixels, and at most 65,535 of a side are accepted\)"):
        decoded([path], 28, 1)
    image.new("L", (65_535, 1)).save(path)
    assert decoded([path], 4, 1).shape == (1, 4, 4, 1)
