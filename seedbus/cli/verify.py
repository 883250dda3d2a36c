"""`seedbus verify`: compare what a run shows with its journal and its ledger."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbus.cli.options import Output, Plugins, RunFolder
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import Exit, ScenarioError
from seedbus.scenarios.reporting.terminal import say

if TYPE_CHECKING:
    from seedbus.scenarios.running.verify import Verified

_MOST_PRINTED = 1_000


def verify(
    run: RunFolder,
    owner: Annotated[
        Path | None,
        typer.Argument(help="The --out folder of a client's owner: also compare the journal with what she has kept."),
    ] = None,
    plugin: Plugins = None,
    output: Output = "text",
) -> None:
    """Compute a finished run's results again, from its journal and ledger, and name every field that differs.

    RUN may also be an archive. The exit code is 14 if a field differs. What cannot be computed again is named, too. Of
    an owner's folder alone: say what has left her, and what that has cost.
    """
    with cli_errors():
        from seedbus.scenarios.consent.own_record import FILE
        from seedbus.scenarios.run_folder import RESULTS
        from seedbus.scenarios.running.verify import verify as verified

        if run.is_file() and owner is not None:
            raise ScenarioError(str(run), ["an owner's folder is compared with a run's; unpack the archive"])
        if owner is None and (run / FILE).exists():
            _of_owner(run, None, output)
            return
        if owner is not None:
            _of_owner(owner, run, output)
            if not (run / RESULTS).exists():
                say(f"not checked: {RESULTS} (the run has not ended)", to_stderr=output == "json")
                return
        found = _of_archive(run) if run.is_file() else verified(run)
        if output == "json":
            typer.echo(json.dumps(asdict(found)))
        else:
            for difference in found.differences[:_MOST_PRINTED]:
                say(str(difference))
            if (more := len(found.differences) - _MOST_PRINTED) > 0:
                say(f"and {more:,} more; --format json has all")
            agree = "" if found.differences else ", and all agree"
            for sentence in found.told:
                say(sentence)
            say(f"recomputed: {found.recomputed:,} values of results.json and metrics.jsonl{agree}")
            if found.noted:
                say(f"compared with the journal's note only: {', '.join(found.noted)}")
            for reason in dict.fromkeys(found.unchecked.values()):
                names = ", ".join(name for name, why in found.unchecked.items() if why == reason)
                say(f"not checked: {names} ({reason})")
        if found.differences:
            raise typer.Exit(Exit.DIFFERS)


def _of_archive(path: Path) -> Verified:
    from seedbus.scenarios.exporting.given import verify_archive

    return verify_archive(path)


def _of_owner(own: Path, run: Path | None, output: Output) -> None:
    """Say what an owner has kept, and in what a run's journal contradicts it; it ends the command if it does."""
    from seedbus.scenarios.running.verify_own import verify_own

    found = verify_own(own, run)
    if output == "json":
        typer.echo(json.dumps(asdict(found)))
    else:
        for sentence in (*found.differences, *found.told):
            say(sentence)
        if found.unchecked:
            say(f"not checked: its models ({found.unchecked})")
    if found.differences:
        raise typer.Exit(Exit.DIFFERS)
