"""TensorBoard: event files in RUN/tensorboard, which `tensorboard --logdir runs` finds below it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from seedbus.bus.clock import calendar_seconds
from seedbus.bus.files import check_file, check_folder, descriptor, make_folder
from seedbus.scenarios.tracking.tracker import Ending, TrackedRun, Tracker, TrackerRun

FOLDER = "tensorboard"
_FINAL = "final/"  # before the names of closing figures


class TensorBoard(Tracker):
    """Event files in RUN/tensorboard."""

    packages: ClassVar[Sequence[str]] = ("tensorboard",)
    needs: ClassVar[str] = "seedbus[track]"

    tracker: Literal["tensorboard"] = "tensorboard"

    def begin(self, run: TrackedRun) -> TrackerRun:
        return _EventFile(run, run.folder / FOLDER)


class _EventFile(TrackerRun):
    """An event file of this process; those of earlier ones lie beside it.

    It is not written by the library's own writer, whose thread prints a traceback where the disk is full.
    """

    def __init__(self, run: TrackedRun, folder: Path) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from torch.utils.tensorboard.summary import hparams

        self._has_end, self._summary = False, Summary
        earlier = list(folder.glob("*tfevents*")) if check_folder(folder) else []
        for events in earlier:
            check_file(events)
        if earlier:
            self.last_step, self._has_end = _progress(folder, run.metrics)
        make_folder(folder)
        name = f"events.out.tfevents.{calendar_seconds():010.0f}.{socket.gethostname()}.{os.getpid()}.{len(earlier)}"
        self._path = folder / name  # files are read in the order of their names
        self._write(os.O_CREAT | os.O_EXCL, file_version="brain.Event:2")
        known = {name: value for name, value in run.parameters.items() if value is not None}
        known |= {f"study.{name}": text for name, text in run.tags.items()}
        described: Any = hparams
        *opening, self._ended = described(known, dict.fromkeys(run.metrics, 0.0))
        if self.last_step < 0:
            for summary in opening:
                self._write(summary=summary)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._add(step, values)  # one record of the file, so that a process that is killed leaves all of it or nothing

    def end(self, how: Ending, figures: Mapping[str, str | float]) -> None:
        if how == "finished" and not self._has_end:
            numbers = {f"{_FINAL}{name}": value for name, value in figures.items() if not isinstance(value, str)}
            self._add(max(0, self.last_step), numbers)
            self._write(summary=self._ended)

    def _add(self, step: int, values: Mapping[str, float]) -> None:
        entries = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(step=step, summary=self._summary(value=entries))
        self.last_step = step

    def _write(self, flags: int = 0, **event: Any) -> None:
        """Add an event to the file, which is opened each time, so that one that has vanished is an error."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        with open(descriptor(self._path, os.O_WRONLY | os.O_APPEND | flags), "ab") as file:
            RecordWriter(file).write(Event(wall_time=calendar_seconds(), **event).SerializeToString())


def _progress(folder: Path, names: Sequence[str]) -> tuple[int, bool]:
    """Return the last step in a folder's event files, −1 if there is none, and whether the run's end is there."""
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={SCALARS: 1}).Reload()
    found = events.Tags()[SCALARS]
    last_step = max((events.Scalars(name)[-1].step for name in names if name in found), default=-1)
    return last_step, any(name.startswith(_FINAL) for name in found)
