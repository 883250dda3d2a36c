"""Reading scenario files: YAML to `Scenario`, and every mistake to one sentence.

A file that does not parse, a field that does not exist, a value of the wrong type or out of range: each problem names
the file, the field, the value and what would be accepted.
"""

from __future__ import annotations

import difflib
import json
import re
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from seedbus.models.task import tasks
from seedbus.scenarios.discovery import algorithms, faults
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema import Scenario


def library() -> dict[str, Traversable]:
    """The scenarios that come with Seedbus, by name."""
    folder = resources.files("seedbus.scenarios") / "library"
    return {item.name.removesuffix(".yaml"): item for item in sorted(folder.iterdir(), key=lambda item: item.name)}


def load(source: str | Path, settings: list[str] | None = None) -> Scenario:
    """The scenario in a file, or of the library by its name, with `a.b=c` settings on top. Raises `ScenarioError`."""
    text, name, default_name = _find(source)
    document = _parse(text, name)
    if not isinstance(document, dict):
        raise ScenarioError(name, [f"a scenario is a mapping of fields, not {type(document).__name__}"])
    document.setdefault("name", default_name)
    for setting in settings or []:
        _apply(document, setting)
    return validate(document, name)


def validate(document: dict[str, Any], source: str) -> Scenario:
    """A scenario from plain data. Raises `ScenarioError`."""
    try:
        # by way of JSON: strict there still takes a list for a tuple and a written number for a schedule's round
        return Scenario.model_validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        raise ScenarioError(source, [_sentence(problem) for problem in error.errors()]) from None
    except (TypeError, ValueError) as error:
        raise ScenarioError(source, [f"it holds what JSON cannot: {error}"]) from None


def _find(source: str | Path) -> tuple[str, str, str]:
    path = Path(source)
    try:
        if path.is_file():
            return path.read_text(encoding="utf-8"), str(path), re.sub(r"[^A-Za-z0-9._-]", "-", path.stem)
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(str(path), [f"it cannot be read ({error})"]) from None
    known = library()
    if str(source) in known:
        return known[str(source)].read_text(encoding="utf-8"), f"{source}.yaml", str(source)
    near = difflib.get_close_matches(str(source), known, 1)
    hint = f"; did you mean {near[0]}?" if near else "; `seedbus list` shows the scenarios that there are"
    raise ScenarioError(str(source), [f"there is no such file and no scenario of that name{hint}"])


class _Loader(yaml.SafeLoader):
    """Safe YAML that takes 1e-3 for a number, and refuses a key that is given twice."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, (str, int)) and key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"{key} is given twice", key_node.start_mark)
        seen.add(str(key) if not isinstance(key, (str, int)) else key)
    return dict(yaml.SafeLoader.construct_mapping(loader, node, deep=True))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+0123456789.")
)


def _parse(text: str, name: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise ScenarioError(name, [f"{where}{error.problem or error.context}"]) from None
    except yaml.YAMLError as error:
        raise ScenarioError(name, [f"it is not YAML ({error})"]) from None


def _apply(document: dict[str, Any], setting: str) -> None:
    """One `a.b=c` of the command line; a number in the path is a place in a list."""
    path, equals, text = setting.partition("=")
    if not equals or not path:
        raise ScenarioError(f"--set {setting}", ["a setting is written field=value, like algorithm.momentum=0.5"])
    value = _parse(text, f"--set {setting}")
    *parents, last = path.split(".")
    place: Any = document
    for part in parents:
        if isinstance(place, list) and part.isdigit() and int(part) < len(place):
            place = place[int(part)]
        elif isinstance(place, dict):
            place = place.setdefault(part, {})
        if not isinstance(place, (dict, list)):
            raise ScenarioError(f"--set {setting}", [f"{part} is {place!r} and has no fields"])
    if isinstance(place, list):
        if not last.isdigit() or int(last) >= len(place):
            raise ScenarioError(f"--set {setting}", [f"{last} is no place in a list of {len(place)}"])
        place[int(last)] = value
    else:
        place[last] = value


def _sentence(problem: Any) -> str:
    """One pydantic error as one sentence."""
    model, shown = _walk(problem["loc"])
    where = ".".join(shown) or "the scenario"
    kind, given = problem["type"], problem.get("input")
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(shown[-1], list(model.model_fields) if model else [], 1)
        known = ", ".join(model.model_fields) if model else ""
        return f"{where}: no such field; " + (f"did you mean {near[0]}?" if near else f"there are {known}")
    if kind == "missing":
        return f"{where}: this field is required"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        context = problem["ctx"]
        tag, known = context["discriminator"].strip("'"), context.get("expected_tags", "")
        said = context.get("tag")
        near = difflib.get_close_matches(str(said), re.findall(r"'([^']+)'", known), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        if said is None:
            return f"{where}.{tag}: this field is required"
        return f"{where}.{tag}: {said!r} is not known{hint} There are {known}".replace("? There", "? There")
    message = problem["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        return message if where == "the scenario" else f"{where}: {message}"
    return f"{where}: {json.dumps(given, ensure_ascii=False)} is not accepted: {message[0].lower()}{message[1:]}"


def _walk(location: tuple[int | str, ...]) -> tuple[type[BaseModel] | None, list[str]]:
    """The model in which an error lies, and its path without the tags that pydantic puts between."""
    tagged: dict[str, type[BaseModel]] = {**algorithms(), **faults(), **tasks()}
    model: type[BaseModel] | None = Scenario
    shown: list[str] = []
    for number, part in enumerate(location):
        last = number + 1 == len(location)
        fields = model.model_fields if model is not None else {}
        if part in fields or last or isinstance(part, int):
            if isinstance(part, str) and re.fullmatch(r"[a-z]+(\[.*\]|-?\w+)?", part) is None:
                continue  # the name of a validator, not of a field
            shown.append(str(part))
            annotation = fields[str(part)].annotation if part in fields else None
            if not last and isinstance(annotation, type) and issubclass(annotation, BaseModel):
                model = annotation
        elif part in tagged:
            model = tagged[str(part)]
    return model, shown
