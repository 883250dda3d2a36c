"""`seedbus analyse` on the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import typer

from seedbus.cli.options import At, Own, Plugins, Quiet, RunFolder, TableOutput, settings_of
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.terminal import note


@dataclass(frozen=True)
class Here:
    """Options about what no journal has."""

    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="Where networks lie: cpu, cuda, mps; default: SEEDBUS_DEVICE, or cpu.")
    ] = ""
    own: Own = ""


def analyse(
    run: RunFolder,
    here: Here,
    at: At = "",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="One instrument: spectrum, whitening, hessian, divergence, fairness or break-even; may be given "
            "again.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="How much is measured: samples, probes, steps, diagonal_probes, exact_up_to, nulls, clients, "
            "client_samples, test_samples; and the metric of fairness.",
        ),
    ] = None,
    plugin: Plugins = None,
    output: TableOutput = "text",
    quiet: Quiet = False,
) -> None:
    """Measure a finished run: the Hessian's spectrum, HiSo's H, how far clients are apart and how well each of them is
    served, replay against snapshots.

    Models are rebuilt from the journal, so the run's data must be here. Tables are printed, and RUN/report.html has
    them with plots. Time goes with rounds × (probes × steps + diagonal_probes) × samples.
    """
    with cli_errors():
        rounds = _rounds(at)
        from seedbus.scenarios.extras import require

        require("seedbus analyse", "plotly", "scipy")
        from seedbus.models.device import devices_of, on_device
        from seedbus.scenarios.reporting import findings
        from seedbus.scenarios.reporting.meter import Meter
        from seedbus.scenarios.reporting.page import PAGE
        from seedbus.scenarios.reporting.results import strict
        from seedbus.studies.analysis.analyse import analyse as analysis_of
        from seedbus.studies.analysis.curvature import Effort

        effort = settings_of(Effort, "--set", settings)
        (place,) = devices_of(here.device)
        with on_device(place):
            found = analysis_of(run, rounds, only=only or [], effort=effort, own=here.own, meter=Meter(is_quiet=quiet))
        if output == "json":
            typer.echo(json.dumps(strict({each.name: each.facts for each in found})))
        elif output == "markdown":
            typer.echo(findings.markdown(found))
        else:
            findings.show(found)
            if not quiet:
                note(f"plots are in {run / PAGE}")


def _rounds(text: str) -> list[int]:
    """Parse whole numbers separated by commas."""
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise ScenarioError(f"--at {text}", ["expected numbers of rounds, like 0,100,500"])
    return sorted({int(part) for part in parts})
