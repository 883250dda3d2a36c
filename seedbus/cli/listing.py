"""`seedbus list` on the command line."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from seedbus.cli.options import Output, Plugins
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.terminal import say

INCLUDED = ("scenarios", "studies")
_WHAT = typer.Argument(
    metavar="WHAT",
    help="scenarios, studies, plugins, trackers, or what a scenario names: algorithms, tasks, faults, …; or schema.",
)


def list_command(what: Annotated[str, _WHAT] = "scenarios", plugin: Plugins = None, output: Output = "text") -> None:
    """List the scenarios or studies that come with Seedbus, or what a scenario may name: algorithms, tasks, ….

    schema prints the JSON Schema of scenario files, for editors.
    """
    with cli_errors():
        if what == "schema":
            from seedbus.scenarios.schema.scenario import json_schema

            typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
            return
        lines = _included(what) if what in INCLUDED else _named(what)
        if output == "json":
            typer.echo(json.dumps(lines, ensure_ascii=False))
            return
        width = max(map(len, lines), default=0)
        for name, description in lines.items():
            say(f"{name:<{width}}  {description}")


def _included(what: str) -> dict[str, str]:
    from seedbus.scenarios.schema.loading import library, studies
    from seedbus.scenarios.schema.yaml_text import parse

    files = library() if what == "scenarios" else studies()
    return {name: parse(item.read_text("utf-8"))["description"] for name, item in files.items()}


def _named(what: str) -> dict[str, str]:
    """Return what there is of a kind: name → the first line of its description, and its plug-in."""
    from seedbus.discovery import KINDS, PLUGINS
    from seedbus.scenarios.schema.plugins import owner
    from seedbus.scenarios.sentences import nearest

    if what == "plugins":
        return {name: f"{plugin.digest}  {plugin.path}".rstrip() for name, plugin in PLUGINS.items()}
    kinds = {kind.plural: kind for kind in KINDS}
    if what not in kinds:
        known = nearest(what, [*INCLUDED, "plugins", "schema", *kinds])
        raise ScenarioError(f"seedbus list {what}", [f"there is no such kind; {known}"])
    lines = {}
    for name, found in kinds[what].all().items():
        summary, whose = (found.__doc__ or "").strip().partition("\n")[0], owner(found)
        lines[name] = summary if whose == "Seedbus" else f"{summary} [{whose}]"
    return lines
