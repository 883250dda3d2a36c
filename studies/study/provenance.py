"""How a study's runs were made: a file beside its tables, by which whoever is given the folder makes them again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from seedbus.scenarios.reporting.terminal import shown
from seedbus.studies.study import interactions
from seedbus.studies.study.results import StudyResults

FILE = "study.json"
_FACTS = {"seedbus": "seedbus", "versions": "versions", "processor": "processors", "device": "devices"}
"""What results say of the program and the machine → under which name the file has it."""


def provenance(results: StudyResults) -> dict[str, Any]:
    """Return the study as it was asked for, the whole scenario of every row, and what made its runs, as plain data.

    `interactions` has what circumstances cost each row, and which of two rows they cost more, as `interactions.csv`.

    Of runs that were made by other versions, or on other processors, each of these is there. Files are named from the
    folder of the study's file, as it may name them, where they lie beside it; nobody else has this machine's paths.
    """
    plan = results.plan
    summaries = [
        member.run.results.summary for members in results.members.values() for member in members if member.run.results
    ]
    plugins = {name: digest for cell in plan.cells for name, digest in cell.scenario.plugins.items()}
    told = {
        "study": plan.study.model_dump(mode="json", exclude_unset=True),
        "settings": list(plan.settings),
        **{name: _each_once(summary.get(fact) for summary in summaries) for fact, name in _FACTS.items()},
        "plugins": dict(sorted(plugins.items())),
        "chosen": {row: dict(tuned.chosen) for row, tuned in results.tuned.items()},
        "interactions": interactions.plain(results),
        "scenarios": {cell.name: cell.scenario.resolved() for cell in plan.cells},
    }
    folder = str((plan.folder or Path()).absolute())
    # the beginning of a path, and not a part of another one; in the root of a disk all paths would begin so
    beginning = re.compile(rf"(?<![\w./~-]){re.escape(folder)}/")
    named: dict[str, Any] = _beside(told, beginning) if folder != "/" else told
    return named


def text(results: StudyResults) -> str:
    """Return what `FILE` holds."""
    return json.dumps(provenance(results), indent=1, ensure_ascii=False, default=str) + "\n"


def rows(found: Mapping[str, Any]) -> list[list[str]]:
    """Return what a reader of the page is told of it, as names and values that are safe to print."""
    versions = [", ".join(f"{name} {each}" for name, each in every.items()) for every in found["versions"]]
    told = {
        "settings for all rows": found["settings"],
        "Seedbus": found["seedbus"],
        "versions": versions,
        "processor": found["processors"],
        "device": found["devices"],
        "plug-ins, by the digest of their source": [f"{name} {digest}" for name, digest in found["plugins"].items()],
    }
    return [[name, shown("; ".join(map(str, values)))] for name, values in told.items() if values]


def _beside(told: Any, folder: re.Pattern[str]) -> Any:
    """Return plain data in which no text has the folder before a path."""
    if isinstance(told, dict):
        return {name: _beside(each, folder) for name, each in told.items()}
    if isinstance(told, list):
        return [_beside(each, folder) for each in told]
    return folder.sub("", told) if isinstance(told, str) else told


def _each_once(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value and value not in found:
            found.append(value)
    return found
