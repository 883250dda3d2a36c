"""Output to a terminal. All of it goes through this module.

Texts from peers, files and the command line are printed on one line, of bounded length, without escape sequences, and
are never interpreted as markup.
"""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

MAX_LENGTH = 2000
"""Characters of a line. A longer line loses its middle: its beginning names the file, and its end the reason."""
_MARKDOWN = str.maketrans({"\\": "\\\\", "|": "\\|", "<": "&lt;", "[": "\\["})


def shown(text: str, max_length: int = MAX_LENGTH) -> str:
    """Return the text as one printable line of at most `max_length` characters."""
    from seedbus.bus.text import printable

    if len(text) > max_length:
        half = (max_length - 3) // 2
        text = f"{text[:half]} … {text[-half:]}"
    return printable(text, max_length)


def in_markdown(text: str) -> str:
    """Return a text that Markdown, in a cell of a table too, shows as it is."""
    return text.translate(_MARKDOWN)


def say(text: str, *, to_stderr: bool = False) -> None:
    """Print one line."""
    typer.echo(shown(text), err=to_stderr)


def note(text: str) -> None:
    """Print a note to stderr."""
    say(f"seedbus: note: {text}", to_stderr=True)


def console(**options: Any) -> Console:
    """Return a console for tables and progress bars.

    It does not interpret markup or emoji. Callers pass every text through `shown` first.
    """
    from rich.console import Console

    return Console(markup=False, emoji=False, **options)


def titled(title: str, table: Table) -> Group:
    """Return a table with its title above it. A title of the table's own would be padded with spaces."""
    from rich.console import Group
    from rich.text import Text

    return Group(Text(title, style="table.title"), table)


def accept_all_text() -> None:
    """Make stdout escape characters that it cannot encode, as stderr does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
