"""`seedbus partition` on the command line."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from seedbus.cli.options import Plugins, ScenarioArgument, Set
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.terminal import note


class DivisionFormat(StrEnum):
    """Output formats of a division."""

    text = "text"
    json = "json"
    csv = "csv"


def partition(
    scenario: ScenarioArgument,
    settings: Set = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Draw the first 100 clients' classes into this SVG file.")
    ] = None,
    plugin: Plugins = None,
    output: Annotated[
        DivisionFormat,
        typer.Option("--format", help="text, one JSON object, or the lines that `partition: {kind: file}` reads."),
    ] = DivisionFormat.text,
) -> None:
    """Show which client holds which samples, before any run: by class, and how much the clients differ."""
    with cli_errors():
        if svg is not None and not svg.name:
            raise ScenarioError(f"--svg {svg}", ["it names no file; expected one like partition.svg"])
        from seedbus.scenarios.reporting import division
        from seedbus.scenarios.reporting.results import write_named
        from seedbus.scenarios.schema.loading import load

        loaded = load(scenario, settings, needs_task=True)
        clients = loaded.participation.clients
        parts = loaded.task.division(seed=loaded.seed, clients=clients, partition=loaded.partition)
        for sentence in parts.notes:
            note(sentence)
        found = division.summary(loaded, parts)
        if svg is not None:
            write_named(svg, division.picture(found))
        if output is DivisionFormat.csv:
            typer.echo(division.as_csv(parts), nl=False)
        elif output is DivisionFormat.json:
            typer.echo(json.dumps(found))
        else:
            division.show(found)
