"""Rules that make one vector out of the clients' vectors, some of which may be lies.

A rule acts on gradient scalars (`combine`), a float64 matrix [clients, values], or on updates of models (`blend`),
float32 [d] each; a client a row, in the order of clients. It returns float64, which whoever sends it rounds once.
Both mean the same, value by value, and Krum in both sees rows as wholes; `Clipped` alone clips each value of scalars,
and of models each update as a whole, in its norm.

Invariants
- Sums of scalars are exact before their one rounding (`math.fsum`), and sorting is stable; sums of coordinates are
  float64's (aggregation.vectors). A result depends on the rows and their order by client, on no order of
  arrival and on no processor.
- Every row is finite: what is not has been refused before.
- State is plain data that a checkpoint can hold; only `Clipped` has any.

`fewest` is how many rows a rule needs to keep what it promises. A scenario whose quorum is lower is refused, so no
commit is made of fewer. Of fewer a rule makes the best that it can: as if f were the most that they allow.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from statistics import median
from typing import Annotated, Any, Literal, Union

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from seedbus.algorithms.aggregation import vectors as coordinates
from seedbus.algorithms.vector import Vector

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]
TRIM = 0.2  # β where nothing is said


class _Rule(BaseModel, ABC):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @property
    def fewest(self) -> int:
        """The fewest rows for which the rule keeps what it promises."""
        return 1

    @abstractmethod
    def combine(self, rows: Matrix, state: Any) -> tuple[Row, Any]:
        """One row out of at least one, and the state that the next call is to be given; the first is given None."""

    @abstractmethod
    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Row, Any]:
        """The same for updates of a model."""


class Mean(_Rule):
    """The mean: best where nobody lies, and at the mercy of one that does."""

    rule: Literal["mean"] = "mean"

    def combine(self, rows: Matrix, state: Any) -> tuple[Row, Any]:
        return mean(rows), state

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Row, Any]:
        return coordinates.average(updates), state


class Median(_Rule):
    """The median of each value (Yin, Chen, Ramchandran, Bartlett 2018, arXiv:1803.01498, Algorithm 1, option I)."""

    rule: Literal["median"] = "median"

    def combine(self, rows: Matrix, state: Any) -> tuple[Row, Any]:
        return trimmed(rows, (len(rows) - 1) // 2), state

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Row, Any]:
        return coordinates.trimmed_average(updates, (len(updates) - 1) // 2), state


class TrimmedMean(_Rule):
    """The mean of each value without its largest and smallest (Yin et al. 2018, Algorithm 1, option II).

    With n reports, the share that is cut is rounded up to whole reports, so that a share of liars never outnumbers it;
    never so many that none is left: then it is the median.
    """

    rule: Literal["trimmed-mean"] = "trimmed-mean"
    trim: float | None = Field(
        default=None, ge=0, lt=0.5, description=f"β, share cut at each end, rounded up; default: {TRIM}"
    )
    f: int | None = Field(default=None, ge=0, lt=2**16, description="number cut at each end, instead of trim")

    @model_validator(mode="after")
    def _one_of_both(self) -> TrimmedMean:
        if self.trim is not None and self.f is not None:
            raise ValueError("give trim or f, not both")
        return self

    @property
    def fewest(self) -> int:
        return 2 * (self.f or 0) + 1

    def combine(self, rows: Matrix, state: Any) -> tuple[Row, Any]:
        return trimmed(rows, self._cut(len(rows))), state

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Row, Any]:
        return coordinates.trimmed_average(updates, self._cut(len(updates))), state

    def _cut(self, rows: int) -> int:
        """How many are left out at each end."""
        share = TRIM if self.trim is None else self.trim
        cut = math.ceil(round(share * rows, 9)) if self.f is None else self.f  # 0.07 × 100 is just above 7
        return min(cut, (rows - 1) // 2)


class Krum(_Rule):
    """The report nearest to its neighbours (Blanchard, El Mhamdi, Guerraoui, Stainer 2017, arXiv:1703.02757).

    Of n reports, each scores the sum of its squared distances to the n − f − 2 nearest others; the `multi` lowest
    scores are averaged (Multi-Krum). A tie goes to the lower client. Two reports or one are no crowd: the first is
    taken.
    """

    rule: Literal["krum"] = "krum"
    f: int | None = Field(
        default=None, ge=0, lt=2**16, description="liars; needs 2f + 3 reports; none: the most for those that came"
    )
    multi: int = Field(default=1, ge=1, lt=2**16, description="reports that are averaged, at most n − f; 1: Krum")

    @property
    def fewest(self) -> int:
        return 1 if self.f is None else 2 * self.f + 3

    def combine(self, rows: Matrix, state: Any) -> tuple[Row, Any]:
        return mean(rows[self._best(squared_distances(rows))]), state

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Row, Any]:
        best = self._best(coordinates.squared_distances(updates))
        return coordinates.average([updates[i] for i in best]), state

    def _best(self, distances: list[list[float]]) -> list[int]:
        """The rows that are averaged, ascending, out of all squared distances."""
        rows = len(distances)
        most = max((rows - 3) // 2, 0)
        liars = most if self.f is None else min(self.f, most)
        nearest = max(rows - liars - 2, 0)
        # the smallest of a row is the distance to itself
        scores = [math.fsum(sorted(distances[i])[1 : nearest + 1]) for i in range(rows)]
        return sorted(sorted(range(rows), key=scores.__getitem__)[: min(self.multi, rows - liars)])


class Clipped(_Rule):
    """The mean of values clipped to ±τ, or of updates of models clipped to a norm τ: how large they were before.

    Each commit remembers one number, the quantile of its |g| or of its ‖Δ‖ before clipping; τ is the median of the last
    `window` of these, or this round's own where there is no earlier one. As long as liars are less than a share
    1 − quantile of the reports of most rounds, they cannot raise τ beyond what the honest say. Clipping to a tracked
    quantile: Andrew, Thakkar, McMahan, Ramaswamy 2021, arXiv:1905.03871; why a defence needs history: Karimireddy, He,
    Jaggi 2021, arXiv:2012.10333.
    """

    rule: Literal["clipped"] = "clipped"
    quantile: float = Field(
        default=0.75,
        gt=0,
        le=1,
        description="of how large a round's scalars are, over clients and values; or its updates",
    )
    window: int = Field(default=50, ge=1, le=1000, description="earlier commits that τ is made of")

    def combine(self, rows: Matrix, state: Any) -> tuple[Row, Any]:
        """state: the quantiles of the last `window` commits, oldest first."""
        limit, later = self._limit(np.sort(np.abs(rows), axis=None, kind="stable").tolist(), state)
        return mean(np.clip(rows, -limit, limit)), later

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Row, Any]:
        """state: as above."""
        lengths = coordinates.lengths(updates)
        limit, later = self._limit(sorted(lengths), state)
        return coordinates.average(updates, [limit / max(length, limit) if limit else 0.0 for length in lengths]), later

    def _limit(self, sizes: list[float], state: Any) -> tuple[float, Any]:
        """τ, and what is remembered with this round's sizes, which come in ascending order."""
        own = sizes[math.ceil(self.quantile * len(sizes)) - 1]
        earlier: list[float] = state or []
        return median(earlier or [own]), [*earlier, own][-self.window :]


def mean(rows: Matrix) -> Row:
    """The exact sum of each column, rounded, divided by their number."""
    return np.array([math.fsum(column) / len(column) for column in rows.T.tolist()])


def trimmed(rows: Matrix, cut: int) -> Row:
    """The mean of each column without its `cut` smallest and largest."""
    return mean(np.sort(rows, axis=0, kind="stable")[cut : len(rows) - cut])


def squared_distances(rows: Matrix) -> list[list[float]]:
    """‖a − b‖² of each pair of rows."""
    found = [[0.0] * len(rows) for _ in rows]
    for i, row in enumerate(rows):
        for j, squares in enumerate(((rows[i + 1 :] - row) ** 2).tolist(), start=i + 1):
            found[i][j] = found[j][i] = math.fsum(squares)
    return found


def _named(value: Any) -> Any:
    """A bare word is a rule with its defaults."""
    return {"rule": value} if isinstance(value, str) else value


_Any = Annotated[Union[Mean, Median, TrimmedMean, Krum, Clipped], Field(discriminator="rule")]  # noqa: UP007
_Word = Literal["mean", "median", "trimmed-mean", "krum", "clipped"]
Aggregation = Annotated[_Any, BeforeValidator(_named, json_schema_input_type=_Word | _Any)]
