"""The bases of tasks with pretrained weights: their common fields, and the division of samples into splits.

The invariant: which samples are held out depends on the data set and the fraction, not on the seed. So a learning rate
that is tuned on the validation split with one seed was never tuned on training samples of another seed.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator, model_validator

from seedbus.capabilities import Fact, RulesOut, Statement
from seedbus.models.data.batches import MICRO_BATCH
from seedbus.models.data.roots import Roots, is_model, locate, own_roots
from seedbus.models.errors import DataError
from seedbus.models.generators import generator
from seedbus.models.partition import Divisible, Division, Partition, division_of
from seedbus.models.preprocessing import Preprocessing
from seedbus.models.task import Task
from seedbus.models.text.files import Sample, read
from seedbus.models.text.stated import OWN, StatedTexts, nobodys_texts, read_texts
from seedbus.models.text.weights import inspect_pretrained


class PretrainedTask(Task, frozen=True):
    """The base of tasks that train pretrained weights: which samples are used, and how they are held out."""

    batch_size: int = Field(
        32, ge=1, description="samples of a local step; a client with fewer samples uses all of them"
    )
    micro_batch: int | None = Field(None, ge=1, description=f"{MICRO_BATCH}; texts of similar length are together")
    shots: int | None = Field(
        None, ge=1, description="training samples per class, drawn by key (SQuAD: in total); none: all"
    )
    validation: float = Field(0.1, ge=0, le=0.5, description="fraction of the training samples held out for tuning")
    evaluated: int = Field(1000, ge=1, description="most samples of a split that are evaluated; always the same ones")

    if TYPE_CHECKING:  # fields of the subclasses, which define what they accept
        dataset: str
        model: str

        @property
        def classes(self) -> int: ...

    @property
    def known_classes(self) -> int:  # type: ignore[override]  # a class variable of Task
        """See `task.Task`. Raises `DataError`."""
        return self.classes

    @abstractmethod
    def read(self) -> tuple[Sequence[Any], Sequence[Any] | None, Sequence[Any], Sequence[str]]:
        """Return the samples of training, validation (None: held out of the training samples) and test, and the names
        of owners 0, 1, ….

        A sample has a `label`.

        Raises:
            DataError: the samples are missing or not valid.
        """

    @property
    def draws(self) -> str:
        """The name that keys the draws of samples."""
        return self.dataset

    def pretrained_size(self) -> int:
        """See `task.Task`. Raises `DataError`."""
        return inspect_pretrained(self.model).size

    @field_validator("model", "data", check_fields=False)
    @classmethod
    def _resolve_folder(cls, value: str | None, info: ValidationInfo) -> str | None:
        return folder_of(value, info)

    def named_files(self) -> list[Path]:
        """See `task.Task`: a model's folder; the hub's models do not change."""
        return named_folders(self.model)

    def held_out(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which of `count` samples are for training and which for validation, sorted, whatever the seed."""
        order, held = generator("validation", self.draws).permutation(count), round(self.validation * count)
        return np.sort(order[held:]), np.sort(order[:held])

    def load(self, seed: int) -> tuple[dict[str, list[Any]], Divisible]:
        """Return the samples of "train", "validation" and "test", and what those of "train" can be divided by.

        Args:
            seed: keys the draw of `shots`; it is the partition's, so that a division is one of the same samples.

        Raises:
            DataError: the files are missing or not valid.
        """
        samples, apart, test, people = self.read()
        train, validation = self.held_out(len(samples))
        if apart is not None:
            train, validation = np.arange(len(samples)), validation[:0]
        if self.shots is not None:
            train = self._limit_shots(samples, train, seed)
        rows = np.full(len(samples), -1, dtype=np.int64)
        rows[train] = np.arange(train.size)
        splits = {
            "train": [samples[index] for index in train],
            "validation": [samples[index] for index in validation] if apart is None else list(apart),
            "test": list(test),
        }
        labels = np.array([each.label for each in splits["train"]], dtype=np.int64)
        return splits, Divisible(labels, rows, self.owners(splits["train"]), people=people)

    def owners(self, samples: Sequence[Any]) -> NDArray[np.int64] | None:
        """Return the owner of each sample, [n]; None: samples have no owners."""
        return None

    def content(self, sample: Any) -> bytes:
        """Return what a sample is, for tasks of which each client may have samples of its own."""
        raise NotImplementedError

    def class_of(self, sample: Any) -> int:
        """Return the class of a sample, as `shots` counts classes."""
        label: int = sample.label
        return label

    def division(self, *, seed: int, clients: int, partition: Partition) -> Division:
        """See `task.Task`. Raises `DataError`."""
        _, divisible = self.load(partition.key(seed))
        return division_of(partition, divisible, clients, seed)

    def _limit_shots(self, samples: Sequence[Any], train: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """Draw `shots` training samples of each class, or all if it has fewer."""
        labels = np.array([self.class_of(samples[index]) for index in train])
        shuffled = generator("shots", self.draws, seed).permutation(train.size)
        chosen = [shuffled[labels[shuffled] == label][: self.shots] for label in np.unique(labels)]
        return np.sort(train[np.concatenate(chosen)]) if chosen else train

    def evaluated_indices(self, count: int) -> NDArray[np.int64]:
        """Return the indices of the samples that are evaluated, ascending, of a split with `count` samples."""
        return np.sort(generator("evaluated", self.draws).permutation(count)[: self.evaluated])


class PrecisionTask(PretrainedTask, frozen=True):
    """The base of tasks whose models may be stored, and computed with, in fewer bits."""

    dtype: Literal["float32", "bfloat16", "float16", "int8", "nf4"] = Field(
        "float32",
        description="storage type of frozen weights, which are widened to float32 layer by layer; int8 and nf4 (4 "
        "bits): the matrices of layers, by bitsandbytes, and bfloat16 for the others",
    )
    compute_dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="type of a forward pass; bfloat16: products in mixed precision, of weights that are rounded one "
        "layer at a time, while x, the head and the loss are float32",
    )

    if TYPE_CHECKING:  # a field of the subclasses

        @property
        def train(self) -> Any: ...

    @model_validator(mode="after")
    def _check_dtype(self) -> Self:
        if self.dtype != "float32" and self.train.kind in ("full", "prefix"):
            reason = "freezes none" if self.train.kind == "full" else "peft rounds to the type of frozen weights"
            raise ValueError(
                f"dtype is {self.dtype}, for frozen weights, and train is {self.train.kind}, which {reason}; expected "
                "dtype: float32, or train: {kind: lora} or {kind: layernorm}"
            )
        return self

    def memory_saving_settings(self) -> list[str]:
        """See `task.Task`."""
        narrower = {"float32": "bfloat16", "bfloat16": "nf4", "float16": "nf4", "int8": "nf4"}.get(self.dtype)
        is_frozen = narrower is not None and self.train.kind not in ("full", "prefix")
        return [*([f"task.dtype: {narrower}"] if is_frozen else []), *super().memory_saving_settings()]


class TextTask(PretrainedTask, frozen=True):
    """The base of tasks on labelled text: the published sets, or what owners have."""

    public_files: ClassVar[tuple[str, ...]] = ("texts.test_file",)
    data: str | None = Field(
        None, description="a folder with the files of the data set; none: $SEEDBUS_DATA/<dataset>, or the hub"
    )

    if TYPE_CHECKING:  # a field of the subclasses, which define what they accept

        @property
        def texts(self) -> StatedTexts | None: ...

    @model_validator(mode="after")
    def _check_texts(self) -> Self:
        if self.has_stated != (self.dataset == OWN):
            raise ValueError("texts is for dataset: own, and needed for it; expected both, or none of them")
        for field in ("data", "shots") if self.has_stated else ():
            if getattr(self, field) is not None:
                raise ValueError(f"texts states what owners have, and {field} is of one data set; leave one out")
        return self

    @property
    def has_stated(self) -> bool:  # type: ignore[override]  # a class variable of Task; here a field decides
        """Whether its texts stay with their owners."""
        return self.texts is not None

    @property
    def has_test_set(self) -> bool:  # type: ignore[override]  # a class variable of Task; here fields decide
        """Whether there is a common file."""
        return self.texts is None or self.texts.test_file is not None

    def capabilities(self) -> Iterator[Statement]:
        yield from super().capabilities()
        if self.has_stated:
            yield RulesOut(Fact.COMMON, "states what owners' texts have in common", "texts")

    def preprocessing(self) -> Preprocessing | None:
        """See `task.Task`."""
        if self.texts is None:
            return None
        settings = self.model_dump(mode="json", exclude={"texts": {"test_file"}}) | {"model": _portable(self.model)}
        return Preprocessing(task=self.name, model=settings["model"], classes=self.texts.labels, settings=settings)

    @property
    def stated(self) -> StatedTexts:
        """What owners' texts have in common. Raises `DataError` if they are common."""
        if self.texts is None:
            raise DataError("task.texts", "nothing", "what owners' texts have in common")
        return self.texts

    @property
    def test_fraction(self) -> float:
        """See `partitions.own.ReadsOwn`."""
        return self.stated.test

    def read_own(self, place: Path) -> list[Sample]:
        """See `partitions.own.ReadsOwn`. Raises `DataError`."""
        return read_texts(self.stated, place)

    def read_public(self) -> list[Sample]:
        """See `partitions.own.ReadsOwn`: `texts.test_file`. Raises `DataError`."""
        file = self.stated.public_file()
        return [] if file is None else self.read_own(file)

    def specimens(self) -> list[Sample]:
        """See `partitions.own.ReadsOwn`."""
        return nobodys_texts(self.stated)

    def content(self, sample: Sample) -> bytes:
        """See `PretrainedTask`."""
        return json.dumps(sample).encode()

    def division(self, *, seed: int, clients: int, partition: Partition) -> Division:
        """See `task.Task`. Raises `DataError`."""
        if self.has_stated:
            raise DataError(f"partition {partition.kind}", "texts that their owners have", "common texts")
        return super().division(seed=seed, clients=clients, partition=partition)

    def read(self) -> tuple[list[Sample], None, list[Sample], Sequence[str]]:
        """See `PretrainedTask`. Raises `DataError`."""
        train, test = read(self.dataset, self.data)
        return train, None, test, ()

    def named_files(self) -> list[Path]:
        """See `task.Task`."""
        public = None if self.texts is None else self.texts.public_file()
        return [*super().named_files(), *named_folders(self.data), *([] if public is None else [public])]

    def class_of(self, sample: Sample) -> int:
        """See `PretrainedTask`. SQuAD counts as one class."""
        return 0 if self.dataset == "squad" else sample.label


def _portable(model: str) -> str:
    """Return a folder of this machine by its path inside a directory of SEEDBUS_DATA, or by its last name."""
    if not os.path.isabs(model):
        return model
    inside = next((root for root in own_roots() if Path(model).is_relative_to(root)), Path(model).parent)
    return str(Path(model).relative_to(inside))


def named_folders(*named: str | None) -> list[Path]:
    """Return the folders and GGUF files among what fields name."""
    paths = [Path(os.path.expanduser(name)) for name in named if name is not None]
    return [path for path in paths if is_model(str(path))]


def folder_of(value: str | None, info: ValidationInfo) -> str | None:
    """Return the path that a field names, made absolute if it is relative to the scenario's file.

    If the scenario was sent by a server, the context has the `roots` in which it must lie.

    Args:
        value: the field's value.
        info: pydantic's context of the validation; the field "model" may also be a published name.

    Raises:
        NotAllowed: the server names a folder or a model that this process does not allow.
    """
    roots: Roots | None = (info.context or {}).get("roots")
    if value is None or info.field_name != "model":
        return None if value is None else locate(value, info.context)
    return locate(value, info.context, is_model) if roots is None else roots.model(value)
