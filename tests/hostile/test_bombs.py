"""Files that claim to be large: they are refused before they take memory, in a sentence with their size.

Each test measures what a process takes at most: Python's memory here, all of it in a process of its own.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_language import write

from seedbus import bounded
from seedbus.bus.errors import BadKey
from seedbus.bus.files import read
from seedbus.bus.zeromq.keys import read_table
from seedbus.models.data.leaf import _users
from seedbus.models.data.untrusted import csv_rows, safetensors_header
from seedbus.models.errors import DataError
from seedbus.models.hub.rows import _check_texts
from seedbus.models.partitions.file import _parsed
from seedbus.models.text.files import _rows
from seedbus.models.text.foreign import _check_sizes
from seedbus.models.text.weights import header_in, inspect_pretrained, json_in
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.predict import predict
from seedbus.scenarios.schema.loading import load
from seedbus.studies.study.schema import load_study

HUGE = 2**31
MOST_MEMORY = 48 * 2**20  # of a file of 2 GB
START = {"zeros": b"", "an object": b'{"a": "', "a line": b"sentence\tlabel\n"}


def sparse(path: Path, start: bytes = b"", size: int = HUGE) -> Path:
    """Write a file that begins with some bytes, and goes on with zeros that take no place on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(start)
    os.truncate(path, size)
    assert path.stat().st_blocks * 512 < 2**20
    return path


def memory_of(work: Callable[[], object], *errors: type[Exception]) -> tuple[int, str]:
    """Return how much memory Python takes at most while it refuses to do something, and the sentence."""
    tracemalloc.start()
    try:
        with pytest.raises(errors) as raised:
            work()
        return tracemalloc.get_traced_memory()[1], str(raised.value)
    finally:
        tracemalloc.stop()


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "results": ("results.json", lambda path: read(path, 2**32)),
    "model's configuration": ("config.json", lambda path: json_in(path, "a JSON object")),
    "tokenizer": ("tokenizer.json", lambda path: _check_sizes(path.parent)),
    "LEAF": ("all_data.json", _users),
    "TSV": ("train.tsv", lambda path: list(_rows(path))),
    "JSON lines": ("train.jsonl", lambda path: list(_rows(path))),
    "SQuAD": ("train.json", lambda path: list(_rows(path))),
    "data set": ("train.csv", lambda path: _check_texts(path.parent)),
    "partition": ("parts.csv", lambda path: list(_parsed(path, 10))),
    "keys": ("authorised.toml", read_table),
    "scenario": ("scenario.yaml", load),
    "study": ("study.yaml", load_study),
}


@pytest.mark.parametrize("start", START)
@pytest.mark.parametrize("name", READERS)
def test_a_text_of_two_gigabytes_of_zeros_is_refused_and_takes_no_memory(tmp_path: Path, name: str, start: str) -> None:
    file, reads = READERS[name]
    path = sparse(tmp_path / file, START[start])
    taken, sentence = memory_of(lambda: reads(path), OSError, DataError, ScenarioError, BadKey)
    assert taken < MOST_MEMORY and path.name in sentence and "\n" not in sentence


def test_a_text_says_its_size_and_its_bound_or_where_it_is_none(tmp_path: Path) -> None:
    path = sparse(tmp_path / "a.json", b"{}")
    for most, sentence in (
        (2**24, "it has 2,147,483,648 bytes; at most 16,777,216 are read"),
        (2**31, "it has 2,147,483,648 bytes, and the one at 2 is 0, as in no text"),
    ):
        with path.open("rb") as file, pytest.raises(OSError, match=sentence):
            bounded.read_text(file, most)
    path.write_bytes(b"1" * (2**20 + 5))
    with path.open("rb") as file:
        assert bounded.read_text(file, 2**24) == path.read_bytes()


def test_a_text_that_grows_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"1" * 2**20)
    with path.open("rb") as file:
        chunks = bounded.text_chunks(file, 2**20 + 10)
        assert next(chunks) == path.read_bytes()
        with path.open("ab") as more:
            more.write(b"1" * 11)
        with pytest.raises(OSError, match=r"it has more than 1,048,586 bytes"):
            next(chunks)


def test_a_row_of_csv_text_that_does_not_end_is_refused() -> None:
    """No cell of it is long, and each is a text of its own in memory."""
    with pytest.raises(ValueError, match="a row has more than 4,194,304 characters"):
        list(csv_rows(io.StringIO("1," * (2**21 + 1))))


def header(tensors: int) -> bytes:
    """Return the begin of a safetensors file of so many tensors of no size."""
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    text = json.dumps({f"w{number}": entry for number in range(tensors)}).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    ("start", "sentence"),
    [
        (header(900_000), r"it announces a header of 6\d,\d+,\d+ bytes, of 6\d,\d+,\d+ that are there; at most 16,777"),
        (header(120_000), "120,000 tensors; at most 100,000 are read"),
        ((2**40).to_bytes(8, "little"), "it announces a header of 1,099,511,627,776 bytes, of 0 that are there"),
        ((2**24).to_bytes(8, "little") + b"{}", "it announces a header of 16,777,216 bytes, of 2 that are there"),
    ],
    ids=["900,000", "120,000", "a terabyte", "cut off"],
)
def test_a_header_of_safetensors_is_believed_after_a_look(tmp_path: Path, start: bytes, sentence: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(start)
    write(tmp_path / "config.json", json.dumps({"model_type": "llama"}))
    for reads in (header_in, lambda path: inspect_pretrained(str(path.parent)), lambda path: predict(path, "a.csv")):
        with pytest.raises(DataError, match=rf"model\.safetensors: found .*{sentence}"):
            reads(path)
    if "announces" in sentence:
        assert memory_of(lambda: safetensors_header(path), OSError)[0] < 2**20


def test_an_image_of_few_bytes_and_many_pixels_is_not_decoded() -> None:
    """Pillow itself refuses twice as many."""
    networks = pytest.importorskip("seedbus.models.hub.networks", reason="foreign images need torch")
    image = pytest.importorskip("PIL.Image", reason="foreign images need Pillow")
    file = io.BytesIO()
    image.new("1", (12_000, 9_000)).save(file, "PNG")
    content = {"image": {"bytes": file.getvalue(), "path": None}}
    task = SimpleNamespace(columns=SimpleNamespace(image="image"), dataset="a-set")
    classifier: Any = SimpleNamespace(task=task, processor=None)
    work = partial(networks.ImageClassifier.encode, classifier, SimpleNamespace(number=7, content=content))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tests, they are errors anyway
        taken, sentence = memory_of(work, DataError)
    assert taken < 2**20 and "an image in row 7 that cannot be read (Image size (108000000 pixels) exceeds" in sentence


PARQUET = """
import resource, sys, pyarrow.parquet
from pathlib import Path
from seedbus.{module} import {name}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    {call}
except Exception as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, type(error).__name__, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "call"),
    [
        ("models.tables.columns", "TableFile", "TableFile(Path(sys.argv[1])).names"),
        ("models.hub.rows", "_check_sizes", "_check_sizes(Path(sys.argv[1]).parent)"),
        ("bus.ledger", "read_ledger", "read_ledger(Path(sys.argv[1]).parent)"),
    ],
)
def test_a_parquet_file_that_announces_a_footer_of_a_gigabyte_takes_no_memory(
    tmp_path: Path, module: str, name: str, call: str
) -> None:
    path = sparse(tmp_path / "000000.parquet", b"PAR1", 2**31 - 8)
    with path.open("ab") as file:
        file.write((2**30).to_bytes(4, "little") + b"PAR1")
    program = PARQUET.format(module=module, name=name, call=call)
    answer = subprocess.run(
        [sys.executable, "-P", "-c", program, str(path)], check=True, capture_output=True, text=True
    )
    taken, _, sentence = answer.stdout.partition(" ")
    assert int(taken) < 64 * 2**10 and "it announces a footer of 1,073,741,824 bytes; at most 16,777,216" in sentence
