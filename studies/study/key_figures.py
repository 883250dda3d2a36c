"""The figures that a study's page begins with: the best row, the one that sends least, lag, and what faults cost."""

from __future__ import annotations

from seedbus.scenarios.reporting.key_figures import KeyFigure
from seedbus.scenarios.reporting.terminal import shown
from seedbus.studies.study.claims import FINAL
from seedbus.studies.study.interactions import interactions
from seedbus.studies.study.results import StudyResults
from seedbus.studies.study.tables import Unit, count, size, unit_of, with_value


def key_figures(results: StudyResults) -> list[KeyFigure]:
    """Return the key figures of a study: each of the row that has least or most of it, and beside it the other end."""
    metric = shown(results.metric)
    return [
        (f"{metric}, average at the end", *_ends(results, FINAL, unit_of(metric), is_most=results.is_rising)),
        ("bytes per client", *_ends(results, "bytes_per_client", size)),
        ("lag, mean in commits", *_ends(results, "lag_mean", count)),
        ("what faults cost", *_cost(results)),
    ]


def _ends(results: StudyResults, figure: str, unit: Unit, *, is_most: bool = False) -> tuple[str, str]:
    """Return the row with the least of a figure, or the most, and the other end."""
    means = {row: each.mean for row in results.members if (each := results.mean(row, figure)) is not None}
    rows = sorted(means, key=lambda row: -means[row] if is_most else means[row])
    if not rows:
        return "–", "no run has it"
    first, last = rows[0], rows[-1]
    other = f"; {with_value(means[last], unit)}: {shown(last)}" if means[last] != means[first] else ""
    return with_value(means[first], unit), f"{shown(first) if other else 'every row'}{other}"


def _cost(results: StudyResults) -> tuple[str, str]:
    """Return what circumstances cost the row that they cost most; under the same ones the rounds without a commit."""
    changes = [each for each in interactions(results) if not each.other]
    if not changes:
        value, rows = _ends(results, "rounds_without_commit", count, is_most=True)
        return value, f"rounds without a commit: {rows}"
    sign = -1 if results.is_rising else 1
    most = max(changes, key=lambda each: sign * each.found.mean)
    unit = unit_of(shown(results.metric))
    where = f"{shown(most.row)}, {shown(most.under)} against {shown(most.against)}"
    return f"{with_value(sign * most.found.mean, unit)} lost".replace("%", " points"), where
