"""Functions and objects of the user, as fields of a task.

A field holds the object itself, given in Python, or text that names a function of a plug-in: `plugin:function`. In a
stored scenario it is text in both cases. The invariant: text is looked up only among the public functions that a loaded
plug-in itself defines; nothing is ever imported because a scenario names it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from seedbus.discovery import PLUGINS
from seedbus.models.errors import DataError

MODEL_FIELD = "task.model"
"""The field of tasks with networks of ours."""
METRICS_FIELD = "task.metrics"
"""The field of tasks with metrics of the user."""
_NAME = re.compile(r"[\w.<>-]{1,200}(:[\w.<>-]{1,200})?")


def name_of(value: Any) -> str:
    """Return `plugin:function` for a function of a loaded plug-in, `module:name` for any other object, and text as is.

    An object that has no name of its own is named after its class.
    """
    if isinstance(value, str):
        return value
    named = value if hasattr(value, "__qualname__") else type(value)
    for plugin in PLUGINS.values():
        is_there = named is value and named.__qualname__ in plugin.functions
        if is_there and _file_of(sys.modules.get(named.__module__)) == _file_of(plugin.module):
            return f"{plugin.name}:{named.__qualname__}"
    return f"{named.__module__}:{named.__qualname__}"


def found(value: Any, field: str) -> Any:
    """Return the object that a field holds or names.

    Args:
        value: the field's value.
        field: the field's name, for messages.

    Raises:
        DataError: no loaded plug-in has a function of that name.
    """
    if not isinstance(value, str):
        return value
    name, _, function = value.partition(":")
    plugin = PLUGINS.get(name)
    if plugin is not None and function in plugin.functions:
        return plugin.functions[function]
    if plugin is not None:
        there = ", ".join(f"{name}:{each}" for each in sorted(plugin.functions)) or "none"
        raise DataError(field, repr(value), f"a public function that the plug-in {name} defines; there are {there}")
    loaded = "loaded here (by --plugin FILE.py or SEEDBUS_PLUGINS for a command, by load_plugin in Python)"
    in_python = "" if field.startswith((MODEL_FIELD, METRICS_FIELD)) else ", or in Python task=TorchTask(…)"
    expected = f"plugin:function of a plug-in that is {loaded}{in_python}"
    raise DataError(field, repr(value), expected)


def plugin_of(value: Any) -> str | None:
    """Return the name of the loaded plug-in that defines a field's value; None if none does."""
    name, _, function = name_of(value).partition(":")
    return name if name in PLUGINS and function in PLUGINS[name].functions else None


def check_named(fields: Iterator[tuple[str, Any]]) -> None:
    """Check that other processes can find what a task holds.

    Args:
        fields: names and values.

    Raises:
        DataError: a value is not a function of a plug-in that is loaded here.
    """
    for field, value in fields:
        found(value, field)
        if not isinstance(value, str) and plugin_of(value) is None:
            expected = "plugin:function of a plug-in (seedbus.plugin, --plugin FILE.py), which other processes can load"
            raise DataError(field, f"{name_of(value)}, which only this process has", expected)


def _file_of(module: ModuleType | None) -> str | None:
    file = getattr(module, "__file__", None)
    return None if file is None else os.path.realpath(file)


def checked(value: Any) -> Any:
    if not isinstance(value, str) and not callable(value):
        raise ValueError("expected a function, or plugin:function")
    if isinstance(value, str) and not _NAME.fullmatch(value):
        raise ValueError("expected plugin:function, such as mine:build")
    return value


def _checked_object(value: Any) -> Any:
    return checked(value) if isinstance(value, str) else value


def is_own(value: Any) -> bool:
    """Whether a field holds or names a function of the user, where it may also hold one of our names."""
    return value is not None and not (isinstance(value, str) and ":" not in value)


def function_or(*names: str) -> tuple[Any, ...]:
    """Return what pydantic needs to know of a field that holds one of our names, or a function of the user."""

    def check(value: Any) -> Any:
        if isinstance(value, str) and ":" not in value and value not in names:
            raise ValueError(f"expected {', '.join(names)}, or plugin:function")
        return checked(value)

    schema = {"anyOf": [{"enum": list(names)}, _FUNCTION]}
    return BeforeValidator(check), _AS_TEXT, WithJsonSchema(schema)


_FUNCTION = {"type": "string", "format": "plugin:function"}
_AS_TEXT = PlainSerializer(name_of, return_type=str)
Function = Annotated[Any, BeforeValidator(checked), _AS_TEXT, WithJsonSchema(_FUNCTION)]
Object = Annotated[Any, BeforeValidator(_checked_object), _AS_TEXT, WithJsonSchema({"type": "string"})]
