"""The settings of a task on any data set and model of the Hugging Face libraries, and values that need no torch."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator, model_validator

from seedbus.capabilities import Fact, RulesOut, Statement
from seedbus.models.data.roots import locate, own_folder
from seedbus.models.errors import DataError
from seedbus.models.hub.own import content_of, kept, nobodys_rows
from seedbus.models.hub.rows import Columns, DataSet, Row, Splits, read_rows
from seedbus.models.hub.weights import LastBlocks, heads, selected
from seedbus.models.partition import Divisible, Division, Partition
from seedbus.models.text.shapes import is_size, whole
from seedbus.models.text.stated import OWN
from seedbus.models.text.task import PrecisionTask, folder_of, named_folders
from seedbus.models.text.training import Full, Head, LayerNorm, Lora
from seedbus.models.text.weights import Pretrained, inspect_pretrained, within_context

Training = Annotated[Full | Head | LastBlocks | LayerNorm | Lora, Field(discriminator="kind")]
_MOST_CLASSES = 2**20
_COLUMNS = {  # the columns that a head reads, besides the owner's, and whether they are needed
    "image-classification": {"image": True, "label": True},
    "sequence-classification": {"text": True, "text_pair": False, "label": True},
    "causal-lm": {"text": True},
}


class HuggingFaceSettings(PrecisionTask, frozen=True):
    """The fields of a task on any data set and model of the Hugging Face libraries."""

    test_fraction: ClassVar[float] = 0.2
    """See `partitions.own.ReadsOwn`."""

    model: str = Field(
        min_length=1,
        description="a folder, which may be relative to the scenario's file, or the name of a model in this machine's "
        "Hugging Face cache",
    )
    head: Literal["image-classification", "sequence-classification", "causal-lm"] = Field(
        description="how the model is loaded: by AutoModelForImageClassification, AutoModelForSequenceClassification "
        "or AutoModelForCausalLM"
    )
    dataset: str = Field(
        min_length=1,
        description="a folder (CSV, TSV, JSON, JSON lines, Parquet, images in folders of their classes, or what "
        "`save_to_disk` writes), beside the scenario's file or in a directory of SEEDBUS_DATA, or a name on the hub; "
        "own: owners' folders, for `partition: own`",
    )
    configuration: str | None = Field(
        None,
        pattern=r"^\w[\w.+-]*$",
        max_length=96,
        description="the configuration of a data set on the hub; of a folder, a folder in it",
    )
    revision: str | None = Field(
        None, pattern=r"^\w[\w.-]*$", max_length=96, description="the commit of a data set on the hub; none: the newest"
    )
    columns: Columns = Field(description="the columns that are read")
    splits: Splits = Field(Splits(), description="the names of the splits")
    train: Training = Field(
        Full(), description="which weights are trained; with last-blocks and lora the head of a classifier as well"
    )
    max_length: int | None = Field(
        None, ge=2, description="most tokens of a text; the end of a longer one is cut; none: the model's context"
    )

    @field_validator("dataset")
    @classmethod
    def _resolve_data(cls, value: str, info: ValidationInfo) -> str:
        return value if value == OWN else str(folder_of(value, info))

    @field_validator("configuration")
    @classmethod
    def _locate_configuration(cls, value: str | None, info: ValidationInfo) -> str | None:
        """Check that the folder in the data set's is inside the roots too, of a scenario that a server sent."""
        if value is not None and (info.context or {}).get("roots") is not None and "dataset" in info.data:
            locate(os.path.join(info.data["dataset"], value), info.context)
        return value

    def named_files(self) -> list[Path]:
        """See `task.Task`."""
        if self.has_stated:
            return super().named_files()
        own = None if os.path.isdir(os.path.expanduser(self.dataset)) else own_folder(self.dataset)
        return [*super().named_files(), *named_folders(self.dataset if own is None else str(own))]

    @model_validator(mode="after")
    def _check_own(self) -> Self:
        others = {"configuration": self.configuration, "revision": self.revision, "shots": self.shots}
        others |= {"columns.owner": self.columns.owner, "splits.validation": self.splits.validation}
        for field, value in others.items() if self.has_stated else ():
            if value is not None:
                raise ValueError(f"{field} is of one data set, and dataset: own are those of all owners; leave one out")
        return self

    @property
    def has_stated(self) -> bool:  # type: ignore[override]  # a class variable of Task; here a field decides
        """Whether its rows stay with their owners."""
        return getattr(self, "dataset", None) == OWN  # it is missing where what a kind can do is listed

    @property
    def has_test_set(self) -> bool:  # type: ignore[override]  # a class variable of Task; here a field decides
        """Whether it has common rows."""
        return not self.has_stated

    def capabilities(self) -> Iterator[Statement]:
        yield from super().capabilities()
        if self.has_stated:
            yield RulesOut(Fact.COMMON, "leaves the rows with their owners", "dataset")

    def read_own(self, place: Path) -> list[Row]:
        """See `partitions.own.ReadsOwn`. Raises `DataError`."""
        if not place.is_dir():
            raise DataError(place, "no folder", "a folder that `datasets` reads, such as `save_to_disk` writes")
        return kept(self._rows(str(place), is_own=True)[0]["train"])

    def read_public(self) -> None:
        """See `partitions.own.ReadsOwn`: there is no such test set."""

    def specimens(self) -> list[Row]:
        """See `partitions.own.ReadsOwn`. Raises `DataError`."""
        return nobodys_rows(self.columns, self.classes)

    def content(self, sample: Row) -> bytes:
        """See `PretrainedTask`."""
        return content_of(sample)

    def division(self, *, seed: int, clients: int, partition: Partition) -> Division:
        """See `task.Task`. Raises `DataError`."""
        if self.has_stated:
            raise DataError(f"partition {partition.kind}", "rows that their owners have", "task.dataset")
        return super().division(seed=seed, clients=clients, partition=partition)

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        read = _COLUMNS[self.head]
        example = ", ".join(f"{name}: NAME" for name, is_needed in read.items() if is_needed)
        for name, is_needed in read.items():
            if is_needed and getattr(self.columns, name) is None:
                raise ValueError(
                    f"columns has no {name}, which head: {self.head} reads; expected columns: {{{example}}}"
                )
        for name in ("image", "text", "text_pair", "label"):
            if name not in read and getattr(self.columns, name) is not None:
                raise ValueError(
                    f"columns has {name}, which head: {self.head} does not read; expected columns: {{{example}}}"
                )
        if self.head == "causal-lm" and self.train.kind == "head":
            raise ValueError("train is head, and a causal model's head is its embedding; expected another train")
        if self.head == "image-classification" and self.max_length is not None:
            raise ValueError("max_length is given, and images have no tokens; expected no max_length")
        return self

    @property
    def metrics(self) -> tuple[str, ...]:  # type: ignore[override]  # a class variable of Task; here it depends on the head
        """The metrics of an evaluation."""
        if self.head == "causal-lm":
            return ("loss",) if self.has_stated else ("loss", "perplexity")  # that of all tokens is no mean over texts
        return ("loss", "accuracy")

    @property
    def has_owners(self) -> bool:  # type: ignore[override]  # a class variable of Task; here it depends on the columns
        """Whether a column has the owners of samples."""
        return self.columns.owner is not None

    @property
    def may_hold_out(self) -> bool:
        """See `Task`."""
        return self.splits.validation is not None or super().may_hold_out

    @property
    def draws(self) -> str:
        """See `PretrainedTask`. A folder has another path on another machine, so its name keys nothing."""
        return self.name

    @property
    def classes(self) -> int:
        """The number of the model's classes; 0 for a causal model. Raises `DataError` for one class."""
        if self.head == "causal-lm":
            return 0
        count = class_count(inspect_pretrained(self.model).config, f"task.model {self.model}")
        if count < 2:
            raise DataError(
                f"task.model {self.model}", f"{count} class, as config.json says", "a classifier: two or more"
            )
        return count

    @property
    def dimension(self) -> int:
        """d, from the model's configuration and header. Raises `DataError` if they are not on this machine."""
        pretrained = inspect_pretrained(self.model)
        most = pretrained.config.get("max_position_embeddings")
        within_context(self.max_length, most if is_size(most) and most else None, self.model)
        shapes = pretrained.shapes
        trained = selected(self.train, shapes, is_classifier=self.classes > 0)
        count = sum(math.prod(shapes[name]) for name in trained)
        if not isinstance(self.train, Lora):
            return count
        body = {name: shape for name, shape in shapes.items() if not self.classes or name not in heads(shapes)}
        return count + self.train.count(Pretrained(pretrained.config, body))

    def memory_saving_settings(self) -> list[str]:
        """See `task.Task`."""
        least = "head" if self.classes else "lora"
        is_least = self.train.kind in (least, "lora")
        return [*([] if is_least else [f"task.train: {{kind: {least}}}"]), *super().memory_saving_settings()]

    def read(self) -> tuple[list[Row], list[Row] | None, list[Row], list[str]]:
        """See `PretrainedTask`. Raises `DataError`."""
        rows, people = self._rows(self.dataset)
        return rows["train"], rows.get("validation"), rows["test"], people

    def _rows(self, name: str, *, is_own: bool = False) -> tuple[dict[str, list[Row]], list[str]]:
        known = inspect_pretrained(self.model).config.get("label2id") if self.classes else None
        return read_rows(
            DataSet(
                name,
                self.configuration,
                self.revision,
                self.columns,
                self.splits,
                self.classes,
                known if isinstance(known, dict) else {},
                is_own,
            )
        )

    def load(self, seed: int) -> tuple[dict[str, list[Any]], Divisible]:
        """See `PretrainedTask`. Raises `DataError` also for a class without a training sample."""
        splits, divisible = super().load(seed)
        absent = np.setdiff1d(np.arange(self.classes), divisible.labels)
        if absent.size:
            raise DataError(
                f"task.dataset {self.dataset}",
                f"no training sample of class {absent[0]} of the model's {self.classes}",
                "at least one of each class: other samples, a smaller task.validation, or a model with fewer classes",
            )
        if not splits["train"]:
            raise DataError(f"task.dataset {self.dataset}", "no training samples", "at least one")
        return splits, divisible

    def owners(self, samples: Sequence[Row]) -> NDArray[np.int64] | None:
        """See `PretrainedTask`."""
        return np.array([row.owner for row in samples], dtype=np.int64) if self.has_owners else None


def class_count(config: Mapping[str, Any], where: object) -> int:
    """Return the number of classes that a model's configuration states; transformers' default is two.

    Args:
        config: the configuration.
        where: what the sentence of a `DataError` names.
    """
    named = config.get("id2label")
    if isinstance(named, dict):
        return len(named)
    return whole(config, "num_labels", where, _MOST_CLASSES) if config.get("num_labels") else 2
