"""`seedbus compare` on the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from seedbus.cli.options import Plugins, TableOutput
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.terminal import say


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Runs' folders, e.g. runs/quickstart-1.")],
    target: Annotated[
        str,
        typer.Option(
            metavar="METRIC=VALUE",
            help="Rounds and bytes until the metric meets it; METRIC_ema=VALUE: until its moving average does.",
        ),
    ] = "",
    at: Annotated[
        str,
        typer.Option(
            metavar="POINTS", help="Show the metric at these rounds, bytes or simulated times too, e.g. 50,1MB,600s."
        ),
    ] = "",
    out: Annotated[Path | None, typer.Option(help="Write the table and its plots to this HTML file.")] = None,
    plugin: Plugins = None,
    output: TableOutput = "text",
) -> None:
    """Compare runs: what they reach, after how many rounds and bytes. Runs that differ only in the seed are one row."""
    with cli_errors():
        metric, value, smoothed = _target(target)
        points = _points(at)
        if out is not None and not out.name:
            raise ScenarioError(f"--out {out}", ["it names no file; expected one like comparison.html"])
        from seedbus.scenarios.reporting.results import write_named
        from seedbus.studies.study import compare as comparison_of_runs
        from seedbus.studies.study import comparison as shown

        comparison = comparison_of_runs.compare(runs, metric, value, points, smoothed=smoothed)
        if out is not None:
            write_named(out, shown.page(comparison))
        for note in comparison.notes:
            say(f"seedbus: note: {note}", to_stderr=True)
        if output == "json":
            typer.echo(json.dumps(comparison.json()))
        elif output == "markdown":
            typer.echo(shown.markdown(comparison))
        else:
            shown.show(comparison)


def _target(text: str) -> tuple[str | None, float | None, bool]:
    """Parse METRIC=VALUE, and say whether its moving average is to meet it; an empty text means no target."""
    from seedbus.scenarios.schema.expectations import AVERAGE_SUFFIX

    if not text:
        return None, None, False
    name, _, number = text.partition("=")
    metric = name.removesuffix(AVERAGE_SUFFIX)
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not metric or not math.isfinite(value):
        raise ScenarioError(f"--target {text}", ["expected a metric and a number, like accuracy=0.8"])
    return metric, value, metric != name


def _points(text: str) -> list[int | str]:
    """Parse rounds, bytes and times separated by commas; each once, rounds first, then bytes."""
    from seedbus.scenarios.schema.amounts import POINTS, cost_of, point_of

    parts = [part.strip() for part in text.split(",")] if text else []
    try:
        points = {point_of(int(part) if part.isascii() and part.isdecimal() else part) for part in parts}
    except ValueError:
        raise ScenarioError(f"--at {text}", [f"{POINTS}, like 50,1MB,600s"]) from None
    rounds = [point for point in points if isinstance(point, int)]
    return [*sorted(rounds), *sorted((point for point in points if isinstance(point, str)), key=cost_of)]
