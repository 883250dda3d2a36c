"""The names of a run's clients, beside their numbers: owners of a table, or people.

Names are data. They are made printable and short where they are stored, and again where they are shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from seedbus.bus.text import printable

_LONGEST = 60  # characters
_CLIENT = re.compile(r"\bclient (\d{1,9})\b")


def stored(names: Sequence[str]) -> list[str]:
    """Return names as `results.json` has them."""
    return [printable(name, _LONGEST).strip() for name in names]


def named(client: int, names: Sequence[str]) -> str:
    """Return a client's number, and its name if it has another one.

    Args:
        client: its number.
        names: of clients 0, 1, …; none: they have no names.
    """
    name = printable(names[client], _LONGEST).strip() if client < len(names) else ""
    return f"{client:,} ({name})" if name not in ("", str(client)) else f"{client:,}"


def with_names(sentence: str, names: Sequence[str]) -> str:
    """Return a sentence of a layer that knows clients by their numbers alone, with their names."""
    if not names:
        return sentence
    return _CLIENT.sub(lambda found: f"client {named(int(found[1]), names)}", sentence)
