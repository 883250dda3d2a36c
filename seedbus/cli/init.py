"""`seedbus init` on the command line."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seedbus.cli import completion
from seedbus.cli.options import Plugins, fields_of, settings_of
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.terminal import say

if TYPE_CHECKING:
    from seedbus.discovery import Variants


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("scenario.yaml"),
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="CHOICE=VALUE",
            help="task, algorithm, partition (a name, or fields, like '{name: table, file: rows.csv, target: y}'), "
            "clients, cohort, rounds, dropout (the probability that a client drops out of a round), stragglers (the "
            "fraction of slow clients).",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="NAME",
            help="Copy this scenario of `seedbus list`, with its comments, instead.",
            autocompletion=completion.included,
        ),
    ] = None,
    plugin: Plugins = None,
) -> None:
    """Write a first scenario, with comments.

    At a terminal it asks for what --set leaves out; elsewhere these things have their defaults. With --from NAME it
    writes a scenario that comes with Seedbus, to be changed.
    """
    with cli_errors():
        if os.path.lexists(file):
            raise ScenarioError(str(file), ["it exists already; name another file, or delete it"])
        from seedbus.scenarios.reporting.results import write_named
        from seedbus.studies.explain.first_scenario import Choices, first_scenario

        if source is not None:
            text = _copied(source, settings)
        else:
            choices = settings_of(Choices, "--set", settings)
            if sys.stdin.isatty():
                choices = _asked(choices, fields_of("--set", settings))
            text = first_scenario(choices)
        write_named(file, text)
        typed = " ".join([shlex.quote(str(file)), *(f"--plugin {shlex.quote(str(each))}" for each in plugin or ())])
        say(f"written to {file}; next: `seedbus explain {typed}`, then `seedbus run {typed}`")


def _copied(name: str, settings: list[str] | None) -> str:
    """Return the text of the scenario that comes with Seedbus under this name."""
    from seedbus.scenarios.schema.loading import library, text_of
    from seedbus.scenarios.sentences import nearest

    if settings:
        raise ScenarioError(
            "--set", ["it is for a scenario of your choices; with --from, change the file that is written"]
        )
    if name not in library():
        raise ScenarioError(
            f"--from {name}", [f"no scenario of this name comes with Seedbus; {nearest(name, library())}"]
        )
    return text_of(name)


def _asked(choices: Any, known: Collection[str]) -> Any:
    """Return the choices with the user's answers to what is not known."""
    from seedbus.studies.explain.first_scenario import KINDS, QUESTIONS, completed

    for name, question in QUESTIONS.items():
        if name not in known:
            default, kind = getattr(completed(choices), name), KINDS.get(name)
            answer = _number(question, default) if kind is None else _variant(question, kind, default)
            choices = replace(choices, **{name: answer})
    return choices


def _variant(question: str, kind: Variants, default: Any) -> Any:
    """Ask for a variant by its name, and for its fields that have no default."""
    from seedbus.scenarios.sentences import nearest

    kinds, default_name = kind.all(), default[kind.tag] if isinstance(default, dict) else default
    name = ""
    while name not in kinds:
        name = typer.prompt(f"{question} ({', '.join(kinds)})", default=default_name, err=True)
        if name not in kinds:
            say(f"{name} is not known; {nearest(name, kinds)}", to_stderr=True)
    if name == default_name:
        return default
    required = {each: field for each, field in kinds[name].model_fields.items() if field.is_required()}
    answers = {each: _value(f"{kind.tag} {name}: {each}, {field.description}") for each, field in required.items()}
    return {kind.tag: name} | answers if answers else name


def _number(question: str, default: float) -> float:
    value = None
    while not isinstance(value, int | float) or isinstance(value, bool):
        value = _value(question, default)
        if isinstance(value, str):
            say(f"{value} is not a number", to_stderr=True)
    return value


def _value(question: str, default: float | None = None) -> Any:
    from seedbus.scenarios.schema.yaml_text import NotPlain, parse

    text = typer.prompt(question, default=None if default is None else str(default), err=True)
    try:
        return parse(text)
    except NotPlain:
        return text
