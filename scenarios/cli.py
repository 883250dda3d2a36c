"""The command line: `seedbus run`, `check`, `list`, `schema`, `replay`, `report`.

Errors of a person are one sentence on stderr and an exit code (`Exit`); a traceback is always a bug of ours. Heavy
imports wait until a command needs them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from seedbus.scenarios.errors import Exit, ScenarioError

_UsageError: Any = typer.BadParameter.__base__  # click's; typer brings its own click, or uses the one that is there

app = typer.Typer(
    name="seedbus",
    help="Federated learning as messages: run a scenario, count every byte, replay any round.",
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


class Format(StrEnum):
    """How results are printed."""

    text = "text"
    json = "json"


Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a field, e.g. algorithm.momentum=0.5.")
]
Output = Annotated[Format, typer.Option("--format", help="text, or one JSON object on stdout.")]
ScenarioArgument = Annotated[str, typer.Argument(help="A scenario file, or a name from `seedbus list`.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, e.g. runs/quickstart-1.")]


@app.command("run")
def run_command(
    scenario: Annotated[
        str | None, typer.Argument(help="A scenario file, or a name from `seedbus list`; not needed with --resume.")
    ] = None,
    settings: Set = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; default: runs/NAME-1, -2, …")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with the run in this folder.")] = None,
    output: Output = Format.text,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the results.")] = False,
) -> None:
    """Run a scenario to its end, or go on with one that stopped."""
    with _plain_errors():
        if resume is None and scenario is None:
            raise ScenarioError("seedbus run", ["name a scenario (`seedbus list` shows them), or --resume RUN"])
        if resume is not None and out is not None:
            raise ScenarioError("seedbus run", ["give --out for a new run or --resume for an old one, not both"])
        if scenario is None and settings:
            raise ScenarioError("seedbus run", ["--resume goes on with the run as it is; --set would change it"])
        from seedbus.scenarios.loading import load
        from seedbus.scenarios.run import run, scenario_of

        what = scenario_of(resume) if resume is not None and scenario is None else load(str(scenario), settings)
        _warn(what)
        with _watched(what, quiet) as observer:
            results = run(what, resume or out, resume=resume is not None, observer=observer)
        _show(results.summary, output)
        if "diverged" in results.summary["refusals"]:
            raise typer.Exit(Exit.DIVERGED)


@app.command("check")
def check_command(scenario: ScenarioArgument, settings: Set = None, output: Output = Format.text) -> None:
    """Check a scenario without running it, and show it with every default filled in."""
    with _plain_errors():
        from seedbus.scenarios.loading import load
        from seedbus.scenarios.reading import dump

        what = load(scenario, settings)
        _warn(what)
        resolved = what.resolved()
        typer.echo(json.dumps(resolved) if output is Format.json else dump(resolved).rstrip())


@app.command("list")
def list_command(output: Output = Format.text) -> None:
    """List the scenarios that come with Seedbus."""
    with _plain_errors():
        from seedbus.scenarios.loading import library
        from seedbus.scenarios.reading import parse

        found = {name: parse(item.read_text("utf-8"))["description"] for name, item in library().items()}
        if output is Format.json:
            typer.echo(json.dumps(found, ensure_ascii=False))
            return
        width = max(map(len, found))
        for name, description in found.items():
            typer.echo(f"{name:<{width}}  {description}")


@app.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    with _plain_errors():
        from seedbus.scenarios.schema import json_schema

        typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@app.command("replay")
def replay_command(
    run: RunFolder,
    round: Annotated[int | None, typer.Option(help="The model after so many rounds; default: the last.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the model here, as safetensors.")] = None,
    output: Output = Format.text,
) -> None:
    """Rebuild the model of any round from a run's journal, and print its digest."""
    with _plain_errors():
        from seedbus.scenarios.replay import replay

        model = replay(run, round)
        if out is not None:
            model.save(out)
        found = {"round": model.round, "version": model.replica.version, "digest": model.digest}
        if output is Format.json:
            typer.echo(json.dumps(found | {"out": None if out is None else str(out)}))
        else:
            typer.echo(f"round {model.round}, version {model.replica.version}: digest {model.digest}")
            if out is not None:
                typer.echo(f"written to {out}")


@app.command("report")
def report_command(run: RunFolder, output: Output = Format.text) -> None:
    """Show the closing table of a finished run again."""
    with _plain_errors():
        from seedbus.scenarios.results import Results

        _show(Results.read(run).summary, output)


def main() -> None:
    """The entry point of the command."""
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="seedbus", standalone_mode=False)
    except _UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "seedbus"
        typer.echo(f"seedbus: {error.format_message().rstrip('.')}; see `{command} --help`", err=True)
        code = Exit.USAGE
    sys.exit(code)


def _warn(scenario: Any) -> None:
    for sentence in scenario.algorithm.caveats():
        typer.echo(f"seedbus: note: {sentence}", err=True)


def _show(summary: dict[str, Any], output: Format) -> None:
    if output is Format.json:
        typer.echo(json.dumps(summary))
        return
    from rich.console import Console

    from seedbus.scenarios.report import closing_table

    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(closing_table(summary))


@contextmanager
def _watched(scenario: Any, quiet: bool) -> Iterator[Any]:
    if quiet:
        from seedbus.agents.observer import Nobody

        yield Nobody()
        return
    from seedbus.scenarios.progress import watch

    watcher = watch(scenario)
    try:
        yield watcher
    finally:
        watcher.close()


@contextmanager
def _plain_errors() -> Iterator[None]:
    """What a person can mend, as one sentence and an exit code."""
    try:
        yield
    except KeyboardInterrupt as stop:
        _fail(str(stop) or "stopped", Exit.INTERRUPTED)
    except BrokenPipeError:
        raise  # `| head`: typer ends quietly
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would try again, and complain, when it ends
        _fail(f"{error.filename or 'stdout'}: it cannot be written ({error.strerror})", Exit.FOLDER)
    except MemoryError as error:
        _fail(f"there is not enough memory for this run ({error})", Exit.DATA)
    except Exception as error:
        known = _known(error)
        if known is None:
            raise
        _fail(str(error), known)


def _known(error: Exception) -> Exit | None:
    from seedbus.agents.errors import AgentError, Unfinishable
    from seedbus.bus.errors import EndOfTime, LedgerDamaged
    from seedbus.models.errors import DataError

    kinds: list[tuple[type[Exception], Exit]] = [
        (DataError, Exit.DATA),
        (ScenarioError, Exit.USAGE),
        (Unfinishable, Exit.STUCK),
        (EndOfTime, Exit.STUCK),
        (AgentError, Exit.FOLDER),
        (LedgerDamaged, Exit.FOLDER),
    ]
    return next((code for kind, code in kinds if isinstance(error, kind)), None)


def _fail(sentence: str, code: Exit) -> None:
    typer.echo(f"seedbus: {sentence}", err=True)
    raise typer.Exit(code)
