"""Rules that combine the clients' vectors into one, although some clients may be malicious.

A rule combines gradient scalars (`combine`), a float64 matrix [clients, values], or model updates (`blend`), float32
[d] each; one row per client, in the order of clients. It returns float64, and the caller rounds that once.
Both methods compute the same, value by value, and in both Krum compares whole rows. Only `Clipped` differs: it clips
each scalar by itself, but each model update as a whole, by its norm.

Invariants
- Sums of scalars are exact before their one rounding (`math.fsum`), and sorting is stable. Sums of coordinates are
  in float64 (aggregation.vectors). A result depends only on the rows and their order by client, not on the order of
  arrival and not on the processor.
- Every row is finite: other reports have been refused before.
- State is plain data that a checkpoint can hold; only `Clipped` has any.

`fewest_reports` is the number of rows that a rule needs for its guarantee. A scenario with a lower quorum is refused,
so no commit is made from fewer. With fewer rows a rule still returns a result: it takes for f the largest number that
the rows allow.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from seedbus.algorithms.aggregation import vectors
from seedbus.algorithms.contract import BadPayload
from seedbus.capabilities import Fact, Needs, Statement
from seedbus.discovery import PluginError, Variants, check_shape
from seedbus.settings import Settings
from seedbus.vector import Vector

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]
TRIM = 0.2  # β if a scenario gives neither trim nor f


class Rule(Settings, ABC):
    """A rule is a frozen pydantic model with its name as `rule`."""

    rule: str

    def capabilities(self) -> Iterable[Statement]:
        return (
            Needs(Fact.SINGLE_REPORTS, "compares single reports"),
            Needs(Fact.ROUNDS, "compares the reports of a round"),
            Needs(Fact.IN_TIME, "compares the reports of one round, beside which a late one would count unchecked"),
        )

    @property
    def fewest_reports(self) -> int:
        """The lowest number of rows with which the rule's guarantee holds."""
        return 1

    def withstands(self, reports: int) -> int:
        """Return of how many false ones among so many reports the rule bounds what they do; by its own assumption."""
        return 0

    @abstractmethod
    def combine(self, rows: Matrix, state: Any) -> tuple[Row, Any]:
        """Combine gradient scalars.

        Args:
            rows: float64 [clients, values], at least one row.
            state: the state that the previous call returned; None at the first call.

        Returns:
            The combined row, float64 [values], and the new state.
        """

    @abstractmethod
    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Row, Any]:
        """Combine model updates, float32 [d] each, into float64 [d]; otherwise like `combine`."""

    def check_state(self, state: Any) -> None:  # most rules keep nothing, and look at no state
        """Raise `BadPayload` for a state that this rule cannot have returned."""


def checked(rule: Rule, hook: str, found: Any, size: int) -> tuple[Any, Any]:
    """Return what a hook of a rule returned. Raises `PluginError` unless it is a row of `size` numbers and a state."""
    if not (isinstance(found, tuple) and len(found) == 2):
        raise PluginError(f"`{hook}` of the rule {rule.rule} returned {type(found).__name__}; expected (row, state)")
    check_shape(found[0], (size,), f"`{hook}` of the rule {rule.rule}")
    return found


class Mean(Rule):
    """The mean: the best rule if all clients are honest; a single malicious client can move it anywhere."""

    rule: Literal["mean"] = "mean"

    def capabilities(self) -> Iterable[Statement]:
        return ()

    def combine(self, rows: Matrix, state: Any) -> tuple[Row, Any]:
        return mean(rows), state

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Row, Any]:
        return vectors.average(updates), state


class Median(Rule):
    """The median of each value (Yin, Chen, Ramchandran, Bartlett 2018, arXiv:1803.01498, Algorithm 1, option I)."""

    rule: Literal["median"] = "median"

    def withstands(self, reports: int) -> int:
        return (reports - 1) // 2

    def combine(self, rows: Matrix, state: Any) -> tuple[Row, Any]:
        return trimmed(rows, (len(rows) - 1) // 2), state

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Row, Any]:
        return vectors.trimmed_average(updates, (len(updates) - 1) // 2), state


class TrimmedMean(Rule):
    """The mean of each value without its largest and smallest (Yin et al. 2018, Algorithm 1, option II).

    With n reports, the share that is cut is rounded up to whole reports, so that malicious clients of at most that
    share never outnumber the cut. The one or two middle values are always left; if only these are, the result is the
    median.
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
    def fewest_reports(self) -> int:
        return 2 * (self.f or 0) + 1

    def withstands(self, reports: int) -> int:
        """Return how many reports are left out at each end."""
        share = TRIM if self.trim is None else self.trim
        cut = math.ceil(round(share * reports, 9)) if self.f is None else self.f  # 0.07 × 100 is just above 7
        return min(cut, (reports - 1) // 2)

    def combine(self, rows: Matrix, state: Any) -> tuple[Row, Any]:
        return trimmed(rows, self.withstands(len(rows))), state

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Row, Any]:
        return vectors.trimmed_average(updates, self.withstands(len(updates))), state


class Krum(Rule):
    """The report nearest to its neighbours (Blanchard, El Mhamdi, Guerraoui, Stainer 2017, arXiv:1703.02757).

    The score of each of n reports is the sum of its squared distances to the n − f − 2 nearest others. The `multi`
    reports with the lowest scores are averaged (Multi-Krum). Between equal scores the lower client wins. With two
    reports or one, no distances are compared and the first is taken.
    """

    rule: Literal["krum"] = "krum"
    f: int | None = Field(
        default=None,
        ge=0,
        lt=2**16,
        description="malicious clients; needs 2f + 3 reports; none: as many as the reports allow",
    )
    multi: int = Field(default=1, ge=1, lt=2**16, description="reports that are averaged, at most n − f; 1: Krum")

    @property
    def fewest_reports(self) -> int:
        return 1 if self.f is None else 2 * self.f + 3

    def withstands(self, reports: int) -> int:
        most = max((reports - 3) // 2, 0)
        return most if self.f is None else min(self.f, most)

    def combine(self, rows: Matrix, state: Any) -> tuple[Row, Any]:
        return mean(rows[self._best(squared_distances(rows))]), state

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Row, Any]:
        best = self._best(vectors.squared_distances(updates))
        return vectors.average([updates[i] for i in best]), state

    def _best(self, distances: list[list[float]]) -> list[int]:
        """Return the rows to average, ascending, from the squared distances [rows, rows]."""
        rows = len(distances)
        malicious = self.withstands(rows)
        nearest = max(rows - malicious - 2, 0)
        # the smallest distance of a row is that to itself
        scores = [math.fsum(sorted(distances[i])[1 : nearest + 1]) for i in range(rows)]
        return sorted(sorted(range(rows), key=scores.__getitem__)[: min(self.multi, rows - malicious)])


class NearestMixing(Rule):
    """Each report mixed with its neighbours, then a robust rule (nearest-neighbour mixing; Allouah, Farhadkhani,
    Guerraoui, Gupta, Pinot, Stephan 2023, arXiv:2302.01772).

    Each of n reports is replaced by the mean of the n − f reports that are nearest to it, itself among them; `then`
    combines these means. Honest clients whose data differ have means that differ less, so that the rule leaves out
    less of what only some of them know. Between equal distances the lower client is nearer. Mixed model updates take
    n·d float64 numbers.
    """

    rule: Literal["nnm"] = "nnm"
    f: int | None = Field(
        default=None,
        ge=0,
        lt=2**16,
        description="malicious clients; needs 2f + 1 reports, with krum 2f + 3; none: as many as the reports allow",
    )
    then: Literal["median", "trimmed-mean", "krum"] = Field(
        default="trimmed-mean", description="rule that combines the mixed reports, with the same f"
    )

    @property
    def fewest_reports(self) -> int:
        return 1 if self.f is None else 2 * self.f + (3 if self.then == "krum" else 1)

    def withstands(self, reports: int) -> int:
        most = max((reports - 3) // 2, 0) if self.then == "krum" else (reports - 1) // 2
        return most if self.f is None else min(self.f, most)

    def combine(self, rows: Matrix, state: Any) -> tuple[Row, Any]:
        f, neighbours = self._neighbours(squared_distances(rows))
        return self._next(f).combine(np.array([mean(rows[each]) for each in neighbours]), state)

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Row, Any]:
        f, neighbours = self._neighbours(vectors.squared_distances(updates))
        mixed = [vectors.average([updates[i] for i in each]) for each in neighbours]
        return self._next(f).blend(mixed, state)

    def _next(self, f: int) -> Rule:
        return Median() if self.then == "median" else TrimmedMean(f=f) if self.then == "trimmed-mean" else Krum(f=f)

    def _neighbours(self, distances: list[list[float]]) -> tuple[int, list[list[int]]]:
        """Return f, and the n − f rows nearest to each, from the squared distances [rows, rows]."""
        rows = len(distances)
        f = self.withstands(rows)
        return f, [sorted(sorted(range(rows), key=each.__getitem__)[: rows - f]) for each in distances]


class Clipped(Rule):
    """The mean of values clipped to ±τ, or of model updates clipped to the norm τ, where τ follows their usual size.

    Each commit stores one number, a quantile of its |g| or of its ‖Δ‖ before clipping. τ is the median of the last
    `window` of these numbers, or this round's own if there is no earlier one. As long as malicious clients send less
    than a share 1 − quantile of the reports of most rounds, they cannot raise τ above the honest clients' values.
    Clipping to a tracked quantile: Andrew, Thakkar, McMahan, Ramaswamy 2021, arXiv:1905.03871; why a defence needs
    history: Karimireddy, He, Jaggi 2021, arXiv:2012.10333.
    """

    rule: Literal["clipped"] = "clipped"
    quantile: float = Field(
        default=0.75,
        gt=0,
        le=1,
        description="which quantile of a round's magnitudes of scalars, over clients and values, or norms of updates",
    )
    window: int = Field(default=50, ge=1, le=1000, description="earlier commits whose quantiles make τ")

    def withstands(self, reports: int) -> int:
        """Return the most that are a smaller share than 1 − quantile."""
        return max(math.ceil(round((1 - self.quantile) * reports, 9)) - 1, 0)

    def combine(self, rows: Matrix, state: Any) -> tuple[Row, Any]:
        """Combine gradient scalars; `state` holds the quantiles of the last `window` commits, oldest first."""
        limit, state = self._limit(np.sort(np.abs(rows), axis=None, kind="stable").tolist(), state)
        return mean(np.clip(rows, -limit, limit)), state

    def blend(self, updates: Sequence[Vector], state: Any) -> tuple[Row, Any]:
        """Combine model updates; `state` as in `combine`."""
        norms = vectors.norms(updates)
        limit, state = self._limit(sorted(norms), state)
        return vectors.average(updates, [limit / max(norm, limit) if limit else 0.0 for norm in norms]), state

    def check_state(self, state: Any) -> None:
        if not (state is None or (isinstance(state, list) and all(type(each) is float for each in state))):
            raise BadPayload("the state of the rule clipped is no list of numbers")

    def _limit(self, sizes: list[float], state: Any) -> tuple[float, Any]:
        """Return τ and the new state; `sizes` are this round's |g| or ‖Δ‖, ascending."""
        rank = max(1, math.ceil(round(self.quantile * len(sizes), 9)))  # 0.28 · 25 is 7.000000000000001
        own = sizes[rank - 1]
        earlier: list[float] = state or []
        return median(earlier or [own]), [*earlier, own][-self.window :]


def mean(rows: Matrix) -> Row:
    """Return the mean of each column: the exact sum, rounded once, divided by the number of rows."""
    return np.array([math.fsum(column) / len(column) for column in rows.T.tolist()])


def trimmed(rows: Matrix, cut: int) -> Row:
    """Return the mean of each column without its `cut` smallest and its `cut` largest values."""
    return mean(np.sort(rows, axis=0, kind="stable")[cut : len(rows) - cut])


def squared_distances(rows: Matrix) -> list[list[float]]:
    """Return ‖a − b‖² of each pair of rows, [rows, rows]."""
    distances = [[0.0] * len(rows) for _ in rows]
    for i, row in enumerate(rows):
        for j, squares in enumerate(((rows[i + 1 :] - row) ** 2).tolist(), start=i + 1):
            distances[i][j] = distances[j][i] = math.fsum(squares)
    return distances


RULES = Variants("rule", "rule", "seedbus.algorithms.aggregation.rules", Rule, is_short=True)
Aggregation = Annotated[Rule, RULES]
