"""Owners with tables or images of their own, and the scenario in which these are learnt together."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS: dict[str, Any] = {
    "age": {"mean": 50, "deviation": 10},
    "sex": ["female", "male"],
    "sick": ["no", "yes"],
}
SIZES = (31, 24, 17)
TASK: dict[str, Any] = {"name": "table", "target": "sick", "columns": COLUMNS, "hidden": [4], "batch_size": 8}


def own_table(path: Path, rows: int, seed: int) -> Path:
    """Write an owner's table, whose ages no other file has, and which has a column that nobody learns from."""
    draw = np.random.default_rng([seed, rows])
    ages, men = draw.normal(50, 10, rows).round(4), draw.random(rows) < 0.5
    sick = ages + 8 * men + draw.normal(0, 3, rows) > 54
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["name", "age", "sex", "sick"])
        for row in range(rows):
            name = f"{path.stem}-person-{row}"
            lines.writerow([name, f"{ages[row]:.4f}", ["female", "male"][int(men[row])], ["no", "yes"][int(sick[row])]])
    return path


def own_tables(folder: Path) -> list[Path]:
    """Write a table of each of three owners, in a folder of the owner's own."""
    places = [folder / f"owner{number}" / f"ward{number}.csv" for number in range(len(SIZES))]
    return [own_table(place, rows, number) for number, (place, rows) in enumerate(zip(places, SIZES, strict=True))]


def own_scenario(**more: Any) -> dict[str, Any]:
    """Return the fields of a scenario of three owners who measure the model themselves."""
    fields: dict[str, Any] = {
        "name": "owners",
        "task": TASK,
        "partition": "own",
        "algorithm": {"name": "decomfl", "learning_rate": 0.05, "local_steps": 2, "perturbations": 3},
        "participation": {"clients": 3, "cohort": 3},
        "evaluation": {"by": "clients", "every": 2},
        "stop": {"rounds": 5},
    }
    return fields | more
