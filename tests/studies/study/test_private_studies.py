"""ε in studies and comparisons: that of the runs, in every form of the table, and as an axis."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from seedbus.scenarios.errors import ScenarioError
from seedbus.studies.explain.noise import spent
from seedbus.studies.study.cells import plan_of
from seedbus.studies.study.compare import compare
from seedbus.studies.study.comparison import markdown as compared_markdown
from seedbus.studies.study.plots import plots
from seedbus.studies.study.study import study
from seedbus.studies.study.study_page import write_report
from seedbus.studies.study.tables import cells, latex, markdown

pytest.importorskip("dp_accounting", reason="privacy needs dp-accounting: pip install 'seedbus[privacy]'")
pytestmark = pytest.mark.slow

BASE: dict[str, Any] = {
    "name": "small",
    "task": {"name": "quadratic", "dimension": 20},
    "algorithm": {"name": "decomfl", "arithmetic": "integer", "precision": "int32", "unit_bits": 24},
    "participation": {"clients": 9, "cohort": 3, "quorum": 3},
    "stop": {"rounds": 5},
}
SEEDED = "ε is for δ = 1e-05 (central noise, public cohorts; noise keyed by the seed: it protects nobody)"


def test_the_epsilon_of_private_rows_stands_in_all_tables_and_that_of_others_is_infinite(tmp_path: Path) -> None:
    private = {"clip": 100_000, "noise_multiplier": 3}
    variants = {"plain": [], "noisy": {"privacy": private}, "strict": {"privacy": private | {"delta": 1e-6}}}
    expect = [{"row": "noisy", "figure": "epsilon", "at_most": 1000}]
    asked = {"name": "eps", "base": BASE, "variants": variants, "seeds": [1, 2], "claim": "a", "expect": expect}
    found = study(asked, folder=tmp_path)
    write_report(found)
    epsilons = {
        row: [spent(member.run.folder)["epsilon"] for member in found.members[row]] for row in ("noisy", "strict")
    }
    table = found.table.set_index("row")["epsilon"]
    assert table["plain"] == math.inf and table["noisy"] == pytest.approx(statistics.mean(epsilons["noisy"]))
    assert found.runs["epsilon"].tolist() == [math.inf, math.inf, *epsilons["noisy"], *epsilons["strict"]]
    assert pd.read_csv(found.folder / "runs.csv")["epsilon"].tolist() == pytest.approx(found.runs["epsilon"].tolist())
    ends = found.curves.groupby(["row", "seed"])["epsilon"].last()
    assert ends["noisy"].tolist() == epsilons["noisy"] and ends["plain"].tolist() == [math.inf, math.inf]
    heads, rows = cells(found)
    column = [row[heads.index("ε")] for row in rows]
    assert column[0] == "∞" and column[1].startswith(f"{statistics.mean(epsilons['noisy']):#.4g}")
    assert f"| {column[1]} |" in markdown(found)
    assert r"& $\infty$ &" in latex(found) and r"$\varepsilon$" in latex(found)
    assert column[2] in (found.folder / "report.html").read_text()
    assert f"{SEEDED}: noisy" in markdown(found) and "δ = 1e-06" in markdown(found)
    assert found.judged[0].verdict == "holds"

    compared = compare([member.run.folder for row in ("plain", "noisy") for member in found.members[row]])
    means = [row.figures["epsilon"] for row in compared.rows if "epsilon" in row.figures]
    assert [mean and mean.mean for mean in means] == [table["noisy"]]
    assert "| ∞ |" in compared_markdown(compared) and SEEDED in compared.notes
    assert "ε" not in str(compare([member.run.folder for member in found.members["plain"]]))


def test_rows_with_and_without_privacy_share_no_front_and_one_table(tmp_path: Path) -> None:
    variants: dict[str, Any] = {
        "five": {"algorithm.perturbations": 5},
        "ten": [],
        "noisy": {"privacy": {"clip": 100_000, "noise_multiplier": 3}},
    }
    found = study({"name": "apart", "base": BASE, "variants": variants, "seeds": [1]}, folder=tmp_path)
    assert list(found.fronts) == ["no privacy"] and "noisy" not in found.front
    assert [*found.circumstances] == [""]


def test_a_claim_about_the_epsilon_of_a_row_without_privacy_is_refused() -> None:
    variants = {"plain": [], "noisy": {"privacy": {"clip": 100_000, "noise_multiplier": 3}}}
    expect = [{"row": "noisy", "minus": "plain", "figure": "epsilon", "at_most": 0}]
    with pytest.raises(ScenarioError, match=r"expect\.0\.figure: plain has no finite epsilon; expected private rows"):
        plan_of({"base": BASE, "variants": variants, "claim": "a", "expect": expect})


def test_rows_that_differ_in_their_noise_alone_are_a_line_over_epsilon(tmp_path: Path) -> None:
    private = {"privacy": {"clip": 100_000, "noise_multiplier": 3}}
    asked: dict[str, Any] = {
        "name": "line",
        "base": BASE | private,
        "variants": {"five": {"algorithm.perturbations": 5}, "ten": {"algorithm.perturbations": 10}},
        "grid": {"privacy.noise_multiplier": [20, 3]},
        "seeds": [1],
    }
    (drawn,) = (each for each in plots(study(asked, folder=tmp_path)) if each.name == "loss-over-epsilon")
    assert [line.name for line in drawn.drawn] == ["five", "ten"] and {line.panel for line in drawn.drawn} == {""}
    assert all(low < high for low, high in (np.asarray(line.x) for line in drawn.drawn))

    asked |= {"base": BASE, "variants": {"plain": [], "noisy": private}, "grid": {}}
    found = study(asked, folder=tmp_path)
    (drawn,) = (each for each in plots(found) if each.name == "loss-over-epsilon")
    assert [line.name for line in drawn.drawn] == ["plain", "noisy"]
    level, point = (np.asarray(line.x) for line in drawn.drawn)
    assert level[0] < point[0] < level[1] and np.shape(point) == (1,), "a level across the plot, and a point"
    write_report(found)
    figure = found.folder / "figures" / "loss-over-epsilon.svg"
    assert figure.is_file()
    del asked["variants"]["noisy"]
    plain = study(asked, folder=tmp_path)
    write_report(plain)
    assert "epsilon" not in plain.figures and not figure.exists()
