"""Labelled text: nine data sets of GLUE, SuperGLUE and SQuAD, out of a folder in their own layout or from the hub.

    1. the folder that the task names, or
    2. $SEEDBUS_DATA/<name>/       a folder that is there is used or refused
    3. the Hugging Face hub        through `datasets`, an optional extra, which keeps its own cache

The published test sets have no labels: as in MeZO's and DeComFL's experiments, `test` is the development set, and what
is held out for tuning comes from the training set. **Ours**: where a SQuAD folder holds the development file alone, a
fifth of its articles (every fifth, whole) is the test set and the others are for training.

The invariant: every sample has all the fields that its prompt shows, as text, and a label that is one of the classes.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seedbus.models.data.roots import own_folder
from seedbus.models.errors import DataError

Row = Mapping[str, Any]


class Sample(NamedTuple):
    """One sample: what its prompt shows, its class (SQuAD: its article), and the answers accepted, if they are text."""

    fields: dict[str, str]
    label: int
    answers: tuple[str, ...] = ()


class _Set(NamedTuple):
    fields: tuple[str, ...]
    hub: tuple[str, str]
    labels: tuple[str, ...] = ("0", "1")  # how the files spell the classes; hub and GLUE have their numbers
    folders: tuple[str, ...] = ()  # besides the set's name
    unfold: Callable[[Row], Iterable[Row]] = lambda row: [row]


def _flat_wsc(row: Row) -> list[Row]:
    return [{**row, **row["target"]} if "target" in row else row]


def _flat_qqp(row: Row) -> list[Row]:
    names = {"text_a": "question1", "text_b": "question2", "is_duplicate": "label"}
    return [{names.get(name, name): value for name, value in row.items()}]


def _flat_multirc(row: Row) -> Iterator[Row]:
    """SuperGLUE's file has a paragraph a line, with its questions and their answers inside."""
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
_REVISIONS = {  # commits of the hub: what was looked at once is what is fetched
    "nyu-mll/glue": "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c",
    _SUPER: "3de24cf8022e94f4ee4b9d55a6f539891524d646",
    "rajpurkar/squad": "7b6d24c440a36b6815f21b70d25016731768db1f",
}
SETS = {
    "sst2": _Set(("sentence",), ("nyu-mll/glue", "sst2"), folders=("sst-2", "SST-2")),
    "rte": _Set(("premise", "hypothesis"), (_SUPER, "rte"), ("entailment", "not_entailment"), ("RTE",)),
    "cb": _Set(("premise", "hypothesis"), (_SUPER, "cb"), ("entailment", "contradiction", "neutral"), ("CB",)),
    "boolq": _Set(("passage", "question"), (_SUPER, "boolq"), _BOOLEANS, ("BoolQ",)),
    "wsc": _Set(("text", "span1_text", "span2_text"), (_SUPER, "wsc.fixed"), _BOOLEANS, ("WSC",), _flat_wsc),
    "wic": _Set(("word", "sentence1", "sentence2"), (_SUPER, "wic"), _BOOLEANS, ("WiC",)),
    "multirc": _Set(("paragraph", "question", "answer"), (_SUPER, "multirc"), _BOOLEANS, ("MultiRC",), _flat_multirc),
    "qqp": _Set(("question1", "question2"), ("nyu-mll/glue", "qqp"), folders=("qqp-subset", "QQP"), unfold=_flat_qqp),
    "squad": _Set(("title", "context", "question"), ("rajpurkar/squad", ""), folders=("squad-v1.1",)),
}
_FILES = {
    "train": ("train.tsv", "train.jsonl", "train.json", "train-v1.1.json"),
    "test": ("dev.tsv", "val.jsonl", "dev.jsonl", "dev.json", "dev-v1.1.json"),
}
_HUB_SPLITS = {"train": "train", "test": "validation"}
_TEST_SHARE = 5  # one article in so many, of a SQuAD folder that has no training file


def read(name: str, folder: str | None) -> tuple[list[Sample], list[Sample]]:
    """The samples to train on (validation included) and those to test on. Raises `DataError`."""
    own = _folder(name, folder)
    if own is None:
        splits = _from_hub(name)
        return tuple(  # type: ignore[return-value]
            list(_samples(name, splits[_HUB_SPLITS[split]], f"{SETS[name].hub[0]}, {split}")) for split in _FILES
        )
    test = _stored(name, own, "test")
    if name != "squad" or _file(own, "train") is not None:
        return _stored(name, own, "train"), test
    held = [sample.label % _TEST_SHARE == 0 for sample in test]
    return (
        [sample for sample, is_held in zip(test, held, strict=True) if not is_held],
        [sample for sample, is_held in zip(test, held, strict=True) if is_held],
    )


def _folder(name: str, folder: str | None) -> Path | None:
    if folder is not None:
        path = os.path.expanduser(folder)
        if not os.path.isdir(path):
            raise DataError("task.data", f"no folder {folder}", _layout(name))
        return Path(path)
    return own_folder(name, *SETS[name].folders)


def _layout(name: str) -> str:
    kind = {
        "sst2": "train.tsv and dev.tsv",
        "qqp": "train.tsv and dev.tsv",
        "squad": "train-v1.1.json and dev-v1.1.json",
    }
    return f"a folder with {kind.get(name, 'train.jsonl and val.jsonl')}, as {name} is published"


def _file(folder: Path, split: str) -> Path | None:
    return next((folder / name for name in _FILES[split] if (folder / name).is_file()), None)


def _stored(name: str, folder: Path, split: str) -> list[Sample]:
    path = _file(folder, split)
    if path is None:
        raise DataError(folder, f"no file of the {split} split", f"one of {', '.join(_FILES[split])}")
    return list(_samples(name, _rows(path), path))


def _rows(path: Path) -> Iterator[Row]:
    """The rows of a file: tab-separated, JSON lines, one JSON object of rows, or SQuAD's. Raises `DataError`."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            if path.suffix == ".tsv":
                yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            elif path.suffix == ".jsonl":
                yield from (json.loads(line) for line in file if line.strip())
            else:
                whole = json.load(file)
                yield from _of_squad(whole["data"]) if "data" in whole else whole.values()
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(path, f"a file that cannot be read ({error})", "the file as published") from error


def _of_squad(articles: Iterable[Row]) -> Iterator[Row]:
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answers = {"text": [answer["text"] for answer in question["answers"]]}
                yield {**paragraph, **question, "title": article["title"], "answers": answers}


def _samples(name: str, rows: Iterable[Row], where: object) -> Iterator[Sample]:
    wanted, articles = SETS[name], dict[str, int]()
    number = -1
    try:
        for number, row in enumerate(rows):
            for each in wanted.unfold(row):
                fields = {field: str(each[field]) for field in wanted.fields}
                if name != "squad":
                    yield Sample(fields, _label(each["label"], wanted.labels))
                    continue
                answers = tuple(each["answers"]["text"])
                if not answers:
                    raise DataError(where, f"row {number} without an answer", "SQuAD 1.1, where every question has one")
                yield Sample(fields, articles.setdefault(fields["title"], len(articles)), answers)
    except (KeyError, TypeError, AttributeError) as error:
        missing = f"no field {error}" if isinstance(error, KeyError) else "no such fields"
        raise DataError(where, f"{missing} in row {number}", f"{', '.join(wanted.fields)}, label for {name}") from None
    except _NoClass as error:
        raise DataError(where, f"label {error} in row {number}", f"{', '.join(wanted.labels)} for {name}") from None
    if number < 0:
        raise DataError(where, "no samples", _layout(name))


class _NoClass(Exception):
    """A label that is no class of the set; says which."""


def _label(value: Any, labels: tuple[str, ...]) -> int:
    text = str(value).lower()
    if text in labels:
        return labels.index(text)
    if text.isdecimal() and int(text) < len(labels):
        return int(text)
    raise _NoClass(repr(value))


def _from_hub(name: str) -> Mapping[str, Iterable[Row]]:
    repository, configuration = SETS[name].hub
    try:
        import datasets

        found: Mapping[str, Iterable[Row]] = datasets.load_dataset(
            repository, configuration or None, revision=_REVISIONS[repository]
        )
        return {split: found[split] for split in _HUB_SPLITS.values()}
    except Exception as error:  # the hub's client raises unrelated types, ImportError too, for one fact: no data came
        reason = (str(error).splitlines() or [""])[0]
        raise DataError(
            f"data set {name}",
            f"no local files, and fetching {repository} from the Hugging Face hub failed "
            f"({type(error).__name__}: {reason})",
            f"{_layout(name)}: named by task.data, or as {name}/ in the directory that SEEDBUS_DATA names; or a "
            'network and `pip install "seedbus[hub]"`',
        ) from error
