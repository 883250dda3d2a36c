"""What the texts of several owners have in common, as a scenario states it, and one owner's file read by that.

    a causal model         texts: {prompt: "{review} It was", target: stars, answers: {"1": terrible, "5": great}}
    a sentence encoder     texts: {columns: [review], target: stars, classes: ["1", "5"]}

A file is CSV, TSV (without quoting, as texts are published) or JSON lines. What does not fit is refused with its line
and column, and nothing of it is told to anybody else.
"""

from __future__ import annotations

import csv
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from seedbus.bounded import LARGEST_TEXT, read_text
from seedbus.models.data.roots import find, public_or_none
from seedbus.models.data.untrusted import csv_rows, parse_json, regular
from seedbus.models.errors import DataError
from seedbus.models.partitions.own import SPECIMENS
from seedbus.models.preprocessing import as_text
from seedbus.models.spelling import value_of
from seedbus.models.text.files import Sample
from seedbus.models.text.prompts import Prompt
from seedbus.settings import Settings

OWN = "own"
"""The data set of a task whose samples stay with their owners."""
_NOBODYS = "the {number} best of all, a great journey; or the worst, for {column}"
_FORMS = "a file of texts that ends in .csv, .tsv or .jsonl"
_SHOWN = 60  # characters of a cell in a sentence
Text = Annotated[str, Field(min_length=1, max_length=1000)]


class StatedTexts(Settings, ABC, frozen=True):
    """What all owners' texts have in common."""

    target: Text = Field(description="the column with the class")
    test: float = Field(0.2, gt=0, lt=1, description="fraction that an owner holds out, where clients measure")
    test_file: str | None = Field(
        None, min_length=1, description="a public file that is the test set, where the server measures"
    )

    @property
    @abstractmethod
    def shown(self) -> tuple[str, ...]:
        """The columns that a model reads."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The texts of classes 0, 1, … in a file."""

    @field_validator("test_file")
    @classmethod
    def _locate(cls, value: str | None, info: ValidationInfo) -> str | None:
        return None if value is None else public_or_none(value, info.context, os.path.isfile)

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if self.target in self.shown:
            raise ValueError(f"{self.target} is the target and a column that is read; expected other columns")
        if len({value_of(label) for label in self.labels}) < len(self.labels):
            raise ValueError("a class is there twice, perhaps in two spellings; expected each once")
        return self

    def public_file(self) -> Path | None:
        """Return where the test file is; None: there is none. Raises `DataError`."""
        path = None if self.test_file is None else find(self.test_file, os.path.isfile)
        if self.test_file is not None and path is None:
            raise DataError("task.texts.test_file", f"no file {self.test_file}", f"{_FORMS}, or one in SEEDBUS_DATA")
        return path


class StatedPrompt(StatedTexts, frozen=True):
    """Owners' texts, as a causal model is asked about them."""

    prompt: Text = Field(description="what is asked, with columns in braces")
    answers: dict[Text, str] = Field(min_length=2, max_length=100, description="for each class its answer")

    @field_validator("prompt")
    @classmethod
    def _check_prompt(cls, value: str) -> str:
        try:
            parts = list(Formatter().parse(value))
        except ValueError as error:
            raise ValueError(f"{error}; expected columns in braces, and {{{{ for a brace") from None
        names = [name for _, name, _, _ in parts if name is not None]
        plain = all(
            name and not set(name) & set(".[]") and not form and not kind
            for _, name, form, kind in parts
            if name is not None
        )
        if not names or not plain or any(name.isdecimal() for name in names):
            raise ValueError("expected a column's name at least in braces, and nothing else in them")
        if value.endswith(" "):
            raise ValueError("it ends with a space, which belongs to the answer; expected none")
        return value

    @field_validator("answers")
    @classmethod
    def _check_answers(cls, value: dict[str, str]) -> dict[str, str]:
        if not all(answer.strip() for answer in value.values()):
            raise ValueError("an answer is empty; expected a word at least of each class")
        return value

    @property
    def shown(self) -> tuple[str, ...]:
        """See `StatedTexts`."""
        return tuple(dict.fromkeys(name for _, name, _, _ in Formatter().parse(self.prompt) if name is not None))

    @property
    def labels(self) -> tuple[str, ...]:
        """See `StatedTexts`."""
        return tuple(self.answers)

    @property
    def as_prompt(self) -> Prompt:
        """The prompt; an answer follows after a space, or at once after the end of a line."""
        return Prompt(self.prompt, "" if self.prompt.endswith("\n") else " ", tuple(self.answers.values()))


class StatedColumns(StatedTexts, frozen=True):
    """Owners' texts, as an encoder reads them."""

    columns: tuple[Text, ...] = Field(min_length=1, max_length=2, description="one text, or two that are compared")
    classes: tuple[Text, ...] = Field(min_length=2, max_length=1000, description="the classes")

    @property
    def shown(self) -> tuple[str, ...]:
        """See `StatedTexts`."""
        return self.columns

    @property
    def labels(self) -> tuple[str, ...]:
        """See `StatedTexts`."""
        return self.classes


def read_texts(stated: StatedTexts, place: Path) -> list[Sample]:
    """Return the samples of a file. Raises `DataError` with the line and column of what does not fit."""
    if not place.is_file():
        raise DataError(place, "no file", _FORMS)
    places = {value_of(label): number for number, label in enumerate(stated.labels)}
    samples = []
    for where, row in rows_of(place, (*stated.shown, stated.target)):
        label = row[stated.target]
        if value_of(label) not in places:
            shown = ", ".join(map(repr, stated.labels[:10])) + (", …" if len(stated.labels) > 10 else "")
            raise DataError(f"{where}, column {stated.target}", repr(label)[:_SHOWN], f"one of {shown}")
        samples.append(Sample({name: row[name] for name in stated.shown}, places[value_of(label)]))
    if not samples:
        raise DataError(place, "no rows", "a row at least")
    return samples


def nobodys_texts(stated: StatedTexts) -> list[Sample]:
    """Return samples that are nobody's, a class after the other."""
    classes = len(stated.labels)
    return [
        Sample({name: _NOBODYS.format(number=number, column=name) for name in stated.shown}, number % classes)
        for number in range(max(SPECIMENS, classes))
    ]


def rows_of(place: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield where each row is, and its cells in some columns, none of them empty. Raises `DataError`."""
    try:
        with regular(place).open("rb") as file:
            content = read_text(file, LARGEST_TEXT)
        with io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="") as text:
            rows = _lines(text, place) if place.suffix in (".jsonl", ".ndjson") else _table(text, place, columns)
            for line, row in rows:
                where = f"{place}, line {line}"
                yield where, {name: cell_of(row, name, where) for name in columns}
    except (OSError, ValueError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(place, f"a file that cannot be read ({why})", f"{_FORMS}, in UTF-8") from None


def _lines(text: io.TextIOWrapper, place: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text, start=1):
        if line.strip():
            row = parse_json(line)
            if not isinstance(row, dict):
                raise DataError(f"{place}, line {number}", f"a {type(row).__name__}", "an object, {…}, in every line")
            yield number, row


def _table(text: io.TextIOWrapper, place: Path, columns: Sequence[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if place.suffix not in (".csv", ".tsv"):
        raise DataError(place, f"a file that ends in {place.suffix or 'nothing'}", _FORMS)
    is_tsv = place.suffix == ".tsv"
    rows = csv_rows(text, "\t" if is_tsv else ",", quoting=csv.QUOTE_NONE if is_tsv else csv.QUOTE_MINIMAL)
    names = [name.strip() for name in next(rows, (0, []))[1]]
    missing = next((name for name in columns if names.count(name) != 1), None)
    if missing is not None:
        found = f"{names.count(missing) or 'no'} columns {missing}"
        raise DataError(f"{place}, line 1", found, f"one, among {', '.join(names[:20]) or 'names of columns'}")
    for line, cells in rows:
        if cells and len(cells) != len(names):
            raise DataError(f"{place}, line {line}", f"{len(cells)} cells", f"{len(names)}, as in the first line")
        if cells:
            yield line, dict(zip(names, cells, strict=True))


def cell_of(row: Mapping[str, Any], name: str, where: str) -> str:
    """Return a cell as text without spaces around it. Raises `DataError` if it is empty, or no text and no number."""
    value = row.get(name)
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, int | float):
        value = as_text(float(value))
    if not isinstance(value, str) or not value.strip():
        found = "an empty cell" if value in (None, "") or isinstance(value, str) else f"a {type(value).__name__}"
        raise DataError(f"{where}, column {name}", found, "a text")
    return value.strip()
