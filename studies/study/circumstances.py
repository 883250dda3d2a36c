"""Under which circumstances the rows of a study are run, and which of its rows are compared.

The circumstances are not part of a method: the condition, data, faults, links and so on. A study whose
variants are run under several compares the rows under each, and its tables, sentences and figures have a part for each.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from operator import getitem
from typing import Any

from seedbus.studies.study.cells import SPENDING, Cell, Plan, joined, leaves_of, put
from seedbus.studies.study.setting_names import names

CIRCUMSTANCES = ("partition", "network", "compute", "faults", *SPENDING)
"""Sections of a scenario under which its method has to work."""
OF_METHOD = ("train", "batch_size", "batches", "micro_batch", "chunk", "forward", "dtype", "compute_dtype")
"""Fields of a task that say what a method trains, and how it computes; all others are its data and its model."""
CHOSEN = ("algorithm", "lag", "mask", "stop")
"""Sections that are part of the method: fields of the grid in others are circumstances, too."""


def circumstances(cells: Sequence[Cell]) -> dict[str, str]:
    """Return for each row, in words, under which circumstances it is run; "" if they are the same for all rows.

    They are the condition, the sections `CIRCUMSTANCES`, the task without `OF_METHOD`, the number of clients, and the
    fields of the grid outside of `CHOSEN`.
    """
    found = []
    for cell in cells:
        settings = cell.unlabelled
        fields: dict[str, Any] = {name: settings[name] for name in CIRCUMSTANCES if name in settings}
        task, participation = (
            settings[name] or {} for name in ("task", "participation")
        )  # none: its values have names
        fields["task"] = {name: value for name, value in task.items() if name not in OF_METHOD}
        fields["participation"] = {"clients": participation.get("clients")}
        labels = [cell.condition, *(label for path, label in cell.labels.items() if not _is_chosen(path))]
        for path, given in cell.point.items():
            sections = [other for other in cell.point if path.startswith(f"{other}.") and other not in cell.labels]
            if path.partition(".")[0] in (*CIRCUMSTANCES, *CHOSEN) or path in cell.labels or sections:
                continue
            value = given
            with suppress(LookupError, TypeError):  # a field that is not set, or one of a section with a name
                value = reduce(getitem, path.split("."), settings)  # with the grid's fields that lie within it
            put(fields, path, value)
        found.append((labels, fields))
    kinds = {json.dumps(each, default=str): each for each in found}
    leaves = names([fields for _, fields in kinds.values()])
    words = {
        key: joined([*labels, leaf]) if len(kinds) > 1 else ""
        for (key, (labels, _)), leaf in zip(kinds.items(), leaves, strict=True)
    }
    return {cell.name: words[json.dumps(each, default=str)] for cell, each in zip(cells, found, strict=True)}


def by_circumstances(cells: Sequence[Cell]) -> dict[str, dict[str, str]]:
    """Return circumstances, in words → row → what tells the row from the others under them.

    They are those under which a study runs all its variants: each condition at each point of the grid's fields outside
    of `CHOSEN`. What a variant sets itself is part of the variant. All rows stand under "" if there are no several, or
    if each row is the only one under its own.
    """
    first = [cell for cell in cells if cell.variant == cells[0].variant]
    words = circumstances(first)
    where = {_place(cell): words[cell.name] for cell in first}
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(where[_place(cell)], []).append(cell)
    if len(found) in (1, len(cells)):
        return {"": {cell.name: cell.name for cell in cells}}
    return {words: _told_apart(members) for words, members in found.items()}


def pairs_of(plan: Plan) -> list[tuple[str, str]]:
    """Return the pairs of rows that are compared, by their circumstances (`by_circumstances`).

    They are rows on the same data that differ in one thing. With `ask.against` they are the other variants and that one
    under each condition, the other conditions and that one of each variant, or all rows and that one.
    """
    against, cells = plan.study.ask.against, {cell.name: cell for cell in plan.cells}
    if against in cells:
        return [(row, against) for row in cells if row != against]
    together = [[cells[row] for row in members] for members in by_circumstances(plan.cells).values()]
    if against is not None:
        own = "variant" if against in plan.study.variants else "condition"
        bases = {_but_for(own, cell): cell.name for cell in plan.cells if getattr(cell, own) == against}
        others = (cell for members in together for cell in members if getattr(cell, own) != against)
        return [(cell.name, bases[_but_for(own, cell)]) for cell in others]
    data = {cell.name: data_of(cell) for cell in plan.cells}
    return [
        (row.name, other.name)
        for members in together
        for row, other in itertools.combinations(members, 2)
        if row.is_one_apart(other) and data[row.name] == data[other.name]
    ]


def _place(cell: Cell) -> str:
    return _text([cell.condition, {path: value for path, value in cell.point.items() if not _is_chosen(path)}])


def _but_for(own: str, cell: Cell) -> str:
    """Return what says which row a cell is, but for its variant or its condition."""
    return _text([cell.condition if own == "variant" else cell.variant, cell.point])


def _told_apart(cells: Sequence[Cell]) -> dict[str, str]:
    """Return for each of some rows under the same circumstances, by its name, what tells it from the others."""
    found = {}
    for cell, leaf in zip(cells, leaves_of(cells), strict=True):
        labels = [label for path, label in cell.labels.items() if _is_chosen(path)]
        found[cell.name] = joined([cell.variant, *labels, leaf]) or cell.name
    return found


def data_of(cell: Cell) -> dict[str, Any]:
    """Return the fields of a row's task that are its data."""
    task = cell.scenario.resolved()["task"]
    return {name: value for name, value in task.items() if name not in (*OF_METHOD, "model")}


def _is_chosen(path: str) -> bool:
    return path.partition(".")[0] in CHOSEN


def _text(value: Any) -> str:
    return json.dumps(value, default=str)
