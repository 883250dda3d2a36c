"""`seedbus privacy` on the command line."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from seedbus.scenarios.cli.options import Format, Output, Plugins, RunFolder
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.reporting.terminal import say


def privacy(
    run: RunFolder,
    delta: Annotated[
        float | None, typer.Option(min=1e-300, max=0.999, help="State ε for this δ; default: the scenario's.")
    ] = None,
    plugin: Plugins = None,
    output: Output = Format.text,
) -> None:
    """Recompute the ε that a private run has spent, from the rounds in its journal alone."""
    with cli_errors():
        from seedbus.bus.text import counted
        from seedbus.scenarios.reporting.privacy import spent
        from seedbus.scenarios.reporting.report import SEEDED_NOISE

        found = spent(run, delta)
        if output is Format.json:
            typer.echo(json.dumps(found))
        else:
            say(
                f"ε = {found['epsilon']:.6g} for δ = {found['delta']:g}, after {counted(found['rounds'], 'round')} "
                f"({found['mechanism']} noise, {found['cohorts']} cohorts"
                f"{f'; {SEEDED_NOISE}' if found['noise'] == 'seeded' else ''})"
            )
