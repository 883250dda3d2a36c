"""Count, sum and sum of squares of numbers in the tables of several owners, as one step of FedAvg adds them up.

A number v of a column that is stated from `low` to `high` counts as u = (2v − low − high) / (high − low), from −1 to 1.
Owner i has m_i = (n, Σu, Σu², …) / rows, with Σ rounded once, so that the order of a file's rows decides nothing. Its
loss is ½‖x − m_i‖², and x₀ = 0. So one step of rate 1 leads to m_i, and the mean of these to
x = Σ_i m_i / owners: mean and deviation over all rows are ratios of its coordinates, whoever took part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from seedbus.models.errors import DataError
from seedbus.models.generators import client_key
from seedbus.models.partitions.own import Own, no_samples_of
from seedbus.models.tables.columns import TableFile
from seedbus.models.task import Fill, Vector, check_split, refuse_criterion
from seedbus.settings import Settings


class Range(Settings, frozen=True):
    """From where to where the numbers of a column can be."""

    low: float = Field(description="the least number that there can be")
    high: float = Field(description="the largest number that there can be")

    @model_validator(mode="after")
    def _check_order(self) -> Range:
        if not self.low < self.high:
            raise ValueError(f"low is {self.low:g}, and high {self.high:g}; expected a larger one")
        return self


class MomentsProblem:
    """Implements `task.Problem`.

    Attributes:
        point: the point of the next loss, float32 [1 + 2 · columns].
    """

    def __init__(
        self, columns: Mapping[str, Range], rows: int, separator: str, *, seed: int, clients: int, partition: Own
    ) -> None:
        """Read the tables of this process's owners.

        Args:
            columns: the columns, and where their numbers can be.
            rows: how many rows an owner has at most.
            separator: the character between the cells of CSV.
            seed: the run's seed.
            clients: number of clients.
            partition: has the owners' files.

        Raises:
            DataError: a table does not fit, with its row and column.
        """
        self.dimension = 1 + 2 * len(columns)
        self.point: Vector = np.zeros(self.dimension, dtype=np.float32)
        self.seed = seed
        self._columns, self._rows = columns, rows
        self.moments = {
            client: self._nobodys() if place is None else self._read(place, separator)
            for client, place in partition.data.places.items()
        }

    def x0(self) -> Vector:
        """Return zeros, float32 [d]."""
        return np.zeros(self.dimension, dtype=np.float32)

    def objective(self, client: int, round: int) -> MomentsObjective:
        """Return an owner's loss."""
        return MomentsObjective(self, client, round)

    def samples(self, client: int) -> int:
        """Return 1: owners weigh equally, as rows are counted in what they report."""
        return 1

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """Return mean and deviation of each column, the rows of an owner on average, and as "loss" what contradicts.

        That is Σ_j max(0, (Σu)² − n·Σu²), of numbers 0 but for rounding.
        """
        check_split(split)
        count, *sums = (float(each) for each in x)
        pairs = [(sums[place], sums[place + 1]) for place in range(0, len(sums), 2)]
        found = {"loss": sum(max(0.0, first**2 - count * second) for first, second in pairs)}
        found["rows"] = count * self._rows
        for (name, of), (first, second) in zip(self._columns.items(), pairs, strict=True):
            mean, square = (first / count, second / count) if count > 0 else (0.0, 0.0)
            half = (of.high - of.low) / 2
            found[f"{name}.mean"] = of.low + half * (1 + mean)
            found[f"{name}.deviation"] = half * math.sqrt(max(0.0, square - mean**2))
        return found

    def state_dict(self, x: Vector) -> dict[str, NDArray[Any]]:
        """Return {"moments": a copy of x}."""
        return {"moments": x.copy()}

    def _read(self, place: Path, separator: str) -> NDArray[np.float64]:
        if not place.is_file():
            raise DataError(place, "no file", "a table as a CSV or Parquet file")
        file = TableFile(place, separator)
        if len(file) > self._rows:
            raise DataError(place, f"{len(file):,} rows", f"{self._rows:,} at most (task.rows)")
        moments = [float(len(file))]
        for name, of in self._columns.items():
            values = file.column(name, "task.columns", "numbers")
            for row in np.flatnonzero((values < of.low) | (values > of.high))[:1]:
                raise DataError(file.where(int(row), name), f"{values[row]:g}", f"{of.low:g} to {of.high:g}")
            scaled = (2 * values - of.low - of.high) / (of.high - of.low)
            moments += [math.fsum(scaled), math.fsum(scaled**2)]
        return np.array(moments) / self._rows

    def _nobodys(self) -> NDArray[np.float64]:
        """Return the moments of a table that is nobody's, with the least and the largest number."""
        return np.array([2.0, *([0.0, 2.0] * len(self._columns))]) / max(2, self._rows)


class MomentsObjective:
    """An owner's loss, ½‖x − m_i‖²."""

    samples = 1
    steps_an_epoch = 1

    def __init__(self, problem: MomentsProblem, client: int, round: int) -> None:
        self.point = problem.point
        self.key = client_key(problem.seed, client, round)
        self._moments: NDArray[np.float64] | None = problem.moments.get(client)
        self._client = client

    def loss(self, step: int) -> float:
        """Return the loss at the point. Raises `DataError` if this process has not the owner's table."""
        return float(0.5 * np.sum(self._offset() ** 2))

    def loss_at(self, step: int, fill: Fill) -> float:
        """Return the loss at the vector that `fill` writes; there is only one layer."""
        fill(slice(0, self.point.size), self.point)
        return self.loss(step)

    def gradient(self, step: int, criterion: Any = None) -> Vector:
        """Return x − m_i, float32 [d]. Raises `DataError` as `loss` does."""
        refuse_criterion(criterion)
        return self._offset().astype(np.float32)

    def _offset(self) -> NDArray[np.float64]:
        if self._moments is None:
            raise no_samples_of(self._client)
        offset: NDArray[np.float64] = self.point - self._moments
        return offset


def metrics_of(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of what `evaluate` returns."""
    return ("loss", "rows", *(f"{name}.{what}" for name in columns for what in ("mean", "deviation")))
