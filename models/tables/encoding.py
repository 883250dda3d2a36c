"""A table as the numbers that a network reads.

Columns of numbers are standardised, (value − mean) / deviation over the training part (validation included); a column
with one value only becomes zeros. Columns of texts become one number for each text of the training part, 1 for the
cell's own and 0 for the others, so a text that occurs only in the test set is all zeros. Texts of equal numbers, and
`true` and `True`, are one text, spelled as in the training part. Means and deviations are sums rounded once
(`math.fsum`), so they have the same bits on every processor.

The target of a classification is the number of a class: classes are the sorted texts or numbers of the training part.
The target of a regression is standardised, too, and stands as the last number of a stored row; its labels, which
partitions divide by, are the tenths of the training part in the order of the target.

The first process that needs a table writes it into the cache in this form, and all processes map it from there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from seedbus.models.data.prepared import Arrays, prepared
from seedbus.models.data.samples import Images
from seedbus.models.errors import DataError
from seedbus.models.generators import generator
from seedbus.models.preprocessing import MOST_TEXTS, Column, Numbers, Texts, as_text
from seedbus.models.spelling import other_spellings, spelled_alike, taken_as_one
from seedbus.models.tables.columns import Kind, TableFile, Values, kind_of, state_of
from seedbus.models.tables.settings import TableSettings

_MOST_WHOLE = 20  # different whole numbers of a target that are classes
_GROUPS = 10
_SHOWN = 60  # characters of a text in a sentence
_SHAPES = {"stored": 2, "labels": 2, "owners": 2, "is_test": 1, "facts": 1}


class Facts(NamedTuple):
    """What is known of a table without its rows.

    Attributes:
        kind: classification or regression.
        columns: those that the network reads, and how.
        classes: the names of the classes, or of the groups that a regression's rows are divided by.
        mean: of the target of a regression over the training part; 0 for a classification.
        deviation: of the same; 1 for a classification.
        owners: the names of owners 0, 1, …; none if rows have no owners.
        contents: what was found in the columns, sentences.
        caveats: what may not be meant so, sentences.
    """

    kind: str
    columns: list[Column]
    classes: list[str]
    mean: float
    deviation: float
    owners: list[str]
    contents: list[str]
    caveats: list[str]

    @property
    def inputs(self) -> list[str]:
        """The numbers that the network reads for a row, by name."""
        return [name for column in self.columns for name in column.inputs]


_FACTS = TypeAdapter(Facts)


class Encoded(NamedTuple):
    """A table as numbers.

    Attributes:
        facts: what is known without the rows.
        train: the training samples, validation included.
        test: the test samples.
    """

    facts: Facts
    train: Images
    test: Images


def encode(task: TableSettings) -> Encoded:
    """Return the table of a task. Raises `DataError`."""
    paths = task.named_files()
    fields = task.model_dump(mode="json", include=_FIELDS)
    return _encoded(json.dumps(fields, sort_keys=True), task.model_copy(update=_ANY), state_of(paths))


_FIELDS = {"target", "features", "categorical", "owner", "kind", "test", "separator"}
# fields that change nothing here
_ANY = {"batch_size": 1, "hidden": (), "validation": 0.0, "own_metrics": None, "larger_is_better": ()}


@lru_cache(maxsize=4)
def _encoded(recipe: str, task: TableSettings, state: tuple[tuple[str, int, int], ...]) -> Encoded:
    paths = [Path(path) for path, _, _ in state]
    arrays = prepared(f"table 7 {recipe}", paths, _SHAPES, lambda: _Table(task, paths).arrays())
    facts = _FACTS.validate_json(arrays["facts"].tobytes())
    stored = np.ascontiguousarray(arrays["stored"]).view("<f4")
    labels, owners = (
        np.ascontiguousarray(arrays[name]).view("<u4")[:, 0].astype(np.int64) for name in ("labels", "owners")
    )
    files = [TableFile(path, task.separator) for path in paths]

    def column(name: str) -> Values:
        cells = _joined(files, name, "partition.column", "texts" if name in task.categorical else None)
        _check_different(cells, name, partial(_place, files))
        return _respelled(cells, _spellings(cells, arrays["is_test"] == 0))

    parts = []
    for rows in (np.flatnonzero(arrays["is_test"] == 0), np.flatnonzero(arrays["is_test"])):
        owned = None if task.owner is None else owners[rows]
        parts.append(Images(stored, labels[rows], rows, owned, column, facts.owners))
    return Encoded(facts, parts[0], parts[1])


def _joined(files: list[TableFile], name: str, field: str, kind: Kind | None = None) -> Values:
    """Return a column of all files together; the first file decides whether it is numbers or texts."""
    first = files[0].column(name, field, kind)
    return np.concatenate([first, *(file.column(name, field, kind_of(first)) for file in files[1:])])


def _spellings(values: Values, is_train: NDArray[np.bool_]) -> dict[str, str]:
    """Return for each text of a column that is another one's value this other one, of the training part if it may."""
    return {} if kind_of(values) == "numbers" else other_spellings(values[is_train].tolist(), values.tolist())


def _respelled(values: Values, spellings: dict[str, str]) -> Values:
    if not spellings:
        return values
    return np.array([spellings.get(text, text) for text in values.tolist()], dtype=object)


def _place(files: list[TableFile], row: int, name: str) -> str:
    """Return the place of a cell in words, from the number of its row in all files together."""
    first = len(files[0])
    return files[0].where(row, name) if row < first else files[1].where(row - first, name)


def _check_different(values: Values, name: str, where: Callable[[int, str], str]) -> None:
    """Raise `DataError` for a number that stands for its neighbours too, where numbers tell owners or classes apart."""
    if kind_of(values) == "numbers":
        for row in np.flatnonzero(np.abs(values) >= 2**53)[:1]:
            expected = f"less than 2^53, or {name} among task.categorical, which takes all its cells as texts"
            raise DataError(where(int(row), name), f"about {values[row]:.0f}, which may be several numbers", expected)


@dataclass
class _Table:
    """A table while it is encoded."""

    task: TableSettings
    paths: list[Path]

    def __post_init__(self) -> None:
        self.files = [TableFile(path, self.task.separator) for path in self.paths]
        self.names = self.files[0].names
        self.spelling: list[str] = []
        task = self.task
        named = {"target": (task.target,), "features": task.features, "categorical": task.categorical}
        for field, names in (named | {"owner": None if task.owner is None else (task.owner,)}).items():
            for name in names or ():
                self.files[0].check(name, f"task.{field}")
        counts = [len(file) for file in self.files]
        self.is_test = np.zeros(sum(counts), dtype=bool)
        if len(self.files) == 2:
            self.is_test[counts[0] :] = True
        else:
            held = max(1, round(self.task.test * counts[0]))
            self.is_test[generator("test", self.task.name).permutation(counts[0])[:held]] = True
        if self.is_test.all():
            raise DataError(
                self.paths[0], f"{counts[0]} rows, all of them for testing", "more rows, or a task.test_file"
            )

    def arrays(self) -> Arrays:
        """Return the table as the arrays of bytes that the cache keeps. Raises `DataError`."""
        task = self.task
        target = self._column(task.target, "task.target", "numbers" if task.kind == "regression" else None)
        kind = task.kind or self._default_kind(target)
        caveats = [] if task.kind else [*self._numbered(target)]
        blocks, columns, empty = [], [], []
        taken = {task.target, task.owner}
        for name in task.features or [name for name in self.names if name not in taken]:
            values = self._column(name, "task.features")
            columns.append(self._described(values, name))
            blocks.append(encoded(columns[-1], values, self._where))
            identifying = list(self._identifying(columns[-1], values))
            caveats += identifying or list(self._unknown(columns[-1], values, blocks[-1]))
            if kind_of(values) == "texts":
                self.spelling += spelled_alike(name, sorted(set(values)), "texts")
                if missing := int(np.count_nonzero(values == "")):
                    empty.append(f"{name} has {missing:,} of {values.size:,}")
        if not blocks:
            expected = f"a column at least to learn it from{self.files[0].separator_hint(self.names)}"
            raise DataError(self.paths[0], f"no column but the target {task.target}", expected)
        mean, deviation = 0.0, 1.0
        if kind == "regression":
            mean, deviation = _moments(target[~self.is_test])
            if deviation == 0:
                where = f"{self.paths[0]}, column {task.target}"
                raise DataError(where, f"{target[0]:g} in every row of the training part", "a target that varies")
            blocks.append(encoded(Numbers(name=task.target, mean=mean, deviation=deviation), target, self._where))
            labels, classes = _grouped(target, ~self.is_test)
        else:
            labels, classes = self._classified(target)
        owners, names = np.zeros(labels.size, dtype=np.int64), []
        if task.owner is not None:
            held = self._column(task.owner, "task.owner")
            self._check_no_cell_is_empty(held, task.owner, "the owner of each row; leave the row out")
            _check_different(held, task.owner, self._where)
            found, owners = np.unique(held, return_inverse=True)
            names = [as_text(value) for value in found.tolist()]
        learnt = "a number" if kind == "regression" else f"one of {len(classes)} classes"
        contents = [f"{task.target} is {learnt}"]
        if empty:
            contents.append(f"an empty cell is a text of its own: {', '.join(empty)}")
        if kind == "classification":
            caveats += spelled_alike(task.target, classes)
        facts = Facts(kind, columns, classes, mean, deviation, names, contents, caveats + self.spelling)
        return {
            "stored": _side_by_side(blocks).view(np.uint8),
            "labels": labels.astype("<u4")[:, None].view(np.uint8),
            "owners": owners.astype("<u4")[:, None].view(np.uint8),
            "is_test": self.is_test.astype(np.uint8),
            "facts": np.frombuffer(_FACTS.dump_json(facts), dtype=np.uint8).copy(),
        }

    def _column(self, name: str, field: str, kind: Kind | None = None) -> Values:
        cells = _joined(self.files, name, field, "texts" if name in self.task.categorical else kind)
        spellings = _spellings(cells, ~self.is_test)
        self.spelling += taken_as_one(name, spellings)
        return _respelled(cells, spellings)

    def _check_no_cell_is_empty(self, values: Values, name: str, expected: str) -> None:
        if kind_of(values) == "texts":
            for row in np.flatnonzero(values == "")[:1]:
                raise DataError(self._where(int(row), name), "an empty cell", expected)

    def _unknown(self, column: Column, values: Values, block: NDArray[np.float32]) -> Iterator[str]:
        """Yield a sentence if rows of the test set have texts that the training part does not have."""
        is_unknown = self.is_test & ~block.any(axis=1)
        if isinstance(column, Texts) and is_unknown.any():
            rows, tested = np.count_nonzero(is_unknown), np.count_nonzero(self.is_test)
            example = repr(values[is_unknown][0][:_SHOWN]) if values[is_unknown][0] else "an empty cell"
            found = f"{column.name} has in {rows:,} of {tested:,} rows of the test set ({rows / tested:.1%})"
            yield f"{found} a text that the training part does not have, such as {example}: all its inputs are 0 there"

    def _default_kind(self, target: Values) -> str:
        if kind_of(target) == "texts":
            return "classification"
        different = np.unique(target)
        is_few = different.size <= _MOST_WHOLE and all(value.is_integer() for value in different)
        return "classification" if is_few else "regression"

    def _numbered(self, target: Values) -> Iterator[str]:
        """Yield a sentence if a target is learnt as a number and could be the numbers of classes."""
        different = np.unique(target) if kind_of(target) == "numbers" else target[:0]
        if _MOST_WHOLE < different.size <= MOST_TEXTS and all(value.is_integer() for value in different):
            found = f"{self.task.target} has {different.size:,} different whole numbers and is learnt as a number"
            yield f"{found}; task.kind: classification makes each a class, and regression says that it is meant so"

    def _described(self, values: Values, name: str) -> Column:
        """Return how the network reads a column with these cells."""
        if kind_of(values) == "numbers":
            mean, deviation = _moments(values[~self.is_test])
            return Numbers(name=name, mean=mean, deviation=deviation or 1.0)
        return Texts(name=name, texts=tuple(self._different(values, name, "task.features without it")))

    def _identifying(self, column: Column, values: Values) -> Iterator[str]:
        """Yield a sentence if a column seems to name or to number the rows, and so to say nothing of others."""
        rows = int(np.count_nonzero(~self.is_test))
        if isinstance(column, Texts):
            if 2 * len(column.texts) > rows:
                found = f"{column.name} has {len(column.texts):,} different texts in {rows:,} rows of the training part"
                yield f"{found}; leave it out of task.features if it names the rows"
            return
        first = np.sort(values[: len(self.files[0])])
        if first[-1] - first[0] == first.size - 1 and (np.diff(first) == 1).all():
            found = f"{column.name} has every whole number from {first[0]:g} to {first[-1]:g} once"
            yield f"{found}; leave it out of task.features if it numbers the rows"

    def _different(self, values: Values, name: str, remedy: str) -> list[Any]:
        """Return the sorted values of the training part."""
        found = sorted(set(values[~self.is_test].tolist()))
        if len(found) > MOST_TEXTS:
            where = f"{self.paths[0]}, column {name}"
            raise DataError(where, f"{len(found)} different values", f"at most {MOST_TEXTS}, or {remedy}")
        return found

    def _classified(self, target: Values) -> tuple[NDArray[np.int64], list[str]]:
        """Return the class of each row, and the names of the classes."""
        name = self.task.target
        self._check_no_cell_is_empty(target, name, "a class in every row; leave the row out")
        _check_different(target, name, self._where)
        found = self._different(target, name, "task.kind: regression")
        labels, classes = _places(target, found), [as_text(value) for value in found]
        if len(found) < 2:
            where = f"{self.paths[0]}, column {name}"
            raise DataError(where, f"the class {classes[0]!r} alone", "two classes at least in the training part")
        for row in np.flatnonzero(labels < 0)[:1]:
            raise DataError(
                self._where(int(row), name),
                f"the class {as_text(target[row])!r}, which no row of the training part has",
                f"one of {', '.join(map(repr, classes[:10]))}{', …' if len(classes) > 10 else ''}, or more rows of it",
            )
        return labels, classes

    def _where(self, row: int, name: str) -> str:
        return _place(self.files, row, name)


def _side_by_side(blocks: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return blocks [n, …] as one, [n, sum of …], little-endian. The list is emptied, so that each is held once."""
    blocks.reverse()
    stored = np.empty((len(blocks[0]), sum(block.shape[1] for block in blocks)), dtype="<f4")
    end = 0
    while blocks:
        block = blocks.pop()
        begin, end = end, end + block.shape[1]
        stored[:, begin:end] = block
    return stored


def encoded(column: Column, values: Values, where: Callable[[int, str], str]) -> NDArray[np.float32]:
    """Return the inputs of a column's cells, float32 [n, inputs].

    Args:
        column: how the network reads it.
        values: its cells: numbers or texts, as the column has.
        where: returns the place of a cell in words, from the number of its row and the name of its column.

    Raises:
        DataError: float32 cannot hold a number.
    """
    if isinstance(column, Texts):
        codes = _places(values, column.texts)
        block = np.zeros((values.size, len(column.texts)), dtype=np.float32)
        known = np.flatnonzero(codes >= 0)
        block[known, codes[known]] = 1
        return block
    with np.errstate(over="ignore"):
        standardised = (values - column.mean) / column.deviation
        numbers = standardised.astype(np.float32)
    for row in np.flatnonzero(~np.isfinite(numbers))[:1]:
        found = f"a number {standardised[row]:g} standard deviations from the mean of the training part"
        raise DataError(where(int(row), column.name), found, "one that float32 can hold")
    return numbers[:, None]


def _places(values: Values, found: Sequence[Any]) -> NDArray[np.int64]:
    """Return where each value is in a list of different ones, [n]; −1: nowhere. Texts may be spelled in other ways."""
    number = {value: index for index, value in enumerate(found)}
    if kind_of(values) == "texts":
        spellings = other_spellings(found, values.tolist())
        number |= {text: number[first] for text, first in spellings.items() if text not in number and first in number}
    return np.array([number.get(value, -1) for value in values.tolist()], dtype=np.int64)


def _moments(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return mean and standard deviation, each sum rounded once; of one value only, this value and 0."""
    mean = math.fsum(values.tolist()) / values.size
    mean = min(max(mean, float(values.min())), float(values.max()))  # where all are equal, the rounded mean may not be
    return mean, math.sqrt(math.fsum(((values - mean) ** 2).tolist()) / values.size)


def _grouped(target: NDArray[np.float64], is_train: NDArray[np.bool_]) -> tuple[NDArray[np.int64], list[str]]:
    """Return the tenth of the training part in which each target lies, and what these tenths are from."""
    ordered = np.sort(target[is_train])
    edges = np.unique(ordered[np.arange(_GROUPS) * ordered.size // _GROUPS])
    groups = np.maximum(np.searchsorted(edges, target, side="right") - 1, 0)
    return groups, [f"from {edge:g}" for edge in edges]
