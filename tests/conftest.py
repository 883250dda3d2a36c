"""Fixtures and hooks of all tests."""

from __future__ import annotations

import functools
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import typer.main
from commands import Command, CommandResult
from hypothesis import settings
from small_data import all_sets
from small_hub import MODELS, write_hub_model, write_images, write_texts
from small_language import write_model, write_sets
from warm_command import warm
from worlds import scenario

from seedbus.cli import main as cli
from seedbus.scenarios.launchers import local
from seedbus.scenarios.reporting import meter
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.studies.study import pool

pytest.register_assert_rewrite("task_contract")

# Whether a property holds is no question of how long an example takes on a machine that others use too.
settings.register_profile("seedbus", deadline=None)
settings.load_profile("seedbus")

# A shell has its background jobs ignore Ctrl-C, and so would all processes that tests start. The handling is restored
# here, not by each process between fork and exec: there, Python code can wait forever for a lock of another thread.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Temporary folders that are not pytest's own are where those are, perhaps in memory: a journal waits for a disk.
if root := os.environ.get("PYTEST_DEBUG_TEMPROOT"):
    os.environ["TMPDIR"] = tempfile.tempdir = root

get_command = functools.cache(typer.main.get_command)
"""The command's tree of options, which a process makes once; tests run hundreds of commands in theirs."""

TIMEOUTS_S = {"soak": 12 * 3600, "slow": 900}
"""What a test may take by its mark, unless it says so itself; for all others pyproject.toml has `timeout`."""

APART = ("tests/test_documents.py::test_every_command_of_a_page", "tests/test_examples.py::")
"""Cases that share nothing, so that processes share them."""
TOGETHER = ("tests/models/text/", "tests/models/hub/")
"""Folders whose files one process runs, because what they import takes long."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give processes whole files, as --dist loadfile says; but `APART` case by case, and `TOGETHER` by folder."""
    from xdist.scheduler import LoadScopeScheduling

    def unit(test: str) -> str:
        if test.startswith(APART):
            return test
        return next((folder for folder in TOGETHER if test.startswith(folder)), test.partition("::")[0])

    if config.getoption("dist") != "loadfile":
        return None
    scheduling = LoadScopeScheduling(config, log)
    scheduling._split_scope = unit
    return scheduling


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the sentences of tests/mistakes anew, for git diff")
    parser.addoption(
        "--exact", action="store_true", help="pages were printed on a processor like this: only times may differ"
    )


@pytest.hookimpl(tryfirst=True)  # before pytest deselects slow tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Apply `@pytest.mark.few(count, slow=…)` and `TIMEOUTS_S`.

    Of a test's cases that are not in the soak suite, `count`, spread evenly, are not slow. Of the others so many as
    `slow` says, spread evenly too, are; the rest is in the soak suite. Without `slow` all of them are slow.
    """
    cases: dict[object, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few") is not None and item.get_closest_marker("soak") is None:
            cases.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    for items_of_test in cases.values():
        marker = items_of_test[0].get_closest_marker("few")
        assert marker is not None
        others = _without_spread(items_of_test, marker.args[0])
        later = _without_spread(others, marker.kwargs.get("slow", len(others)))
        for item in others:
            item.add_marker(pytest.mark.soak if item in later else pytest.mark.slow)
    for item in items:
        longest = next((seconds for mark, seconds in TIMEOUTS_S.items() if item.get_closest_marker(mark)), None)
        if longest is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(longest))


def _without_spread(items: list[pytest.Item], count: int) -> list[pytest.Item]:
    """Return what is left of cases when `count` of them, spread evenly, are taken."""
    taken = {number * len(items) // count for number in range(min(count, len(items)))}
    return [item for number, item in enumerate(items) if number not in taken]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what would begin after $SEEDBUS_TESTS_END, in seconds since 1970, so that a slow machine ends in time."""
    if time.time() > float(os.environ.get("SEEDBUS_TESTS_END", "inf")):
        pytest.skip("no time was left for it")


@pytest.fixture(scope="session", autouse=True)
def _no_traces(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep cached data in the tests' own folder and the Hugging Face libraries offline, in child processes too."""
    patch = pytest.MonkeyPatch()
    patch.setenv("SEEDBUS_CACHE", str(tmp_path_factory.mktemp("cache")))
    patch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Torch computes on one thread, as in a run."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def small_sets(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Iterator[None]:
    """A few samples of each data set in the data folder."""
    root = tmp_path_factory.mktemp("data")
    all_sets(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEDBUS_DATA", str(root))
        yield


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
    """A function that makes language-model tasks on the tiny model and the tiny data sets."""

    def make_task(dataset: str = "sst2", **fields: Any) -> Any:
        defaults = {"model": str(opt), "dataset": dataset, "data": str(texts / dataset), "answer_tokens": 4}
        from seedbus.models.tasks.language_model import LanguageModel

        return LanguageModel.model_validate(defaults | fields)

    return make_task


@pytest.fixture(scope="session")
def hub_data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of a data set of images and one of texts."""
    pytest.importorskip("datasets", reason="data sets of the hub need datasets")
    pytest.importorskip("PIL", reason="images need pillow")
    root = tmp_path_factory.mktemp("hub")
    return {"images": write_images(root / "images"), "texts": write_texts(root / "texts")}


@pytest.fixture(scope="session")
def hub_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns the folder of a tiny model, written once."""
    pytest.importorskip("transformers", reason="models of the hub need transformers")
    pytest.importorskip("peft", reason="low-rank additions need peft")
    written: dict[str, Path] = {}

    def folder_of(name: str) -> Path:
        if name not in written:
            written[name] = write_hub_model(tmp_path_factory.mktemp(name), name)
        return written[name]

    return folder_of


@pytest.fixture
def described(hub_model: Callable[[str], Path], hub_data: dict[str, Path]) -> Callable[..., Any]:
    """A function that returns the fields of a task on a tiny model."""

    def fields_of(name: str, **changes: Any) -> dict[str, Any]:
        head = MODELS[name][0]
        columns = {
            "image-classification": {"image": "image", "label": "label"},
            "sequence-classification": {"text": "sentence", "label": "label"},
            "causal-lm": {"text": "sentence"},
        }[head]
        data = hub_data["images" if "image" in head else "texts"]
        fields = {"name": "hugging-face", "model": str(hub_model(name)), "head": head, "dataset": str(data)}
        return fields | {"columns": columns, "batch_size": 4} | changes

    return fields_of


@pytest.fixture
def make_hub(described: Any) -> Callable[..., Any]:
    """A function that makes tasks on tiny models."""
    from seedbus.models.tasks.hugging_face import HuggingFace

    return lambda name, **changes: HuggingFace.model_validate(described(name, **changes))


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory if the system has one, for tests that write thousands of files."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(prefix="seedbus-", dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
def seedbus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """A function that runs the command in this process, in a folder with a small scenario in small.yaml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.nice", lambda more: 0)  # a client's would be that of all tests after it
    monkeypatch.setattr(meter, "FIRST_LINE_S", math.inf)  # what it prints is compared to the letter
    Path("small.yaml").write_text(dump(scenario(stop={"rounds": 5}).resolved()), encoding="utf-8")

    def call(*arguments: Any) -> CommandResult:
        monkeypatch.setattr(sys, "argv", ["seedbus", *map(str, arguments)])
        monkeypatch.setattr("typer.main.get_command", get_command)
        with pytest.raises(SystemExit) as raised:
            cli.main()
        captured = capsys.readouterr()
        return CommandResult(int(raised.value.code or 0), captured.out, captured.err)

    return call


class _Warm:
    """What the pool of a study asks for its interpreter."""

    @property
    def executable(self) -> str:
        return str(warm() / "seedbus")


@pytest.fixture(scope="session", autouse=True)
def _warm_studies() -> Iterator[None]:
    """The processes of a study are forks of one that has imported what they need, unless a test has `cold_studies`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "sys", _Warm())
        yield


@pytest.fixture
def cold_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of a study are its own, which are gone when they are killed."""
    monkeypatch.setattr(pool, "sys", sys)


@pytest.fixture
def warm_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes are forks, too, for tests that send them no other signal than SIGKILL."""
    monkeypatch.setattr(local, "COMMAND", [str(warm() / "seedbus"), "client", "--parent-pipe"])


@pytest.fixture
def no_plugins() -> Iterator[None]:
    """Forget after the test the plug-ins that it loaded."""
    from plugin_files import forget

    yield
    forget()
