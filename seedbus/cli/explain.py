"""`seedbus explain` on the command line."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from seedbus.cli.options import Format, Output, Plugins, ScenarioArgument, Set
from seedbus.scenarios.cli_errors import cli_errors


def explain(
    scenario: ScenarioArgument,
    settings: Set = None,
    plugin: Plugins = None,
    seconds: Annotated[
        float, typer.Option(min=0, max=3600, help="About how long to measure its cost; 0: not at all.")
    ] = 10.0,
    output: Output = Format.text,
) -> None:
    """Say in plain words what a scenario will do, and what it will cost here: bytes, time and memory."""
    with cli_errors():
        from seedbus.scenarios.running.possible import refuse_impossible
        from seedbus.scenarios.schema.loading import load
        from seedbus.studies.explain import explain

        loaded = load(scenario, settings, needs_task=True)
        loaded.check()
        refuse_impossible(loaded)
        explained = explain.explain(loaded, seconds)
        if output is Format.json:
            typer.echo(json.dumps(explained))
        else:
            explain.show(explained)
