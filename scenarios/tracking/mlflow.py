"""MLflow: the store that MLFLOW_TRACKING_URI names, or else files in RUN/mlruns, which the runs of a study share.

MLflow opens a store of files only with MLFLOW_ALLOW_FILE_STORE, which this sets. Its report on its own use to its
makers stays off unless the environment turns it on.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

from seedbus.bus.clock import calendar_seconds
from seedbus.bus.files import check_folder, descriptor, make_folder
from seedbus.scenarios.tracking.tracker import Ending, TrackedRun, Tracker, TrackerRun, drop_empty_variables

FOLDER = "mlruns"
TAG = "seedbus.run"
_BATCH = 100  # parameters and tags of a request, at most
_MAX_NAME, _MAX_TEXT = 250, 500  # characters
_STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}

T = TypeVar("T")


class MLflow(Tracker):
    """A run of MLflow, in files in RUN/mlruns or where MLFLOW_TRACKING_URI says."""

    packages: ClassVar[Sequence[str]] = ("mlflow",)
    needs: ClassVar[str] = "seedbus[track]"

    tracker: Literal["mlflow"] = "mlflow"

    def begin(self, run: TrackedRun) -> TrackerRun:
        drop_empty_variables("MLFLOW_")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if uri is None:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            folder = (run.shared or run.folder) / FOLDER
            check_folder(folder)
            make_folder(folder)
            return _MLflowRun(run, folder.as_uri(), folder)
        return _MLflowRun(run, uri, None)


class _MLflowRun(TrackerRun):
    """A run in the store at `uri`, or in files in a folder: these know no locks, so one process at a time is there."""

    def __init__(self, run: TrackedRun, uri: str, folder: Path | None) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=uri)
        self._folder = folder
        with self._alone():
            self._begin(run)

    def _begin(self, run: TrackedRun) -> None:
        from mlflow.entities import Param

        experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", run.tags.get("study", "seedbus")))
        found = self._client.search_runs([experiment], f"tags.`{TAG}` = '{run.id}'", max_results=1)
        self._steps = dict[str, int]()  # a process that was killed may have left a part of a step's values
        self._has_end = bool(found) and found[0].info.status == _STATUS["finished"]
        if found:
            opened = found[0]
            self._id = opened.info.run_id
            self._client.update_run(self._id, status="RUNNING")
            known = [_name(name) for name in run.metrics if _name(name) in opened.data.metrics]
            history = self._client.get_metric_history
            self._steps = {name: max(each.step for each in history(self._id, name)) for name in known}
            self.last_step = min(self._steps.values(), default=-1)
        else:
            opened = self._client.create_run(experiment, run_name=run.name, tags={TAG: run.id})
            self._id = opened.info.run_id
        for name, text in run.tags.items():
            self._client.set_tag(self._id, f"seedbus.{name}", text)
        texts = {_name(name): str(value)[:_MAX_TEXT] for name, value in run.parameters.items()}
        # MLflow keeps the first value of a parameter, and refuses another
        new = [Param(name, text) for name, text in texts.items() if name not in opened.data.params]
        for some in _batches(new):
            self._client.log_batch(self._id, params=some)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now_ms = int(calendar_seconds() * 1000)
        named = {_name(name): value for name, value in values.items()}
        new = [Metric(name, value, now_ms, step) for name, value in named.items() if self._steps.get(name, -1) < step]
        with self._alone():  # another process that begins a run reads the metrics of all of them
            self._client.log_batch(self._id, metrics=new)
        self.last_step = step

    def end(self, how: Ending, figures: Mapping[str, str | float]) -> None:
        from mlflow.entities import RunTag

        if how == "finished" and not self._has_end:
            numbers = {f"final/{name}": value for name, value in figures.items() if not isinstance(value, str)}
            self.log(max(0, self.last_step), numbers)
            texts = [RunTag(f"seedbus.{name}", value) for name, value in figures.items() if isinstance(value, str)]
            with self._alone():
                self._client.log_batch(self._id, tags=texts)
        with self._alone():
            self._client.set_terminated(self._id, _STATUS[how])

    def _alone(self) -> AbstractContextManager[None]:
        return nullcontext() if self._folder is None else _alone(self._folder)

    def _experiment(self, name: str) -> str:
        experiment = self._client.get_experiment_by_name(name)
        identity = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        return str(identity)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process is here with this folder."""
    with open(descriptor(folder / ".lock", os.O_RDWR | os.O_CREAT), "rb+") as file:  # and no link's target
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _name(name: str) -> str:
    """Return a name of the characters that MLflow accepts."""
    return re.sub(r"[^\w\-. /]", "_", name)[:_MAX_NAME]


def _batches(values: Sequence[T]) -> Iterator[list[T]]:
    rest = iter(values)
    while some := list(islice(rest, _BATCH)):
        yield some
