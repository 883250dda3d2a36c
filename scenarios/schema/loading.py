"""Reads scenario files: from YAML to a `Scenario`, with one sentence for each mistake that names file and field."""

from __future__ import annotations

import copy
import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from seedbus.bus.text import printable
from seedbus.models.data.roots import Roots
from seedbus.models.errors import DataError
from seedbus.models.task import Task
from seedbus.scenarios.errors import ScenarioError, path_of, setting_label
from seedbus.scenarios.schema.plugin_use import refuse_missing
from seedbus.scenarios.schema.python_values import plain_fields
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import MAX_CHARACTERS, NotPlain, parse
from seedbus.scenarios.sentences import expanded, is_of_one_value, quoted, sentences, too_deep

FIGURES = "figures/"
"""The folder of the library that has studies, not scenarios."""
_STUDY = "it is a study, and no scenario; `seedbus study` makes its runs, and its --dry-run tells their cost"
_SETTING = "field=value, like algorithm.momentum=0.5"


def library() -> dict[str, Traversable]:
    """Return the scenarios that come with Seedbus by name; those in a folder are named folder/name."""
    return {name: file for name, file in _included().items() if not name.startswith(FIGURES)}


def studies() -> dict[str, Traversable]:
    """Return the studies that come with Seedbus by name: figures/ and the name of a file."""
    return {name: file for name, file in _included().items() if name.startswith(FIGURES)}


def text_of(name: str) -> str:
    """Return the text of a scenario or study that comes with Seedbus."""
    return _included()[name].read_text(encoding="utf-8")


def _included() -> dict[str, Traversable]:
    return dict(sorted(_files(resources.files("seedbus.scenarios") / "library", "")))


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _files(item, f"{prefix}{item.name}/")
        else:
            yield prefix + item.name.removesuffix(".yaml"), item


def load(
    source: str | Path | Mapping[str, Any],
    settings: Sequence[str] | Mapping[str, Any] | None = None,
    *,
    needs_task: bool = False,
) -> Scenario:
    """Load a scenario.

    Args:
        source: a file, the name of a scenario of the library, or the fields of a scenario.
        settings: what overrides it, as `--set` does: `field.field=value` entries, or a mapping from fields to values.
        needs_task: whether it must have a task; otherwise it may get one when it is run.

    Raises:
        ScenarioError: there is no such scenario, or it is not valid.
    """
    settings = listed(settings or [])
    if isinstance(source, Mapping):
        return _from_fields(source, settings, needs_task)
    document, name, folder = read_document(source)
    return load_document(document, name, settings, folder, needs_task=needs_task)


def with_settings(scenario: Scenario, settings: Sequence[str] | Mapping[str, Any]) -> Scenario:
    """Return a scenario with settings applied, as `load` takes them. Raises `ScenarioError` for one that it refuses."""
    if not (settings := listed(settings)):
        return scenario
    fields = scenario.resolved()
    try:
        scenario.task.check_elsewhere()
    except DataError:  # it has objects of this process, which no plain data stands for
        fields["task"] = scenario.task
    return load(fields, settings)


def read_document(source: str | Path) -> tuple[dict[str, Any], str, Path | None]:
    """Return the fields of a scenario's file, how error messages name it, and its folder (None for the library's).

    Raises:
        ScenarioError: there is no such scenario, or it is no mapping of fields.
    """
    text, name, default_name = _find(source)
    # unlike Path.is_file, os.path.isfile is False for a name too long for a file
    folder = Path(source).parent if os.path.isfile(source) else None
    document = _parse(text, name)
    if not isinstance(document, dict):
        what = "it is empty" if document is None else f"{quoted(document)} is not a scenario"
        raise ScenarioError(name, [f"{what}; expected a mapping of fields"])
    if ("base" in document or "variants" in document) and "task" not in document:
        raise ScenarioError(name, [_STUDY])
    document.setdefault("name", default_name)
    return document, name, folder


def _from_fields(fields: Mapping[str, Any], settings: list[str], needs_task: bool) -> Scenario:
    """Create a scenario from fields that may hold models, such as a task."""
    task = fields.get("task")
    given = task if isinstance(task, Task) else None
    others = {name: value for name, value in fields.items() if name != "task" or given is None}
    name = str(others.setdefault("name", "scenario"))
    document = plain_fields(others, name, "scenario")
    if given is not None:
        refuse_of_task(settings)
    scenario = load_document(document, name, settings, needs_task=needs_task and given is None)
    return scenario.with_task(given)


def load_document(
    document: dict[str, Any],
    name: str,
    settings: list[str] | None = None,
    folder: Path | None = None,
    *,
    needs_task: bool = False,
) -> Scenario:
    """Create a scenario from the fields of a file and the settings that override them.

    Args:
        document: the fields, with names that stand for sections.
        name: how error messages name the scenario.
        settings: `field.field=value` entries.
        folder: the folder to which the file names in the scenario are relative.
        needs_task: whether it must have a task.

    Raises:
        ScenarioError: the scenario is not valid; its `settings` say which of them is at fault.
    """
    settings = settings or []
    try:
        changed = _applied(document, settings)
    except RecursionError:
        raise ScenarioError(name, [too_deep(Scenario)]) from None
    try:
        return validate(changed, name, folder, needs_task=needs_task)
    except ScenarioError as error:
        raise ScenarioError(name, error.problems, _at_fault(error.problems, document, settings, folder)) from None


def validate(
    document: dict[str, Any],
    source: str,
    folder: Path | None = None,
    *,
    roots: Roots | None = None,
    needs_task: bool = True,
    is_kept: bool = False,
) -> Scenario:
    """Create a scenario from plain data.

    Args:
        document: the fields of the scenario.
        source: how error messages name the scenario.
        folder: the folder to which the file names in the scenario are relative.
        roots: for a scenario sent by a server: the folders in which its files may lie.
        needs_task: whether it must have a task.
        is_kept: whether a run of it has been made, which can be read without its data.

    Raises:
        ScenarioError: the scenario is not valid.
        NotAllowed: a folder lies outside of the roots.
    """
    _check_plugins(document, source)
    try:
        # JSON mode: even if strict, it accepts a list for a tuple, and text for the round numbers of a schedule
        scenario = Scenario.model_validate_json(
            json.dumps(document), strict=True, context={"folder": folder, "roots": roots, "is_kept": is_kept}
        )
        problems = []
    except ValidationError as error:
        problems = sentences(error, Scenario, document)
    except RecursionError:
        problems = [too_deep(Scenario)]
    if needs_task and "task" not in document:
        problems.insert(0, "task: this field is required (the model and its data)")
    if problems:
        raise ScenarioError(source, problems)
    return scenario


def _check_plugins(document: dict[str, Any], source: str) -> None:
    """Check that this process has the plug-ins that a document names, before its fields, which may need them.

    Raises:
        ScenarioError: a plug-in is not loaded, or has another source.
    """
    plugins = document.get("plugins")
    if isinstance(plugins, dict) and all(isinstance(digest, str) for digest in plugins.values()):
        try:
            refuse_missing(plugins)
        except ValueError as error:
            raise ScenarioError(source, [str(error)]) from None


def _find(source: str | Path) -> tuple[str, str, str]:
    """Return the text of a scenario, its name in error messages, and the default of its field `name`."""
    path = path_of(source, "scenario", "a scenario file, a name from `seedbus list`, or a mapping of fields")
    scenarios = library()
    try:
        if path.is_file():
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("._-")[:64]
            with path.open(encoding="utf-8") as file:
                return file.read(MAX_CHARACTERS + 1), printable(str(path)), name or "scenario"
        if str(source) in scenarios:
            return scenarios[str(source)].read_text(encoding="utf-8"), f"{source}.yaml", str(source).replace("/", "-")
        if path.exists():
            raise ScenarioError(
                printable(str(path)), ["it is not a file; expected a scenario file, or a name from `seedbus list`"]
            )
    except UnicodeDecodeError as error:
        byte = f"the byte 0x{error.object[error.start]:02x} at {error.start}"
        raise ScenarioError(printable(str(path)), [f"it is not UTF-8 text: it holds {byte}"]) from None
    except OSError as error:
        raise ScenarioError(printable(str(path)), [f"it cannot be read ({error.strerror})"]) from None
    if str(source).removesuffix(".yaml") in studies():
        raise ScenarioError(str(source), [_STUDY])
    near = difflib.get_close_matches(str(source).removesuffix(".yaml"), scenarios, 1)
    hint = f"did you mean {near[0]}?" if near else "`seedbus list` shows the scenarios of the library"
    raise ScenarioError(printable(str(source)), [f"there is no such file and no scenario of that name; {hint}"])


def _parse(text: str, source: str) -> Any:
    try:
        return parse(text)
    except NotPlain as error:
        raise ScenarioError(source, [str(error)]) from None


def listed(settings: object) -> list[str]:
    """Return settings as a list of texts `field=value`; a Python program may give a mapping from fields to values.

    Raises:
        ScenarioError: they are something else, or a value has no plain form.
    """
    if isinstance(settings, Mapping):
        plain = plain_fields({str(path): value for path, value in settings.items()}, "settings", "scenario")
        return [f"{path}={_as_text(value)}" for path, value in plain.items()]
    if not isinstance(settings, list | tuple):  # a text would be taken for a list of its letters
        what = 'a list of field=value, like ["stop.rounds=50"], or a mapping, like {"stop.rounds": 50}'
        raise ScenarioError("settings", [f"{quoted(settings)} is not accepted; expected {what}"])
    for setting in settings:
        if not isinstance(setting, str):
            what = f"{printable(repr(setting))} is not accepted; expected {_SETTING}"
            raise ScenarioError("settings", [what])
    return list(settings)


def refuse_of_task(settings: Sequence[str]) -> None:
    """Raise `ScenarioError` for a setting of a task that a Python program gives as an object."""
    for setting in settings:
        if setting.partition("=")[0].split(".")[0] == "task":
            what = "the task is an object of this program; expected its fields to be changed there"
            raise ScenarioError(setting_label(setting), [what])


def _as_text(value: Any) -> str:
    """Return a value of plain data as the command line has it, on one line."""
    try:
        if isinstance(value, str) and parse(value) == value:
            return value
    except NotPlain:
        pass
    return json.dumps(value, ensure_ascii=False)


def _applied(document: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return a copy of a document with all settings applied, and all names expanded."""
    changed: dict[str, Any] = expanded(copy.deepcopy(document), [Scenario])
    for setting in settings:
        _apply(changed, setting)
        changed = expanded(changed, [Scenario])
    return changed


def _at_fault(
    problems: list[str], document: dict[str, Any], settings: list[str], folder: Path | None
) -> list[list[str]]:
    """Return for each problem the settings of which each takes part in it; none: it is the document's own.

    Without such a setting the problem is not there. But where another section has a new problem then, that one may only
    hide it. Of a value that is wrong by itself only the last setting is returned.
    """
    found: list[dict[str, bool]] = [{} for _ in problems]  # setting → whether no other section has a new problem
    for number, setting in enumerate(settings):
        path, later = setting.partition("=")[0], settings[number + 1 :]
        if any(f"{path}.".startswith(f"{each.partition('=')[0]}.") for each in later):
            continue  # a later one replaces it
        apart = [each for each in later if not each.startswith(f"{path}.")]  # those within it need it
        others = _problems(document, settings[:number] + apart, folder)
        if others is None:
            continue
        places = {each.partition(" ")[0] for each in others if each not in problems}  # sentences begin with the place
        for problem, of_problem in zip(problems, found, strict=True):
            if problem not in others:
                of_problem[setting] = places <= {problem.partition(" ")[0]}
    return [
        list(each)[-1:] if is_of_one_value(problem) else [name for name in each if each[name]] or list(each)
        for problem, each in zip(problems, found, strict=True)
    ]


def _problems(document: dict[str, Any], settings: list[str], folder: Path | None) -> list[str] | None:
    """Return the problems of a document with these settings; None if one of them cannot be applied."""
    try:
        changed = _applied(document, settings)
    except ScenarioError:
        return None
    try:
        validate(changed, "", folder)
    except ScenarioError as error:
        return error.problems
    return []


def _apply(document: dict[str, Any], setting: str) -> None:
    """Apply a setting `field.field=value` of the command line; a number in the path is an index of a list."""
    path, _, text = setting.partition("=")
    parts = path.split(".")
    if "=" not in setting or not all(parts):
        raise ScenarioError(setting_label(setting), [f"expected {_SETTING}"])
    value: Any = document
    for number, part in enumerate(parts):
        key = _key(value, parts[:number], part, setting)
        if number + 1 == len(parts):
            value[key] = _parse(text, setting_label(setting))
        else:
            value = value.setdefault(key, {}) if isinstance(value, dict) else value[key]


def _key(value: Any, path: list[str], part: str, setting: str) -> str | int:
    """Return `part` of a setting's path as a key of the value at `path`: a field, or an index of a list."""
    if isinstance(value, dict):
        return part
    if isinstance(value, list) and part.isdecimal() and len(part) < 10 and int(part) < len(value):
        return int(part)
    has = f"has entries 0 to {len(value) - 1}" if value and isinstance(value, list) else "has no fields"
    what = f"{printable('.'.join(path))} is {quoted(value)}, which {has}; there is no {printable(part)}"
    raise ScenarioError(setting_label(setting), [what])
