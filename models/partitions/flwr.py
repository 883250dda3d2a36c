"""The partitioners of Flower Datasets (flwr-datasets, Beutel et al. 2020), by their own names and arguments.

A partitioner gets a data set of one column, and says which rows each client holds. Its number of partitions is the
number of clients, and its seed, if it takes one, follows from the run's seed; arguments in the scenario override seed
and column. Versions of the package may divide in other ways, so processes prove the division that they made.
"""

from __future__ import annotations

import inspect
import warnings
from contextlib import redirect_stderr
from io import StringIO
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.keyed import keyed_bits
from seedbus.models.errors import DataError
from seedbus.models.partition import Divisible, Indices, Partition

_OF_SAMPLES = {"label": "labels", "owner": "owners"}
"""What `partition_by` may name besides a column of a table, and the attribute of `Divisible` that it is."""

_NOT_FROM_YAML = ("Partitioner", "IdToSizeFnc", "Vertical")
"""The beginnings of names of partitioners that are abstract, take a function, or divide columns and not samples."""


class Flwr(Partition, frozen=True, extra="allow"):
    """A partitioner of flwr-datasets with its own arguments, such as `alpha` of a DirichletPartitioner.

    `partition_by` is label (the default), owner, or a column of a table.
    """

    is_proven: ClassVar[bool] = True

    kind: Literal["flwr"] = "flwr"
    partitioner: str = Field(
        pattern="^[A-Z][A-Za-z]*Partitioner$",
        description="its class in flwr_datasets.partitioner; its arguments are further fields, named as there",
    )

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the partitioner."""
        return dict(self.model_extra or {}) | ({} if self.seed is None else {"seed": self.seed})

    def values_of(self, samples: Divisible) -> NDArray[Any] | None:
        """Return the column that the partitioner divides by, [n]. Raises `DataError`."""
        name = self._column
        if name in _OF_SAMPLES:
            values: NDArray[Any] | None = getattr(samples, _OF_SAMPLES[name])
        else:
            values = None if samples.column is None else samples.column(name)
        if values is None:
            raise DataError("partition.partition_by", f"{name}, which the samples do not have", "label")
        return values

    def split(self, values: NDArray[Any], clients: int, seed: int) -> list[Indices]:
        """Return for each client the sorted indices of its samples, from the column [n]. Raises `DataError`."""
        kind = self._kind()
        if not 1 <= clients <= values.size:
            found = f"{clients} clients and {values.size} training samples"
            raise DataError(
                f"partition {self.kind}", found, "one client at least, and a training sample for every client"
            )
        accepted = inspect.signature(kind.__init__).parameters.keys() - {"self"}
        given = {"num_partitions": clients, "partition_by": self._column, "seed": keyed_bits("flwr", seed) % 2**32}
        unknown = sorted(self.arguments.keys() - accepted | self.arguments.keys() & {"num_partitions"})
        if unknown:
            own = ", ".join(sorted(accepted - {"num_partitions"})) or "none"
            raise DataError(
                f"partition.{unknown[0]}", f"no such argument of {self.partitioner}", f"arguments of it: {own}"
            )
        arguments = {name: value for name, value in given.items() if name in accepted} | self.arguments
        try:
            parts = _partitions(kind, {name: _array(value) for name, value in arguments.items()}, self._column, values)
        except Exception as error:  # partitioners check their arguments as they use them, and raise any type
            why = " ".join(str(error).split())[:300]
            found = f"{type(error).__name__}: {why}"
            raise DataError(f"partition {self.partitioner}", found, "other arguments, clients or samples") from error
        return self._checked(parts, clients, values.size)

    def _checked(self, parts: list[Indices], clients: int, samples: int) -> list[Indices]:
        """Return the parts if they are a division: as many as clients, none empty, no sample twice."""
        where = f"partition {self.partitioner}"
        if len(parts) != clients:
            raise DataError(where, f"{len(parts)} partitions", f"{clients}, one for each client")
        empty = next((client for client, part in enumerate(parts) if not part.size), None)
        if empty is not None:
            raise DataError(where, f"no samples for client {empty}", "a sample for every client")
        if np.bincount(np.concatenate(parts), minlength=samples).max() > 1:
            raise DataError(where, "a sample in two partitions", "a partitioner that gives each to one client")
        return parts

    @property
    def _column(self) -> str:
        return str(self.arguments.get("partition_by", "label"))

    def _kind(self) -> type[Any]:
        """Return the partitioner's class. Raises `DataError`."""
        try:
            from flwr_datasets import partitioner
        except ImportError:
            raise DataError("partition flwr", "no package flwr-datasets", 'pip install "seedbus[flwr]"') from None
        kinds = [name for name in partitioner.__all__ if not name.startswith(_NOT_FROM_YAML)]
        if self.partitioner not in kinds:
            raise DataError("partition.partitioner", self.partitioner, f"one of {', '.join(kinds)}")
        kind: type[Any] = getattr(partitioner, self.partitioner)
        return kind


def _partitions(kind: type[Any], arguments: dict[str, Any], column: str, values: NDArray[Any]) -> list[Indices]:
    """Return the sorted rows of each partition, without the progress bars and warnings of the packages."""
    import datasets

    with redirect_stderr(StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        partitioner = kind(**arguments)
        partitioner.dataset = datasets.Dataset.from_dict({"row": np.arange(values.size), column: values})
        loaded = (partitioner.load_partition(number) for number in range(partitioner.num_partitions))
        return [np.sort(np.array(each["row"], dtype=np.int64)) for each in loaded]


def _array(value: Any) -> Any:
    """Return a table of numbers (`distribution_array`) as an array; anything else as it is."""
    return np.array(value) if isinstance(value, list) and value and isinstance(value[0], list) else value
