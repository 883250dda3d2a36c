"""TensorBoard: event files in RUN/tensorboard, which `tensorboard --logdir runs` finds below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from seedbus.bus.files import check_folder
from seedbus.scenarios.tracking.tracker import Ending, TrackedRun, Tracker, TrackerRun

FOLDER = "tensorboard"


class TensorBoard(Tracker):
    """Event files in RUN/tensorboard."""

    packages: ClassVar[Sequence[str]] = ("tensorboard",)
    needs: ClassVar[str] = "seedbus[track]"

    tracker: Literal["tensorboard"] = "tensorboard"

    def begin(self, run: TrackedRun) -> TrackerRun:
        return _EventFile(run, run.folder / FOLDER)


class _EventFile(TrackerRun):
    """An event file of this process; those of earlier ones lie beside it."""

    def __init__(self, run: TrackedRun, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        if check_folder(folder):
            self.last_step = _last_step(folder, run.metrics)
        self._file: Any = SummaryWriter(str(folder))  # type: ignore[no-untyped-call]
        known = {name: value for name, value in run.parameters.items() if value is not None}
        begun, described, self._ended = hparams(known, dict.fromkeys(run.metrics, 0.0))  # type: ignore[no-untyped-call]
        if self.last_step < 0:
            self._file.file_writer.add_summary(begun)
            self._file.file_writer.add_summary(described)
        self._file.flush()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._add(step, values)  # one record of the file, so that a process that is killed leaves all of it or nothing

    def end(self, how: Ending, figures: Mapping[str, str | float]) -> None:
        numbers = {f"final/{name}": value for name, value in figures.items() if not isinstance(value, str)}
        if numbers:
            self._add(self.last_step, numbers)
        if how == "finished":
            self._file.file_writer.add_summary(self._ended)
        self._file.close()

    def _add(self, step: int, values: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._file.file_writer.add_summary(summary, step)
        self._file.flush()
        self.last_step = step


def _last_step(folder: Path, names: Sequence[str]) -> int:
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={SCALARS: 1}).Reload()
    found = events.Tags()[SCALARS]
    return max((events.Scalars(name)[-1].step for name in names if name in found), default=-1)
