"""What all tests have in common."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from commands import Command, Said
from small_language import write_model, write_sets
from worlds import scenario

from seedbus.scenarios.cli import main as cli
from seedbus.scenarios.schema.yaml_text import dump

pytest.register_assert_rewrite("task_contract")


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`@pytest.mark.few(count)`: of a test's cases, the fast suite runs `count`, spread evenly; the rest are slow."""
    cases: dict[object, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few") is not None:
            cases.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    for found in cases.values():
        marker = found[0].get_closest_marker("few")
        assert marker is not None
        count = min(marker.args[0], len(found))
        kept = {number * len(found) // count for number in range(count)}
        for number, item in enumerate(found):
            if number not in kept:
                item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def _no_traces(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What data leaves in a cache goes into the tests' own folder, for the processes that they start too."""
    patch = pytest.MonkeyPatch()
    patch.setenv("SEEDBUS_CACHE", str(tmp_path_factory.mktemp("cache")))
    patch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def opt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny language model."""
    pytest.importorskip("transformers", reason="language models need transformers")
    pytest.importorskip("peft", reason="language models need peft")
    return write_model(tmp_path_factory.mktemp("opt"))


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all text data sets, a few samples each."""
    return write_sets(tmp_path_factory.mktemp("texts"))


@pytest.fixture
def make(opt: Path, texts: Path) -> Any:
    """Makes tasks on the tiny model and the tiny sets."""

    def made(dataset: str = "sst2", **fields: Any) -> Any:
        chosen = {"model": str(opt), "dataset": dataset, "data": str(texts / dataset), "answer_tokens": 4}
        from seedbus.models.tasks.language_model import LanguageModel

        return LanguageModel.model_validate(chosen | fields)

    return made


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, where there is one: for thousands of files of which none is worth a disk."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(prefix="seedbus-", dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
def seedbus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in this process, in a folder with a small scenario in small.yaml."""
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(dump(scenario(stop={"rounds": 5}).resolved()), encoding="utf-8")

    def call(*arguments: Any) -> Said:
        monkeypatch.setattr(sys, "argv", ["seedbus", *map(str, arguments)])
        with pytest.raises(SystemExit) as raised:
            cli.main()
        captured = capsys.readouterr()
        return Said(int(raised.value.code or 0), captured.out, captured.err)

    return call
