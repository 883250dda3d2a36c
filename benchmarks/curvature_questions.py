"""What readers of HiSo ask of its H: ζ, the true diagonal of the Hessian, μ beside H^(−½), and seconds a round.

    python benchmarks/curvature_questions.py --write docs                 # measure all: some minutes of one core
    python benchmarks/curvature_questions.py --write docs --only seconds  # one question anew
    python benchmarks/curvature_questions.py docs                         # print tables from what is kept

Runs are rows of the studies examples/curvature_*.yaml, at the rates that these chose (docs/curvature.csv), with their
seeds. By arXiv:2506.02370, with Σ = |∇²F| and z = H^(−½)u:

    κ = Tr Σ ÷ L                    eq. 15, the effective rank
    ζ = Tr(H^(−½) Σ H^(−½))         eq. 16, "the low whitening rank", which its rate has in the place of Lκ

`whitening` and `hessian` of `seedbus analyse` say what "at equal lengths" and "without a signal" are. What is kept of
each run is in docs/curvature_questions.csv.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from curvature import KEPT, RATE

import seedbus
from seedbus.agents.observer import NullObserver
from seedbus.models.numeric_state import numeric_state
from seedbus.scenarios.reporting.meter import Meter
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.studies.analysis.curvature import Effort
from seedbus.studies.analysis.estimate import rank_correlation
from seedbus.studies.analysis.subject import Model, Subject
from seedbus.studies.study.cells import plan_of
from seedbus.studies.study.intervals import AMOUNT, covering

HERE = Path(__file__).parent
ANSWERS = "curvature_questions.csv"
TASKS = {
    "quadratic, 20": "curvature_quadratic",
    "quadratic, 1,000": "curvature_quadratic_wide",
    "digits, 650": "curvature_digits",
    "Fashion-MNIST, 7,850": "curvature_fashion",
}
"""A task, with its number of coordinates → its study."""
WITH_SLOPES = ("digits, 650", "Fashion-MNIST, 7,850")
ROWS, CURVATURE = ("DeComFL", "HiSo, mean of H", "HiSo"), "HiSo, curvature"
SEEDS, TURNS, ROUNDS, WARM = (1, 2, 3), 5, 60, 10
FLOOR = 0.01
"""The least entry of the true diagonal that H is compared with, of L: where a pixel is always blank it is 0."""
SCALES = (1e-8, 1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4, 1e6)
"""What H is multiplied by, so that a step of length μ·H^(−½)·z becomes longer or shorter."""


Figures = dict[str, Any]
"""Of a run: `question`, `task` of `TASKS`, `row` of its study, `seed` (of seconds: the turn), `at` (the round, or what
H is multiplied by), and numbers by their names."""


def figures(question: str, task: str, row: str, seed: int, at: float, values: dict[str, float]) -> Figures:
    return {"question": question, "task": task, "row": row, "seed": seed, "at": at} | values


def scenario_of(task: str, row: str, seed: int, rates: pd.DataFrame, **settings: Any) -> Scenario:
    """Return the scenario of a study's row at the rate that the study chose."""
    study = TASKS[task]
    cell = next(cell for cell in plan_of(HERE.parent / f"examples/{study}.yaml").cells if cell.variant == row)
    chosen = rates[(rates["study"] == study) & (rates["row"] == row)]
    return cell.with_settings({RATE: float(chosen[RATE].iloc[0]), "seed": seed, **settings}).scenario


@numeric_state()
def of_hessian(task: str, row: str, seed: int, rates: pd.DataFrame) -> list[Figures]:
    """Return ζ, and how H is like the diagonal, at the end of a run and before it; and the errors of differences."""
    scenario = scenario_of(task, row, seed, rates)
    last = int(scenario.stop.rounds or 0)
    with tempfile.TemporaryDirectory() as place, Meter(is_quiet=True) as meter:
        seedbus.run(scenario, Path(place) / "run", page=False)
        run = Subject.of(Path(place) / "run", [last // 10, last], Effort(diagonal_probes=192), meter)
        found = [figures("hessian", task, row, seed, model.round, alike(model)) for model in run.models]
        scales = SCALES if task in WITH_SLOPES else ()
        return found + [figures("smoothing", task, row, seed, at, errors(run, run.models[-1], at)) for at in scales]


def alike(model: Model) -> dict[str, float]:
    """Return how H is like the true diagonal, and what it does to the variance of a direction."""
    curvature, learnt = model.curvature, model.replayed.replica.fields["hessian"].astype(np.float64)
    smoothness, trace = curvature.smoothness, curvature.trace(np.abs).value
    diagonal = curvature.diagonal
    above = diagonal > FLOOR * smoothness
    ratios = learnt[above] / diagonal[above]

    def share(hessian: Any) -> float:
        return curvature.whitened(1 / hessian / np.mean(1 / hessian)).value / trace

    def spread(values: Any) -> float:
        low, high = np.quantile(values, [0.1, 0.9])
        return float(high / low)

    nulls = [(share(each), rank_correlation(each, diagonal)) for each in model.null_hessians]
    return {
        "L": smoothness,
        "κ": trace / smoothness,
        "ζ": curvature.whitened(1 / learnt).value,
        "ζ of the mean": trace / float(learnt.mean()),
        "Lκ": trace,
        "ζ ÷ Lκ": share(learnt),
        "ζ ÷ Lκ, no signal": float(np.mean([each for each, _ in nulls])),
        "ζ ÷ Lκ, true diagonal": share(np.maximum(diagonal, 0) + FLOOR * smoothness),
        "rank": rank_correlation(learnt, diagonal),
        "rank, no signal, least": min(each for _, each in nulls),
        "rank, no signal, most": max(each for _, each in nulls),
        "H ÷ diagonal": float(np.median(ratios)),
        "spread of H ÷ diagonal": spread(ratios),
        "spread of the diagonal": spread(diagonal[above]),
        "mean of H": float(learnt.mean()),
    }


def errors(run: Subject, model: Model, scale: float) -> dict[str, float]:
    """Return the errors of differences along z = u/√(scale·H) against forward mode, over the scalars' own size."""
    replica, own = model.replayed.replica, cast(Any, run.algorithm)
    replica.fields["hessian"] *= np.float32(scale)
    found: dict[str, Any] = {}
    for estimator in ("forward-mode", "forward", "central"):
        algorithm = own.model_copy(update={"estimator": estimator, "local_steps": 1})
        plan = algorithm.plan(model.round, replica.version, 7)
        reports = [algorithm.local(replica, None, plan, run.problem.objective(client, 0))[0] for client in range(5)]
        found[estimator] = np.concatenate(reports).astype(np.float64)
    length = float(own.smoothing) / np.sqrt(float(replica.fields["hessian"].mean()))
    replica.fields["hessian"] /= np.float32(scale)
    exact = found.pop("forward-mode")
    size = float(np.linalg.norm(exact))
    return {"μ ÷ √H": length} | {name: float(np.linalg.norm(each - exact)) / size for name, each in found.items()}


class Stamps(NullObserver):
    """Notes the CPU seconds of this process at the end of each round."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def round_closed(self, *_: Any) -> None:
        self.ends.append(time.process_time())


def seconds(task: str, rates: pd.DataFrame) -> Iterator[Figures]:
    """Yield the CPU milliseconds of a round: the median of a run's rounds. Rows take turns in this process."""
    for turn in range(TURNS):
        for row in ROWS:
            settings = {"stop.rounds": ROUNDS, "evaluation.every": ROUNDS}
            stamps, scenario = Stamps(), scenario_of(task, row, 1, rates, **settings)
            with tempfile.TemporaryDirectory() as place:
                seedbus.run(scenario, Path(place) / "run", observer=stamps, page=False)
            spent = [after - before for before, after in pairwise(stamps.ends[WARM:])]
            yield figures("seconds", task, row, turn, ROUNDS, {"ms": 1e3 * float(np.median(spent))})


def measured(only: str, rates: pd.DataFrame) -> Iterator[Figures]:
    """Yield the figures of all questions, or of one."""
    for task in TASKS:
        if only in ("", "seconds"):
            yield from seconds(task, rates)
        if only in ("", "hessian"):
            rows = (CURVATURE, "HiSo") if task.startswith("quadratic") else ("HiSo",)
            for row in rows:
                for seed in SEEDS:
                    yield from of_hessian(task, row, seed, rates)


def tables(kept: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of a table for each question, in Markdown: means over seeds, and of ratios their intervals."""
    hessian, smoothing, seconds = (kept[kept["question"] == each] for each in ("hessian", "smoothing", "seconds"))
    names = [*hessian.dropna(axis="columns", how="all").columns[5:]]
    yield from ("", "| task | row | round | " + " | ".join(names) + " |", "|---|---|---:|" + "---:|" * len(names))
    means: Any = hessian.groupby(["task", "row", "at"], sort=False)[names].mean()
    for (task, row, at), its in means.iterrows():
        yield f"| {task} | {row} | {at:.0f} | " + " | ".join(f"{each:.3g}" for each in its) + " |"
    yield from ("", "| task | H times | μ ÷ √H | forward | central |", "|---|---:|---:|---:|---:|")
    for (task, at), its in smoothing.groupby(["task", "at"], sort=False):
        length, forward, central = its[["μ ÷ √H", "forward", "central"]].mean()
        yield f"| {task} | {at:g} | {length:.1e} | {forward:.2%} | {central:.2%} |"
    yield from ("", "| task | row | CPU ms a round | ÷ DeComFL |", "|---|---|---:|---:|")
    for task, its in seconds.groupby("task", sort=False):
        by_turn = its.pivot(index="seed", columns="row", values="ms")
        for row in ROWS:
            mean, low, high = covering((by_turn[row] / by_turn[ROWS[0]]).tolist(), within=AMOUNT)
            yield f"| {task!s} | {row} | {by_turn[row].min():.1f} | {mean:.2f} [{low:.2f}, {high:.2f}] |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("docs", nargs="?", type=Path, metavar="DOCS", help="print the tables of what is kept there")
    parser.add_argument("--write", type=Path, metavar="DOCS", help="measure, and keep the figures there")
    parser.add_argument("--only", choices=["hessian", "seconds"], default="", help="measure this alone")
    chosen = parser.parse_args()
    folder = chosen.docs or chosen.write
    if folder is None:
        parser.error("DOCS, or --write DOCS, is missing")
    path = folder / ANSWERS
    if chosen.write:
        found = pd.DataFrame(list(measured(chosen.only, pd.read_csv(folder / KEPT))))
        if path.exists():
            before = pd.read_csv(path)
            found = pd.concat([before[~before["question"].isin(found["question"].unique())], found])
        found.sort_values(["question"], kind="stable").to_csv(path, index=False, float_format="%.4g")
    print(*tables(pd.read_csv(path)), sep="\n")


if __name__ == "__main__":
    main()
