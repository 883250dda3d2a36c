"""The folder of a run, before anything runs there: a free one, a journal in it, or the run to go on with."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.head import HEAD
from seedbus.agents.journal.journal import Journal
from seedbus.agents.launcher import check_build
from seedbus.bus.files import WrongFileType, descriptor
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import dump

RUNS = Path("runs")
SCENARIO = "scenario.yaml"


def scenario_of(folder: Path) -> Scenario:
    """The scenario that a run's journal holds. Raises `RunFolderError`, `JournalDamaged`."""
    with closing(Journal.open(folder, for_writing=False)) as journal:
        text = journal.facts().get("scenario", "")
    try:
        return validate(json.loads(text), str(folder / FILE))
    except (ValueError, RecursionError) as error:  # a `ScenarioError` too: nobody but us wrote it
        raise JournalDamaged(folder / FILE, 0, f"its scenario cannot be read ({error})") from None


def check_name(folder: Path) -> None:
    """Raises `RunFolderError` for a name that is not text: Arrow opens no files there."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise RunFolderError(folder, "its name is not UTF-8 text; expected one that is") from None


def next_folder(name: str) -> Path:
    """The first free one of runs/NAME-1, -2, …; made at once, so that two runs cannot take the same."""
    for number in itertools.count(1):
        folder = RUNS / f"{name}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunFolderError(folder, f"the run's folder cannot be made ({error.strerror})") from None
        return folder
    raise AssertionError("there is always another number")


def lost_rounds(folder: Path, scenario: Scenario) -> dict[str, str]:
    """What was durable in a journal and is lost, for a run that goes on: event → what it says.

    In simulated time the same rounds are made again. In real time they would be others, and clients hold what was lost:
    raises `JournalDamaged`, and leaves all files as they are.
    """
    with closing(Journal.open(folder, for_writing=False)) as journal:
        lost = journal.lost()
        if lost is None:
            return {"weakened": f"a part of {folder / HEAD} is damaged"} if journal.is_head_damaged else {}
    if scenario.clock == "wall":
        raise lost
    return {"lost": f"{lost}; the run goes on after them, and makes the same ones again"}


def journal_in(folder: Path, scenario: Scenario, files: dict[str, str], *, resume: bool) -> Journal:
    """A new journal in a folder, or with `resume` the one that is there. files: digests of what the scenario names.

    Raises `RunFolderError`, `JournalDamaged`.
    """
    resolved = scenario.resolved()
    facts = {"scenario": json.dumps(resolved)} | files
    journal = Journal.open(folder) if resume else Journal.create(folder, facts)
    try:
        check_build(folder, journal.facts(), files)
        with writable(folder):
            written = descriptor(folder / SCENARIO, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with open(written, "w", encoding="utf-8") as file:
                file.write(dump(resolved))
    except BaseException:
        journal.close()
        raise
    return journal


def refuse_another(scenario: Scenario, before: Scenario, folder: Path) -> None:
    """Raises `RunFolderError` if a folder's run is not one of this scenario."""
    # how the bytes move, and what is expected, changes no bit of a run
    before = before.model_copy(update={"transport": scenario.transport, "expect": scenario.expect})
    if before != scenario:
        difference = _first_difference(before.resolved(), scenario.resolved())
        raise RunFolderError(folder, f"it holds another scenario's run: {difference}")


def _first_difference(before: Any, now: Any, path: str = "") -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *now]:
            if before.get(key) != now.get(key):
                return _first_difference(before.get(key), now.get(key), f"{path}.{key}" if path else key)
    return f"{path} is {json.dumps(before)} there and {json.dumps(now)} here"


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """A disk that is full, a folder that is read-only: one sentence."""
    try:
        yield
    except WrongFileType as error:
        raise RunFolderError(folder, error.what) from None
    except OSError as error:
        raise RunFolderError(folder, f"the run's folder cannot be written ({error.strerror})") from None
