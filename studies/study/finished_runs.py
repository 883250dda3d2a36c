"""The finished runs of a study, read from their folders, and the figures of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seedbus.agents.errors import RunFolderError
from seedbus.bus.errors import LedgerDamaged
from seedbus.scenarios.schema.expectations import found
from seedbus.studies.analysis.quantities import part, samples_of
from seedbus.studies.study.cells import Plan
from seedbus.studies.study.claims import FINAL, OF_REPORTS, SUMMED_UP
from seedbus.studies.study.runs import Run
from seedbus.studies.study.store import StoredRun


@dataclass(frozen=True)
class RowRun:
    """A finished run of a row.

    Attributes:
        seed: the run's seed.
        run: its evaluations and costs.
        figures: name → value; see `StudyResults.runs`.
        samples: figure of a group of clients → how many samples it is measured on, as far as that is known.
    """

    seed: int
    run: Run
    figures: dict[str, float | None]
    samples: dict[str, float | None] = field(default_factory=dict)

    @property
    def has_diverged(self) -> bool:
        """Whether training ended early because it diverged, or the final moving average is not finite."""
        return bool(self.run.divergence) or self.figures[FINAL] is None


def kept_run(stored: StoredRun, metric: str) -> Run:
    """Read a finished run, which must be the one that its folder is named for.

    Args:
        stored: where it lies.
        metric: a metric that it measures.

    Raises:
        RunFolderError, JournalDamaged, ScenarioError: it cannot be read, or is another run.
    """
    run = Run.read(stored.folder)
    stored.check(run.scenario)
    if run.results is not None and run.results.is_changed:
        raise RunFolderError(stored.folder, f"{run.results.warning}; delete it, and the run is made again")
    if metric not in run.metrics:
        what = f"it has no values of {metric}, which its scenario measures"
        raise RunFolderError(stored.folder, f"{what}; delete it, and the run is made again")
    return run


def read_run(stored: StoredRun, metric: str, plan: Plan) -> RowRun:
    """Read a finished run and compute its figures.

    Args:
        stored: where it lies.
        metric: the metric that is reported.
        plan: says at which points, for which targets, on which splits and by which instruments.

    Raises:
        RunFolderError, JournalDamaged, ScenarioError: it cannot be read, or is another run.
    """
    ask, run = plan.study.ask, kept_run(stored, metric)
    try:
        _ = run.passes, run.caught_up  # the only figures of the ledger
    except LedgerDamaged as error:
        raise RunFolderError(
            stored.folder, f"its messages: {error.what}; delete it, and the run is made again"
        ) from None
    figures = run.figures(metric, ask.targets, ask.at, smoothed=ask.smoothed)
    final = {FINAL: figures.pop("ema"), "last": figures.pop("last"), "best": figures.pop("best")}
    del figures["end"]
    up, down = figures["bytes_up"] or 0.0, figures["bytes_down"] or 0.0
    measured = stored.measured()
    more = {f"{split}_{metric}": measured.get(split, {}).get(metric) for split in ask.splits}
    more |= {name: measured.get(part(name, metric), {}).get(name) for name in ask.analysis}
    samples = {name: measured.get(part(name, metric), {}).get(samples_of(name)) for name in ask.analysis}
    figures["forward_passes"] = figures.pop("evaluations")
    figures["bytes"] = up + down
    if run.results is not None:
        figures |= found(SUMMED_UP, run.results.summary, run.lines) | _of_reports(run.results.summary)
    return RowRun(stored.scenario.seed, run, final | more | figures, samples)


def _of_reports(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the figures `OF_REPORTS` of a run."""
    refused = sum(summary["refusals"].get("late", {}).values())
    counted, late = summary["participation"]["counted"]["total"], summary["staleness"]["late"] + refused
    return dict(zip(OF_REPORTS, (counted / max(1, summary["rounds"]), late), strict=True))
