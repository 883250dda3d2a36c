"""Mistakes in calls of the Python API are sentences, and Ctrl-C ends a run that a coroutine calls."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import wait_for
from worlds import TINY, go, scenario

import seedbus
from seedbus.agents.observer import NullObserver
from seedbus.models.errors import DataError
from seedbus.plugin import check, load_plugin, register
from seedbus.scenarios.errors import Interrupted, ScenarioError
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.tracking.tracker import TRACKERS


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
ANY_VALUE: Any = 3
STUDY = {"name": "one", "base": "quickstart", "seeds": [1]}
CALLS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no folder": (lambda run: ANY.compare([]), "folders: none is given; expected the folder of at least one run"),
    "a round below 0": (
        lambda run: ANY.compare([run], at=[-1]),
        "at: -1 is not accepted; expected rounds, bytes or a time",
    ),
    "no target": (
        lambda run: ANY.compare([run], target=math.nan),
        "target: nan is not accepted; expected a finite",
    ),
    "a target in words": (
        lambda run: ANY.compare([run], target="0.8"),
        "target: '0.8' is not accepted; expected a finite number",
    ),
    "half a round": (lambda run: ANY.replay(run, 2.5), "round: 2.5 is not accepted; expected a number of rounds"),
    "a text": (lambda run: ANY.replay(run, "1"), "round: '1' is not accepted"),
    "a truth": (lambda run: ANY.replay(run, True), "round: True is not accepted"),
    "no process": (lambda run: ANY.study({}, jobs=0), "jobs: 0 is not accepted; expected a whole number of"),
    "fewer": (lambda run: ANY.study({}, jobs=-1), "jobs: -1 is not accepted"),
    "no tracker": (lambda run: ANY.run({}, track=[object()]), "is not accepted; expected the name of a tracker"),
    "none": (lambda run: ANY.run({}, track=None), "track: None is not accepted; expected names of trackers"),
    "a study of objects": (
        lambda run: ANY.study({"base": "quickstart", "seeds": {1, 2}}),
        "the study: seeds: it holds a value that no study has (a set)",
    ),
    "a study of some levels": (
        lambda run: ANY.study({"base": nested(500)}),
        "the study: it is nested too deeply; a study has a few levels",
    ),
    "nested keywords": (
        lambda run: ANY.Scenario(faults=NESTED),
        "Scenario: faults.0: a value that is nested too deeply is not accepted; expected a mapping of fields",
    ),
    "a list in itself": (
        lambda run: ANY.Scenario(faults=CIRCLE),
        "Scenario: faults.0: a value that is nested too deeply is not accepted; expected a mapping of fields",
    ),
    "a key of a pair": (
        lambda run: ANY.Scenario(stop=[{(1, 2): 3}]),
        "Scenario: stop: [{(1, 2): 3}] is not accepted; expected a mapping of fields",
    ),
    "half a character in keywords": (
        lambda run: ANY.Scenario(**TINY | {"description": "\ud800"}),
        "Scenario: text with an unpaired surrogate, such as U+D800, is not accepted",
    ),
    "a nested study": (lambda run: ANY.study({"base": NESTED}), "the study: base: it is nested too deeply"),
    "too many": (lambda run: ANY.study({}, jobs=2**40), "expected a whole number of processes, 1 to 1,024"),
    "no name": (lambda run: ANY.run(None), "scenario: None is not accepted; expected a scenario file, a name"),
    "a list": (lambda run: ANY.study([1]), "study: [1] is not accepted; expected the file of a study, or a name"),
    "half a round to analyse": (lambda run: ANY.analyse(run, 0.5), "rounds: 0.5 is not accepted; expected numbers of"),
    "rounds in words": (lambda run: ANY.analyse(run, "12"), "rounds: '1' is not accepted; expected numbers of rounds"),
    "a run's number": (lambda run: ANY.analyse(3), "folder: 3 is not accepted; expected the folder of a run"),
    "an effort in numbers": (lambda run: ANY.analyse(run, effort=3), "effort: 3 is not accepted; expected an Effort"),
    "no instrument": (lambda run: ANY.analyse(run, only=[3]), "--only: 3 is no instrument; there are spectrum"),
    "an instrument's list": (lambda run: ANY.analyse(run, only=[["x"]]), '--only: ["x"] is no instrument'),
    "no run": (lambda run: ANY.replay(3), "run: 3 is not accepted; expected the folder of a run"),
    "a number": (lambda run: ANY.compare(3), "folders: 3 is not accepted; expected the folder of a run"),
    "results": (lambda run: ANY.compare([Results.read(run)]), "folders: Results(folder="),
    "a NUL": (lambda run: ANY.run(scenario(), "a\0b"), r"out: 'a\x00b' is not accepted; expected the folder of the"),
    "its folder": (lambda run: ANY.study({}, 3), "folder: 3 is not accepted; expected the folder of studies"),
    "a set": (lambda run: ANY.run({"faults": {1}}), "faults: it holds a value that no scenario has (a set)"),
    "a transport": (lambda run: ANY.run(scenario(), placement="tcp"), "placement: 'tcp' is not accepted; expected a"),
    "a setting": (lambda run: ANY.load("quickstart", [3]), "settings: 3 is not accepted; expected field=value"),
    "no observer": (
        lambda run: ANY.run(scenario(), run, observer=3),
        "observer: 3 is not accepted; expected an object with the methods round_closed, measured, refused, noted",
    ),
    "an observer's class": (
        lambda run: ANY.run(scenario(), run, observer=NullObserver),
        "observer: <class 'seedbus.agents.observer.NullObserver'> is not accepted; expected an object",
    ),
    "no monitor": (
        lambda run: ANY.run(scenario(), run, monitor=3),
        "monitor: 3 is not accepted; expected an object with the methods attach, detach",
    ),
    "no problem": (
        lambda run: ANY.run(scenario(), run, problem=3),
        "problem: 3 is not accepted; expected an object with the methods x0, objective,",
    ),
    "no watcher": (
        lambda run: ANY.study(STUDY, watcher=3),
        "watcher: 3 is not accepted; expected an object with the methods begins, advanced, ended",
    ),
    "a tracker as an object": (
        lambda run: ANY.study(STUDY, track=[TRACKERS.all()["tensorboard"]()]),
        "track: TensorBoard(tracker='tensorboard') is not accepted; expected names of trackers",
    ),
    "a tracker alone": (
        lambda run: ANY.study(STUDY, track=TRACKERS.all()["tensorboard"]()),
        "track: TensorBoard(tracker='tensorboard') is not accepted; expected names of trackers",
    ),
    "no results": (lambda run: ANY.Results.read(3), "folder: 3 is not accepted; expected the folder of a run"),
    "no file": (lambda run: seedbus.replay(run).save(ANY_VALUE), "path: 3 is not accepted; expected the name of a"),
    "no safetensors": (
        lambda run: seedbus.replay(run).save("m.pt"),
        "m.pt: it is written as safetensors, which .pt is",
    ),
    "a quantity over itself": (
        lambda run: Results.read(run).plot("round"),
        "Results.plot: 'round' over itself is not accepted; expected another quantity",
    ),
    "no metric": (lambda run: ANY.compare([run], metric=3), "3 is not measured in this run; there are loss"),
    "no plug-in": (lambda run: load_plugin(ANY_VALUE), "path: 3 is not accepted; expected a Python file"),
    "nothing to check": (lambda run: check(ANY_VALUE), "check: 3 is not accepted; expected the path of a plug-in"),
    "nothing to register": (lambda run: register(ANY_VALUE), "register: 3 is not accepted; expected a class that"),
    "half a character": (
        lambda run: ANY.load({"description": "\ud800"}),
        "scenario: text with an unpaired surrogate, such as U+D800, is not accepted",
    ),
    "half a character in a study": (
        lambda run: ANY.study(STUDY | {"name": "\ud800"}),
        "the study: text with an unpaired surrogate, such as U+D800, is not accepted",
    ),
    "a class": (lambda run: ANY.run(scenario(), task=ANY.TorchTask), "task: ModelMetaclass is not accepted"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_value_that_no_call_accepts_is_named(run: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    function, sentence = CALLS[call]
    with pytest.raises(ScenarioError) as raised:
        function(run)
    assert sentence in str(raised.value)


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
