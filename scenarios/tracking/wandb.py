"""Weights & Biases: offline, in RUN/wandb, unless WANDB_MODE and WANDB_DIR say otherwise; `wandb sync` uploads it.

A process that goes on with a run offline writes a folder of its own beside the earlier one, with the same run's id.
The last step is kept in a file of this tracker's own, since the library does not read its offline files again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from seedbus.bus.files import atomic_write, check_file, check_folder, make_folder, read
from seedbus.scenarios.tracking.tracker import Ending, TrackedRun, Tracker, TrackerRun, drop_empty_variables

FOLDER = "wandb"
LAST_STEP = "seedbus-last-step"
"""The file with the last step that was logged, as decimal digits."""
MAX_TAG = 64  # characters


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

        self._mark = mark
        self.last_step = int(read(mark)) if check_file(mark) else -1
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "seedbus"),
            id=run.id,
            name=run.name,
            group=run.tags.get("study"),
            tags=[f"{name} {text}"[:MAX_TAG] for name, text in run.tags.items() if name != "study"],
            dir=os.environ.get("WANDB_DIR", str(run.folder)),
            config=dict(run.parameters),
            mode=os.environ.get("WANDB_MODE", "offline"),  # type: ignore[arg-type]
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step, commit=True)
        self.last_step = step
        with atomic_write(self._mark) as file:
            file.write(b"%d" % step)

    def end(self, how: Ending, figures: Mapping[str, str | float]) -> None:
        for name, value in figures.items():
            self._run.summary[f"final/{name}"] = value
        self._run.summary["ended"] = how
        self._run.finish(exit_code=0 if how == "finished" else 1)
