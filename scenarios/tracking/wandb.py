"""Weights & Biases: offline, in RUN/wandb, unless WANDB_MODE and WANDB_DIR say otherwise; `wandb sync` uploads it.

A process that goes on with a run offline writes a folder of its own beside the earlier one, with the same run's id.
The library does not read these files again, and writes them in blocks: what a process that is killed has logged last is
nowhere. So a run goes on after the last step that the files have, or that a file of this tracker's own says they had
when it ended, for they may have been uploaded and removed since. Nor does the library say that the disk was full: the
files are read at the end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from seedbus.bus.clock import wall_seconds
from seedbus.bus.files import atomic_write, check_file, check_folder, make_folder, read
from seedbus.scenarios.tracking.tracker import Ending, TrackedRun, Tracker, TrackerRun, drop_empty_variables

FOLDER = "wandb"
LAST_STEP = "seedbus-last-step"
"""The file with the last step that was logged when a process ended, as decimal digits."""
HEADER = 7  # bytes of an offline file, and of each fragment of a record
BLOCK = 32_768  # bytes; no fragment lies in two
MAX_TAG = 64  # characters
WRITTEN_WITHIN_S = 10.0
LOOK_S = 0.05


class WandB(Tracker):
    """A run of Weights & Biases, offline in RUN/wandb unless WANDB_MODE says otherwise."""

    packages: ClassVar[Sequence[str]] = ("wandb",)
    needs: ClassVar[str] = "seedbus[track]"

    tracker: Literal["wandb"] = "wandb"

    def begin(self, run: TrackedRun) -> TrackerRun:
        check_folder(run.folder / FOLDER)
        make_folder(run.folder / FOLDER)
        return _WandBRun(run, run.folder / FOLDER / LAST_STEP)


class _WandBRun(TrackerRun):
    def __init__(self, run: TrackedRun, mark: Path) -> None:
        drop_empty_variables("WANDB_")
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read on import; else errors would go to its makers
        import wandb

        self._mark, self._has_logged = mark, False
        place = os.environ.get("WANDB_DIR", str(run.folder))
        ended = int(read(mark)) if check_file(mark) else -1
        files = (Path(place) / FOLDER).glob(f"offline-run-*-{run.id}/run-{run.id}.wandb")
        self.last_step = max([ended, *map(_last_step, files)])
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "seedbus"),
            id=run.id,
            name=run.name,
            group=run.tags.get("study"),
            tags=[f"{name} {text}"[:MAX_TAG] for name, text in run.tags.items() if name != "study"],
            dir=place,
            config=dict(run.parameters),
            mode=os.environ.get("WANDB_MODE", "offline"),  # type: ignore[arg-type]
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True),
        )
        self.last_step = max(self.last_step, self._run.starting_step - 1)  # of a run that is online
        self._offline = Path(self._run.settings.sync_file) if self._run.offline else None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step, commit=True)
        self.last_step, self._has_logged = step, True

    def end(self, how: Ending, figures: Mapping[str, str | float]) -> None:
        for name, value in figures.items():
            self._run.summary[f"final/{name}"] = value
        self._run.summary["ended"] = how
        self._run.finish(exit_code=0 if how == "finished" else 1)
        if self._has_logged and self._offline:
            self._check(self._offline)
        with atomic_write(self._mark) as file:
            file.write(b"%d" % self.last_step)

    def _check(self, path: Path) -> None:
        """Check that an offline file has the last step; the library's own process may write it a moment later."""
        until_s = wall_seconds() + WRITTEN_WITHIN_S
        while (kept := _last_step(path)) < self.last_step:
            if wall_seconds() >= until_s:
                what = f"it lacks the steps from {kept + 1} to {self.last_step}"
                raise OSError(f"{path}: {what}, perhaps because the disk was full")
            threading.Event().wait(LOOK_S)


def _last_step(path: Path) -> int:
    """Return the highest step that an offline file has; −1 if it has none."""
    return max((record.history.step.num for record in records(path) if record.HasField("history")), default=-1)


def records(path: Path) -> Iterator[Any]:
    """Yield the whole records of an offline file, a log in LevelDB's format; each is a message of the library's."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from wandb.proto.wandb_internal_pb2 import Record

    content, position, record = read(path), HEADER, b""
    while position + HEADER <= len(content):
        if BLOCK - position % BLOCK < HEADER:  # the rest of a block is filled with zeros
            position += BLOCK - position % BLOCK
            continue
        length, kind = int.from_bytes(content[position + 4 : position + 6], "little"), content[position + 6]
        position += HEADER + length
        if position > len(content):  # cut off where its process was killed
            return
        record += content[position - length : position]
        if kind in (1, 4):  # a whole record, or the last fragment of one
            try:
                yield Record.FromString(record)
            except DecodeError:
                return
            record = b""
