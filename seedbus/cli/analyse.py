"""`seedbus analyse` on the command line."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from seedbus.cli.options import Plugins, Quiet, RunFolder, TableFormat
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.terminal import note


def analyse(
    run: RunFolder,
    rounds: Annotated[
        str, typer.Option(metavar="ROUNDS", help="The models after so many rounds, e.g. 0,100,500; default: the last.")
    ] = "",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="One instrument: spectrum, whitening, hessian, divergence, fairness or break-even; may be given "
            "again.",
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Training samples over which the loss is averaged.")] = 1000,
    probes: Annotated[int, typer.Option(min=1, help="Random vectors from which Lanczos' method starts.")] = 8,
    steps: Annotated[int, typer.Option(min=2, help="Products with the Hessian from each of them.")] = 30,
    diagonal_probes: Annotated[int, typer.Option(min=0, help="Further products, for the diagonal.")] = 64,
    exact_up_to: Annotated[
        int, typer.Option(min=0, help="Compute the whole Hessian of models with at most so many coordinates.")
    ] = 2000,
    nulls: Annotated[
        int, typer.Option(min=0, help="Number of H without a signal with which to compare HiSo's H.")
    ] = 20,
    clients: Annotated[int, typer.Option(min=2, help="Clients that are trained and compared, at most.")] = 10,
    client_samples: Annotated[
        int, typer.Option(min=1, help="Samples of each client on which the model is measured, at most.")
    ] = 1000,
    metric: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The metric of fairness; default: the first beside the loss."),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="Where networks lie: cpu, cuda, mps; default: SEEDBUS_DEVICE, or cpu.")
    ] = "",
    plugin: Plugins = None,
    output: Annotated[
        TableFormat, typer.Option("--format", help="text, tables in Markdown, or one JSON object on stdout.")
    ] = TableFormat.text,
    quiet: Quiet = False,
) -> None:
    """Measure a finished run: the Hessian's spectrum, HiSo's H, how far clients are apart and how well each of them is
    served, replay against snapshots.

    Models are rebuilt from the journal, so the run's data must be here. Tables are printed, and RUN/report.html has
    them with plots. Time goes with rounds × (probes × steps + diagonal-probes) × samples.
    """
    with cli_errors():
        at = _rounds(rounds)
        from seedbus.models.device import devices_of, on_device
        from seedbus.scenarios.reporting import findings
        from seedbus.scenarios.reporting.meter import Meter
        from seedbus.scenarios.reporting.page import PAGE
        from seedbus.scenarios.reporting.results import strict
        from seedbus.studies.analysis.analyse import analyse as analysis_of
        from seedbus.studies.analysis.curvature import Effort

        effort = Effort(samples, probes, steps, diagonal_probes, exact_up_to, nulls, clients, client_samples)
        (place,) = devices_of(device)
        with on_device(place):
            found = analysis_of(run, at, only=only or [], effort=effort, metric=metric, meter=Meter(is_quiet=quiet))
        if output is TableFormat.json:
            typer.echo(json.dumps(strict({each.name: each.facts for each in found})))
        elif output is TableFormat.markdown:
            typer.echo(findings.markdown(found))
        else:
            findings.show(found)
            if not quiet:
                note(f"plots are in {run / PAGE}")


def _rounds(text: str) -> list[int]:
    """Parse whole numbers separated by commas."""
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise ScenarioError(f"--rounds {text}", ["expected numbers of rounds, like 0,100,500"])
    return sorted({int(part) for part in parts})
