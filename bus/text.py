"""Untrusted text, made safe to print; and numbers of things in sentences.

Text from a peer, file names and the content of foreign files pass through here before they reach a log line, a table or
a terminal. So no escape sequence, line break or direction mark of theirs gets there.
"""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str, most: int = 200) -> str:
    """Return an untrusted text as one line.

    Characters that are not printable (control characters, escapes, direction marks, lone surrogates) become spaces.

    Args:
        text: the untrusted text.
        most: maximum length of the line in characters; a longer text is cut and ends in `…`, which counts.
    """
    shown = "".join(character if character.isprintable() else " " for character in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def listed(numbers: Sequence[int], most: int = 5) -> str:
    """Return the first of some numbers, such as "1, 2, 5" or "1, 2, 5, 6, 9, …"."""
    return ", ".join(map(str, numbers[:most])) + (", …" if len(numbers) > most else "")


def counted(count: int, noun: str, nouns: str = "") -> str:
    """Return a number of things, such as "1 round" or "3,000 rounds"; nouns: the plural, if it is not noun + s."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"
