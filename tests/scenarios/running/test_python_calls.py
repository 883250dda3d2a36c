"""Mistakes in calls of the Python API are sentences, and Ctrl-C ends a run that a coroutine calls."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from processes import wait_for
from worlds import go, scenario

import seedbus
from seedbus.agents.observer import NullObserver
from seedbus.models.errors import DataError
from seedbus.scenarios.errors import Interrupted
from seedbus.scenarios.reporting.results import Results


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("python") / "run"
    go(folder, scenario(stop={"rounds": 2}))
    return folder


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


NESTED, CIRCLE = nested(100_000), list[Any]()
CIRCLE.append(CIRCLE)
ANY: Any = seedbus  # calls that a type checker would refuse


def test_a_device_that_is_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="found 3; expected cpu"):
        ANY.run(scenario(), tmp_path / "run", device=3)


def test_folders_are_paths_or_texts_and_one_needs_no_list(run: Path) -> None:
    assert seedbus.compare(str(run)).rows == seedbus.compare([run]).rows
    assert Results.read(str(run)).digest == Results.read(run).digest


def test_rounds_may_come_from_a_data_frame_and_one_needs_no_list(run: Path) -> None:
    last = Results.read(run).metrics["round"].iloc[-1] + 1
    assert seedbus.replay(run, last).digest == Results.read(run).digest
    assert seedbus.compare(run, at=last).rows == seedbus.compare(run, at=[2]).rows
    assert seedbus.compare(run, at=(each for each in [2])).at == [2]  # type: ignore[arg-type]


def test_one_round_and_one_instrument_need_no_list(run: Path) -> None:
    (found,) = seedbus.analyse(run, 2, only="spectrum", page=False)
    (again,) = seedbus.analyse(str(run), [2], only=["spectrum"], page=False)
    assert (found.name, found.facts) == ("spectrum", again.facts) and found.facts["rounds"][0]["round"] == 2


def test_a_replayed_model_is_shown_in_a_few_words(run: Path) -> None:
    """A notebook shows what a cell returns, and its coordinates would fill the page."""
    assert repr(seedbus.replay(run)) == "Replayed(round=2)"


def test_a_comparison_is_shown_in_a_few_words(run: Path) -> None:
    rows = "rows=[Row(name='small')]"
    assert (
        repr(seedbus.compare(run)) == f"Comparison(metric='loss', target=None, smoothed=False, at=[], {rows}, notes=[])"
    )


@pytest.mark.parametrize("is_notebook", [False, True])
def test_ctrl_c_ends_a_run_that_a_coroutine_calls(tmp_path: Path, is_notebook: bool) -> None:
    """The loop around it takes the signal, and could only cancel the task that waits for the run."""

    def handle_sigint(*_: object) -> None:
        """A notebook's handler for cells that await."""

    handle_sigint.__module__ = "ipykernel.ipkernel"

    def press() -> None:
        lines = tmp_path / "run" / "metrics.jsonl"
        wait_for(lambda: lines.exists() and lines.stat().st_size > 0)  # the run is under way, and listens
        os.kill(os.getpid(), signal.SIGINT)

    async def calls() -> Results:
        if is_notebook:
            signal.signal(signal.SIGINT, handle_sigint)
        threading.Thread(target=press, daemon=True).start()
        return seedbus.run(scenario(stop={"rounds": 10**6}), tmp_path / "run", page=False)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as raised:
        asyncio.run(calls())
    assert isinstance(raised.value, Interrupted)
    assert signal.getsignal(signal.SIGINT) == (handle_sigint if is_notebook else before)
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("source", ["evaluator", "peer"])
def test_the_bytes_of_clients_are_those_of_the_traffic(tmp_path: Path, source: str) -> None:
    what = scenario(
        task={"name": "quadratic", "dimension": 500},
        participation={"clients": 6, "cohort": 2},
        lag={"snapshot_after_commits": 2, "source": source},
        stop={"rounds": 12},
    )
    results = go(tmp_path / "run", what)
    traffic, clients = results.summary["traffic"], results.clients
    assert traffic["by_kind"]["snapshot"]["bytes"] > 2_000, "a model of 500 float32 numbers"
    assert clients.bytes_up.sum() == traffic["up"]["bytes"] and clients.bytes_down.sum() == traffic["down"]["bytes"]
    assert (clients.catchup_bytes <= clients.bytes_down).all() and clients.catchup_bytes.sum() == traffic[
        "catchup_bytes"
    ]


def test_a_program_may_change_its_working_directory_during_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run in the new directory, of the same name, is neither written nor read."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()

    class Moves(NullObserver):
        def round_closed(self, *closed: Any) -> None:
            monkeypatch.chdir(there)

    monkeypatch.chdir(there)
    seedbus.run(scenario(seed=9), "run", page=False)
    before = (there / "run" / "results.json").read_bytes()
    monkeypatch.chdir(here)
    results = seedbus.run(scenario(), "run", observer=Moves(), page=False)
    assert (there / "run" / "results.json").read_bytes() == before
    assert results.folder == here / "run" and results.summary["run"] == "run"
    assert results.messages.equals(Results.read(here / "run").messages)
