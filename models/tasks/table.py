"""One column of a table of the user's own, learnt from others: a CSV or Parquet file, and no code.

See `tables/columns.py` for what a file may hold, and `tables/encoding.py` for what a network reads. A process proves
its samples, and their division among the clients, when it joins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from seedbus.capabilities import Fact, RulesOut, Statement
from seedbus.models.data.samples import Images
from seedbus.models.errors import DataError
from seedbus.models.own_code.named import is_own, name_of
from seedbus.models.partition import Division, Partition
from seedbus.models.preprocessing import Numbers, Preprocessing
from seedbus.models.tables.encoding import Facts, encode
from seedbus.models.tables.settings import TableSettings
from seedbus.models.tables.stated import no_rows, read_stated, stated_facts, stated_specimens
from seedbus.models.task import Problem

if TYPE_CHECKING:
    from torch import nn


class Table(TableSettings, frozen=True):
    """A column of a CSV or Parquet file, learnt from the others: a perceptron for classes or a number."""

    has_owners: ClassVar[bool] = True
    has_columns: ClassVar[bool] = True
    own_data: ClassVar[str] = "file"

    name: Literal["table"] = "table"

    @property
    def usual_metrics(self) -> Mapping[str, str]:
        """That of classes, or of numbers. Raises `DataError`."""
        return {"mae": "mae"} if self._is_regression else super().usual_metrics

    @property
    def has_outputs(self) -> bool:  # type: ignore[override]  # a class variable of Task; here the target decides
        """Whether it is a classifier. Raises `DataError`."""
        return not self._is_regression

    @property
    def our_dimension(self) -> int:
        """d, from the columns of the file. Raises `DataError`."""
        return sum((inputs + 1) * outputs for inputs, outputs in pairwise(self._widths))

    def network(self) -> nn.Module:
        from seedbus.models.images import networks

        return networks.perceptron(*self._widths)

    def load(self) -> tuple[Images, Images]:
        """Return the training (validation included) and test samples. Raises `DataError`."""
        encoded = encode(self)
        return encoded.train, encoded.test

    def inputs(self, stored: NDArray[Any]) -> NDArray[np.float32]:
        """Return the numbers as they are stored, [b, f]."""
        return stored

    def class_names(self) -> list[str]:
        """Return the classes, or for a regression the groups that partitions divide by. Raises `DataError`."""
        return self._facts.classes

    def contents(self) -> list[str]:
        """See `task.Task`. Raises `DataError`."""
        return self._facts.contents

    def caveats(self) -> list[str]:
        """See `task.Task`. Raises `DataError`."""
        return self._facts.caveats

    def preprocessing(self) -> Preprocessing:
        """See `task.Task`. Raises `DataError`."""
        facts = self._facts
        layers = (*(f"hidden{number}" for number, _ in enumerate(self.hidden, start=1)), "head")
        number = Numbers(name=self.target, mean=facts.mean, deviation=facts.deviation)
        return Preprocessing(
            task=self.name,
            model=name_of(self.model),
            layers=layers if self.own_network is None else None,
            classes=None if self._is_regression else tuple(facts.classes),
            number=number if self._is_regression else None,
            columns=tuple(facts.columns),
            separator=self.separator,
        )

    def division(self, *, seed: int, clients: int, partition: Partition) -> Division:
        """See `task.Task`. Raises `DataError`."""
        if self.has_stated:
            raise DataError(f"partition {partition.kind}", "samples that their owners have", "a common table")
        self._check(partition)
        return super().division(seed=seed, clients=clients, partition=partition)

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Read the table and divide the training samples among the clients. Raises `DataError`."""
        self._check(partition)
        self._check_metrics()
        if not self._is_regression:
            return super().bind(seed=seed, clients=clients, partition=partition)
        from seedbus.models.tables.problem import RegressionProblem

        deviation = self._facts.deviation
        return RegressionProblem(self, deviation=deviation, seed=seed, clients=clients, partition=partition)

    @property
    def has_stated(self) -> bool:  # type: ignore[override]  # a class variable of Task; here a field decides
        """Whether it has columns in the place of a file."""
        return self.columns is not None

    @property
    def has_test_set(self) -> bool:  # type: ignore[override]  # a class variable of Task; here fields decide
        """Whether there are common rows."""
        return not self.has_stated or self.test_file is not None

    def capabilities(self) -> Iterator[Statement]:
        yield from super().capabilities()
        if self.has_stated:
            yield RulesOut(Fact.COMMON, "states what owners' tables have in common", "columns")

    @property
    def test_fraction(self) -> float:
        """See `partitions.own.ReadsOwn`."""
        return self.test

    def read_own(self, place: Path) -> Images:
        """See `partitions.own.ReadsOwn`. Raises `DataError`."""
        return read_stated(self, place)

    def read_public(self) -> Images:
        """See `partitions.own.ReadsOwn`: `test_file`. Raises `DataError`."""
        return read_stated(self, self.named_files()[0]) if self.named_files() else no_rows(self)

    def specimens(self) -> Images:
        """See `partitions.own.ReadsOwn`."""
        return stated_specimens(self)

    @property
    def _facts(self) -> Facts:
        return encode(self).facts if self.columns is None else stated_facts(self)

    @property
    def _is_regression(self) -> bool:
        return (self.kind or self._facts.kind) == "regression"

    @property
    def _widths(self) -> list[int]:
        """The widths of the network's layers, from the inputs to the outputs."""
        facts = self._facts
        return [len(facts.inputs), *self.hidden, 1 if self._is_regression else len(facts.classes)]

    def _check_metrics(self) -> None:
        """Check that each metric of ours is one of classes, or one of numbers, as the target is. Raises `DataError`."""
        (ours,), target = self.usual_metrics, "a number" if self._is_regression else "a class"
        for name, metric in self.functions.items():
            if not is_own(metric) and metric != ours:
                raise DataError(
                    f"task.metrics.{name}", f"{metric}, and the target is {target}", f"{ours}, or plugin:function"
                )

    def _check(self, partition: Partition) -> None:
        if not self.has_stated and partition.by == "owners" and self.owner is None:
            found = f"task {self.name} without an owner"
            raise DataError(f"partition {partition.kind}", found, "task.owner: the column with the owner of each row")
