"""A model of a round's cost: a cost for each kind of work in a round, fitted on a few runs and checked on others.

    python benchmarks/model.py [--repeats 3] [--write docs]

CPU milliseconds per round in one process, as modelled in `costs.py`. Every repeat of a run does the same work in each
round, so the best repeat counts for each round by itself. Runs to fit and runs to check are different, and take turns.
--write puts the plots into cost.svg of that folder and the tables into its cost.md, between two marks.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from costs import NAMES, WARM, Costs, Point, counts, fit, mean_lag
from numpy.typing import NDArray

from seedbus.scenarios.reporting.looks import Line
from seedbus.scenarios.reporting.paper import BOTH_IN, HEIGHT_IN, draw, file_of, styled

MARKS = "<!-- what benchmarks/model.py --write docs has measured -->\n", "<!-- up to here -->\n"
NETWORK = Point(clients=100, cohort=10, perturbations=10, steps=1, dimension=28_938, has_network=True, rounds=10)
NULL = replace(NETWORK, has_network=False, rounds=40)
LAGGING = replace(NULL, is_private=True)
FIT = [
    NETWORK,
    replace(NETWORK, cohort=5, perturbations=5),
    replace(NULL, dimension=10),
    replace(NULL, dimension=10, cohort=50),
    replace(NULL, dimension=10, clients=1000),
    replace(NULL, dimension=1_000_000, rounds=12),
    replace(LAGGING, dimension=200_000, rounds=12),
    replace(LAGGING, clients=200, cohort=5),
]
CHECKED: Mapping[str, Sequence[Point]] = {
    "clients": [replace(NETWORK, is_private=True, rounds=20, clients=clients) for clients in (20, 300, 1000)],
    "cohort": [replace(NETWORK, cohort=cohort) for cohort in (2, 15, 25)],
    "perturbations": [replace(NETWORK, perturbations=count) for count in (2, 20, 30)],
    "steps": [replace(NETWORK, steps=steps) for steps in (2, 3)],
    "dimension": [replace(NULL, dimension=size, rounds=12) for size in (30_000, 300_000, 3_000_000)],
    "lag": [replace(LAGGING, clients=clients) for clients in (30, 100, 400)],
}
UNITS = (("ms", 1.0), ("µs", 1e-3), ("ns", 1e-6))
AXES = {
    "clients": ("N, clients (each with a replica of its own)", "N"),
    "cohort": ("m, clients asked a round", "m"),
    "perturbations": ("P, perturbations a step", "P"),
    "steps": ("K, local steps", "K"),
    "dimension": ("d, coordinates, of a model that costs nothing", "d"),
    "lag": ("commits that an asked client has missed, in the mean", "lag"),
}


def document(point: Point) -> dict[str, Any]:
    """Return the scenario of a run."""
    network = {"name": "fashion-mnist", "model": "mnist-cnn", "batch_size": 32}
    return {
        "name": "cost",
        "task": network if point.has_network else {"name": "null", "dimension": point.dimension},
        "algorithm": {
            "name": "decomfl",
            "perturbations": point.perturbations,
            "local_steps": point.steps,
            "learning_rate": 1e-6,
        },
        "participation": {"clients": point.clients, "cohort": point.cohort},
        "evaluation": {"every": point.rounds},
        "stop": {"rounds": point.rounds},
        # Private replicas need verification; digests would be a further cost and are switched off.
        "verify": point.is_private,
        **({"verify_every": 10**6} if point.is_private else {}),
    }


def rounds(point: Point) -> NDArray[np.float64]:
    """Return the CPU milliseconds of each round but the first ones, [rounds − WARM]."""
    from seedbus.agents.observer import NullObserver
    from seedbus.scenarios.running.run import run
    from seedbus.scenarios.schema.loading import validate

    closed: list[float] = []

    class Watch(NullObserver):
        def round_closed(self, closed_round: Any, now_ns: int, bytes_so_far: int) -> None:
            closed.append(time.process_time())

    with tempfile.TemporaryDirectory() as folder:
        run(validate(document(point), "a benchmark"), Path(folder) / "run", observer=Watch())
    return np.array([1e3 * (after - before) for before, after in pairwise(closed[WARM - 1 :])])


def measured(points: Sequence[Point], repeats: int) -> dict[Point, float]:
    """Return milliseconds per round of each run: the mean over rounds of the best repeat."""
    best: dict[Point, NDArray[np.float64]] = {}
    for turn in range(repeats):
        for number, point in enumerate(points, 1):
            found = rounds(point)
            best[point] = np.minimum(best.get(point, found), found)
            print(f"turn {turn + 1} of {repeats}, run {number} of {len(points)}: {best[point].mean():.1f} ms a round")
    return {point: float(each.mean()) for point, each in best.items()}


def along(axis: str, point: Point) -> float:
    """Return the coordinate of a run on an axis."""
    return mean_lag(point) if axis == "lag" else float(getattr(point, axis))


def lies_on(axis: str, point: Point) -> bool:
    """Return whether a run differs from the axis's checked runs only in what the axis shows."""
    free: dict[str, Any] = {"clients" if axis == "lag" else axis: 0, "rounds": 0}
    return replace(point, **free) == replace(CHECKED[axis][0], **free)


def tables(costs: Costs, found: Mapping[Point, float]) -> str:
    """Return both tables in Markdown."""
    lines = ["| cost of | |", "|---|---|"]
    lines += [f"| {name} | {_readable(cost)} |" for name, cost in zip(NAMES, costs, strict=True)]
    lines += ["", "| | task | | predicted, beside measured |", "|---|---|---|---|"]
    for axis, points in CHECKED.items():
        task = ("CNN" if points[0].has_network else "null") + (", own replicas" if points[0].is_private else "")
        places = ", ".join(f"{along(axis, point):,.1f}".removesuffix(".0") for point in points)
        errors = ", ".join(f"{counts(point) @ costs / found[point] - 1:+.0%}" for point in points)
        lines.append(f"| {AXES[axis][1]} | {task} | {places} | {errors} |")
    sizes = sorted(abs(counts(p) @ costs / found[p] - 1) for points in CHECKED.values() for p in points)
    lines += ["", f"Of the {len(sizes)} runs that were not fitted, the error is {np.median(sizes):.0%} in the median"]
    lines[-1] += f" and {sizes[-1]:.0%} at most."
    return "\n".join(lines) + "\n"


def measured_how(turns: int) -> str:
    """Return what the figures depend on, as a sentence."""
    load = f", load {os.getloadavg()[0]:.0f}" if hasattr(os, "getloadavg") else ""
    return f"Turns: {turns}; cores: {os.cpu_count()}{load}.\n"


class Plot(NamedTuple):
    """A plot with axes of its own.

    Attributes:
        title: its title.
        x_name: the name of the x axis.
        y_name: the name of the y axis, which begins at 0.
        drawn: the lines.
        is_log: whether x is logarithmic.
    """

    title: str
    x_name: str
    y_name: str
    drawn: list[Line]
    is_log: bool = False


def plots(costs: Costs, found: Mapping[Point, float]) -> list[Plot]:
    """Return a plot for each axis: the model's line, the fitted runs, and the checked runs."""
    drawn = []
    for axis, points in CHECKED.items():
        fitted = [point for point in FIT if lies_on(axis, point)]
        xs = sorted(along(axis, point) for point in (*points, *fitted))
        line = [_moved(axis, points[0], x) for x in np.geomspace(xs[0], xs[-1], 40)]
        parts = [
            Line("model", [along(axis, p) for p in line], [counts(p) @ costs for p in line]),
            Line("fitted", [along(axis, p) for p in fitted], [found[p] for p in fitted], is_dotted=True),
            Line("checked", [along(axis, p) for p in points], [found[p] for p in points], is_dotted=True),
        ]
        drawn.append(Plot(AXES[axis][1], AXES[axis][0], "CPU ms a round", parts, is_log=axis == "dimension"))
    return drawn


def _moved(axis: str, point: Point, x: float) -> Point:
    """The run moved along an axis; lag is changed through the number of clients."""
    if axis != "lag":
        here: dict[str, Any] = {axis: x}
        return replace(point, **here)
    for clients in np.geomspace(point.cohort, 100 * point.clients, 400):
        moved = replace(point, clients=clients)
        if mean_lag(moved) >= x:
            break
    return moved


def page(figures: Sequence[Plot]) -> bytes:
    """Return plots as one SVG file, two in a row."""
    from matplotlib.figure import Figure

    with styled():
        rows = -(-len(figures) // 2)
        whole = Figure(figsize=(BOTH_IN, HEIGHT_IN * rows), layout="constrained")
        grid = whole.subplots(rows, 2, squeeze=False).ravel()
        for axes, plot in zip(grid, figures, strict=False):
            draw({"": axes}, plot.drawn, is_log=plot.is_log)
            axes.set(title=plot.title, xlabel=plot.x_name, ylabel=plot.y_name, ylim=(0, None))
            if len(plot.drawn) > 1:
                axes.legend(frameon=False)
    return file_of(whole, "svg")


def written(text: str, between: str) -> str:
    """Return the text with other content between its marks. Raises ValueError if a mark is missing."""
    start, end = text.index(MARKS[0]) + len(MARKS[0]), text.index(MARKS[1])
    return f"{text[:start]}{between}{text[end:]}"


def _readable(milliseconds: float) -> str:
    unit, size = next(((unit, size) for unit, size in UNITS if milliseconds >= size), UNITS[-1])
    return f"{milliseconds / size:.3g} {unit}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="where cost.md and cost.svg are")
    asked = parser.parse_args()
    found = measured([*FIT, *(point for points in CHECKED.values() for point in points)], asked.repeats)
    costs = fit(FIT, [found[point] for point in FIT])
    told = tables(costs, found) + measured_how(asked.repeats)
    print(told)
    if asked.write is not None:
        text = (asked.write / "cost.md").read_text(encoding="utf-8")
        (asked.write / "cost.md").write_text(written(text, told), encoding="utf-8")
        (asked.write / "cost.svg").write_bytes(page(plots(costs, found)))


if __name__ == "__main__":
    main()
