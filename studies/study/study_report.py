"""What a study found, as a program or a notebook shows, draws and writes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from seedbus.scenarios.errors import ScenarioError, path_of
from seedbus.scenarios.sentences import nearest
from seedbus.studies.study import interactions
from seedbus.studies.study.plots import plots
from seedbus.studies.study.results import StudyResults
from seedbus.studies.study.study_page import write_report
from seedbus.studies.study.tables import html, latex, markdown

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class StudyReport(StudyResults):
    """What `seedbus.study` returns: a notebook shows its table, and it is drawn and written as the command does."""

    def plot(self, name: str | None = None) -> Figure:
        """Draw one of the report's plots with matplotlib.

        Args:
            name: which, as its file is called, such as "accuracy-over-bytes"; None: the first, over rounds.

        Raises:
            ScenarioError: there is no such plot, or none at all, for no run is finished.
        """
        drawn = {plot.name: plot for plot in plots(self)}
        if not drawn:
            raise ScenarioError("StudyReport.plot", ["no run is finished, so there is nothing to draw"])
        name = next(iter(drawn)) if name is None else name
        if name not in drawn:
            raise ScenarioError("StudyReport.plot", [f"there is no plot {name!r}; {nearest(str(name), drawn)}"])
        return drawn[name].paper

    @property
    def interactions(self) -> pd.DataFrame:
        """What circumstances change in each row, and that minus the same of each other row, as `interactions.csv`."""
        return interactions.frame(self)

    def to_latex(self) -> str:
        """Return the table in LaTeX, as `table.tex` in the folder has it."""
        return latex(self)

    def write(self, folder: str | Path | None = None) -> Path:
        """Write page, tables and figures, as the command `seedbus study` does; return the page's path.

        Args:
            folder: where; None: `self.folder`.

        Raises:
            OSError: a file cannot be written.
            ScenarioError: `folder` is no name of a folder.
        """
        if folder is None:
            return write_report(self)
        return write_report(replace(self, folder=path_of(folder, "folder", "the folder of the report").absolute()))

    __str__, _repr_html_ = markdown, html  # which print and a notebook show
