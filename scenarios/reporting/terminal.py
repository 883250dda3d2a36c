"""The one place from which anything is written to a terminal. Texts of peers, files and the command line come out as
text: on one line, of bounded length, without escape sequences, and never as markup."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

LONGEST = 2000
"""Characters of a line; of a longer one the beginning and the end are shown, where the file and the reason stand."""


def shown(text: str, most: int = LONGEST) -> str:
    """The text on one printable line."""
    from seedbus.bus.text import printable

    if len(text) > most:
        half = (most - 3) // 2
        text = f"{text[:half]} … {text[-half:]}"
    return printable(text, most)


def say(text: str, *, to_stderr: bool = False) -> None:
    """One line."""
    typer.echo(shown(text), err=to_stderr)


def note(text: str) -> None:
    """What a person should know, on stderr."""
    say(f"seedbus: note: {text}", to_stderr=True)


def console(**options: Any) -> Console:
    """For tables and progress bars. It takes nothing for markup or emoji; callers have `shown` what they give it."""
    from rich.console import Console

    return Console(markup=False, emoji=False, **options)


def accept_all_text() -> None:
    """Let stdout replace what it cannot encode, as stderr does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
