"""The rows of a data set, by the library `datasets`: from a folder, or by a name on the hub.

    1. a folder                    the task's, or of that name in a directory of SEEDBUS_DATA
    2. a name on the hub           `datasets` looks into its cache, and fetches it unless HF_HUB_OFFLINE is set

A folder may have CSV, TSV, JSON, JSON lines or Parquet files whose names begin with those of their splits (`train.csv`,
`test.csv`, or folders of these names), images in `<split>/<class>/`, or what `save_to_disk` has written. No code of a
data set is ever run: the library has no way to run any (datasets ≥ 4).

The invariant: every row has the columns that the task reads, and a label that is one of the model's classes. A row of a
causal model has a text that is not blank; blank rows are left out.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from seedbus.bounded import LARGEST_TEXT, text_chunks
from seedbus.models.data.hub_sets import hub_set
from seedbus.models.data.idx import cache_folder
from seedbus.models.data.roots import own_folder, searched
from seedbus.models.data.untrusted import opened_parquet, regular
from seedbus.models.errors import DataError
from seedbus.models.spelling import other_spellings
from seedbus.settings import Settings

_IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"})
_FILES: dict[str, tuple[str, dict[str, Any]]] = {  # suffix → reader, and its arguments
    **dict.fromkeys(_IMAGES, ("imagefolder", {})),  # first: a folder of images may have a table about them
    ".parquet": ("parquet", {}),
    ".csv": ("csv", {}),
    ".tsv": ("csv", {"sep": "\t"}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
}
_PARQUET = b"PAR1"
_TEXTS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".txt")
_PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")
"""The first bytes of gzip, zip, bzip2, xz, zstd and lz4 files, which `datasets` unpacks without a bound."""
_LAYOUT = (
    "a folder with CSV, TSV, JSON, JSON lines or Parquet files named by their splits, with images in <split>/<class>/, "
    "or written by `save_to_disk`"
)


class Columns(Settings):
    """The columns of a data set that are read."""

    image: str | None = Field(None, description="images")
    text: str | None = Field(None, description="texts")
    text_pair: str | None = Field(None, description="second texts, for models that read pairs")
    label: str | None = Field(None, description="classes: their numbers or their names")
    owner: str | None = Field(
        None, description="the column with the owner of each sample, for `partition: {kind: natural}`"
    )


class Splits(Settings):
    """The names of a data set's splits."""

    train: str = Field("train", min_length=1, description="the training samples")
    validation: str | None = Field(
        None, description="the validation samples; none: `validation` of the training samples is held out"
    )
    test: str = Field("test", min_length=1, description="the test samples; published test sets often have no labels")


class DataSet(NamedTuple):
    """What is read: the fields of the task that say so, and the model's classes.

    Attributes:
        name: a folder, or a name on the hub.
        configuration: a configuration on the hub, or a folder in the folder.
        revision: a commit on the hub.
        columns: the columns that are read.
        splits: the names of the splits.
        classes: the number of the model's classes; 0: rows have no labels.
        known: the numbers of the model's classes by name.
        is_own: whether it is one of several owners, each of whom has some of the classes.
    """

    name: str
    configuration: str | None
    revision: str | None
    columns: Columns
    splits: Splits
    classes: int
    known: Mapping[str, Any]
    is_own: bool = False

    @property
    def folder(self) -> Path | None:
        """The data set's folder; None: it has a name on the hub."""
        named = os.path.expanduser(self.name)
        return Path(named) if os.path.isdir(named) else own_folder(self.name)


@dataclass(frozen=True, slots=True)
class Row:
    """One sample; its content stays in the data set until it is read.

    Attributes:
        source: the split of the data set that it is from, with the columns that the task reads.
        number: its row there.
        label: its class; 0 for a causal model.
        owner: the number of its owner; −1 if samples have no owners.
    """

    source: Any
    number: int
    label: int
    owner: int

    @property
    def content(self) -> Mapping[str, Any]:
        """The values of the row by column; an image is {"bytes": …, "path": …}."""
        content: Mapping[str, Any] = self.source[self.number]
        return content


def read_rows(data: DataSet) -> tuple[dict[str, list[Row]], list[str]]:
    """Return the rows of "train", "test" and, if such a split is named, "validation"; and the names of owners 0, 1, ….

    Raises:
        DataError: the data set, a split or a column is missing, or a value is not valid.
    """
    where = f"task.dataset {data.name}"
    tables = _loaded(data)
    chosen = {split: name for split, name in data.splits.model_dump().items() if name is not None}
    if data.is_own:
        chosen = {"train": data.splits.train}
    for split, name in chosen.items():
        if name not in tables:
            raise DataError(where, f"no split {name}", f"task.splits.{split}: {' or '.join(sorted(tables))}")
    with _as_data_error(data):
        sources = {split: _source(data, tables[name], f"{where}, split {name}") for split, name in chosen.items()}
        labels = _labels(data, sources) if data.classes else {}
        owners, people = _owners(data, sources)
        return {
            split: [
                Row(source, number, labels[split][number] if labels else 0, owners[split][number] if owners else -1)
                for number in (range(len(source)) if labels else _not_blank(source, data.columns.text))
            ]
            for split, source in sources.items()
        }, people


def _loaded(data: DataSet) -> Mapping[str, Any]:
    """Return the splits of a data set by name."""
    with _as_data_error(data):
        import datasets

        with _quiet(datasets):
            if data.folder is not None:
                return _in_folder(datasets, data.folder / (data.configuration or ""), is_own=data.is_own)
            return hub_set(data.name, data.configuration, revision=data.revision)


def _in_folder(datasets: Any, folder: Path, *, is_own: bool) -> Mapping[str, Any]:
    if not folder.is_dir():
        raise DataError(folder, "no such folder", "task.configuration: a folder in the data set's")
    _check_texts(folder)
    if (folder / "dataset_dict.json").is_file():
        splits: Mapping[str, Any] = datasets.load_from_disk(str(folder))
        return splits
    if (folder / "state.json").is_file():
        return {"train": datasets.load_from_disk(str(folder))}
    suffixes = {path.suffix.lower() for path in folder.rglob("*") if path.is_file()}
    reader, options = next((_FILES[suffix] for suffix in _FILES if suffix in suffixes), ("", {}))
    if not reader:
        raise DataError(folder, "none of the files that are read", _LAYOUT)
    if reader != "imagefolder":
        _check_sizes(folder)
    elif is_own:
        options = {"drop_labels": False}  # as it would be if all images were of one class
    own: Mapping[str, Any] = datasets.load_dataset(
        reader, data_dir=str(folder.absolute()), cache_dir=str(cache_folder() / "datasets"), **options
    )
    return own


def _check_texts(folder: Path) -> None:
    """Raise `DataError` for a file that is no text, or too large for one; `datasets` reads what looks like lines."""
    for path in sorted(each for each in folder.rglob("*") if each.suffix.lower() in _TEXTS and not each.is_dir()):
        try:
            with regular(path).open("rb") as file:
                _refuse_packed(path, file.read(6))
                file.seek(0)
                deque(text_chunks(file, LARGEST_TEXT), maxlen=0)
        except OSError as error:
            raise DataError(path, f"a file that cannot be read ({error.strerror})", "a text") from None


def _check_sizes(folder: Path) -> None:
    """Raise `DataError` for a file that `datasets` would unpack to more than one of its size may hold.

    It reads all files of a folder, and knows a packed one by its first bytes, whatever its name says.
    """
    import pyarrow
    import pyarrow.parquet

    for path in sorted(each for each in folder.rglob("*") if not each.is_dir()):
        try:
            with regular(path).open("rb") as opened:
                head = opened.read(6)
            if head.startswith(_PARQUET):
                with opened_parquet(path):
                    pass
        except (OSError, pyarrow.ArrowException) as error:
            why = str(getattr(error, "strerror", None) or error).partition("\n")[0]
            raise DataError(path, f"a file that cannot be read ({why})", "one with rows") from None
        _refuse_packed(path, head)


def _refuse_packed(path: Path, head: bytes) -> None:
    if head.startswith(_PACKED):
        raise DataError(path, "a packed file", "its contents; unpack it first")


def _source(data: DataSet, table: Any, where: str) -> Any:
    """Return a split with the columns that the task reads, after a check of their types and for missing values."""
    import datasets

    columns = {key: name for key, name in data.columns.model_dump().items() if name is not None}
    for key, name in columns.items():
        if name not in table.column_names:
            raise DataError(where, f"no column {name}", f"task.columns.{key}: {' or '.join(table.column_names)}")
    table = table.select_columns(list(dict.fromkeys(columns.values())))
    if data.columns.image is not None:
        feature = table.features[data.columns.image]
        if not isinstance(feature, datasets.Image):
            raise DataError(where, f"column {data.columns.image} of type {_kind(feature)}", "a column of images")
        table = table.cast_column(data.columns.image, datasets.Image(decode=False))
    for key in ("text", "text_pair"):
        if (name := columns.get(key)) is not None and _kind(table.features[name]) not in ("string", "large_string"):
            raise DataError(where, f"column {name} of type {_kind(table.features[name])}", "a column of text")
    for name in columns.values():
        column = _column(table, name)
        if column.null_count:
            number = column.is_null().to_pylist().index(True)
            raise DataError(where, f"nothing in column {name} of row {number}", "a value in every row")
    return table


def _kind(feature: Any) -> str:
    return str(getattr(feature, "dtype", type(feature).__name__))


def _column(table: Any, name: str) -> Any:
    """Return a column as an Arrow array."""
    return table.select_columns([name]).with_format("arrow")[:].column(name)


def _not_blank(source: Any, name: str | None) -> list[int]:
    return [number for number, text in enumerate(_column(source, str(name)).to_pylist()) if text.strip()]


def _labels(data: DataSet, sources: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the class of every row, by split.

    Names of classes, be they the values or those that the data set declares, are looked up among the model's own names
    (`label2id`) if all of them are there. If not, declared names have the numbers of their declaration, and others
    those of their alphabetical order; of owners, who do not know what others have, they are refused. Whole numbers,
    such as 1 and 1.0, are classes themselves.
    """
    name = str(data.columns.label)
    values = _respelled({split: _column(source, name).to_pylist() for split, source in sources.items()}, data.known)
    number_of: dict[Any, int] = {}
    for split, source in sources.items():
        declared = getattr(source.features[name], "names", None)
        if declared is not None:  # a ClassLabel: values are numbers, −1 stands for none
            values[split] = [declared[value] if value >= 0 else value for value in values[split]]
            number_of |= {each: number for number, each in enumerate(declared)}
    distinct = {value for split in values.values() for value in split}
    names = {value for value in distinct if isinstance(value, str)} | number_of.keys()
    if names and names <= data.known.keys():
        number_of = {each: int(data.known[each]) for each in names}
    elif data.is_own:  # others have other classes, and may declare them in another order
        number_of = {}
    elif not number_of:
        number_of = {each: number for number, each in enumerate(sorted(names))}
    number_of |= {value: int(value) for value in distinct if isinstance(value, int | float) and value % 1 == 0}
    for split, own in values.items():
        for row, value in enumerate(own):
            if not 0 <= number_of.get(value, -1) < data.classes:
                what = f"{value}" if number_of.get(value, value) == value else f"{value!r}, class {number_of[value]},"
                raise DataError(
                    f"task.dataset {data.name}, split {getattr(data.splits, split)}",
                    f"label {what} in row {row}",
                    f"a class from 0 to {data.classes - 1}, as task.model has {data.classes}",
                )
    return {split: [number_of[value] for value in own] for split, own in values.items()}


def _owners(data: DataSet, sources: Mapping[str, Any]) -> tuple[dict[str, list[int]], list[str]]:
    """Return the owner of every row by split, numbered in the order of their names, and these names.

    Without such a column both are empty. Raises `DataError` for an owner without a name.
    """
    if data.columns.owner is None:
        return {}, []
    values = {
        split: list(map(str, _column(source, data.columns.owner).to_pylist())) for split, source in sources.items()
    }
    for split, own in values.items():
        nobody = next((row for row, value in enumerate(own) if value.strip() in ("", "nan")), None)
        if nobody is not None:
            where = f"task.dataset {data.name}, split {getattr(data.splits, split)}"
            raise DataError(
                where, f"nothing in column {data.columns.owner} of row {nobody}", "the owner of each sample"
            )
    values = _respelled(values, values["train"])
    people = sorted({value for own in values.values() for value in own})
    number_of = {each: number for number, each in enumerate(people)}
    return {split: [number_of[value] for value in own] for split, own in values.items()}, people


def _respelled(values: Mapping[str, list[Any]], first: Iterable[str]) -> dict[str, list[Any]]:
    """Return values by split in which texts of equal numbers, and `true` and `True`, are one, spelled as in `first`."""
    texts = (value for own in values.values() for value in own if isinstance(value, str))
    spellings = other_spellings(first, texts)
    return {split: [spellings.get(value, value) for value in own] for split, own in values.items()}


def contents(rows: Sequence[Row]) -> Iterator[Mapping[str, Any]]:
    """Yield the content of rows of one split, in their order; faster than one by one."""
    if rows:
        for group in rows[0].source.select([row.number for row in rows]).iter(batch_size=1000):
            yield from (dict(zip(group, values, strict=True)) for values in zip(*group.values(), strict=True))


@contextmanager
def _as_data_error(data: DataSet) -> Iterator[None]:
    """Turn all errors of `datasets` into one `DataError` that says what to do."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # the library raises many unrelated types, also ImportError
        reason = next(iter(str(error.__cause__ or error).strip().splitlines()), "")
        why = f"{type(error).__name__}: {reason}"
        if data.folder is not None and not isinstance(error, ImportError):
            raise DataError(data.folder, f"files that `datasets` cannot read ({why})", _LAYOUT) from error
        is_offline = os.environ.get("HF_HUB_OFFLINE") not in (None, "", "0")
        raise DataError(
            f"task.dataset {data.name}",
            f"{searched(data.name)}, and nothing that `datasets` can load"
            f"{', and HF_HUB_OFFLINE is set' if is_offline else ''} ({why})",
            f'{_LAYOUT}; or a name on the hub, and a network; and `pip install "seedbus[hub]"`',
        ) from error


@contextmanager
def _quiet(datasets: Any) -> Iterator[None]:
    """Suppress the progress bars of `datasets`; the run has its own display."""
    had = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not had:
            datasets.enable_progress_bars()
