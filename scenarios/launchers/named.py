"""Finds launchers by name: each is a file of this folder."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from seedbus.discovery import classes_in
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.launchers.launcher import Launcher
from seedbus.scenarios.sentences import nearest, sentences


def launchers() -> dict[str, type[Launcher]]:
    """Return all launchers by name."""
    package = importlib.import_module("seedbus.scenarios.launchers")
    names = [info.name for info in pkgutil.iter_modules(package.__path__)]
    found = [kind for name in names for kind in classes_in(importlib.import_module(f"{package.__name__}.{name}"))]
    kinds = [kind for kind in found if issubclass(kind, Launcher) and kind is not Launcher]
    return {kind.model_fields["launcher"].default: kind for kind in kinds}


def launcher_of(name: str, options: Mapping[str, object], settings: Sequence[str] = ()) -> Launcher:
    """Return the launcher that a command's options name.

    Args:
        name: its name.
        options: its fields that have options of their own; None: not given.
        settings: its other fields, as FIELD=VALUE.

    Raises:
        ScenarioError: there is no such launcher, or it has no such field.
    """
    known = launchers()
    if name not in known:
        raise ScenarioError(f"--launcher {name}", [f"there is no such launcher; {nearest(name, sorted(known))}"])
    values = {field: value for field, value in options.items() if value is not None}
    for setting in settings:
        field, equals, value = setting.partition("=")
        if not equals:
            raise ScenarioError(f"--launch {setting}", ["expected FIELD=VALUE"])
        values[field] = value
    for field in values:
        if field not in known[name].model_fields:
            others = [each for each, kind in known.items() if field in kind.model_fields]
            fields = [each for each in known[name].model_fields if each != "launcher"]
            known_fields = f"its fields are {', '.join(fields)}" if fields else "it has none"
            accepted = f"it is one of {' and '.join(sorted(others))}" if others else known_fields
            raise ScenarioError(f"--launcher {name}", [f"{field}: it has no such field; {accepted}"])
    try:
        return known[name](**values)
    except ValidationError as error:
        raise ScenarioError(f"--launcher {name}", sentences(error, known[name], values)) from None
