"""A study runs each variant under each condition, compares the rows under each, and shows them apart."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as Xml
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command
from pages import plots as drawings
from test_tables import ended
from worlds import TINY

from seedbus.scenarios.errors import Exit, ScenarioError
from seedbus.scenarios.reporting.looks import Line, looks
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.studies.study.cells import Cell, Plan, plan_of
from seedbus.studies.study.circumstances import by_circumstances, circumstances, pairs_of
from seedbus.studies.study.plots import MAX_PANELS, plots
from seedbus.studies.study.remarks import sentences
from seedbus.studies.study.results import StudyResults
from seedbus.studies.study.study import study
from seedbus.studies.study.study_page import page, write_report
from seedbus.studies.study.tables import cells, latex, markdown, show
from seedbus.studies.study.trials import Trial
from seedbus.studies.study.tuning import tuned

LIE = {"fault": "byzantine", "fraction": 0.25, "attack": "sign-flip"}
STUDY: dict[str, Any] = {
    "name": "conditions",
    "base": TINY | {"stop": {"rounds": 3}, "evaluation": {"every": 1}},
    "seeds": [1, 2, 3],
    "variants": {"mine": [], "hiso": ["algorithm=hiso"], "fedavg": {"algorithm": {"name": "fedavg"}}},
    "conditions": {
        "calm": [],
        "slow links": ["network.up_mbps=1", "participation.deadline_s=5"],
        "byzantine": {"faults": [LIE], "algorithm.aggregation": "median"},
    },
}
DATA: dict[str, Any] = {"conditions": {}, "grid": {"task.dimension": {"small": 20, "large": 30}}}


def planned(**changes: Any) -> Plan:
    return plan_of(STUDY | changes)


def measured(folder: Path, **changes: Any) -> StudyResults:
    """Return a study whose variants end at a loss of 1, 2, …, less with every seed, and each at 0.1 more bytes."""
    plan = planned(**changes)
    results = StudyResults(folder / "report", plan, "loss", {cell.name: [] for cell in plan.cells})
    variants = list(plan.study.variants)
    for cell in plan.cells:
        final = 1.0 + variants.index(cell.variant)
        results.members[cell.name] += [
            replace(ended(final + 0.01 * final * seed, 100 + final), seed=seed) for seed in plan.study.seeds
        ]
    return results


def test_each_variant_is_run_under_each_condition_at_each_point_of_the_grid() -> None:
    found = planned(grid={"stop.rounds": [3, 4]}).cells
    assert [cell.name for cell in found] == [
        f"{variant}, {condition}, rounds {rounds}"
        for variant in ("mine", "hiso", "fedavg")
        for condition in ("calm", "slow links", "byzantine")
        for rounds in (3, 4)
    ]
    slow, byzantine = found[2].scenario, found[-1].scenario.resolved()["algorithm"]
    assert (slow.network.up_mbps, slow.participation.deadline_s, slow.participation.cohort) == (1, 5, 3)
    assert (byzantine["name"], byzantine["aggregation"]) == ("fedavg", {"rule": "median"})
    assert [cell.name for cell in planned(variants={}).cells] == ["calm", "slow links", "byzantine"]
    hiso = next(cell for cell in found if cell.name == "hiso, byzantine, rounds 4")
    assert hiso.with_settings({"algorithm.learning_rate": 0.5}).scenario.faults == found[-1].scenario.faults


def test_a_setting_that_all_conditions_replace_is_refused_on_the_command_line() -> None:
    every = {"a": ["network.up_mbps=1"], "b": ["network.up_mbps=2"]}
    with pytest.raises(ScenarioError, match="conditions of the study replaces it in every row"):
        plan_of(STUDY | {"conditions": every}, ["network.up_mbps=3"])
    plan_of(STUDY, ["network.up_mbps=3"])  # `calm` leaves it as it is


def test_rows_are_compared_under_the_same_circumstances_and_never_across_data() -> None:
    methods = [("mine", "hiso"), ("mine", "fedavg"), ("hiso", "fedavg")]
    under = [(f"{a}, {where}", f"{b}, {where}") for where in STUDY["conditions"] for a, b in methods]
    assert pairs_of(planned()) == under
    assert pairs_of(planned(**DATA)) == [(f"{a}, {n}", f"{b}, {n}") for n in ("small", "large") for a, b in methods]
    assert len(pairs_of(planned(grid=DATA["grid"]))) == 2 * len(under)
    rates = planned(variants={"mine": []}, grid={"algorithm.learning_rate": [0.1, 0.2]})
    both = ("learning_rate 0.1", "learning_rate 0.2")
    assert pairs_of(rates) == [tuple(f"mine, {where}, {rate}" for rate in both) for where in STUDY["conditions"]]
    two = {"algorithm.learning_rate": [0.1, 0.2], "algorithm.local_steps": [1, 2]}
    assert len(pairs_of(planned(variants={"mine": []}, conditions={}, grid=two))) == 4, "of six, two differ in both"


def test_circumstances_are_told_once_and_rows_under_them_by_what_is_left() -> None:
    named = {f"{variant}, {size}": variant for size in ("small", "large") for variant in STUDY["variants"]}
    assert by_circumstances(planned(**DATA).cells) == {
        size: {row: variant for row, variant in named.items() if row.endswith(size)} for size in ("small", "large")
    }
    groups = {"few": {"clients": 4}, "many": {"clients": 8}}
    within = planned(conditions={}, grid={"participation": groups, "participation.cohort": [2, 3]})
    assert sorted({*circumstances(within.cells).values()}) == [
        f"{size}, cohort {cohort}" for size in groups for cohort in (2, 3)
    ]
    assert {*circumstances(planned(conditions={"calm": []}).cells).values()} == {""}
    alone = planned(variants={})
    assert pairs_of(alone) == [("calm", "slow links"), ("calm", "byzantine"), ("slow links", "byzantine")], (
        "without variants the conditions are what is compared"
    )
    assert pairs_of(planned(variants={}, conditions={"20": [], "30": ["task.dimension=30"]})) == []
    theirs = {"theirs": ["task.dimension=30"], "theirs, fast": ["task.dimension=30", "algorithm=hiso"]}
    assert pairs_of(planned(variants={"mine": []} | theirs, conditions={})) == [("theirs", "theirs, fast")]


def test_others_are_compared_with_a_variant_under_each_condition_and_no_more_pairs_count(tmp_path: Path) -> None:
    ask = {"against": "mine", "together": True}
    results = measured(tmp_path, ask=ask, grid={"algorithm.learning_rate": [0.1, 0.2]})
    pairs = [(row, other) for row, other, _ in results.compared_by["final"]]
    assert pairs == [
        (f"{variant}, {condition}, learning_rate {rate}", f"mine, {condition}, learning_rate {rate}")
        for condition in STUDY["conditions"]
        for variant in ("hiso", "fedavg")
        for rate in (0.1, 0.2)
    ]
    assert "12 pairs at 95% together" in sentences(results)[0]
    effects = measured(tmp_path, ask={"against": "calm"})
    assert [(row, other) for row, other, _ in effects.compared_by["final"]] == [
        (f"{variant}, {condition}", f"{variant}, calm")
        for condition in ("slow links", "byzantine")
        for variant in ("mine", "hiso", "fedavg")
    ]
    assert sentences(effects)[1].startswith("the same values at 3 seeds: mine, slow links and mine, calm; hiso, slow")
    one_row = measured(tmp_path, ask={"against": "mine, calm"})
    assert {(other, len(one_row.compared_by["final"])) for _, other, _ in one_row.compared_by["final"]} == {
        ("mine, calm", 8)
    }, "the name of a row stands for this row, as ever"
    assert "slow links" in sentences(one_row)[1] + sentences(one_row)[2]


def test_differences_are_told_by_condition_and_cut_by_whole_conditions(tmp_path: Path) -> None:
    told = sentences(measured(tmp_path))
    assert told[0].endswith(
        "9 pairs at 95% each, so that one of them, with a probability of up to 45%, may seem to differ by chance:"
    )
    begins = [each.partition(" by ")[0] for each in told[1:10]]
    verdicts = ["mine is better than fedavg", "mine is better than hiso", "hiso is better than fedavg"]
    assert begins == [f"{where}: {each}" for where in STUDY["conditions"] for each in verdicts]
    many = {f"c{number}": [f"network.up_mbps={number + 1}"] for number in range(14)}
    told = sentences(measured(tmp_path, conditions=many))
    compared = [each for each in told if re.match(r"c\d+: ", each)]
    assert len(compared) == 12 * 3 and compared[-1].startswith("c11: ")
    assert "and pairs under more circumstances (differences.csv): c12 (3); c13 (3)" in told


def test_a_variant_is_tuned_under_each_condition_by_itself_and_that_is_told(tmp_path: Path) -> None:
    rate, told = "algorithm.learning_rate", "each row has the values that its own trials chose, which were made under"
    best = {"calm": 0.1, "slow links": 0.2, "byzantine": 0.3}
    results = measured(tmp_path, tune={rate: [0.1, 0.2, 0.3]}, tuning={"further": 0})

    def make(batch: list[tuple[Cell, dict[str, Any]]]) -> list[Trial]:
        return [Trial(tried, abs(tried[rate] - best[cell.condition])) for cell, tried in batch]

    results.tuned.update(tuned(results.plan, False, make))
    assert [results.tuned[f"mine, {where}"].chosen[rate] for where in best] == [*best.values()]
    assert f"{told} its own circumstances" in sentences(results)
    alone = measured(tmp_path, tune={rate: [0.1]}, conditions={})
    alone.tuned["mine"] = results.tuned["mine, calm"]
    assert not any(told in each for each in sentences(alone))


@pytest.mark.slow
def test_a_table_has_a_head_line_for_each_condition_and_a_small_one_has_a_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = measured(tmp_path, tune={"algorithm.learning_rate": [0.1]})
    _, rows = cells(results)
    named = [each for where in STUDY["conditions"] for each in (where, "mine", "hiso", "fedavg")]
    assert [row[0] for row in rows] == named and [len(row) for row in rows[:2]] == [1, 11]
    assert [line.split(" | ")[0] for line in markdown(results).splitlines()[2:7]] == [
        "| **calm**", "| mine", "| hiso", "| fedavg", "| **slow links**",
    ]  # fmt: skip
    body = latex(results).partition(r"\midrule" + "\n")[2].splitlines()
    assert body[0] == r"\multicolumn{11}{l}{\emph{calm}} \\" and body[1].startswith("mine & 3 & –".replace("–", "--"))
    assert body[4:6] == [r"\addlinespace", r"\multicolumn{11}{l}{\emph{slow links}} \\"]
    show(results)
    shown = capsys.readouterr().out
    assert shown.count("│ slow links │       │") == 1 and shown.count("│ hiso       │     3 │") == 3
    write_report(results)
    small = (results.folder / "table_by_condition.md").read_text().splitlines()
    assert small[0] == "| loss, average at the end | calm | slow links | byzantine |"
    assert [line.split(" | ")[0] for line in small[2:]] == ["| mine", "| hiso", "| fedavg"]
    assert small[3].count("2.040 ± 0.020") == 3
    assert r"hiso & 2.040 $\pm$ 0.020 &" in (results.folder / "table_by_condition.tex").read_text()
    html = page(results, []).decode()
    heads = html.count('<th colspan="11" scope="rowgroup">')
    assert heads == 3 and html.index("<th>calm</th>") < html.index("<th>row</th>"), "the small table is the first"
    assert list(results.table["condition"]) == [*STUDY["conditions"]] * 3
    several = measured(tmp_path, grid={"algorithm.learning_rate": [0.1, 0.2]})
    body = latex(several).partition(r"\midrule" + "\n")[2].splitlines()
    assert [line.split(" & ")[:2] for line in body[1:6]] == [
        ["mine", r"learning\_rate 0.1"], ["", r"learning\_rate 0.2"], [r"\addlinespace"],
        ["hiso", r"learning\_rate 0.1"], ["", r"learning\_rate 0.2"],
    ]  # fmt: skip
    write_report(replace(measured(tmp_path, conditions={}), folder=results.folder))
    assert not list(results.folder.glob("table_by_condition.*")), "what a former version had is taken away"


@pytest.mark.slow
def test_each_condition_has_a_panel_in_which_a_variant_looks_as_in_all_others(tmp_path: Path) -> None:
    results = measured(tmp_path, tune={"algorithm.learning_rate": [0.1]})
    (pareto,) = plots(results)
    panels: dict[str, list[Line]] = {}
    for line in pareto.drawn:
        panels.setdefault(line.panel, []).append(line)
    assert list(panels) == list(STUDY["conditions"])
    assert {tuple(line.name for line in drawn) for drawn in panels.values()} == {
        ("mine", "hiso", "fedavg", "Pareto front")
    }
    kinds = {(line.name, look) for line, look in zip(pareto.drawn, looks(pareto.drawn), strict=True)}
    assert len(kinds) == 4, "one look for each name"
    write_report(results)
    drawn = Xml.parse(results.folder / "figures" / "pareto.svg")
    texts = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert [texts.count(name) for name in ("mine", "Pareto front", *STUDY["conditions"])] == [1, 1, 1, 1, 1]
    (on_page,) = drawings((results.folder / "report.html").read_text()).values()
    assert on_page["layout"]["panels"] == list(STUDY["conditions"])
    others = {(each["xaxis"], each["yaxis"]) for each in on_page["data"] if "xaxis" in each}
    assert others == {("x3", "y3"), ("x4", "y4")}


@pytest.mark.slow
def test_more_panels_than_a_figure_has_room_for_stand_in_further_ones(tmp_path: Path) -> None:
    many = {f"c{number}": [f"network.up_mbps={number + 1}"] for number in range(MAX_PANELS + 2)}
    results = measured(tmp_path, conditions=many)
    first, second = plots(results)
    assert (first.name, second.name, second.title) == ("pareto", "pareto-2", "Loss at the end against bytes (2)")
    assert [list(dict.fromkeys(line.panel for line in each.drawn)) for each in (first, second)] == [
        list(many)[:MAX_PANELS], list(many)[MAX_PANELS:],
    ]  # fmt: skip
    write_report(results)
    figures = results.folder / "figures"
    assert (figures / "pareto-2.svg").is_file()
    write_report(replace(measured(tmp_path), folder=results.folder))
    assert {path.stem for path in figures.iterdir()} == {"pareto"}


def test_a_study_under_one_circumstance_is_shown_as_one(tmp_path: Path) -> None:
    none: dict[str, Any] = {}
    for conditions in (none, {"slow": ["network.up_mbps=1"]}):
        results = measured(tmp_path, conditions=conditions)
        assert list(by_circumstances(results.plan.cells)) == [""] and all(len(row) > 1 for row in cells(results)[1])
        (pareto,) = plots(results)
        assert {line.panel for line in pareto.drawn} == {""}
    assert [cell.name for cell in results.plan.cells] == ["mine, slow", "hiso, slow", "fedavg, slow"]


@pytest.mark.slow
def test_a_study_with_conditions_that_is_interrupted_goes_on_and_reports_what_there_is(
    tmp_path: Path, seedbus: Command
) -> None:
    class Stopped(Exception): ...

    class Stopper:
        ended_runs = 0

        def begins(self, *_: Any) -> None: ...

        def advanced(self, *_: Any) -> None: ...

        def ended(self, *_: Any) -> None:
            self.ended_runs += 1
            if self.ended_runs == 11:  # all nine rows with the first seed, two with the second
                raise Stopped

    Path("conditions.yaml").write_text(dump(STUDY))
    with pytest.raises(Stopped):
        study(STUDY, "studies", watcher=Stopper())
    so_far = seedbus("study", "conditions.yaml", "--so-far", "--quiet", "--format", "markdown")
    assert so_far.code == Exit.OK and so_far.out.count("| 1 of 3 |") == 7 and so_far.out.count("| 2 of 3 |") == 2
    made = {path: path.stat().st_mtime_ns for path in Path("studies/runs").glob("*/results.json")}
    done = seedbus("study", "conditions.yaml", "--quiet", "--format", "json")
    report = json.loads(done.out)
    assert done.code == Exit.OK and report["is_complete"] and len(made) == 11
    assert all(path.stat().st_mtime_ns == at for path, at in made.items()), "finished runs are not made again"
    assert [row["condition"] for row in report["rows"][:3]] == list(STUDY["conditions"])
    curves = json.loads(json.dumps(drawings(Path("studies/conditions/report.html").read_text())["Loss over rounds"]))
    lines = [each for each in curves["data"] if each.get("showlegend", True)]
    assert len(lines) == 9 and len({each["line"]["color"] for each in lines}) == 3
    assert {each["meta"] for each in lines} == set(STUDY["conditions"]) and np.isfinite(lines[0]["y"]).all()
