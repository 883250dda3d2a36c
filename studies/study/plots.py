"""The plots of a study or a comparison: the metric over each cost, its Pareto front, over ε, and what was tuned.

Lines show the mean over seeds, at the rounds after which all of a row's runs were evaluated, with a band of one
standard deviation on each side. Where rows are told apart by their circumstances, each of these has a panel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from seedbus.scenarios.reporting.axes import byte_unit, metric_axis
from seedbus.scenarios.reporting.figures import lines
from seedbus.scenarios.reporting.looks import Line, panels_of
from seedbus.scenarios.reporting.paper import lines_figure
from seedbus.scenarios.reporting.terminal import shown
from seedbus.studies.study.cells import names_over_epsilon
from seedbus.studies.study.claims import FINAL
from seedbus.studies.study.published import published
from seedbus.studies.study.results import StudyResults
from seedbus.studies.study.runs import Curve
from seedbus.studies.study.schema import Range, is_numeric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BYTES = "plans and reports sent, all clients ({unit}, log scale)"
_COSTS = {
    "rounds": "rounds",
    "bytes": _BYTES,
    "simulated time": "simulated seconds",
    "forward passes": "forward passes, a backward pass counted as two",
}
"""What a metric is drawn over: the fields of `Curve` in their order, and the names of their axes."""
_EPSILON = ("epsilon", "ε at the end (log scale)")
OVER = [what.replace(" ", "-") for what in (*_COSTS, _EPSILON[0])]
"""How the names of files say what a metric is drawn over."""
BANDS = "Lines are means over seeds, and bands one standard deviation on each side."
MAX_PANELS = 12  # of a figure; more stand in further ones


class Plot(NamedTuple):
    """A plot of lines.

    Attributes:
        name: of its file, without suffix.
        title: its title.
        x_name: the name of the x axis.
        y_name: the name of the y axis.
        drawn: its lines.
        is_log: whether x is logarithmic.
    """

    name: str
    title: str
    x_name: str
    y_name: str
    drawn: list[Line]
    is_log: bool

    @property
    def figure(self) -> str:
        """The plot as an HTML figure."""
        return lines(self.title, self.x_name, self.y_name, self.drawn, is_log=self.is_log, note=self.note)

    @property
    def note(self) -> str:
        """What the plot's bands are; "" if no line has one that is seen."""
        bands = [np.subtract(*line.edges) for line in self.drawn if line.edges]
        return BANDS if any(np.nan_to_num(each).any() for each in bands) else ""

    @property
    def paper(self) -> Figure:
        """The plot as a figure for papers."""
        return lines_figure(self.x_name, self.y_name, self.drawn, is_log=self.is_log)


def over_costs(curves: Mapping[str, Curve], drawn_as: Mapping[str, Line], metric: str) -> Iterator[Plot]:
    """Yield a plot of the metric over each cost that runs have.

    Args:
        curves: row → its curve.
        drawn_as: row → its line, without points.
        metric: the metric.
    """
    y_name, scale = metric_axis(shown(metric))
    unit, unit_name = byte_unit(max((float(np.max(curve.bytes, initial=0)) for curve in curves.values()), default=1.0))
    for number, (what, x_name) in enumerate(_COSTS.items()):
        drawn = []
        for row, curve in curves.items():
            x, mean, deviation = curve[number], scale * curve.mean, scale * curve.deviation
            if what == "bytes":  # x₀ costs next to none; it would stretch the axis by decades
                x = np.where(curve.rounds > 0, x / unit, np.nan)
            if np.max(np.nan_to_num(x), initial=0.0) > 0:  # a network without latency takes no simulated time
                low, high = mean - deviation, mean + deviation
                if scale != 1:  # there are no shares below 0 or above 1
                    low, high = np.maximum(low, 0), np.minimum(high, scale)
                drawn.append(drawn_as[row]._replace(x=x, y=mean, low=low, high=high))
        if drawn:
            name, heading = f"{metric}-over-{what.replace(' ', '-')}", f"{shown(metric).capitalize()} over {what}"
            yield Plot(file_name(name), heading, x_name.format(unit=unit_name), y_name, drawn, what == "bytes")


def plots(results: StudyResults) -> Iterator[Plot]:
    """Yield the plots: the metric over each kind of cost, its Pareto front, over ε, and what was tuned."""
    for plot in _plots(results):
        panels = panels_of(plot.drawn)
        yield plot._replace(drawn=[line for line in plot.drawn if line.panel in panels[:MAX_PANELS]])
        for number, begin in enumerate(range(MAX_PANELS, len(panels), MAX_PANELS), 2):
            drawn = [line for line in plot.drawn if line.panel in panels[begin : begin + MAX_PANELS]]
            yield plot._replace(name=f"{plot.name}-{number}", title=f"{plot.title} ({number})", drawn=drawn)


def _plots(results: StudyResults) -> Iterator[Plot]:
    drawn_as = _drawn_as(results)
    runs = {row: [member.run for member in results.members[row]] for row in drawn_as}
    curves = {row: Curve.of(members, results.metric) for row, members in runs.items() if members}
    for plot in over_costs(curves, drawn_as, results.metric):
        if plot.x_name == "rounds":
            _, scale = metric_axis(shown(results.metric))
            plot.drawn.extend(_published(results, max(float(np.max(line.x)) for line in plot.drawn), scale))
        yield plot
    if len(results.members) > 1:
        yield from _pareto(results)
        yield from _over_epsilon(results)
    yield from _tuning(results)


def _drawn_as(results: StudyResults) -> dict[str, Line]:
    """Return for each row, by its circumstances, a line without points: its name, its place and its panel.

    A row that a plot lacks leaves the others their colours, and rows of one name look alike in all panels.
    """
    places: dict[str, int] = {}
    return {
        row: Line(shown(name), [], [], place=places.setdefault(name, len(places)), panel=shown(words))
        for words, members in results.circumstances.items()
        for row, name in members.items()
    }


def _published(results: StudyResults, last: float, scale: float) -> Iterator[Line]:
    """Yield the published curves as far as the study's own go, to round `last`, beside the rows of their names.

    One whose label is the name of no row is drawn in each panel.
    """
    rows = _drawn_as(results)
    for label, curve in published(results.plan.study.published)[0].items():
        rounds, values = np.array(curve.rounds), scale * np.array(curve.values)
        is_seen = rounds <= last
        everywhere = [Line(shown(label), [], [], panel=shown(words)) for words in results.circumstances]
        for row in ([rows[label]] if label in rows else everywhere) if is_seen.any() else []:
            name = f"{row.name} (published)"
            yield Line(name, rounds[is_seen], values[is_seen], beside=row.name, panel=row.panel)


def _pareto(results: StudyResults) -> Iterator[Plot]:
    y_name, scale = metric_axis(shown(results.metric))
    points = {}
    for row in results.members:
        value, sent = results.mean(row, FINAL), results.mean(row, "bytes")
        # a mean over only some of the runs would mislead
        if value is not None and sent is not None and value.seeds == len(results.members[row]):
            points[row] = (sent.mean, scale * value.mean)
    if not points:
        return
    unit, unit_name = byte_unit(max(x for x, _ in points.values()))
    drawn_as = _drawn_as(results)
    drawn = [drawn_as[row]._replace(x=[x / unit], y=[y]) for row, (x, y) in points.items()]
    names: dict[str, int] = {}
    for where, rows in results.fronts.items():
        # steps: until the next row's bytes
        x, y = ([points[row][axis] for row in rows for _ in range(2)] for axis in range(2))
        panel = drawn_as[rows[0]].panel
        name = f"Pareto front, {shown(where)}" if shown(where) != panel else "Pareto front"
        place = len({line.place for line in drawn_as.values()}) + names.setdefault(name, len(names))
        drawn.append(Line(name, [each / unit for each in x[1:]], y[:-1], place=place, panel=panel))
    heading = f"{shown(results.metric).capitalize()} at the end against bytes"
    yield Plot("pareto", heading, _BYTES.format(unit=unit_name), y_name, drawn, True)


def _over_epsilon(results: StudyResults) -> Iterator[Plot]:
    """The metric at the end over ε: a line for rows that differ in nothing else, and the level of those without."""
    y_name, scale = metric_axis(shown(results.metric))
    names = names_over_epsilon([cell for cell in results.plan.cells if cell.name in results.with_epsilon])
    points: dict[str, list[tuple[float, float]]] = {}
    looks: dict[str, Line] = {}
    levels = []
    for row, line in _drawn_as(results).items():
        value, spent = results.mean(row, FINAL), results.mean(row, "epsilon")
        if value is None or value.seeds < len(results.members[row]):  # a mean over only some of the runs would mislead
            continue
        if row not in results.with_epsilon:
            levels.append(line._replace(name=shown(row), y=[scale * value.mean] * 2))
        elif spent is not None and spent.mean > 0:
            looks.setdefault(names[row], line)
            points.setdefault(names[row], []).append((spent.mean, scale * value.mean))
    if not points:
        return
    spans = [x for each in points.values() for x, _ in each]
    ends = [0.9 * min(spans), 1.1 * max(spans)]
    drawn = [level._replace(x=ends, panel="") for level in levels]
    for name, each in points.items():
        x, y = zip(*sorted(each), strict=True)
        drawn.append(looks[name]._replace(name=shown(name), x=x, y=y, panel=""))
    heading = f"{shown(results.metric).capitalize()} at the end over ε"
    what, x_name = _EPSILON
    yield Plot(file_name(f"{results.metric}-over-{what}"), heading, x_name, y_name, drawn, True)


def _tuning(results: StudyResults) -> Iterator[Plot]:
    """The best score so far, of a search; and for each tuned field the scores of its values.

    The other fields have their chosen values, but in a search, where each trial has its own.
    """
    study, drawn_as = results.plan.study, _drawn_as(results)
    tuned_rows = {row: results.tuned[row] for row in drawn_as if row in results.tuned}
    name, scale = metric_axis(shown(results.metric))
    y_name = f"{name}, validation"
    best = max if results.is_rising else min
    if study.is_searched:
        drawn = []
        for row, tuned in tuned_rows.items():
            scores = [scale * trial.score if math.isfinite(trial.score) else None for trial in tuned.trials]
            so_far = [[score for score in scores[:count] if score is not None] for count in range(1, len(scores) + 1)]
            if tuned.chosen:
                values = [best(s, default=math.nan) for s in so_far]
                drawn.append(drawn_as[row]._replace(x=range(1, len(scores) + 1), y=values))
        if drawn:
            yield Plot("tuning", "The best of the trials so far", "trials", f"{y_name}, best so far", drawn, False)
    for path, axes in study.tuned_fields.items():
        if not all(map(is_numeric, axes)):
            continue
        drawn = []
        for row, tuned in tuned_rows.items():
            others = {name: value for name, value in tuned.chosen.items() if name != path}
            pairs = sorted(
                (float(trial.values[path]), scale * trial.score)
                for trial in tuned.trials
                if path in trial.values
                and (study.is_searched or {n: value for n, value in trial.values.items() if n != path} == others)
            )
            if pairs:
                x, y = zip(*pairs, strict=True)
                drawn.append(drawn_as[row]._replace(x=x, y=y, is_dotted=study.is_searched))
        if drawn:
            is_grid = not study.is_searched and all(np.min(line.x) > 0 for line in drawn)  # a 0 has no logarithm
            is_log = is_grid or all(isinstance(axis, Range) and axis.log for axis in axes)
            x_name = f"{path} (log scale)" if is_log else path
            yield Plot(file_name(f"tuning-{path}"), f"What was tried for {path}", x_name, y_name, drawn, is_log)


def file_name(name: str) -> str:
    """Return a name of which files may be called."""
    return "".join(character if character.isalnum() or character in "._-" else "-" for character in name)
