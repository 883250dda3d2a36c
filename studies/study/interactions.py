"""What circumstances cost a row, and which of two rows they cost more: differences of differences, paired over seeds.

Of two rows under two circumstances the difference of differences is (a − a₀) − (b − b₀), seed by seed, which statistics
calls an interaction. It excludes 0 if one row is hurt more, whichever is better. Rows are those of one name under each
circumstances, on the same data.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from seedbus.scenarios.reporting.results import strict
from seedbus.studies.study.circumstances import data_of
from seedbus.studies.study.intervals import Difference

if TYPE_CHECKING:
    import pandas as pd

    from seedbus.studies.study.results import StudyResults


class Interaction(NamedTuple):
    """What circumstances change in a row, or that minus the same of another row.

    Attributes:
        row: the row, as it is called under its circumstances.
        other: the other row; "" for the change of one row.
        under: the circumstances.
        against: those with which they are compared.
        found: the change of the metric's moving average at the end.
    """

    row: str
    other: str
    under: str
    against: str
    found: Difference


def interactions(results: StudyResults) -> list[Interaction]:
    """Return what all circumstances change against the first ones, or against the condition that `ask.against` names.

    First come the changes of each row, then those of pairs; without rows that diverged or lack the figure.
    """
    under, ask = results.circumstances, results.plan.study.ask
    against = ask.against if ask.against in under else next(iter(under))
    base = {name: row for row, name in under[against].items()}
    data = {cell.name: data_of(cell) for cell in results.plan.cells}
    found = []
    for words in (each for each in under if each != against):
        both = {n: (row, base[n]) for row, n in under[words].items() if n in base and data[row] == data[base[n]]}
        pairs = [*itertools.combinations(both, 2)]
        together = len(pairs) * (len(under) - 1) if ask.together else 1
        for name, (row, before) in both.items():
            found.append((name, "", words, results.contrast([row], [before], pairs=together)))
        for name, other in pairs:
            (a, a_before), (b, b_before) = both[name], both[other]
            found.append((name, other, words, results.contrast([a, b_before], [a_before, b], pairs=together)))
    return [Interaction(row, other, words, against, each) for row, other, words, each in found if each is not None]


def frame(results: StudyResults) -> pd.DataFrame:
    """Return them as a data frame; `loses_more` is the row that is seen to be hurt more."""
    import pandas as pd

    columns = ["row", "other", "under", "against", "mean", "low", "high", "seeds", "verdict", "loses_more"]
    rows = [
        (row, other, under, against, each.mean, each.low, each.high, each.seeds, each.verdict,
         loser(results, row, other, each))
        for row, other, under, against, each in interactions(results)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def plain(results: StudyResults) -> list[dict[str, Any]]:
    """Return them as plain data: the rows of `frame`, with None for numbers that are not finite."""
    found: list[dict[str, Any]] = strict(frame(results).to_dict("records"))
    return found


def loser(results: StudyResults, row: str, other: str, found: Difference) -> str:
    """Return which row is seen to lose more, or to lose at all where there is no other; "" if that is not seen."""
    if not found.is_seen:
        return ""
    return row if (found.mean < 0) == results.is_rising else other
