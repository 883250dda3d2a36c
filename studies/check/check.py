"""Checks what a plug-in defines against the promises of its kinds: the same checks as those of our own algorithms."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ValidationError

from seedbus.discovery import KINDS, PLUGINS, Variants
from seedbus.scenarios.cli_errors import exit_code
from seedbus.scenarios.errors import Interrupted, ScenarioError, path_of, with_type
from seedbus.scenarios.schema.plugins import load_plugin, owner
from seedbus.scenarios.sentences import sentences
from seedbus.studies.check.kinds import HOMES, home, subject_of

_ROOM = Path(__file__).parent
_PACKAGE = _ROOM.parent.parent


class Checked(NamedTuple):
    """A promise of one thing, and whether it is kept.

    Attributes:
        kind: what kind of thing it is, such as "algorithm".
        name: its name in scenarios.
        fields: the fields that it was made with, beside its defaults.
        promise: the promise in one sentence.
        problem: how it is broken, with values; "" if it is kept.
    """

    kind: str
    name: str
    fields: dict[str, Any]
    promise: str
    problem: str = ""


def check(what: str | Path | BaseModel, tell: Callable[[Checked], None] = lambda checked: None) -> list[Checked]:
    """Check all that a plug-in defines, or one algorithm, fault, task and so on, against the contract of its kind.

    A class is checked with its defaults, and with each of its examples: mappings of fields in its
    `model_config = ConfigDict(json_schema_extra={"examples": […]})`.

    Args:
        what: a plug-in's path, or a thing that a scenario could name, whose class is in a plug-in or registered.
        tell: is told of every promise as soon as it was checked.

    Raises:
        ScenarioError: the plug-in cannot be loaded, or the thing is of no kind.
    """
    checked = []
    try:
        for each in _checked(what):
            tell(each)
            checked.append(each)
    except Interrupted:
        raise KeyboardInterrupt from None  # there is no folder to go on with
    return checked


def _checked(what: str | Path | BaseModel) -> Iterator[Checked]:
    if isinstance(what, BaseModel):
        kind, name = _kind_of(what)
        yield from _of(kind, name, what, what.model_dump(mode="json", exclude_defaults=True))
        return
    load_plugin(path_of(what, "check", "the path of a plug-in, or a thing that a scenario could name"))
    plugin = next(each for each in PLUGINS.values() if each.path == str(Path(what).resolve()))
    for kind in KINDS:
        for name in kind.of(plugin) if kind.noun in HOMES else ():
            yield from _cases(kind, name)
        if kind.noun == "method":
            algorithms = next(each for each in KINDS if each.noun == "algorithm")
            for name in kind.of(plugin):
                yield from _cases(algorithms, name)


def _kind_of(model: BaseModel) -> tuple[Variants, str]:
    for kind in KINDS:
        for name, found in kind.all().items() if kind.noun in HOMES else ():
            if found is type(model):
                return kind, name
    nouns = ", ".join(HOMES)
    raise ScenarioError(
        type(model).__name__, [f"it is of no known kind; expected one of {nouns}, in a plug-in or registered"]
    )


def _cases(kind: Variants, name: str) -> Iterator[Checked]:
    """Check a class with its defaults, and with its examples."""
    found = kind.all()[name]
    extra = found.model_config.get("json_schema_extra")
    examples = list(extra.get("examples", [])) if isinstance(extra, dict) else []
    for fields in [{}, *examples]:
        try:
            model = found.model_validate({kind.tag: name} | fields)
        except ValidationError as error:
            problem = "; ".join(sentences(error, found, {kind.tag: name} | fields))
            if fields or not examples:
                advice = "" if fields else "; give examples in json_schema_extra of its model_config"
                yield Checked(kind.noun, name, fields, "It can be made from its fields", problem + advice)
            continue
        yield from _of(kind, name, model, fields)


def _of(kind: Variants, name: str, model: BaseModel, fields: dict[str, Any]) -> Iterator[Checked]:
    """Check one thing; fields: those with which it was made."""
    from seedbus.studies.check.elsewhere import found_elsewhere, found_of
    from seedbus.studies.check.promises import promise_of, require_same

    module = home(kind.noun)
    made: list[Any] = []
    problem = _problem(lambda: made.append(subject_of(kind.noun, model)), model)
    if problem:
        yield Checked(kind.noun, name, fields, "It does its work", problem)
        return

    def agrees() -> None:
        (elsewhere,) = found_elsewhere([(kind.noun, model)])
        require_same(elsewhere, found_of(kind.noun, made[0]), "the digest of what another process finds", "and here")

    plugin = PLUGINS.get(owner(type(model)))
    is_here_alone = plugin is not None and plugin.module is None
    runs = [*getattr(module, "RUNS", ()), *(() if is_here_alone else getattr(module, "WORKERS", ()))]
    attempts: list[tuple[str, Callable[[], object]]] = [
        (promise_of(promise), partial(promise, made[0])) for promise in (*module.CONTRACT, *runs)
    ]
    if hasattr(module, "results") and not is_here_alone:
        attempts.insert(len(module.CONTRACT), ("Another process finds the same bits", agrees))
    for promise, attempt in attempts:
        yield Checked(kind.noun, name, fields, promise, _problem(attempt, model))


def _problem(attempt: Callable[[], object], model: BaseModel) -> str:
    """Return how an attempt fails, in one sentence; "" if it does not."""
    try:
        with np.errstate(all="ignore"):
            attempt()
    except (Exception, SystemExit) as error:
        return " ".join(_sentence(error, model).split())
    return ""


def _sentence(error: BaseException, model: BaseModel) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    is_ours = isinstance(error, AssertionError) and Path(frames[-1].filename).parent == _ROOM
    is_known = isinstance(error, Exception) and exit_code(error) is not None  # a sentence of its own
    if is_known or (is_ours and error.__cause__ is None):
        return str(error)
    if is_ours:
        return f"{error} ({_place(error.__cause__, model)})"
    return f"{_place(error, model)}: {with_type(error)}"


def _place(error: BaseException | None, model: BaseModel) -> str:
    """Return the file and line where an error was raised: the innermost line of the user's own, if there is one."""
    frames = traceback.extract_tb(error.__traceback__ if error is not None else None)
    try:
        own = Path(inspect.getfile(getattr(type(model), "method", None) or type(model))).resolve()
    except (OSError, TypeError):
        own = None
    users = [frame for frame in frames if own is not None and Path(frame.filename).resolve() == own]
    foreign = [frame for frame in frames if not Path(frame.filename).resolve().is_relative_to(_PACKAGE)]
    frame = (users or foreign or frames)[-1]
    path = Path(frame.filename)
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}, line {frame.lineno}"
