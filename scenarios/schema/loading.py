"""Reading scenario files: YAML to `Scenario`, and every mistake to one sentence that names the file and the field."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from seedbus.bus.text import printable
from seedbus.models.data.roots import Roots
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import LONGEST, NotPlain, parse
from seedbus.scenarios.sentences import quoted, sentences


def library() -> dict[str, Traversable]:
    """The scenarios that come with Seedbus, by name; those in a folder by folder/name."""
    return dict(sorted(_files(resources.files("seedbus.scenarios") / "library", "")))


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _files(item, f"{prefix}{item.name}/")
        else:
            yield prefix + item.name.removesuffix(".yaml"), item


def load(source: str | Path, settings: list[str] | None = None) -> Scenario:
    """The scenario in a file, or of the library by its name, with `a.b=c` settings on top. Raises `ScenarioError`."""
    text, name, default_name = _find(source)
    folder = Path(source).parent if os.path.isfile(source) else None  # of a name too long for a file: no
    document = _parse(text, name)
    if not isinstance(document, dict):
        raise ScenarioError(name, [f"{quoted(document)} is not a scenario; expected a mapping of fields"])
    document.setdefault("name", default_name)
    for setting in settings or []:
        _apply(document, setting)
    return validate(document, " ".join([name, *(f"--set {setting}" for setting in settings or [])]), folder)


def validate(
    document: dict[str, Any], source: str, folder: Path | None = None, *, roots: Roots | None = None
) -> Scenario:
    """A scenario from plain data.

    folder: where the files that it names are; roots: where folders are that a server's scenario may name. Raises
    `ScenarioError`, and `NotAllowed` for folders outside of the roots.
    """
    try:
        # by way of JSON: strict there still takes a list for a tuple and a written number for a schedule's round
        return Scenario.model_validate_json(
            json.dumps(document), strict=True, context={"folder": folder, "roots": roots}
        )
    except ValidationError as error:
        raise ScenarioError(source, sentences(error, Scenario, document)) from None


def _find(source: str | Path) -> tuple[str, str, str]:
    """The text of a scenario, what to call it in sentences, and the name it has if it gives itself none."""
    path, known = Path(source), library()
    try:
        if path.is_file():
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("._-")[:64]
            with path.open(encoding="utf-8") as file:
                return file.read(LONGEST + 1), printable(str(path)), name or "scenario"
        if str(source) in known:
            return known[str(source)].read_text(encoding="utf-8"), f"{source}.yaml", str(source).replace("/", "-")
        if path.exists():
            raise ScenarioError(
                printable(str(path)), ["it is no file; expected a scenario file, or a name from `seedbus list`"]
            )
    except UnicodeDecodeError as error:
        found = f"the byte 0x{error.object[error.start]:02x} at {error.start}"
        raise ScenarioError(printable(str(path)), [f"it is not UTF-8 text: it holds {found}"]) from None
    except OSError as error:
        raise ScenarioError(printable(str(path)), [f"it cannot be read ({error.strerror})"]) from None
    near = difflib.get_close_matches(str(source).removesuffix(".yaml"), known, 1)
    hint = f"did you mean {near[0]}?" if near else "`seedbus list` shows the scenarios that there are"
    raise ScenarioError(printable(str(source)), [f"there is no such file and no scenario of that name; {hint}"])


def _parse(text: str, source: str) -> Any:
    try:
        return parse(text)
    except NotPlain as error:
        raise ScenarioError(source, [str(error)]) from None


def _apply(document: dict[str, Any], setting: str) -> None:
    """One `a.b=c` of the command line; a number in the path is a place in a list."""
    path, _, text = setting.partition("=")
    parts = path.split(".")
    if "=" not in setting or not all(parts):
        raise ScenarioError(f"--set {setting}", ["expected field=value, like algorithm.momentum=0.5"])
    place: Any = document
    for number, part in enumerate(parts):
        key = _key(place, parts[:number], part, setting)
        if number + 1 == len(parts):
            place[key] = _parse(text, f"--set {setting}")
        else:
            place = place.setdefault(key, {}) if isinstance(place, dict) else place[key]


def _key(place: Any, path: list[str], part: str, setting: str) -> str | int:
    """What `part` of a setting's path is in the value at `path`: a field, or a place in a list."""
    if isinstance(place, dict):
        return part
    if isinstance(place, list) and part.isdecimal() and int(part) < len(place):
        return int(part)
    has = f"has places 0 to {len(place) - 1}" if place and isinstance(place, list) else "has no fields"
    raise ScenarioError(f"--set {setting}", [f"{'.'.join(path)} is {quoted(place)}, which {has}; there is no {part}"])
