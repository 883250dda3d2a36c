"""Each mistake in a file that a user gives is one sentence with the file's name, and leaves nothing behind."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from mistake_files import FOLDER, Said, check
from scenario_files import SMALL
from small_language import ROWS, write

from seedbus.bus.errors import BadKey
from seedbus.bus.zeromq.keys import Table, read_table
from seedbus.discovery import PLUGINS
from seedbus.models.errors import DataError
from seedbus.models.tasks.language_model import LanguageModel
from seedbus.models.text.files import read
from seedbus.plugin import load_plugin
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.own_data import with_own
from seedbus.scenarios.running.prepare import bind
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.yaml_text import NotPlain, parse

DOCUMENT: dict[str, Any] = yaml.safe_load(SMALL)


def keys(path: Path, _: list[str]) -> None:
    """Read a table of keys, which admits nobody where it cannot be read."""
    path.chmod(0o600)
    try:
        read_table(path)
    except BadKey as error:
        with pytest.raises(BadKey) as again:
            Table(path)
        assert str(again.value) == str(error)
        raise


def own_tables(path: Path, settings: list[str]) -> None:
    bind(with_own(load(DOCUMENT, settings), str(path), [1], evaluates=False))


def own_texts(path: Path, settings: list[str]) -> None:
    task: Any = load(DOCUMENT, settings).task
    task.read_own(path)


def benchmark(path: Path, _: list[str]) -> None:
    write(Path("val.jsonl"), json.dumps(ROWS["rte"][0]))
    read("rte", ".")


def model_files(path: Path, _: list[str]) -> object:
    if path.name != "config.json":
        write(Path("config.json"), json.dumps({"model_type": "llama"}))
    return LanguageModel(model=".").dimension


READERS: dict[str, Callable[[Path, list[str]], object]] = {
    "benchmarks": benchmark,
    "data": lambda path, settings: run(load(DOCUMENT, settings), "run"),
    "keys": keys,
    "model_files": model_files,
    "own_tables": own_tables,
    "own_texts": own_texts,
    "plug_ins": lambda path, _: load_plugin(path),
    "scenarios": load,
    "yaml": lambda path, _: parse(path.read_text(encoding="utf-8")),
}
"""What reads the file, by the name of the file of mistakes."""


@pytest.mark.parametrize("file", READERS)
@pytest.mark.usefixtures("no_plugins")
def test_each_mistake_in_a_file_gets_its_sentence(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEEDBUS_CACHE", "cache")
    monkeypatch.delenv("SEEDBUS_DATA", raising=False)

    def said(block: dict[str, Any], typed: str) -> Said:
        path = Path(block["file"])
        path.write_text(typed, encoding="utf-8")
        told: list[str] = []
        try:
            READERS[file](path, block.get("set", []))
        except (BadKey, DataError, NotPlain, ScenarioError) as error:
            told = str(error).replace(f"{tmp_path}/", "").split("\n")
        assert all(sentence.replace("\t", " ").isprintable() for sentence in told)
        assert not PLUGINS and not Path("run").exists()
        return told[0] if len(told) == 1 else told or None

    check(f"files/{file}", said, pytestconfig.getoption("update"))


TRACE, TABLE = "faults=[{fault: trace, file: it}]", "task={name: table, file: it, target: y}"
UNREADABLE: list[tuple[str, list[str], bytes, str]] = [
    ("data", [TRACE], b"client,from_s,to_s\n1,\xff,2\n", "it cannot be read as CSV text"),
    ("data", [TRACE], b'client,from_s,to_s\n1,"' + b"x" * 200_000, "it cannot be read as CSV text (field larger than"),
    ("data", [TABLE], b"\x89PNG\r\n\x1a\n\0\0", "found a file that cannot be read ("),
    ("data", [TABLE], b"PAR1 and no more", "found a file that cannot be read ("),
    ("data", [TABLE], gzip.compress(bytes(range(1, 127)), mtime=0)[:90], "found a file that cannot be read ("),
    ("keys", [], b"\xff\xfe", "it is no text"),
    ("keys", [], b"x = " + b"[" * 50_000, "a table of keys in TOML"),
    ("model_files", [], b"[" * 100_000, "a file that cannot be read (it is nested too deeply); expected a JSON object"),
    ("benchmarks", [], b"[" * 100_000, "a file that cannot be read (it is nested too deeply); expected the file"),
    ("scenarios", [], b"\x00\x01\xff", "it is not UTF-8 text: it holds the byte 0xff at 2"),
    ("scenarios", [], SMALL.encode("utf-16"), "it is not UTF-8 text: it holds the byte 0xff at 0"),
    ("yaml", [], b"[" * 1500 + b"]" * 1500, "it is nested too deeply"),
]


@pytest.mark.parametrize(("file", "settings", "content", "sentence"), UNREADABLE)
def test_a_file_that_is_no_text_or_too_deep_is_one_sentence(
    file: str, settings: list[str], content: bytes, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path({"benchmarks": "train.jsonl", "model_files": "config.json"}.get(file, "it"))
    path.write_bytes(content)
    with pytest.raises((BadKey, DataError, NotPlain, ScenarioError)) as raised:
        READERS[file](path, settings)
    assert sentence in str(raised.value) and str(raised.value).isprintable() and len(str(raised.value)) < 600
    assert not Path("run").exists()


def test_every_file_of_mistakes_has_what_reads_it() -> None:
    assert READERS.keys() == {path.stem for path in (FOLDER / "files").glob("*.yaml")}
