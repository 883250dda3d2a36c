"""What is kept of a finished run whose journal and messages are elsewhere: one file, of which all figures can be made.

A study of hours can so go on on another machine: there its finished runs are `results.json` and this file, some
kilobytes each, and are neither made again nor can they go on (`Store.shorter` does not find them).
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.file import FILE
from seedbus.scenarios.reporting.results import stored_json
from seedbus.scenarios.reporting.results_schema import lines_problem
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.scenario import Scenario

NAME = "figures.json"

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class RunFigures:
    """The file.

    Attributes:
        fields: of the scenario.
        lines: its evaluations, oldest first; at least one.
        passes: forward passes before each evaluation, and of all rounds; None if they are not known.
        caught_up: bytes that brought clients what they had missed, before each evaluation.
    """

    fields: dict[str, Any]
    lines: list[dict[str, Any]]
    passes: list[Amount] | None
    caught_up: list[Amount]

    @classmethod
    def read(cls, folder: Path) -> RunFigures | None:
        """Return what is kept in a run's folder; None if there is nothing, or the run itself.

        Raises:
            RunFolderError: the file cannot be read, or is damaged.
        """
        path = folder / NAME
        if not os.path.lexists(path) or os.path.lexists(folder / FILE):
            return None
        repair = "delete the run's folder, and it is made again"
        kept = stored_json(path, _KEPT, repair)
        if problem := kept._problem():
            raise RunFolderError(path, f"it is damaged ({problem}); {repair}")
        return kept

    def _problem(self) -> str:
        if (problem := lines_problem(self.lines)) is not None:
            return f"lines: {problem}"
        count = len(self.lines)
        if not count or len(self.caught_up) != count or (self.passes is not None and len(self.passes) != count + 1):
            return f"its {count} evaluations are not those of its other figures"
        return ""

    def scenario(self, folder: Path) -> Scenario:
        """Return the scenario. Raises `ScenarioError` if it is not valid here."""
        return validate(self.fields, str(folder / NAME), is_kept=True)

    def json(self) -> dict[str, Any]:
        return asdict(self)


_KEPT: TypeAdapter[RunFigures] = TypeAdapter(RunFigures)
