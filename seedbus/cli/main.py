"""The command line: sixteen commands, in the order in which one needs them.

Errors that the user can fix are one sentence on stderr and an exit code (`Exit`); a traceback is always a bug of ours.
Commands import heavy modules only when they need them. The docstring of a command is its help text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from seedbus.cli.analyse import analyse
from seedbus.cli.check_plugin import check_plugin
from seedbus.cli.client import client
from seedbus.cli.compare import compare
from seedbus.cli.explain import explain
from seedbus.cli.export import export
from seedbus.cli.former import new_form, setting
from seedbus.cli.init import init
from seedbus.cli.keys import keys
from seedbus.cli.listing import list_command
from seedbus.cli.options import flat
from seedbus.cli.report import report
from seedbus.cli.run import run, server
from seedbus.cli.runs import runs
from seedbus.cli.stress import stress
from seedbus.cli.study import study
from seedbus.cli.verify import verify
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.terminal import accept_all_text, say
from seedbus.versions import version

_UsageError: Any = typer.BadParameter.__base__  # click's class; typer contains click, or depends on it

app = typer.Typer(
    name="seedbus",
    help="Federated learning as messages: run a scenario, count every byte, replay the model.",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
GROUPS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Start": {"init": init, "list": list_command, "explain": explain},
    "Run": {"run": run, "study": study},
    "Compare": {"compare": compare, "analyse": analyse},
    "Look": {"runs": runs, "report": report, "verify": verify, "export": export},
    "Serve": {"server": server, "client": client, "keys": keys},
    "Develop": {"check-plugin": check_plugin, "stress": stress},
}
"""The panels of the help, and their commands."""
for _panel, _commands in GROUPS.items():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, rich_help_panel=_panel)
        else:
            app.command(_name, rich_help_panel=_panel)(flat(_command))


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"seedbus {version('seedbus')}")
        raise typer.Exit()


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of `seedbus` itself."""


def main() -> None:
    """Run the command line and exit with its code."""
    accept_all_text()
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="seedbus", standalone_mode=False)
    except _UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "seedbus"
        say(f"seedbus: {_usage_sentence(error).rstrip('.')}; see `{command} --help`", to_stderr=True)
        code = Exit.USAGE
    except typer.Abort:  # Ctrl-C outside of a command's function; some versions of typer return the exit code instead
        code = Exit.INTERRUPTED
    sys.exit(code)


def _usage_sentence(error: Any) -> str:
    """Return what is wrong with the arguments of a command; where pydantic read them, in our words."""
    from pydantic import ValidationError

    from seedbus.scenarios.sentences import option_sentence

    text: str = error.format_message()
    if isinstance(error.__cause__, ValidationError):
        return f"{text.partition(': ')[0]}: {option_sentence(error.__cause__)}"
    option = getattr(error, "option_name", None) or ""
    return new_form(sys.argv[1:], option) or setting(sys.argv[1:], option, text) or text
