"""Settings of the command line, or of a call in Python, change every row of a study, or are refused in a sentence."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from seedbus.scenarios.errors import ScenarioError
from seedbus.studies.study.cells import metric_of, plan_of
from seedbus.studies.study.schema import Ask

QUADRATIC = {"task": "quadratic", "algorithm": "decomfl", "participation": {"clients": 4}, "stop": {"rounds": 2}}
STUDY: dict[str, Any] = {
    "base": QUADRATIC,
    "variants": {"a": ["compute.evaluation=0.1", "task.dimension=4"], "b": {"algorithm": "hiso", "task": "quadratic"}},
    "grid": {"stop.rounds": [3, 4]},
    "tune": {"algorithm.learning_rate": [0.1, 0.2]},
}


@pytest.mark.parametrize(
    ("setting", "section"),
    [
        ("seed=7", "seeds"),
        ("stop.rounds=5", "grid"),
        ("algorithm.learning_rate=1", "tune"),
        ("algorithm.learning_rate.500=1", "tune"),
        ("task.dimension=8", "variants"),
    ],
)
def test_a_setting_that_the_study_replaces_in_every_row_is_refused(setting: str, section: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        plan_of(STUDY, [setting])
    assert str(raised.value) == f"--set {setting}: {section} of the study replaces it in every row; change it there"


@pytest.mark.parametrize("setting", ["ask.target=0.8", "seeds=[1]"])
def test_a_setting_of_the_study_itself_is_told_to_be_one_of_its_file(setting: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        plan_of(STUDY, [setting])
    field = re.split(r"[.=]", setting)[0]
    assert str(raised.value).startswith(f"--set {setting}: {field} is a field of the study, and --set changes its ")


def test_a_setting_that_every_variant_tunes_by_itself_is_refused() -> None:
    own = {"a": {"tune": {"algorithm.learning_rate": [0.1]}}, "b": {"algorithm.learning_rate": 0.2}}
    study = {"base": QUADRATIC, "variants": own}
    with pytest.raises(ScenarioError, match="variants of the study replaces it in every row; change it there"):
        plan_of(study, ["algorithm.learning_rate=1"])


def test_rows_that_differ_in_what_they_tune_are_two_rows_and_those_that_differ_in_nothing_are_one() -> None:
    tune = {"tune": {"algorithm.learning_rate": [0.1]}}
    assert len(plan_of({"base": QUADRATIC, "variants": {"a": [], "b": tune}}).cells) == 2
    with pytest.raises(ScenarioError, match="rows a and b are the same run"):
        plan_of({"base": QUADRATIC, "variants": {"a": tune, "b": tune}})


def test_a_setting_that_changes_a_row_is_applied() -> None:
    plan = plan_of(STUDY, ["compute.evaluation=0.2", "stop.bytes=100000", "task={name: quadratic, dimension: 6}"])
    assert {cell.scenario.stop.bytes for cell in plan.cells} == {100_000}
    assert [cell.scenario.dimension for cell in plan.cells] == [4, 4, 20, 20]
    values = [cell.scenario.resolved()["compute"]["evaluation"]["value"] for cell in plan.cells]
    assert values == [0.1, 0.1, 0.2, 0.2]


def test_a_mapping_in_python_sets_the_fields_that_texts_set_and_its_mistakes_read_alike() -> None:
    given: list[Any] = [
        {"stop.bytes": 7, "faults": [{"fault": "delay", "by": 1}]},
        ["stop.bytes=7", "faults=[{fault: delay, by: 1}]"],
    ]
    one, other = ([cell.scenario for cell in plan_of(STUDY, each).cells] for each in given)
    assert one == other and one[0].stop.bytes == 7 and one[0].faults
    for wrong in ({"stop.bites": 3}, ["stop.bites=3"]):
        with pytest.raises(
            ScenarioError, match=r"--set stop\.bites=3: stop\.bites: no such field; did you mean bytes\?$"
        ):
            plan_of(STUDY, wrong)


@pytest.mark.parametrize("settings", ["stop.bytes=3", [3], 3])
def test_settings_in_python_that_are_no_list_of_texts_are_refused_as_a_whole(settings: Any) -> None:
    with pytest.raises(ScenarioError, match=r"^settings: .*3.* is not accepted; expected .*field=value, like"):
        plan_of(STUDY, settings)


def test_a_study_whose_tasks_disagree_about_what_is_better_is_refused() -> None:
    def plan(*rising: list[str]) -> Any:
        scenarios = [SimpleNamespace(metrics=["found"], task=SimpleNamespace(rising=each)) for each in rising]
        cells = [SimpleNamespace(name=f"row {number}", scenario=each) for number, each in enumerate(scenarios)]
        return SimpleNamespace(cells=cells, source="mine.yaml", study=SimpleNamespace(ask=Ask(metric="found")))

    assert metric_of(plan(["found"], ["found"])) == metric_of(plan([], [])) == "found"
    with pytest.raises(ScenarioError) as raised:
        metric_of(plan([], ["found"]))
    said = 'larger values of "found" are better in row 1 and smaller ones in row 0'
    assert list(raised.value.problems) == [f"ask.metric: {said}; expected the same task.larger_is_better in all rows"]
