"""Labelled text: nine data sets of GLUE, SuperGLUE and SQuAD, from a folder in the published layout or from the hub.

    1. the folder that the task names
    2. $SEEDBUS_DATA/<name>/       if it exists, it is used, or refused if it is not valid
    3. the Hugging Face hub        through `datasets`, an optional extra, which keeps its own cache

The published test sets have no labels. As in the experiments of MeZO and DeComFL, `test` is the development set, and
the validation split is taken from the training set. **Ours**: if a SQuAD folder has only the development file, every
fifth of its articles is the test set and the others are the training set.

The invariant: every sample has all fields that its prompt shows, as text, and a label that is one of the classes.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seedbus.bounded import LARGEST_TEXT, read_text
from seedbus.models.data.hub_sets import hub_set
from seedbus.models.data.roots import own_folder, searched
from seedbus.models.data.untrusted import parse_json, regular
from seedbus.models.errors import DataError

Row = Mapping[str, Any]


class Sample(NamedTuple):
    """One labelled sample.

    Attributes:
        fields: the texts that its prompt shows, by name.
        label: its class; for SQuAD the number of its article.
        answers: the accepted answers, for data sets whose answers are text.
    """

    fields: dict[str, str]
    label: int
    answers: tuple[str, ...] = ()


class _DataSet(NamedTuple):
    fields: tuple[str, ...]
    hub: tuple[str, str]  # repository and configuration
    labels: tuple[str, ...] = ("0", "1")  # names of the classes in the files; the hub and GLUE have their numbers
    folders: tuple[str, ...] = ()  # accepted names of the folder, besides the name of the data set
    rows: Callable[[Row], Iterable[Row]] = lambda row: [row]  # converts a row of a file to rows with `fields`


def _wsc_rows(row: Row) -> list[Row]:
    return [{**row, **row["target"]} if "target" in row else row]


def _qqp_rows(row: Row) -> list[Row]:
    """A few lines of the published train.tsv are broken and have no label: they are left out, as in GLUE's readers."""
    if not row.get("is_duplicate", "0"):
        return []
    names = {"text_a": "question1", "text_b": "question2", "is_duplicate": "label"}
    return [{names.get(name, name): value for name, value in row.items()}]


def _multirc_rows(row: Row) -> Iterator[Row]:
    """Each line of SuperGLUE's file is a paragraph that contains its questions and their answers."""
    if "passage" not in row:
        yield row
        return
    for question in row["passage"]["questions"]:
        for answer in question["answers"]:
            yield {
                "paragraph": row["passage"]["text"],
                "question": question["question"],
                "answer": answer["text"],
                "label": answer.get("label"),
            }


_BOOLEANS = ("false", "true")
_SUPER = "aps/super_glue"
_REVISIONS = {  # commits of the hub, fixed so that the data cannot change
    "nyu-mll/glue": "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c",
    _SUPER: "3de24cf8022e94f4ee4b9d55a6f539891524d646",
    "rajpurkar/squad": "7b6d24c440a36b6815f21b70d25016731768db1f",
}
SETS = {
    "sst2": _DataSet(("sentence",), ("nyu-mll/glue", "sst2"), folders=("sst-2", "SST-2")),
    "rte": _DataSet(("premise", "hypothesis"), (_SUPER, "rte"), ("entailment", "not_entailment"), ("RTE",)),
    "cb": _DataSet(("premise", "hypothesis"), (_SUPER, "cb"), ("entailment", "contradiction", "neutral"), ("CB",)),
    "boolq": _DataSet(("passage", "question"), (_SUPER, "boolq"), _BOOLEANS, ("BoolQ",)),
    "wsc": _DataSet(("text", "span1_text", "span2_text"), (_SUPER, "wsc.fixed"), _BOOLEANS, ("WSC",), _wsc_rows),
    "wic": _DataSet(("word", "sentence1", "sentence2"), (_SUPER, "wic"), _BOOLEANS, ("WiC",)),
    "multirc": _DataSet(
        ("paragraph", "question", "answer"), (_SUPER, "multirc"), _BOOLEANS, ("MultiRC",), _multirc_rows
    ),
    "qqp": _DataSet(("question1", "question2"), ("nyu-mll/glue", "qqp"), folders=("qqp-subset", "QQP"), rows=_qqp_rows),
    "squad": _DataSet(("title", "context", "question"), ("rajpurkar/squad", ""), folders=("squad-v1.1",)),
}
_FILES = {
    "train": ("train.tsv", "train.jsonl", "train.json", "train-v1.1.json"),
    "test": ("dev.tsv", "val.jsonl", "dev.jsonl", "dev.json", "dev-v1.1.json"),
}
_HUB_SPLITS = {"train": "train", "test": "validation"}
_MAX_DIGITS = 9
_SHOWN = 60  # characters of a label in a sentence
_TEST_EVERY = 5  # every fifth article is for testing, if a SQuAD folder has no training file


def read(name: str, folder: str | None) -> tuple[list[Sample], list[Sample]]:
    """Return the training samples (validation included) and the test samples.

    Args:
        name: a data set of `SETS`.
        folder: the folder with its files; None: see the module.

    Raises:
        DataError: the files are missing or not valid.
    """
    path = _folder(name, folder)
    if path is None:
        splits = _from_hub(name)
        return tuple(  # type: ignore[return-value]
            list(_samples(name, splits[_HUB_SPLITS[split]], f"{SETS[name].hub[0]}, {split}")) for split in _FILES
        )
    development = _stored(name, path, "test")
    if name != "squad" or _file(path, "train") is not None:
        return _stored(name, path, "train"), development
    return (
        [sample for sample in development if sample.label % _TEST_EVERY != 0],
        [sample for sample in development if sample.label % _TEST_EVERY == 0],
    )


def _folder(name: str, folder: str | None) -> Path | None:
    if folder is not None:
        path = os.path.expanduser(folder)
        if not os.path.isdir(path):
            raise DataError("task.data", f"no folder {folder}", _layout(name))
        return Path(path)
    return own_folder(name, *SETS[name].folders)


def _layout(name: str) -> str:
    files = {
        "sst2": "train.tsv and dev.tsv",
        "qqp": "train.tsv and dev.tsv",
        "squad": "train-v1.1.json and dev-v1.1.json",
    }
    return f"a folder with {files.get(name, 'train.jsonl and val.jsonl')}, as {name} is published"


def _file(folder: Path, split: str) -> Path | None:
    return next((folder / name for name in _FILES[split] if (folder / name).is_file()), None)


def _stored(name: str, folder: Path, split: str) -> list[Sample]:
    path = _file(folder, split)
    if path is None:
        raise DataError(folder, f"no file of the {split} split", f"one of {', '.join(_FILES[split])}")
    return list(_samples(name, _rows(path), path))


def _rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a file: TSV, JSON lines, a JSON object of rows, or SQuAD's JSON. Raises `DataError`."""
    try:
        with regular(path).open("rb") as opened:
            content = read_text(opened, LARGEST_TEXT)
        with io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="") as file:
            if path.suffix == ".tsv":
                yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            elif path.suffix == ".jsonl":
                yield from (parse_json(line) for line in file if line.strip())
            else:
                document = parse_json(file.read())
                yield from _squad_rows(document["data"]) if "data" in document else document.values()
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(path, f"a file that cannot be read ({error})", "the file as published") from error
    except (LookupError, TypeError, AttributeError) as error:
        found = f"another layout ({type(error).__name__}: {error})"
        raise DataError(path, found, "the file as published") from None


def _squad_rows(articles: Iterable[Row]) -> Iterator[Row]:
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answers = {"text": [answer["text"] for answer in question["answers"]]}
                yield {**paragraph, **question, "title": article["title"], "answers": answers}


def _samples(name: str, rows: Iterable[Row], where: object) -> Iterator[Sample]:
    data_set = SETS[name]
    articles = dict[str, int]()  # numbers by title
    number = -1
    try:
        for number, row in enumerate(rows):
            for each in data_set.rows(row):
                fields = {field: _text(each, field) for field in data_set.fields}
                if name != "squad":
                    yield Sample(fields, _label(each["label"], data_set.labels))
                    continue
                answers = tuple(map(str, each["answers"]["text"]))
                if not answers:
                    raise DataError(where, f"row {number} without an answer", "SQuAD 1.1, where every question has one")
                yield Sample(fields, articles.setdefault(fields["title"], len(articles)), answers)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        missing = f"no field {error}" if isinstance(error, KeyError) else "no such fields"
        raise DataError(
            where, f"{missing} in row {number}", f"{', '.join(data_set.fields)}, label for {name}"
        ) from None
    except _UnknownLabel as error:
        raise DataError(where, f"label {error} in row {number}", f"{', '.join(data_set.labels)} for {name}") from None
    if number < 0:
        raise DataError(where, "no samples", _layout(name))


def _text(row: Row, field: str) -> str:
    """Return a field as text; one with nothing in it (null, or a cell after the end of a line) is missing."""
    if row[field] is None:
        raise KeyError(field)
    return str(row[field])


class _UnknownLabel(Exception):
    """A label that is not a class of the data set."""


def _label(value: Any, labels: tuple[str, ...]) -> int:
    text = str(value).lower()
    if text in labels:
        return labels.index(text)
    if text.isdecimal() and len(text) <= _MAX_DIGITS and int(text) < len(labels):
        return int(text)
    raise _UnknownLabel(repr(value)[:_SHOWN])


def _from_hub(name: str) -> Mapping[str, Iterable[Row]]:
    repository, configuration = SETS[name].hub
    try:
        splits: Mapping[str, Iterable[Row]] = hub_set(
            repository, configuration or None, revision=_REVISIONS[repository]
        )
        return {split: splits[split] for split in _HUB_SPLITS.values()}
    except (
        Exception
    ) as error:  # the client of the hub raises many unrelated types, also ImportError, if it gets no data
        reason = (str(error).splitlines() or [""])[0]
        raise DataError(
            f"data set {name}",
            f"{searched(name)}, and fetching {repository} from the Hugging Face hub failed "
            f"({type(error).__name__}: {reason})",
            f"{_layout(name)}: named by task.data, or as {name}/ in the directory that SEEDBUS_DATA names; or a "
            'network and `pip install "seedbus[hub]"`',
        ) from error
