"""`seedbus check-plugin` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbus.cli.options import Output, Plugins
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.terminal import say

if TYPE_CHECKING:
    from seedbus.studies.check.check import Checked


def check_plugin(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The plug-in: a Python file, or a folder.")],
    plugin: Plugins = None,
    output: Output = "text",
) -> None:
    """Check a plug-in with the contract tests that Seedbus's own algorithms, faults, … have to pass.

    Ends with code 11 if a promise is broken.
    """
    with cli_errors():
        from seedbus.studies.check.check import check

        shown: list[str] = []

        def tell(each: Checked) -> None:
            fields = ", ".join(f"{name}: {json.dumps(value)}" for name, value in each.fields.items())
            title = f"{each.kind} {each.name}" + (f" with {fields}" if fields else "")
            if shown[-1:] != [title]:
                shown.append(title)
                say(title)
            say(f"  ✗ {each.promise}: {each.problem}" if each.problem else f"  ✓ {each.promise}")

        checked = check(file, tell if output == "text" else lambda each: None)
        broken = sum(bool(each.problem) for each in checked)
        if output == "json":
            typer.echo(json.dumps({"checked": [each._asdict() for each in checked], "broken": broken}))
        elif not checked:
            say(f"{file}: it defines no class that has a contract; functions are checked by the runs that use them")
        else:
            say(
                f"{broken} of {len(checked)} promises are broken" if broken else f"all {len(checked)} promises are kept"
            )
        if broken:
            raise typer.Exit(Exit.BROKEN)
