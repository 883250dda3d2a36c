"""Text that somebody else wrote, made fit to be shown.

A peer's words, a file's name and a foreign file's content are data: on their way into a log line, a table or a terminal
they pass through here, so that no escape sequence, no line break and no mark of writing direction gets there.
"""

from __future__ import annotations


def printable(text: str, most: int = 200) -> str:
    """A foreign text on one line of at most `most` characters, `…` included.

    What is not printable (control characters, escapes, direction marks, lone surrogates) becomes a space.
    """
    shown = "".join(character if character.isprintable() else " " for character in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"
