"""`seedbus list` on the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

import typer

from seedbus.cli import completion
from seedbus.cli.options import Output, Plugins
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.terminal import say

INCLUDED = ("scenarios", "studies")
_WHAT = typer.Argument(
    metavar="WHAT",
    help="scenarios, studies, plugins, trackers, or what a scenario names: algorithms, tasks, faults, …; or schema.",
    autocompletion=completion.lists,
)
_NAME = typer.Argument(
    metavar="NAME",
    help="Describe this one: its fields, an example, and the page that says more.",
    autocompletion=completion.listed,
)


def list_command(
    what: Annotated[str, _WHAT] = "scenarios",
    name: Annotated[str | None, _NAME] = None,
    plugin: Plugins = None,
    output: Output = "text",
) -> None:
    """List what comes with Seedbus, or describe one of it: `seedbus list faults`, `seedbus list faults dropout`.

    Of a scenario or a study NAME prints the file. schema prints the JSON Schema of scenario files, for editors.
    """
    with cli_errors():
        if what == "schema":
            from seedbus.scenarios.schema.scenario import json_schema

            typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
            return
        lines = _included(what) if what in INCLUDED else _named(what)
        if name is not None:
            _describe(what, name, lines, output)
        elif output == "json":
            typer.echo(json.dumps(lines, ensure_ascii=False))
        else:
            width = max(map(len, lines), default=0)
            for each, description in lines.items():
                say(f"{each:<{width}}  {description}")


def _describe(what: str, name: str, known: Mapping[str, str], output: str) -> None:
    """Print the file of a scenario or study, or the fields of what a scenario names."""
    from seedbus.scenarios.reporting.described import described, kinds, show_description
    from seedbus.scenarios.schema.loading import text_of
    from seedbus.scenarios.sentences import nearest

    if name not in known:
        raise ScenarioError(f"seedbus list {what} {name}", [f"there is none of this name; {nearest(name, known)}"])
    if what in INCLUDED:
        text = text_of(name)
        typer.echo(json.dumps({name: text}, ensure_ascii=False) if output == "json" else text.rstrip("\n"))
        return
    if what == "plugins":
        typer.echo(json.dumps({name: known[name]})) if output == "json" else say(f"{name}  {known[name]}")
        return
    of = described(kinds()[what], name)
    if output == "json":
        typer.echo(json.dumps(of, ensure_ascii=False))
    else:
        show_description(f"{name} ({kinds()[what].noun})", of)


def _included(what: str) -> dict[str, str]:
    from seedbus.scenarios.schema.loading import library, studies
    from seedbus.scenarios.schema.yaml_text import parse

    files = library() if what == "scenarios" else studies()
    return {name: parse(item.read_text("utf-8"))["description"] for name, item in files.items()}


def _named(what: str) -> dict[str, str]:
    """Return what there is of a kind: name → the first line of its description, and its plug-in."""
    from seedbus.discovery import PLUGINS
    from seedbus.scenarios.reporting.described import kinds
    from seedbus.scenarios.schema.plugins import owner
    from seedbus.scenarios.sentences import nearest

    if what == "plugins":
        return {name: f"{plugin.digest}  {plugin.path}".rstrip() for name, plugin in PLUGINS.items()}
    if what not in kinds():
        known = nearest(what, [*INCLUDED, "plugins", "schema", *kinds()])
        raise ScenarioError(f"seedbus list {what}", [f"there is no such kind; {known}"])
    lines = {}
    for name, found in kinds()[what].all().items():
        summary, whose = (found.__doc__ or "").strip().partition("\n")[0], owner(found)
        lines[name] = summary if whose == "Seedbus" else f"{summary} [{whose}]"
    return lines
