"""Figures of the studies examples/curvature_*.yaml: docs/curvature.csv and curvature_trials.csv, and a page's tables.

    seedbus study examples/curvature_digits.yaml --out STUDIES   # make the runs of a study
    python benchmarks/curvature.py --keep STUDIES --write docs   # keep the figures of every run that STUDIES has
    python benchmarks/curvature.py docs                          # print tables from what is kept

What is kept of a study that was made in part (`seedbus study FILE --so-far` tells it) is what was finished: each trial
of a rate, and each run. Another machine goes on with the studies that are not whole. What is compared is rounds until
the target, seed by seed: the geometric mean of the ratios and its interval (studies/study/intervals.py). A pair of
which a row's rate is the lowest or highest that was tried, or of which a run did not reach the target, settles nothing.
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path

import pandas as pd

from seedbus.studies.study.intervals import AMOUNT, covering

STUDIES = (
    "curvature_quadratic",
    "curvature_quadratic_wide",
    "curvature_digits",
    "curvature_fashion",
    "curvature_adaptive",
    "curvature_dropout",
    "curvature_language",
)
BESIDE = {"curvature_adaptive": "curvature_fashion"}
"""A study → the one whose rows its own are compared with, which has the same data, seeds and rates."""
KEPT, TRIALS = "curvature.csv", "curvature_trials.csv"
ROUNDS, RATE = "rounds_to_target", "algorithm.learning_rate"
CONTROLS = {
    "MEAZO": "DeComFL",
    "FZOO": "DeComFL",
    "HiSo, mean of H": "DeComFL",
    "HiSo": "HiSo, mean of H",
    "HiSo, curvature": "HiSo, mean of H",
    "ZO-RMSProp": "MEAZO",
    "ZO-Adam": "MEAZO",
}
"""A rule → what it is compared with: one with one number with a constant rate, one with a diagonal with one number."""


def kept_of(folder: Path, study: str) -> pd.DataFrame:
    """Return what is kept of a study's finished runs, a row for each."""
    runs, trials = (pd.read_csv(folder / study / f"{name}.csv") for name in ("runs", "trials"))
    tried = trials.groupby("row")[RATE].agg(["min", "max", "count"])
    chosen = trials[trials["is_chosen"]].set_index("row")[RATE]
    at_edge = {row: bool(chosen[row] in (tried["min"][row], tried["max"][row])) for row in chosen.index}
    kept = pd.DataFrame({"study": study, "row": runs["row"], "seed": runs["seed"], RATE: runs["row"].map(chosen)})
    kept["tried"], kept["at_edge"] = runs["row"].map(tried["count"]), runs["row"].map(at_edge)
    for name in (ROUNDS, "bytes_to_target", "final", "rounds", "forward_passes"):
        kept[name] = runs[name]
    return kept


def trials_of(folder: Path, study: str) -> pd.DataFrame:
    """Return what is kept of a study's finished trials, a row for each rate of each of its rows."""
    trials = pd.read_csv(folder / study / "trials.csv").dropna(subset="score")
    trials.insert(0, "study", study)
    return trials[["study", "row", RATE, "score", "seeds", "is_chosen"]]


def keep(place: Path, found: dict[str, pd.DataFrame]) -> None:
    """Write what was found to a file, beside what it has of other studies."""
    if place.exists():
        found = {str(study): part for study, part in pd.read_csv(place).groupby("study")} | found
    pd.concat([found[study] for study in STUDIES if study in found]).to_csv(place, index=False)


def best(trials: pd.DataFrame) -> list[str]:
    """Return a table in Markdown of the rates that trials chose."""
    lines = ["| rule | η | score | rates tried |", "|---|---:|---:|---|"]
    for row, its in trials.groupby("row", sort=False):
        for _, chosen in its[its["is_chosen"]].iterrows():
            span = f"{len(its)}, {its[RATE].min():.3g} to {its[RATE].max():.3g}"
            lines.append(f"| {row} | {chosen[RATE]:.3g} | {chosen['score']:.4f} | {span} |")
    return lines


def ratio(kept: pd.DataFrame, row: str, other: str) -> tuple[str, bool]:
    """Return one row's rounds over another's in words, and whether they differ."""
    mine, theirs = (kept[kept["row"] == name].set_index("seed") for name in (row, other))
    if mine["at_edge"].any() or theirs["at_edge"].any():
        return "a rate is at an edge", False
    quotients = (mine[ROUNDS] / theirs[ROUNDS]).dropna()
    if len(quotients) < max(len(mine), len(theirs)):
        return f"both reach it with {len(quotients)} of {max(len(mine), len(theirs))} seeds", False
    if len(quotients) < 2:
        return "one seed cannot tell", False
    mean, low, high = covering(quotients.tolist(), within=AMOUNT)
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]", not low <= 1 <= high


def table(kept: pd.DataFrame) -> list[str]:
    """Return a study's table in Markdown, and below it how many pairs are settled."""
    lines = ["| rule | η | rounds | kB | passes | beside | rounds ÷ its |", "|---|---:|---:|---:|---:|---|---:|"]
    for row, its in kept.groupby("row", sort=False):
        reached = its.dropna(subset=ROUNDS)
        count = "" if len(reached) == len(its) else f" ({len(reached)} of {len(its)})"
        passes = (reached[ROUNDS] * reached["forward_passes"] / reached["rounds"]).mean()
        spread = f"{reached[ROUNDS].mean():.0f} ± {reached[ROUNDS].std():.0f}{count}" if len(reached) > 1 else "–"
        sent = f"{reached['bytes_to_target'].mean() / 1000:.0f} | {passes:,.0f}" if len(reached) > 1 else "– | –"
        edge = " (edge)" if its["at_edge"].any() else ""
        other = CONTROLS.get(str(row), "")
        compared = ratio(kept, str(row), other)[0] if other else ""
        lines.append(f"| {row} | {its[RATE].iloc[0]:.3g}{edge} | {spread} | {sent} | {other} | {compared} |")
    pairs = list(combinations(kept["row"].unique(), 2))
    settled = [pair for pair in pairs if ratio(kept, *pair)[1]]
    return [*lines, "", f"{len(pairs) - len(settled)} of {len(pairs)} pairs are not settled."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("docs", nargs="?", type=Path, metavar="DOCS", help="print the tables of what is kept there")
    parser.add_argument("--keep", type=Path, metavar="STUDIES", help="the folder of studies whose figures are kept")
    parser.add_argument("--write", type=Path, metavar="DOCS", help="where they are kept")
    chosen = parser.parse_args()
    if chosen.keep and chosen.write:
        made = [study for study in STUDIES if (chosen.keep / study / "trials.csv").exists()]
        begun = [study for study in made if (chosen.keep / study / "runs.csv").read_text().strip()]
        keep(chosen.write / TRIALS, {study: trials_of(chosen.keep, study) for study in made})
        keep(chosen.write / KEPT, {study: kept_of(chosen.keep, study) for study in begun})
    folder = chosen.docs or chosen.write
    if folder is None:
        parser.error("DOCS, or --keep STUDIES --write DOCS, is missing")
    for study, part in pd.read_csv(folder / TRIALS).groupby("study", sort=False):
        print(f"\n{study}, trials\n", *best(part), sep="\n")
    kept = pd.read_csv(folder / KEPT)
    for study, part in kept.groupby("study", sort=False):
        both = pd.concat([kept[kept["study"] == BESIDE.get(str(study))], part])
        print(f"\n{study}\n", *table(both), sep="\n")


if __name__ == "__main__":
    main()
