"""What conditions cost rows, which of two they cost more, and what the table and the page show of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import own
from scipy import stats
from test_conditions import STUDY, planned
from test_tables import ended

from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.looks import COLOURS, Line, looks
from seedbus.studies.study.cells import plan_of
from seedbus.studies.study.interactions import frame
from seedbus.studies.study.plots import plots
from seedbus.studies.study.remarks import sentences
from seedbus.studies.study.results import StudyResults
from seedbus.studies.study.study import study
from seedbus.studies.study.study_page import page, write_report
from seedbus.studies.study.tables import cells, columns, latex

LOSSES = {
    ("mine", "calm"): [1.0, 1.1, 1.2, 1.05],
    ("mine", "slow links"): [2.0, 2.3, 2.1, 2.2],
    ("hiso", "calm"): [3.0, 3.3, 3.1, 3.2],
    ("hiso", "slow links"): [3.1, 3.35, 3.25, 3.3],
}


def results_of(folder: Path, **changes: Any) -> StudyResults:
    conditions = {name: STUDY["conditions"][name] for name in ("calm", "slow links")}
    variants = {name: STUDY["variants"][name] for name in ("mine", "hiso")}
    plan = planned(conditions=conditions, variants=variants, seeds=[1, 2, 3, 4], **changes)
    results = StudyResults(folder / "report", plan, "loss", {cell.name: [] for cell in plan.cells})
    for cell in plan.cells:
        finals = LOSSES[cell.variant, cell.condition]
        results.members[cell.name] += [replace(ended(each, 100), seed=seed) for seed, each in enumerate(finals, 1)]
    return results


def test_a_difference_of_differences_is_paired_over_seeds_and_finds_who_is_hurt_more(tmp_path: Path) -> None:
    results = results_of(tmp_path)
    both = {each: np.subtract(LOSSES[each, "slow links"], LOSSES[each, "calm"]) for each in ("mine", "hiso")}
    wanted = both["mine"] - both["hiso"]
    low, high = stats.t.interval(0.95, 3, wanted.mean(), stats.sem(wanted))
    rows: list[Any] = list(frame(results).itertuples())
    *changes, pair = rows
    assert [(each.row, each.mean) for each in changes] == [(n, pytest.approx(both[n].mean())) for n in both]
    assert (pair.mean, pair.low, pair.high) == pytest.approx((wanted.mean(), low, high)) and pair.low > 0
    assert (pair.under, pair.against, pair.loses_more) == ("slow links", "calm", "mine"), "though mine is better"
    assert f"slow links costs mine more than hiso by {wanted.mean():.4g} [{low:.4g}, {high:.4g}]" in sentences(results)
    turned = frame(results_of(tmp_path, ask={"against": "slow links"}))
    assert turned["under"].eq("calm").all() and turned["mean"].iloc[-1] == pytest.approx(-wanted.mean())


def test_the_page_has_key_figures_a_short_title_what_bands_are_and_the_runs(tmp_path: Path) -> None:
    results = results_of(tmp_path, description="Who survives")
    html = own(page(results, list(plots(results))).decode())
    assert "<h1>Who survives</h1>" in html and "1.087" in html.partition("<main")[0]
    cost = f"{np.subtract(LOSSES['mine', 'slow links'], LOSSES['mine', 'calm']).mean():.3f} lost"
    assert cost in html.partition("<main")[0] and "mine, slow links against calm" in html
    assert "<summary>16 runs</summary>" in html and html.index("<main") < html.index("16 runs; mean ± standard")
    write_report(results)
    assert (results.folder / "interactions.csv").read_text().startswith("row,other,under,against,mean")
    told = json.loads((results.folder / "study.json").read_text())["interactions"]
    assert told == frame(results).to_dict("records") and len(told) == 3


def test_a_study_may_choose_the_columns_of_its_tables(tmp_path: Path) -> None:
    results = results_of(tmp_path, ask={"columns": ["bytes", "final", "late_reports"]})
    assert [each.figure for each in columns(results)] == ["bytes", "final", "late_reports"]
    assert cells(results)[0] == ["row", "seeds", "bytes", "loss, average at the end", "late reports"]
    assert "last value" not in latex(results)
    with pytest.raises(ScenarioError, match=r"ask\.columns: \"lates\" is not reported; did you mean last"):
        planned(ask={"columns": ["lates"]})


def test_faults_add_columns_of_rounds_and_reports(tmp_path: Path) -> None:
    gone = [{"fault": "dropout", "clients": [0, 1, 2], "at_round": 1, "for_rounds": 2}]
    whole = {"participation": {"clients": 4, "quorum": 2, "deadline_s": 5}, "seeds": [1]}
    variants: dict[str, Any] = {"calm": [], "gone": {"faults": gone}}
    base = STUDY["base"] | {"participation": {"clients": 4, "cohort": 4, "quorum": 2, "deadline_s": 5}}
    found = study({"base": base, "variants": variants, "seeds": whole["seeds"]}, tmp_path)
    table = found.table.set_index("row")
    assert list(table["rounds_without_commit"]) == [0, 2] and list(table["reports_per_round"]) == [
        4,
        pytest.approx(4 / 3),
    ]
    assert list(table["late_reports"]) == [0, 0]
    assert cells(found)[0][-3:] == ["reports a round", "rounds without a commit", "late reports"]


def test_a_variant_may_be_the_name_of_a_scenario() -> None:
    named, plain = plan_of({"base": "quickstart", "variants": {"other": "hiso-digits", "own": []}}).cells
    assert named.scenario.algorithm.facts.label == "hiso" and plain.scenario.algorithm.facts.label == "decomfl"


def test_lines_beside_each_other_differ_in_more_than_colour() -> None:
    drawn = looks([Line(str(place), [0], [0], place=place) for place in range(2 * len(COLOURS))])
    assert all(len({each.dashes for each in drawn[start : start + 5]}) == 5 for start in range(0, 10, 5))
    assert len({(each.colour, each.dashes) for each in drawn}) == len(drawn)
    own_look, published = looks([Line("a", [0], [0], place=1), Line("b", [0], [0], beside="a")])
    assert published.colour == own_look.colour and published.dashes not in ("", own_look.dashes)
