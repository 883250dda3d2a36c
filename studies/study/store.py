"""The folder of studies: runs by their content, so that no run is made twice, and each study's report.

studies/runs/KEY/          a run, as `seedbus run --out` writes it
studies/runs/KEY.json      what else was measured of its final model
studies/NAME/              the report of the study NAME
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter

from seedbus.agents.errors import AgentError, RunFolderError
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.agents.server.stopping import MOST_ROUNDS
from seedbus.models.data.content import content_digest
from seedbus.models.numeric_state import numeric_state
from seedbus.models.partitions.iid import Iid
from seedbus.models.task import Task
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.results import stored_json, write
from seedbus.scenarios.run_folder import RESULTS, check_same_device, keep_length, scenario_of
from seedbus.scenarios.running.seed_secret import fingerprint, is_given
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.studies.study.schema import RUNS
from seedbus.versions import version

NOT_IN_KEY = ("name", "description", "transport", "expect")
"""Fields that change neither the bits of a run nor its messages."""

Part = TypeVar("Part")
Measured = dict[str, dict[str, float | None]]
"""Split → metric → value, and instrument → quantity → value."""
_MEASURED: TypeAdapter[Measured] = TypeAdapter(Measured, config=ConfigDict(allow_inf_nan=False))


@dataclass(frozen=True)
class StoredRun:
    """Where a run lies, whether or not it has begun.

    Attributes:
        scenario: what is run.
        folder: the run's folder.
    """

    scenario: Scenario
    folder: Path

    @property
    def is_finished(self) -> bool:
        return (self.folder / RESULTS).is_file()

    @property
    def has_begun(self) -> bool:
        return (self.folder / FILE).is_file()

    def begin_with(self, shorter: Path, device: str) -> None:
        """Begin the run as a copy of one of fewer rounds that ended, if that can go on; else it is to be made anew.

        Args:
            shorter: the folder of that run.
            device: where clients are to compute, as text.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f"{self.folder.name}-", dir=self.folder.parent) as made:
            copy = Path(made, "run")
            with suppress(OSError, shutil.Error, AgentError, ScenarioError):
                kept = scenario_of(shorter)
                stop = kept.stop.model_copy(update={"rounds": self.scenario.stop.rounds})
                self.check(kept.model_copy(update={"stop": stop}))
                shutil.copytree(shorter, copy, symlinks=True, ignore=shutil.ignore_patterns(RESULTS, "report.html"))
                with closing(Journal.open(copy)) as journal:
                    if self.scenario.task.uses_device:
                        check_same_device(copy, journal, device)
                    keep_length(copy, journal, self.scenario.stop)
                copy.rename(self.folder)

    def check(self, kept: Scenario) -> None:
        """Check that the run in the folder is the one that the folder is named for.

        Args:
            kept: the scenario in the folder's journal.

        Raises:
            RunFolderError: it is another run.
        """
        if _content(kept) != _content(self.scenario):
            what = "it holds another run than the one that it is named for"
            raise RunFolderError(self.folder, f"{what}; delete it, and the run is made again")

    def check_files(self) -> None:
        """Check that the files which the scenario names are still those for which the folder is named.

        Raises:
            ScenarioError: one has changed.
            DataError: one cannot be read.
        """
        if key(self.scenario) != self.folder.name:
            what = "a file that it names, such as its data, has changed since the study began"
            how = "start the study again, and the run is made on the new one"
            raise ScenarioError(self.scenario.name, [f"{what}; {how}"])

    def measured(self) -> Measured:
        """Return what was measured of the final model, on further splits and by instruments.

        Raises:
            RunFolderError: the file cannot be read, or is damaged.
        """
        try:
            return stored_json(self._measured_file, _MEASURED, "delete it, and it is made again")
        except FileNotFoundError:
            return {}

    def add(self, measured: Measured) -> None:
        """Keep what was measured, beside what was before. Raises `RunFolderError` if it cannot be read or written."""
        path = self._measured_file
        try:
            write(path, json.dumps(self.measured() | measured))
        except OSError as error:  # such as a full disk, or another study that writes this file at the same time
            raise RunFolderError(path, f"it cannot be written ({error.strerror}); the same study goes on") from None

    @property
    def _measured_file(self) -> Path:
        return self.folder.with_name(self.folder.name + ".json")


@dataclass(frozen=True)
class Store:
    """A folder of studies.

    Attributes:
        folder: the folder.
        task: the task of the runs, if it has objects which only this process has.
    """

    folder: Path
    task: Task | None = None

    def stored(self, scenario: Scenario) -> StoredRun:
        """Return where a scenario's run lies.

        Raises:
            ScenarioError, DataError: a file that the scenario names cannot be read.
        """
        return StoredRun(scenario, self.folder / RUNS / key(scenario, self._digest, self._task_digest))

    @cached_property
    def _task_digest(self) -> str:
        """A digest of a task of this process alone, whose fields do not tell its objects; "": there is none."""
        return "" if self.task is None else task_digest(self.task)

    @cached_property
    def _digest(self) -> Callable[[tuple[Path, ...]], str]:
        """The digest of data, taken once for all runs of a study; each run's `check_files` takes it again."""
        return cache(content_digest)

    def shorter(self, scenario: Scenario) -> Path | None:
        """Return the folder of the longest finished run of fewer rounds that is otherwise the same; None: no such run.

        A run of more rounds can begin as a copy of it, see `StoredRun.begin_with`.
        """
        # without a server a run is computed anew when it goes on; in real time its clients are sent what they had
        if not scenario.has_server or scenario.clock == "wall":
            return None
        for rounds, folder in sorted(self._by_content.get(_without_rounds(_content(scenario)), []), reverse=True):
            if rounds < scenario.stop.most_rounds:
                stop = scenario.stop.model_copy(update={"rounds": rounds})
                if self.stored(scenario.model_copy(update={"stop": stop})).folder == folder:  # files and version, too
                    return folder
        return None

    @cached_property
    def _by_content(self) -> dict[str, list[tuple[int, Path]]]:
        """The finished runs by the fields of their scenarios without rounds: rounds and folder of each."""

        def run(fields: dict[str, Any], folder: Path) -> tuple[str, tuple[int, Path]]:
            kept = {name: value for name, value in fields.items() if name not in NOT_IN_KEY}
            return _without_rounds(kept), (fields["stop"]["rounds"] or MOST_ROUNDS, folder)

        found: dict[str, list[tuple[int, Path]]] = {}
        for content, each in self._of_finished(run):
            found.setdefault(content, []).append(each)
        return found

    def _of_finished(self, part: Callable[[dict[str, Any], Path], Part]) -> Iterator[Part]:
        """Yield what a function makes of each finished run's fields of its scenario, and its folder, if it can."""
        for results in sorted((self.folder / RUNS).glob(f"*/{RESULTS}")):
            with (
                suppress(Exception),  # somebody else's folder may hold anything; what cannot be read does not count
                closing(Journal.open(results.parent, for_writing=False)) as journal,
            ):
                yield part(json.loads(journal.facts()["scenario"]), results.parent)

    def of_other_sources(self, plugins: Mapping[str, str]) -> dict[str, int]:
        """Return how many finished runs were made with another source of each plug-in, where there are any.

        Args:
            plugins: name → digest of the source that counts.
        """

        def others(fields: dict[str, Any], _: Path) -> list[str]:
            used = fields.get("plugins", {})
            return [name for name, digest in plugins.items() if used.get(name, digest) != digest]

        return dict(Counter(chain.from_iterable(self._of_finished(others) if plugins else ())))


@numeric_state()
def task_digest(task: Task) -> str:
    """Return 32 hexadecimal digits of what a task is: its first weights, its data, and its metrics of these weights.

    The metrics stand for its functions, whose code nothing tells. Raises `DataError`.
    """
    problem = task.bind(seed=1, clients=1, partition=Iid())
    x0 = problem.x0()
    state = hashlib.blake2b(x0.tobytes(), digest_size=16)
    state.update(getattr(problem, "identity", bytes)())  # of what is no part of x₀, where there is such a thing
    state.update(repr(problem.evaluate(x0, "test")).encode())
    return state.hexdigest()


def key(scenario: Scenario, digest: Callable[[tuple[Path, ...]], str] = content_digest, task: str = "") -> str:
    """Return 16 hexadecimal digits of a run's content: its scenario with seed and plug-ins, files, and version.

    Args:
        scenario: what is run.
        digest: returns the digest of the files and folders that its task names.
        task: the digest of its task, if its fields do not tell that; see `task_digest`.
    """
    files, named = scenario.check(), scenario.task.named_files()
    if named or task:
        files["task"] = task or digest(tuple(named))
    if scenario.seed_shift and is_given():  # on a cluster only the nodes may have it
        files["seed_shift"] = fingerprint()
    content = {"scenario": _content(scenario), "files": files, "version": version("seedbus")}
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()


def _content(scenario: Scenario) -> dict[str, Any]:
    """Return the fields of a scenario that decide the bits of its run."""
    return {name: value for name, value in scenario.resolved().items() if name not in NOT_IN_KEY}


def _without_rounds(content: dict[str, Any]) -> str:
    return json.dumps(content | {"stop": content["stop"] | {"rounds": None}}, sort_keys=True)
