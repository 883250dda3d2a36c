"""The fields of the task of the user's own network and data.

In Python a field holds the function or data set itself; in a file it names a function of a plug-in. The network is in
evaluation mode throughout, so that a loss is a function of x and the batch: dropout does nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import (
    Field,
    ValidationError,
    model_validator,
)

from seedbus.capabilities import Fact, RulesOut, Statement
from seedbus.keyed import keyed_bits
from seedbus.models.errors import DataError
from seedbus.models.images.settings import BatchSettings
from seedbus.models.own_code.metric_settings import OwnMetrics
from seedbus.models.own_code.named import Function, Object, found, function_or, is_own, name_of
from seedbus.models.partition import Division, Partition, division_of

if TYPE_CHECKING:
    from seedbus.models.custom.samples import Reading, Selection


class TorchSettings(OwnMetrics, BatchSettings, frozen=True):
    """The fields of `TorchTask`, and what they name."""

    def __init__(self, **fields: Any) -> None:
        """Create the task from its fields. Raises `DataError` for a field that is not accepted."""
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise self._mistake(error.errors(include_url=False)[0]) from None

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # a scenario's validation does not call it

    test_fraction: ClassVar[float] = 0.2
    """See `partitions.own.ReadsOwn`."""

    network: Function = Field(description="plugin:function that returns a new torch.nn.Module; in Python also a module")
    data: Function | None = Field(None, description="plugin:function that returns two data sets: training and test")
    own: Function | None = Field(
        None,
        description="for `partition: own`, in place of `data`: plugin:function of an owner's file or folder that "
        "returns its data set; of None, a few made-up samples of all classes",
    )
    train: Object | None = Field(None, description="in Python, in place of `data`: the training data set")
    test: Object | None = Field(None, description="in Python, in place of `data`: the test data set")
    labels: Object | None = Field(
        None,
        description="class of each training item, for partitions: plugin:function of the data set, in Python also an "
        "array; nothing: its target, or where targets are no classes the attribute `targets` or `labels`",
    )
    loss: Annotated[Any, *function_or("cross-entropy", "mse")] = Field(
        "cross-entropy",
        description="`cross-entropy`, `mse`, or plugin:function of outputs and targets that returns a number, such as "
        "the mean over the batch; in Python, if left out, `mse` for data sets with fractional targets",
    )
    batch_norm: Literal["refused", "frozen"] = Field(
        "refused", description="running statistics, which no seed and scalar rebuilds; frozen: they stay as they are"
    )
    in_memory: bool = Field(True, description="keep all samples in memory; false: read them again for each batch")

    @model_validator(mode="before")
    @classmethod
    def _find_loss(cls, document: Any) -> Any:
        """Choose the loss by the targets of a data set that is given as an object."""
        if not isinstance(document, dict) or "loss" in document or isinstance(document.get("train"), str | None):
            return document
        return document | {"loss": "mse" if _has_fractions(document["train"]) else "cross-entropy"}

    @model_validator(mode="after")
    def _complete(self) -> TorchSettings:
        given = [each is not None for each in (self.data, self.own, self.train)]
        if sum(given) != 1 or (self.train is None) != (self.test is None):
            raise ValueError("expected either `data`, or in Python `train` and `test`; for `partition: own` `own`")
        if self.own is not None and self.labels is not None:
            raise ValueError("labels is for partitions of common samples, and own for owners' ones; leave one out")
        return self

    @property
    def has_stated(self) -> bool:  # type: ignore[override]  # a class variable of Task; here a field decides
        """Whether its samples stay with their owners."""
        return self.own is not None

    @property
    def has_test_set(self) -> bool:  # type: ignore[override]  # a class variable of Task; here a field decides
        """Whether it has common samples."""
        return self.own is None

    def capabilities(self) -> Iterator[Statement]:
        yield from super().capabilities()
        if self.has_stated:
            yield RulesOut(Fact.COMMON, "reads what owners have", "own")

    def read_own(self, place: Path) -> Reading:
        """See `partitions.own.ReadsOwn`. Raises `DataError`."""
        return self._reading(str(place), str(place))

    def read_public(self) -> None:
        """See `partitions.own.ReadsOwn`: there is no such test set."""

    def specimens(self) -> Reading:
        """See `partitions.own.ReadsOwn`. Raises `DataError`."""
        return self._reading(None, "the made-up samples")

    def _reading(self, place: str | None, what: str) -> Reading:
        from seedbus.models.custom.samples import Reading
        from seedbus.models.own_code.network import called

        read = found(self.own, "task.own")
        loaded = called(lambda: read(place), "task.own", name_of(self.own), keyed_bits("data"))
        return Reading(loaded, what, keep=self.in_memory)

    @property
    def has_outputs(self) -> bool:  # type: ignore[override]  # a class variable of Task; here the loss decides
        """Whether it learns by cross-entropy, which methods that use outputs would put in the place of its loss."""
        return bool(self.loss == "cross-entropy")

    @property
    def usual_metrics(self) -> Mapping[str, str]:
        """Accuracy, if it learns by cross-entropy."""
        return super().usual_metrics if self.loss == "cross-entropy" else {}

    @cached_property
    def dimension(self) -> int:
        """d, from a network that is built for it once. Raises `DataError`."""
        from seedbus.models.own_code.network import TORCH_FIELD, built, trained_size

        return trained_size(built(self.network, 0, field=TORCH_FIELD, batch_norm=self.batch_norm))

    @property
    def declared_dimension(self) -> None:
        return None

    def caveats(self) -> list[str]:
        """See `Task.caveats`: of statistics that are kept and that no training has made. Raises `DataError`."""
        if self.batch_norm != "frozen":
            return []
        from seedbus.models.own_code.network import TORCH_FIELD, built, initial_statistics

        layers = initial_statistics(built(self.network, 0, field=TORCH_FIELD, batch_norm="frozen"))
        kept = "are those of a new layer, mean 0 and variance 1, and stay so"
        return [f"task.batch_norm is frozen, and the statistics of {layers[0]} {kept}"] if layers else []

    def memory_saving_settings(self) -> list[str]:
        """See `Task.memory_saving_settings`."""
        return [*(["task.in_memory: false"] if self.in_memory else []), *super().memory_saving_settings()]

    def splits(self) -> dict[str, Selection]:
        """Read the data sets; return the samples of "train", "validation" and "test". Raises `DataError`."""
        from seedbus.models.custom.samples import Reading, given_labels, selection

        train, test = self._data_sets()
        reading = Reading(train, "the training set", keep=self.in_memory)
        labels = None if self.labels is None else found(self.labels, "task.labels")
        samples = selection(reading, *given_labels(labels, train, reading))
        train_rows, validation_rows = self.held_out(reading.count)
        return {
            "train": samples.take(train_rows),
            "validation": samples.take(validation_rows),
            "test": selection(Reading(test, "the test set", keep=self.in_memory)),
        }

    def division(self, *, seed: int, clients: int, partition: Partition) -> Division:
        """See `task.Task`. Raises `DataError`."""
        from seedbus.models.custom.samples import check_divisible

        if self.has_stated:
            raise DataError(f"partition {partition.kind}", "samples that their owners have", "common samples")
        train = self.splits()["train"]
        check_divisible(partition, train)
        return division_of(partition, train.divisible, clients, seed)

    @classmethod
    def _mistake(cls, problem: Any) -> DataError:
        """Return the error for the first problem that pydantic found in the fields."""
        where = ".".join(["task", *map(str, problem["loc"])])
        if problem["type"] == "missing":
            return DataError(where, "nothing", cls.model_fields[problem["loc"][0]].description or "a value")
        if problem["type"] == "extra_forbidden":
            names = [field.alias or name for name, field in cls.model_fields.items()]
            return DataError(where, "no such field", f"one of {', '.join(names)}")
        reason = str(problem.get("ctx", {}).get("error", problem["msg"]))
        given = repr(problem["input"]) if problem["loc"] else f"only {', '.join(problem['input'])}"
        return DataError(where, given, re.sub("^(expected|Input should be) ", "", reason))

    def named(self) -> Iterator[tuple[str, Any]]:
        """See `OwnMetrics.named`."""
        for name in ("network", "data", "own", "train", "test", "labels", "loss"):
            if is_own(value := getattr(self, name)):
                yield f"task.{name}", value
        yield from super().named()

    def _data_sets(self) -> tuple[Any, Any]:
        if self.data is None:
            for field, dataset in (("train", self.train), ("test", self.test)):
                if isinstance(dataset, str):
                    where, expected = f"task.{field}", "the same task in Python: task=seedbus.TorchTask(…)"
                    raise DataError(where, f"{dataset}, a data set that was given in Python", expected)
            return self.train, self.test
        from seedbus.models.own_code.network import called

        loaded = called(found(self.data, "task.data"), "task.data", name_of(self.data), keyed_bits("data"))
        if not isinstance(loaded, tuple | list) or len(loaded) != 2:
            returned = f"{name_of(self.data)}, which returns a {type(loaded).__name__}"
            raise DataError("task.data", returned, "two data sets: training and test")
        return loaded[0], loaded[1]


def _has_fractions(dataset: Any) -> bool:
    """Whether the first item's target has fractions; a data set that cannot be read is refused later."""
    try:
        _, target = dataset[0]
        return np.asarray(target).dtype.kind == "f"
    except Exception:
        return False
