"""`seedbus top`, `seedbus runs` and `seedbus stop`: watch, list and stop runs by their folders."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from seedbus.cli.options import Format, Output, RunFolder
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import Exit, resuming
from seedbus.scenarios.reporting.terminal import console, say, shown


def top(
    run: RunFolder,
    once: Annotated[bool, typer.Option("--once", help="Print one frame, as without a terminal.")] = False,
) -> None:
    """Watch a run: its processes, lag, rates, the slowest clients and refusals. For an ended run, show its end.

    It reads the run's folder only, and the run does not notice. Ctrl-C ends it.
    """
    with cli_errors():
        from seedbus.scenarios.operations.live_view import show_live, show_once

        if once or not sys.stdout.isatty():
            show_once(run)
            return
        with suppress(KeyboardInterrupt):
            show_live(run)


def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of runs.")] = Path("runs"),
    output: Output = Format.text,
) -> None:
    """List the runs in a folder, the newest first, each with its state."""
    with cli_errors():
        from rich.table import Table

        from seedbus.bus.clock import calendar_seconds
        from seedbus.scenarios.operations.live_view import WIDTH, age, measured
        from seedbus.scenarios.operations.run_state import State, runs_in
        from seedbus.scenarios.reporting.progress import readable

        found = runs_in(folder)
        if output is Format.json:
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
            figures = (rounds, measured(run), readable(run.bytes), age(now_s - run.changed_s) if run.changed_s else "")
            table.add_row(*(shown(cell, 60) for cell in (*what, *figures)))
        console(width=None if sys.stdout.isatty() else WIDTH).print(table)
        for run in found:
            if run.state is State.DAMAGED:
                say(f"{run.folder}: {run.what}", to_stderr=True)


def stop(
    run: RunFolder,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the end of the round in progress.")
    ] = 60.0,
) -> None:
    """Ask a run to stop after the round in progress; every closed round is kept, and it can be resumed."""
    with cli_errors():
        from seedbus.scenarios.operations.run_state import State
        from seedbus.scenarios.operations.stopping import stop as stop_run

        stopped = stop_run(run, wait)
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
