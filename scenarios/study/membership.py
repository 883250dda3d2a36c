"""What trackers are told of a study's runs: each under its row and seed, with tags, among the others of the study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from seedbus.scenarios.tracking.tracker import TrackedRun, Tracker, TrackerRun

FOLDER = "tracked"  # in the study's
MAX_NAME = 200  # bytes of a folder's name


class Membership(Tracker):
    """Another tracker, to which a run is shown as one of a study.

    Attributes:
        tracker: the other tracker's name.
        told: the other tracker.
        folder: the study's.
        name: the run's name there.
        tags: see `TrackedRun`.
    """

    told: Tracker
    folder: Path
    name: str
    tags: Mapping[str, str]

    def begin(self, run: TrackedRun) -> TrackerRun:
        shared = self.folder.resolve() / FOLDER
        safe = "".join(
            each if each.isprintable() and each not in "/\\%" else quote(each, safe="") for each in self.name
        )
        folder = shared / (safe if len(safe.encode()) <= MAX_NAME else run.folder.name)
        folder.mkdir(parents=True, exist_ok=True)
        return self.told.begin(replace(run, name=self.name, folder=folder, tags=self.tags, shared=shared))
