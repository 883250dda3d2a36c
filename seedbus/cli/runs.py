"""`seedbus runs`: list the runs in a folder; watch, stop and prune one."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from seedbus.cli.options import Output
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import Exit, ScenarioError
from seedbus.scenarios.reporting.terminal import console, say, shown


def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER|RUN", help="A folder of runs, or one run's.")] = Path(
        "runs"
    ),
    stop: Annotated[
        bool,
        typer.Option(
            "--stop",
            help="Ask the run to stop after the round in progress; every closed round is kept, and it can be resumed.",
        ),
    ] = False,
    patience: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="With --stop: how long to wait for the end of that round; default: 60."
        ),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Have the model take the place of commits that no client needs, in the journal of a stopped run.",
        ),
    ] = False,
    output: Output = "text",
) -> None:
    """List the runs in a folder, the newest first, each with its state; or watch, stop or prune one.

    Of one run it shows its processes, lag, rates, the slowest clients and refusals, and of an ended run its end. The
    run does not notice. Where stdout is no terminal, one frame is printed. Ctrl-C ends it.
    """
    with cli_errors():
        from seedbus.scenarios.operations.run_state import is_run

        if prune:
            _refuse(("--stop", stop), ("--patience", patience is not None), ("--format", output == "json"))
            _prune(folder)
        elif stop:
            if output == "json":
                raise ScenarioError("--stop", ["it prints a sentence; expected no --format"])
            _stop(folder, 60.0 if patience is None else patience)
        elif patience is not None:
            raise ScenarioError("--patience", [f"{patience:g} is for the end of a round; expected --stop beside it"])
        elif output == "text" and is_run(folder):
            _watch(folder)
        else:
            _list(folder, output)


def _refuse(*given: tuple[str, bool]) -> None:
    for name, is_given in given:
        if is_given:
            raise ScenarioError("--prune", [f"it prints a sentence, and stops nothing; expected no {name}"])


def _prune(run: Path) -> None:
    from seedbus.scenarios.running.prune import prune

    pruned = prune(run)
    if pruned is None:
        say(f"{run}: nothing was pruned: the clients may need all commits that the journal has")
        return
    sizes = f"{pruned.bytes_before:,} bytes to {pruned.bytes_after:,}"
    say(f"{run}: the commits of rounds 0 to {pruned.round - 1:,} were pruned, and the journal went from {sizes}")
    say(f"in their place: version {pruned.version}, digest {pruned.digest}; the chain of digests there: {pruned.link}")


def _watch(run: Path) -> None:
    from seedbus.scenarios.operations.live_view import show_live, show_once

    if sys.stdout.isatty():
        with suppress(KeyboardInterrupt):
            show_live(run)
    else:
        show_once(run)


def _list(folder: Path, output: str) -> None:
    from rich.table import Table

    from seedbus.bus.clock import calendar_seconds
    from seedbus.scenarios.operations.live_view import WIDTH, measured
    from seedbus.scenarios.operations.run_state import State, runs_in
    from seedbus.scenarios.reporting.progress import readable
    from seedbus.scenarios.reporting.remaining_time import roughly

    found = runs_in(folder)
    if output == "json":
        typer.echo(json.dumps({"runs": [run.packed() for run in found]}))
        return
    if not found:
        say(f"there are no runs in {folder}", to_stderr=True)
        return
    table = Table(box=None, pad_edge=False)
    for name in ("run", "state", "scenario", "algorithm", "rounds", "metric", "bytes", "age"):
        table.add_column(name, justify="right" if name in ("rounds", "bytes", "age") else "left")
    now_s = calendar_seconds()
    for run in found:
        rounds = f"{run.rounds:,}/{run.expected_rounds:,}" if run.expected_rounds else f"{run.rounds:,}"
        what = (run.folder.name or str(run.folder), run.state.value, run.scenario, run.algorithm)
        figures = (rounds, measured(run), readable(run.bytes), roughly(now_s - run.changed_s) if run.changed_s else "")
        table.add_row(*(shown(cell, 60) for cell in (*what, *figures)))
    console(width=None if sys.stdout.isatty() else WIDTH).print(table)
    for run in found:
        if run.state is State.DAMAGED:
            say(f"{run.folder}: {run.what}", to_stderr=True)


def _stop(run: Path, wait_s: float) -> None:
    from seedbus.scenarios.operations.run_state import State
    from seedbus.scenarios.operations.stopping import stop as stop_run
    from seedbus.scenarios.run_folder import resuming

    stopped = stop_run(run, wait_s)
    if stopped.state is State.RUNNING and stopped.process is not None:
        at_once = f"`kill {stopped.process.pid}` ends it at once, as Ctrl-C does"
        say(f"seedbus: {run}: round {stopped.rounds} is open, and is its last ({at_once})", to_stderr=True)
        raise typer.Exit(Exit.STUCK)
    if stopped.state is State.STOPPED:
        go_on = f"go on with `{resuming(run)}`, or as it was started"
        of = f" of {stopped.expected_rounds}" if stopped.expected_rounds else ""
        say(f"{run}: stopped after {stopped.rounds}{of} rounds; {go_on}")
    else:
        say(f"{run}: it has ended: {stopped.what}")
