"""Finds launchers by name: each is a file of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from seedbus.discovery import Variants
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.launchers.launcher import Launcher, Note
from seedbus.scenarios.sentences import variant

LAUNCHERS = Variants("launcher", "launcher", "seedbus.scenarios.launchers", Launcher, is_open=False)


def launcher_of(name: str, values: Mapping[str, object]) -> Launcher:
    """Return the launcher of a name, with its fields.

    Raises:
        ScenarioError: there is no such launcher, or it has no such field.
    """
    known = LAUNCHERS.all()
    for field in values if name in known else ():
        if field not in known[name].model_fields:
            others = [each for each, kind in known.items() if field in kind.model_fields]
            fields = [each for each in known[name].model_fields if each != "launcher"]
            known_fields = f"its fields are {', '.join(fields)}" if fields else "it has none"
            accepted = f"it is one of {' and '.join(others)}" if others else known_fields
            raise ScenarioError(f"--launcher {name}", [f"{field}: it has no such field; {accepted}"])
    launcher: Launcher = variant(LAUNCHERS, name, "--launcher", values)
    return launcher


def end_left(folder: Path, run: str, note: Note) -> None:
    """End what an earlier process of a run has left, whichever launcher it had; see `Launcher.end_left`."""
    for launcher in LAUNCHERS.all().values():
        launcher.end_left(folder, run, note)
