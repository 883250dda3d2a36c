"""Published curves beside which a study's are drawn: files in a folder `published-curves` of SEEDBUS_DATA.

A file is a CSV with the columns `round`, counted from 0, and `value`. They are no part of the package.
"""

from __future__ import annotations

import csv
from typing import NamedTuple

from seedbus.models.data.roots import own_folder
from seedbus.models.errors import DataError

FOLDER = "published-curves"
MAX_BYTES = 4_000_000


class Curve(NamedTuple):
    """A published curve.

    Attributes:
        rounds: rounds done before each value.
        values: as published.
    """

    rounds: list[float]
    values: list[float]


def published(named: dict[str, str]) -> tuple[dict[str, Curve], list[str]]:
    """Return the curves that are there by label, and a sentence if some are missing.

    Args:
        named: label → the name of a file.

    Raises:
        DataError: a file is not what it should be.
    """
    folder = own_folder(FOLDER)
    found: dict[str, Curve] = {}
    missing = []
    for label, name in named.items():
        path = None if folder is None else folder / name
        if path is None or not path.is_file():
            missing.append(f"{label} ({name})")
            continue
        try:
            with path.open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file.read(MAX_BYTES).splitlines()))
            found[label] = Curve([float(row["round"]) + 1 for row in rows], [float(row["value"]) for row in rows])
        except (KeyError, TypeError, ValueError):
            raise DataError(str(path), "not a published curve", "a CSV with the columns round and value") from None
    # it stands in files that are passed on, so it names no directory of this machine
    expected = f"expected in {FOLDER}/ in a directory of SEEDBUS_DATA"
    return found, [f"not drawn beside: {', '.join(missing)}; {expected}"] if missing else []
