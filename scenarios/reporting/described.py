"""What `seedbus list KIND NAME` says of one thing that a scenario may name: its fields, an example, and its page."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from rich.table import Table

from seedbus.discovery import KINDS, Variants
from seedbus.scenarios.reporting.fields import paths_in_scenarios, rows_of
from seedbus.scenarios.reporting.terminal import console, say, shown
from seedbus.scenarios.schema.loading import library
from seedbus.scenarios.schema.yaml_text import dump, parse

WIDTH = 120
"""Columns of the table of fields where there is no terminal."""
PAGES = {
    "algorithm": "algorithms",
    "channel": "dense",
    "codec": "dense",
    "fault": "faults",
    "law": "directions",
    "method": "dense",
    "partition": "partitions",
    "rule": "algorithms",
    "selection policy": "participation",
    "task": "tasks",
    "tracker": "trackers",
}
"""The page of docs/ that describes each kind, by the kind's noun."""
HEADS = ("field", "accepts", "default", "what it is")


def kinds() -> dict[str, Variants]:
    """Return all kinds of what a scenario may name, by what several of one are called."""
    return {kind.plural: kind for kind in KINDS}


def described(kind: Variants, name: str) -> dict[str, Any]:
    """Describe the one of a kind that has this name.

    Returns:
        its description, a row of texts for each of its fields (see `HEADS`), an example as a part of a scenario's
        file ("": files name none), the scenario that has it ("": none that comes with Seedbus), and the page.

    Raises:
        KeyError: there is none of this name.
    """
    found = kind.all()[name]
    rows = [[cell.replace("`", "") for cell in row] for row in rows_of(found) if row[0] != f"`{kind.tag}`"]
    where, example = next(_examples(kind, name, found), ("", _least(kind, name, found)))
    return {
        "description": " ".join((found.__doc__ or "").partition("\n\n")[0].split()),
        "fields": rows,
        "example": dump(example) if example else "",
        "scenario": where,
        "page": f"docs/{PAGES[kind.noun]}.md",
    }


def _examples(kind: Variants, name: str, found: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    """Yield the scenarios of the library that name it, each with the part of the file that does; the shortest first."""
    named = []
    for scenario, document in _documents().items():
        named += [(scenario, part) for part in _parts(document, kind, name, found)]
    yield from sorted(named, key=lambda pair: len(dump(pair[1])))


@cache
def _documents() -> dict[str, Any]:
    return {name: parse(file.read_text("utf-8")) for name, file in library().items()}


def _parts(value: Any, kind: Variants, name: str, found: type[BaseModel]) -> Iterator[Any]:
    """Yield the parts of a document that name it, each within the fields and the list that it stands in."""
    if isinstance(value, Mapping):
        if value.get(kind.tag) == name and _is_valid(value, found):
            yield dict(value)
        for field, inner in value.items():
            if inner == name and field == kind.noun != kind.tag:  # of a fault the fields stand beside its name
                yield {field: inner}
            else:
                yield from ({field: part} for part in _parts(inner, kind, name, found))
    elif isinstance(value, list):
        for inner in value:
            yield from ([part] for part in _parts(inner, kind, name, found))


def _least(kind: Variants, name: str, found: type[BaseModel]) -> Any:
    """Return the part of a file that names it with the fields that it needs, each as "…"; {}: no file names it."""
    models = paths_in_scenarios()
    path = next((path for path in models.get(found, ()) if path), "")
    part: Any = {kind.tag: name} | {field: "…" for field, of in found.model_fields.items() if of.is_required()}
    above, _, field = path.rpartition(".")
    holders = [
        model.model_fields[field] for model, paths in models.items() if above in paths and field in model.model_fields
    ]
    if any(get_origin(each) is list for of in holders for each in (of.annotation, *get_args(of.annotation))):
        part = [part]
    for field in reversed(path.split(".")):
        part = {field: part}
    return part if path else {}


def _is_valid(value: Mapping[str, Any], found: type[BaseModel]) -> bool:
    """Whether these are fields of the model, and not of one of another kind that has the same name."""
    try:
        found.model_validate(dict(value))
    except ValidationError:
        return False
    return True


def show_description(title: str, of: Mapping[str, Any]) -> None:
    """Print what `described` returned."""
    say(f"{title}: {of['description']}")
    if of["fields"]:
        table = Table(box=None, pad_edge=False)
        for head in HEADS:
            table.add_column(head, overflow="fold")
        for row in of["fields"]:
            table.add_row(*(shown(cell) for cell in row))
        console(width=None if sys.stdout.isatty() else WIDTH).print(table)
    if of["example"]:
        where = f"the scenario {of['scenario']} has it so" if of["scenario"] else "in a scenario's file"
        say(f"{where}:")
        for line in of["example"].splitlines():
            say(f"  {line}")
    say(f"more: {of['page']}")
