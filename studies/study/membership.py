"""What trackers are told of a study's runs: each under its row and seed, with tags, among the others of the study."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from seedbus.bus.files import make_folder
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
        shared = self.folder.parent.resolve() / self.folder.name / FOLDER
        safe = "".join(
            each if each.isprintable() and each not in "/\\%" else quote(each, safe="") for each in self.name
        )
        folder = shared / (safe if _is_name(safe) else run.folder.name)
        for each in (shared.parent, shared, folder):  # from above, so that nothing is made through a link
            make_folder(each)
        return self.told.begin(replace(run, name=self.name, folder=folder, tags=self.tags, shared=shared))


def _is_name(text: str) -> bool:
    """Whether a folder may have this name: it is short, and the system's encoding has its characters."""
    try:
        return len(os.fsencode(text)) <= MAX_NAME
    except UnicodeEncodeError:
        return False
