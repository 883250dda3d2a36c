"""A study's report: one page with table, verdicts and plots, and the same as files that papers and programs read."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from seedbus.bus.files import make_folder, read
from seedbus.bus.text import counted
from seedbus.scenarios.reporting import text_tables
from seedbus.scenarios.reporting.document import document, key_row, section, table, with_plots
from seedbus.scenarios.reporting.meter import Meter
from seedbus.scenarios.reporting.paper import file_of
from seedbus.scenarios.reporting.results import write
from seedbus.scenarios.reporting.terminal import shown
from seedbus.studies.study import interactions, provenance
from seedbus.studies.study.key_figures import key_figures
from seedbus.studies.study.plots import OVER, Plot, plots
from seedbus.studies.study.remarks import sentences
from seedbus.studies.study.results import StudyResults
from seedbus.studies.study.tables import (
    caption,
    cells,
    count,
    csv,
    latex,
    latex_table,
    markdown,
    size,
    small,
    title,
    unit_of,
    with_value,
)

if TYPE_CHECKING:
    import pandas as pd

PAGE = "report.html"
FIGURES = "figures"
_A_FIGURE = re.compile(rf"(.+-over-({'|'.join(OVER)})|pareto|tuning(-.+)?)(-\d+)?\.(svg|pdf)")
BY_CONDITION = "table_by_condition"


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
        figure, about = plot.paper, ". ".join(filter(None, (plot.title, plot.note)))
        write(figures / f"{plot.name}.svg", file_of(figure, "svg", about))
        write(figures / f"{plot.name}.pdf", file_of(figure, "pdf", about))
    write(folder / PAGE, page(results, all_plots))
    write(folder / provenance.FILE, provenance.text(results))
    write(folder / "table.md", markdown(results) + "\n")
    write(folder / "table.tex", latex(results) + "\n")
    if len(results.circumstances) > 1:
        note = "Figures: mean ± standard deviation over seeds"
        write(folder / f"{BY_CONDITION}.md", text_tables.markdown(*small(results)) + "\n")
        write(folder / f"{BY_CONDITION}.tex", latex_table(*small(results), note) + "\n")
    frames = {
        "table": results.table,
        "runs": _from(folder, results.runs),
        "curves": results.curves,
        "differences": results.differences,
    }
    if len(results.circumstances) > 1:
        frames["interactions"] = interactions.frame(results)
    for name, frame in (frames | ({"trials": results.trials} if results.tuned else {})).items():
        write(folder / f"{name}.csv", csv(frame))
        write(folder / f"{name}.parquet", frame.to_parquet(index=False))
    _remove_former(results, all_plots)
    return folder / PAGE


def _from(folder: Path, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with the paths of their folders from the report's, which are the same on every machine."""
    return runs.assign(run=[os.path.relpath(run, folder) for run in runs["run"]]) if len(runs) else runs


def _remove_former(results: StudyResults, all_plots: list[Plot]) -> None:
    """Remove what a former version of the study had and this one has not; other files that lie there are kept."""
    written = {plot.name + suffix for plot in all_plots for suffix in (".svg", ".pdf")}
    found = (results.folder / FIGURES).iterdir()
    former = [path for path in found if _A_FIGURE.fullmatch(path.name) and path.name not in written]
    if not results.tuned:
        former += [results.folder / f"trials.{suffix}" for suffix in ("csv", "parquet")]
    if len(results.circumstances) == 1:
        former += [results.folder / f"{BY_CONDITION}.{suffix}" for suffix in ("md", "tex")]
        former += [results.folder / f"interactions.{suffix}" for suffix in ("csv", "parquet")]
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
    made = section("Made with", ["what", ""], provenance.rows(provenance.provenance(results)))
    above = with_plots(key_row(key_figures(results)), [plot.figure for plot in all_plots])
    return f'{above}<p class="note">{escape(caption(results))}</p>\n{tables}{told}{_runs(results)}{made}'


def _runs(results: StudyResults) -> str:
    """Return the list of runs, with where each lies from the study's folder."""
    heads = ["run", "seed", "rounds", results.metric, "bytes", "folder"]
    units = {"rounds": count, "last": unit_of(results.metric), "bytes": size}
    rows = [
        [shown(row), f"{member.seed}"]
        + [
            "–" if (value := member.figures.get(name)) is None else with_value(value, unit)
            for name, unit in units.items()
        ]
        + [os.path.relpath(member.run.folder, results.folder)]
        for row, members in results.members.items()
        for member in members
    ]
    return f"<details><summary>{counted(len(rows), 'run')}</summary>\n{table(heads, rows)}</details>\n"
