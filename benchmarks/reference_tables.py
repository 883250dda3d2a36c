"""The tables of `docs/reference.md`: every field of a scenario, generated from the classes that define it.

    python benchmarks/reference_tables.py --write docs

They are written between the two markers in the page.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pydantic import BaseModel

from seedbus.discovery import KINDS
from seedbus.scenarios.reporting.fields import paths_in_scenarios, rows_of
from seedbus.scenarios.sentences import words_of

BEGIN, END = "<!-- fields: generated -->", "<!-- fields: end -->"
_TAGS = (*dict.fromkeys(kind.tag for kind in KINDS), "distribution")


def tables() -> str:
    """Return Markdown with a heading and a table for every model that is part of a scenario."""
    return "\n".join(_table(model, paths) for model, paths in paths_in_scenarios().items())


def inserted(text: str) -> str:
    """Return the text with the current tables between its markers."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{rest.partition(END)[2]}"


def _table(model: type[BaseModel], paths: list[str]) -> str:
    where = ", ".join(f"`{path}`" for path in dict.fromkeys(paths) if path) or "A scenario"
    names = [str(model.model_fields[tag].default) for tag in _TAGS if tag in model.model_fields]
    variant = "".join(f": {name}" for name in names if name in words_of(model))
    lines = [
        f"### {where}{variant}\n",
        f"{(model.__doc__ or '').partition(chr(10))[0]}\n",
        "| field | accepts | default | |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows_of(model)),
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, required=True, metavar="DOCS", help="the folder of reference.md")
    path = parser.parse_args().write / "reference.md"
    path.write_text(inserted(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
