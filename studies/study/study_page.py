"""A study's report: one page with table, verdicts and plots, and the same as files that papers and programs read.

Plots show the mean over seeds, at the rounds after which all of a row's runs were evaluated, with a band of one
standard deviation on each side. Where rows are told apart by their circumstances, each of these has a panel.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbus.bus.files import make_folder, read
from seedbus.scenarios.reporting.axes import byte_unit, metric_axis, sample_indices
from seedbus.scenarios.reporting.document import document, section, table, with_plots
from seedbus.scenarios.reporting.figures import lines
from seedbus.scenarios.reporting.looks import Line, panels_of
from seedbus.scenarios.reporting.meter import Meter
from seedbus.scenarios.reporting.paper import file_of, lines_figure
from seedbus.scenarios.reporting.results import write
from seedbus.scenarios.reporting.terminal import shown
from seedbus.studies.study import provenance
from seedbus.studies.study.cells import names_over_epsilon
from seedbus.studies.study.claims import FINAL
from seedbus.studies.study.finished_runs import RowRun
from seedbus.studies.study.published import published
from seedbus.studies.study.remarks import sentences
from seedbus.studies.study.results import StudyResults
from seedbus.studies.study.schema import RUNS, Range, is_numeric
from seedbus.studies.study.tables import (
    cells,
    csv,
    latex,
    latex_table,
    markdown,
    markdown_table,
    small,
    title,
)

if TYPE_CHECKING:
    import pandas as pd

PAGE = "report.html"
FIGURES = "figures"
Column = NDArray[np.float64]
_AXES = (
    ("rounds", "rounds"),
    ("bytes", "plans and reports sent, all clients ({unit}, log scale)"),
    ("simulated time", "simulated seconds"),
    ("forward passes", "forward passes, a backward pass counted as two"),
)
_EPSILON = ("epsilon", "ε at the end (log scale)")
_OVER = "|".join(what.replace(" ", "-") for what, _ in (*_AXES, _EPSILON))
_A_FIGURE = re.compile(rf"(.+-over-({_OVER})|pareto|tuning(-.+)?)(-\d+)?\.(svg|pdf)")
MAX_PANELS = 12  # of a figure; more stand in further ones
BY_CONDITION = "table_by_condition"


class Plot(NamedTuple):
    """A plot, as `figures.lines` takes it.

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


def replaces_runs_by_none(results: StudyResults) -> bool:
    """Whether no run is finished, and the study's folder has a report of runs, which is worth more than none."""
    if any(results.members.values()):
        return False
    try:
        return bool(read(results.folder / "runs.csv").strip())
    except OSError:
        return False


def write_report(results: StudyResults, meter: Meter | None = None) -> Path:
    """Write the page, the figures and the tables into the study's folder, and return the page's path.

    Args:
        results: what the study found.
        meter: shows how far the figures are; None: nothing does.

    Raises:
        OSError: a file cannot be written, or a link stands for the folder or a file in it.
    """
    make_folder(results.folder)
    with _alone(results.folder):
        return _written(results, meter or Meter(is_quiet=True))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process writes a report here, for two at once would take each other's temporary files."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no such locks
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _written(results: StudyResults, meter: Meter) -> Path:
    folder, figures = results.folder, results.folder / FIGURES
    make_folder(figures)
    all_plots = list(plots(results))
    for plot in meter.over(f"{results.plan.study.name}: drawing figures", all_plots):
        figure = lines_figure(*plot[2:5], is_log=plot.is_log)
        write(figures / f"{plot.name}.svg", file_of(figure, "svg", plot.title))
        write(figures / f"{plot.name}.pdf", file_of(figure, "pdf", plot.title))
    write(folder / PAGE, page(results, all_plots))
    write(folder / provenance.FILE, provenance.text(results))
    write(folder / "table.md", markdown(results) + "\n")
    write(folder / "table.tex", latex(results) + "\n")
    if len(results.circumstances) > 1:
        note = "Figures: mean ± standard deviation over seeds"
        write(folder / f"{BY_CONDITION}.md", markdown_table(*small(results)) + "\n")
        write(folder / f"{BY_CONDITION}.tex", latex_table(*small(results), note) + "\n")
    frames = {
        "table": results.table,
        "runs": _from_here(results.runs),
        "curves": results.curves,
        "differences": results.differences,
    }
    for name, frame in (frames | ({"trials": results.trials} if results.tuned else {})).items():
        write(folder / f"{name}.csv", csv(frame))
        write(folder / f"{name}.parquet", frame.to_parquet(index=False))
    _remove_former(results, all_plots)
    return folder / PAGE


def _from_here(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with the paths of their folders from the study's, which are the same on every machine."""
    return runs.assign(run=[f"../{RUNS}/{Path(run).name}" for run in runs["run"]]) if len(runs) else runs


def _remove_former(results: StudyResults, all_plots: list[Plot]) -> None:
    """Remove what a former version of the study had and this one has not; other files that lie there are kept."""
    written = {plot.name + suffix for plot in all_plots for suffix in (".svg", ".pdf")}
    found = (results.folder / FIGURES).iterdir()
    former = [path for path in found if _A_FIGURE.fullmatch(path.name) and path.name not in written]
    if not results.tuned:
        former += [results.folder / f"trials.{suffix}" for suffix in ("csv", "parquet")]
    if len(results.circumstances) == 1:
        former += [results.folder / f"{BY_CONDITION}.{suffix}" for suffix in ("md", "tex")]
    for path in former:
        if not path.is_dir():
            path.unlink(missing_ok=True)


def page(results: StudyResults, all_plots: list[Plot]) -> bytes:
    """Return the report as HTML in UTF-8."""
    return document(title(results), content(results, all_plots))


def content(results: StudyResults, all_plots: list[Plot]) -> str:
    """Return what is on the page below its title."""
    tables = table(*cells(results))
    if len(results.circumstances) > 1:
        tables = table(*small(results)) + tables
    told = "".join(f"<p>{escape(shown(sentence))}</p>\n" for sentence in sentences(results))
    figures = [lines(*plot[1:5], is_log=plot.is_log) for plot in all_plots]
    made = section("Made with", ["what", ""], provenance.rows(provenance.provenance(results)))
    return with_plots(tables + told, figures) + made


def plots(results: StudyResults) -> Iterator[Plot]:
    """Yield the plots: the metric over each kind of cost, its Pareto front, over ε, and what was tuned."""
    for plot in _plots(results):
        panels = panels_of(plot.drawn)
        yield plot._replace(drawn=[line for line in plot.drawn if line.panel in panels[:MAX_PANELS]])
        for number, begin in enumerate(range(MAX_PANELS, len(panels), MAX_PANELS), 2):
            drawn = [line for line in plot.drawn if line.panel in panels[begin : begin + MAX_PANELS]]
            yield plot._replace(name=f"{plot.name}-{number}", title=f"{plot.title} ({number})", drawn=drawn)


def _plots(results: StudyResults) -> Iterator[Plot]:
    metric = shown(results.metric)
    y_name, scale = metric_axis(metric)
    drawn_as = _drawn_as(results)
    curves = {row: _curve(results.members[row], results.metric) for row in drawn_as if results.members[row]}
    unit, unit_name = byte_unit(max((float(np.max(curve[1], initial=0)) for curve in curves.values()), default=1.0))
    for number, (what, x_name) in enumerate(_AXES):
        drawn = []
        for row, curve in curves.items():
            x, mean, deviation = curve[number], scale * curve[4], scale * curve[5]
            if what == "bytes":  # x₀ costs next to none; it would stretch the axis by decades
                x = np.where(curve[0] > 0, x / unit, np.nan)
            if np.max(np.nan_to_num(x), initial=0.0) > 0:  # a network without latency takes no simulated time
                low, high = mean - deviation, mean + deviation
                if scale != 1:  # there are no shares below 0 or above 1
                    low, high = np.maximum(low, 0), np.minimum(high, scale)
                drawn.append(drawn_as[row]._replace(x=x, y=mean, low=low, high=high))
        if what == "rounds" and drawn:
            drawn += _published(results, max(float(np.max(line.x)) for line in drawn), scale)
        if drawn:
            name = f"{results.metric}-over-{what.replace(' ', '-')}"
            heading = f"{metric.capitalize()} over {what}"
            yield Plot(_safe(name), heading, x_name.format(unit=unit_name), y_name, drawn, what == "bytes")
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
    yield Plot("pareto", heading, f"plans and reports sent, all clients ({unit_name}, log scale)", y_name, drawn, True)


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
    yield Plot(_safe(f"{results.metric}-over-{what}"), heading, x_name, y_name, drawn, True)


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
            yield Plot(_safe(f"tuning-{path}"), f"What was tried for {path}", x_name, y_name, drawn, is_log)


def _curve(runs: list[RowRun], metric: str) -> list[Column]:
    """Return rounds, bytes, simulated seconds, forward passes, mean and deviation of the metric, [n] each."""
    common = sorted(set.intersection(*(set(member.run.rounds) for member in runs)))
    at = [common[index] for index in sample_indices(len(common)).tolist()] if common else []
    tables = []
    for member in runs:
        run = member.run
        columns: Any = zip(run.sent, run.times, member.passes, run.values(metric), strict=True)
        table = dict(zip(run.rounds, columns, strict=True))
        tables.append([table[round] for round in at])
    values = np.array(tables, float).reshape(len(runs), len(at), 4)
    deviation = values[:, :, 3].std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(len(at))
    mean = values.mean(axis=0)
    return [np.array(at, float), mean[:, 0], mean[:, 1], mean[:, 2], mean[:, 3], deviation]


def _safe(name: str) -> str:
    return "".join(character if character.isalnum() or character in "._-" else "-" for character in name)
