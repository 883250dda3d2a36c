"""The command that goes on with a stopped run: the one that was typed, with all its options."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from seedbus.scenarios.errors import Interrupted


@contextmanager
def naming_command(context: typer.Context) -> Iterator[None]:
    """Have `Interrupted` name the command that goes on with the run.

    Args:
        context: of the command that runs in this context.
    """
    try:
        yield
    except Interrupted as stopped:
        raise Interrupted(stopped.folder, f"`{_going_on(context, stopped.folder)}`") from None


def _going_on(context: typer.Context, folder: Path) -> str:
    """Return the command that was typed with `--resume FOLDER`. Of a new run, the folder has scenario and settings."""
    in_folder = {"out", "resume"} | (set() if context.params["resume"] else {"scenario", "settings"})
    typed = [each for each in context.command.params if _is_typed(context, each.name or "")]
    options = [part for each in typed if each.name not in in_folder for part in _parts(each, context)]
    return shlex.join([*context.command_path.split(), *options, "--resume", str(folder)])


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _parts(parameter: Any, context: typer.Context) -> list[str]:
    """Return a parameter as it is typed; an argument has no name."""
    value = context.params[parameter.name]
    if parameter.param_type_name == "argument":
        return [str(value)]
    name = max(parameter.opts, key=len)
    if value is True:
        return [name]
    return [part for each in (value if isinstance(value, list) else [value]) for part in (name, _text(each))]


def _text(value: object) -> str:
    text = str(value.value if isinstance(value, Enum) else value)
    return text.removesuffix(".0") if isinstance(value, float) else text
