"""`seedbus explain` on the command line: what a scenario does, costs and holds, before it is run."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from seedbus.cli import completion
from seedbus.cli.options import Plugins, Set
from seedbus.cli.run import note_caveats
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.terminal import note, say

Part = Literal["fields", "partition", "privacy"]
Form = Literal["text", "json", "csv"]
SECONDS = 10.0


def explain(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            help="A scenario file, or a name from `seedbus list`; with privacy also a run's folder.",
            autocompletion=completion.scenarios,
        ),
    ],
    part: Annotated[
        Part | None,
        typer.Argument(
            metavar="PART",
            help="Only this: every field, defaults filled in; which client holds which samples; or who sees what, "
            "and of a run's folder the ε spent.",
        ),
    ] = None,
    settings: Set = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="epsilon=E", help="With privacy: find the least noise with which a run spends that ε."),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=0, max=3600, help="About how long to measure its cost; 0: not at all; default: 10."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="With partition: draw the first 100 clients' classes into this SVG file.")
    ] = None,
    plugin: Plugins = None,
    output: Annotated[
        Form,
        typer.Option(
            "--format", help="text, one JSON object, or of a partition the lines that `partition: {kind: file}` reads."
        ),
    ] = "text",
) -> None:
    """Check a scenario, and say in plain words what it will do, and what it will cost here: bytes, time and memory.

    With privacy and a run's folder: compute again the ε that the run has spent, from its journal alone.
    """
    with cli_errors():
        is_csv = True if output == "csv" else None
        for option, given, of in (
            ("--seconds", seconds, None),
            ("--out", out, "partition"),
            ("--format csv", is_csv, "partition"),
            ("--target", target, "privacy"),
        ):
            if given is not None and part != of:
                raise ScenarioError(option, [f"it is for `seedbus explain SCENARIO{f' {of}' if of else ''}`"])
        if part == "privacy":
            _privacy(scenario, settings, target, output)
            return
        from seedbus.scenarios.schema.loading import load

        loaded = load(scenario, settings, needs_task=True)
        if part == "partition":
            _partition(loaded, out, output)
            return
        from seedbus.scenarios.running.possible import refuse_impossible

        loaded.check()
        refuse_impossible(loaded)
        if part == "fields":
            note_caveats(loaded)
            typer.echo(json.dumps(loaded.resolved()) if output == "json" else str(loaded).rstrip())
            return
        from seedbus.studies.explain import explain

        explained = explain.explain(loaded, SECONDS if seconds is None else seconds)
        if output == "json":
            typer.echo(json.dumps(explained))
        else:
            explain.show(explained)


def _partition(scenario: Any, out: Path | None, output: Form) -> None:
    """Show which client holds which samples."""
    if out is not None and not out.name:
        raise ScenarioError(f"--out {out}", ["it names no file; expected one like partition.svg"])
    from seedbus.scenarios.reporting import division
    from seedbus.scenarios.reporting.results import write_named

    clients = scenario.participation.clients
    parts = scenario.task.division(seed=scenario.seed, clients=clients, partition=scenario.partition)
    for sentence in parts.notes:
        note(sentence)
    found = division.summary(scenario, parts)
    if out is not None:
        write_named(out, division.picture(found))
    if output == "csv":
        typer.echo(division.as_csv(parts), nl=False)
    elif output == "json":
        typer.echo(json.dumps(found))
    else:
        division.show(found)


def _privacy(name: str, settings: list[str] | None, target: str | None, output: Form) -> None:
    """Say who sees what in a scenario's runs, which ε a run has spent, or with which noise one spends a given ε."""
    from seedbus.agents.privacy.spent import in_words
    from seedbus.scenarios.run_folder import part_of

    is_run = os.path.isdir(name)  # of one that is not private, δ is refused where ε is computed
    if target is None and not (is_run and (settings or part_of(Path(name), "privacy"))):
        _sight(name, settings, output)
        return
    if target is None:
        found = _spent(name, settings)
        said = in_words(found)
    else:
        found, noise = _least_noise(name, settings, target)
        said = f"{noise}: {'' if found['is_exact'] else 'about '}{in_words(found)}"
    if output == "json":
        typer.echo(json.dumps(found))
    else:
        say(said)


def _sight(name: str, settings: list[str] | None, output: Form) -> None:
    from seedbus.scenarios.run_folder import scenario_of
    from seedbus.scenarios.schema.loading import load
    from seedbus.studies.explain import explain

    scenario = scenario_of(Path(name)) if os.path.isdir(name) else load(name, settings, needs_task=True)
    scenario.check()
    found = explain.sight(scenario)
    if output == "json":
        typer.echo(json.dumps(found))
    else:
        explain.show_sight(found)


def _spent(run: str, settings: list[str] | None) -> dict[str, Any]:
    from seedbus.studies.explain.noise import spent

    deltas = [_number("--set", "privacy.delta", each, 1e-300, 0.999) for each in settings or ()]
    return spent(Path(run), *deltas[-1:])


def _least_noise(name: str, settings: list[str] | None, target: str) -> tuple[dict[str, Any], str]:
    """Return what a run spends with the least noise, and that noise as a setting."""
    from seedbus.scenarios.schema.loading import load
    from seedbus.studies.explain.noise import least_noise

    epsilon = _number("--target", "epsilon", target, 1e-6, 1e6)
    found = least_noise(load(name, settings, needs_task=True), name, epsilon)
    noise = f"privacy.noise_multiplier={found['noise_multiplier']:g}"
    try:
        load(name, [*(settings or ()), noise])
    except ScenarioError as error:  # too coarse, or too large for sums
        needs = f"--target epsilon={epsilon:g} needs {noise}, and {'; '.join(error.problems)}"
        raise ScenarioError(name, [needs]) from None
    return found, noise


def _number(option: str, name: str, given: str, least: float, most: float) -> float:
    """Return the number that an option gives as NAME=NUMBER. Raises `ScenarioError` if it is not accepted."""
    field, _, text = given.partition("=")
    try:
        number = float(text) if field == name else math.nan
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise ScenarioError(f"{option} {given}", [f"expected {name}=NUMBER, from {least:g} to {most:g}"])
    return number
