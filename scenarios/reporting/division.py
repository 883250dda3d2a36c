"""Which client holds which samples, before any run: counts by class, and how far clients differ from the whole.

The figure of heterogeneity is the total-variation distance between the label distributions of a client and of all
clients together, ½ Σ |p_client − p_all|: 0 if they are alike, and nearly 1 if the client's classes are rare ones. Small
clients differ by chance alone, so the figure stands beside that of one division into the same sizes by lot.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from seedbus.bus.text import counted
from seedbus.models.errors import DataError
from seedbus.models.generators import generator
from seedbus.models.partition import Division
from seedbus.scenarios.reporting import text_tables
from seedbus.scenarios.reporting.client_names import named, stored
from seedbus.scenarios.reporting.paper import bars_figure, file_of
from seedbus.scenarios.reporting.terminal import say, shown
from seedbus.scenarios.schema.scenario import Scenario

SHOWN_CLIENTS = 20
SHOWN_CLASSES = 10  # with the sums of fifty thousand samples a table of 100 columns
DRAWN_CLIENTS = 100
_NAME = 60  # characters of a class's name in the picture

Counts = NDArray[np.int64]


def summary(scenario: Scenario, division: Division) -> dict[str, Any]:
    """Return the figures of a scenario's division as plain data.

    Returns:
        scenario, partition and seed: what was divided, and how.
        samples, held: number of training samples, and of those that clients hold.
        labels: the classes, ascending: their names if they have some, else their numbers.
        counts: samples by client and class.
        sizes, classes: {min, median, max} over the clients, of their samples and of the classes they hold.
        total_variation: {mean, by_chance}; see the module.
        client_names: the names of clients 0, 1, …, if they have some.
    """
    labels, classes = np.unique(division.labels, return_inverse=True)
    sizes = np.array([part.size for part in division.parts])
    held = classes[np.concatenate(division.parts)]
    counts = _counts(held, sizes, labels.size)
    drawn = _counts(generator("partition by chance", scenario.seed).permutation(held), sizes, labels.size)
    return {
        "scenario": scenario.name,
        "partition": scenario.partition.model_dump(mode="json"),
        "seed": scenario.seed,
        "samples": int(classes.size),
        "held": int(held.size),
        "labels": [division.names[label] for label in labels] if division.names else labels.tolist(),
        "sizes": _spread(sizes),
        "classes": _spread((counts > 0).sum(axis=1)),
        "total_variation": {"mean": mean_distance(counts), "by_chance": mean_distance(drawn)},
        "counts": counts.tolist(),
    } | ({"client_names": stored(division.clients)} if division.clients else {})


def mean_distance(counts: Counts) -> float:
    """Return the mean over clients of the total-variation distance from the whole, from counts [clients, classes]."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    return float(np.abs(shares - counts.sum(axis=0) / counts.sum()).sum(axis=1).mean() / 2)


def _counts(held: NDArray[np.integer], sizes: Counts, classes: int) -> Counts:
    """Return samples by client and class, from the classes of all samples in the order of their clients."""
    owners = np.repeat(np.arange(sizes.size), sizes)
    return np.bincount(owners * classes + held, minlength=sizes.size * classes).reshape(sizes.size, classes)


def _spread(values: Counts) -> dict[str, float]:
    return {"min": int(values.min()), "median": float(np.median(values)), "max": int(values.max())}


def show(found: dict[str, Any]) -> None:
    """Print the table of the first clients, and the figures of all."""
    say(_title(found))
    for table in (_clients(found), _figures(found)):
        text_tables.show(table)


def _clients(found: dict[str, Any]) -> Table:
    counts = np.array(found["counts"])
    table = Table()
    others = len(found["labels"]) - SHOWN_CLASSES
    heads = [str(label) for label in found["labels"][:SHOWN_CLASSES]]
    for head in ("client", "samples", *heads, *([f"{others} others"] if others > 0 else [])):
        table.add_column(shown(head), justify="right")
    for client, row in enumerate(counts[:SHOWN_CLIENTS]):
        table.add_row(named(client, found.get("client_names", ())), *_cells(row))
    if len(counts) > SHOWN_CLIENTS:
        table.add_row("…")
    table.add_section()
    table.add_row("all", *_cells(counts.sum(axis=0)))
    return table


def _cells(row: Counts) -> list[str]:
    """Return the cells of a row [classes]: the sum, the first classes, and all others together if there are any."""
    rest = [row[SHOWN_CLASSES:].sum()] if row.size > SHOWN_CLASSES else []
    return [f"{count:,}" for count in (row.sum(), *row[:SHOWN_CLASSES], *rest)]


def _figures(found: dict[str, Any]) -> Table:
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, key in (("samples of a client", "sizes"), ("classes of a client", "classes")):
        spread = found[key]
        table.add_row(name, f"{spread['min']:,} to {spread['max']:,}, median {spread['median']:,g}")
    table.add_row("samples held", f"{found['held']:,} of {found['samples']:,} training samples")
    distance = found["total_variation"]
    by_chance = f"{distance['by_chance']:.3f} for the same sizes by chance"
    table.add_row("distance to the whole", f"{distance['mean']:.3f} (total variation, mean); {by_chance}")
    return table


def _title(found: dict[str, Any]) -> str:
    fields = [f"{name} {value}" for name, value in found["partition"].items() if name not in ("kind", "seed")]
    clients, own = counted(len(found["counts"]), "client"), found["partition"].get("seed")
    seed = f"seed {found['seed']}" if own is None else f"the partition's own seed {own}"
    how = ", ".join([found["partition"]["kind"], *fields, clients, seed])
    return shown(f"{found['scenario']}: {how}")


def as_csv(division: Division) -> str:
    """Return a line for each sample that a client holds, as `partition: {kind: file}` reads them.

    Raises:
        DataError: the task does not tell the rows of its samples.
    """
    if division.rows is None:
        raise DataError("partition", "a task that does not tell the rows of its samples", "--format json or text")
    held = (sorted(division.rows[part].tolist()) for part in division.parts)
    return "client,row\n" + "".join(f"{client},{row}\n" for client, rows in enumerate(held) for row in rows)


def picture(found: dict[str, Any]) -> bytes:
    """Return a bar for each of the first clients, stacked of its classes, as an SVG file."""
    counts = np.array(found["counts"])[:DRAWN_CLIENTS]
    names = [shown(str(label), _NAME) for label in found["labels"]]
    title = _title(found)
    return file_of(bars_figure(title, "client", "training samples", counts, names), "svg", title)
