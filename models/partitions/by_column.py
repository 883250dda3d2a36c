"""A client is a value of a column: a hospital, a shop, a sensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.models.generators import generator
from seedbus.models.partition import Divisible, Indices, Partition, too_few_owners
from seedbus.models.preprocessing import as_text


class ByColumn(Partition, frozen=True):
    """Each client holds the rows of a table that have one value in a column.

    If there are more values than clients, the seed draws those that take part; clients keep the order of the values.
    """

    by: ClassVar[Literal["column"]] = "column"

    kind: Literal["by-column"] = "by-column"
    column: str = Field(min_length=1, description="the column's name; it need not be among the features")

    def values_of(self, samples: Divisible) -> NDArray[Any] | None:
        """Return the column's cells [n], or None if samples have no columns. Raises `DataError`."""
        return None if samples.column is None else samples.column(self.column)

    def split(self, cells: NDArray[Any], clients: int, seed: int) -> list[Indices]:
        """Return for each client the sorted indices of its samples, from their cells [n]. Raises `DataError`."""
        values, held = np.unique(cells, return_inverse=True)
        if not 1 <= clients <= values.size:
            noun = "value" if values.size == 1 else "values"
            words = f"{noun} of {self.column} in the training samples"
            raise too_few_owners(self.kind, clients, values.size, words)
        drawn = np.sort(generator("partition", self.kind, seed).permutation(values.size)[:clients])
        parts = np.split(np.argsort(held, kind="stable"), np.cumsum(np.bincount(held))[:-1])
        return [parts[value] for value in drawn]

    def names_of(self, samples: Divisible, parts: Sequence[Indices]) -> list[str]:
        """Return the clients' cells in the column."""
        cells = self.values_of(samples)
        return [] if cells is None else [as_text(cells[part[0]]) for part in parts]
