"""Tables that somebody else hands over: rows without end, and very many columns, cost little and end in a sentence."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from seedbus.models.errors import DataError
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
