"""`seedbus privacy` on the command line."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from seedbus.cli.options import Format, Output, Plugins, Set
from seedbus.scenarios.cli_errors import cli_errors


def privacy(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder; with --epsilon, a scenario.")],
    delta: Annotated[
        float | None, typer.Option(min=1e-300, max=0.999, help="State ε for this δ; default: the scenario's.")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            min=1e-6, max=1e6, help="The least noise_multiplier with which a run of the scenario spends at most this ε."
        ),
    ] = None,
    settings: Set = None,
    plugin: Plugins = None,
    output: Output = Format.text,
) -> None:
    """Recompute the ε that a private run has spent, from its journal alone; or find the noise for an ε."""
    with cli_errors():
        from pathlib import Path

        from seedbus.agents.errors import RunFolderError
        from seedbus.scenarios.errors import ScenarioError
        from seedbus.scenarios.reporting.privacy import in_words, spent
        from seedbus.scenarios.reporting.terminal import say

        if epsilon is None:
            if settings:
                raise ScenarioError("--set", ["it is for a scenario; give --epsilon too"])
            if not os.path.isdir(run):
                raise RunFolderError(
                    Path(run), "it is no run's folder; for a scenario give --epsilon, like --epsilon 4"
                )
            found = spent(Path(run), delta)
            said = in_words(found)
        else:
            from seedbus.scenarios.schema.loading import load
            from seedbus.studies.explain.noise import least_noise

            if delta is not None:
                raise ScenarioError("--delta", [f"it is for a run; with --epsilon give --set privacy.delta={delta:g}"])
            found = least_noise(load(run, settings, needs_task=True), run, epsilon)
            noise = f"privacy.noise_multiplier={found['noise_multiplier']:g}"
            try:
                load(run, [*(settings or ()), noise])
            except ScenarioError as error:  # too coarse, or too large for sums
                needs = f"--epsilon {epsilon:g} needs {noise}, and {'; '.join(error.problems)}"
                raise ScenarioError(run, [needs]) from None
            said = f"{noise}: {'' if found['is_exact'] else 'about '}{in_words(found)}"
        if output is Format.json:
            typer.echo(json.dumps(found))
        else:
            say(said)
