"""Claims of studies: what is accepted, how they are judged, and that the page of claims is in step."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import claims
import pytest
from published_figures import PAPERS, listed

from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.loading import studies
from seedbus.scenarios.study.cells import plan_of
from seedbus.scenarios.study.claims import SUMMED_UP, Expected, Samples, judged, verdict
from seedbus.scenarios.study.remarks import sentences
from seedbus.scenarios.study.schema import load_study
from seedbus.scenarios.study.study import study

ROWS: Samples = {
    "final": {"a": {1: 0.80, 2: 0.82, 3: 0.81}, "b": {1: 0.70, 2: 0.73, 3: 0.71}, "c": {1: 0.9, 2: None, 3: 0.9}},
    "bytes": {
        "a": dict.fromkeys((1, 2, 3), 12_345),
        "b": dict.fromkeys((1, 2, 3), 300),
        "c": {1: 0, 2: 5, 3: 5},
        "d": {1: 37.5, 2: 150, 3: 100},
    },
}


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({"row": "a", "minus": "b", "at_least": 0}, "holds"),
        ({"row": "b", "minus": "a", "at_least": 0}, "does not hold"),
        ({"row": "a", "minus": "b", "at_least": 0.097}, "not settled"),
        ({"row": "a", "at_least": 0.7, "at_most": 0.9}, "holds"),
        ({"row": "a", "at_most": 0.7}, "does not hold"),
        ({"row": "a", "at_most": 0.81}, "not settled"),
        ({"row": "a", "figure": "bytes", "at_least": 12_345, "at_most": 12_345}, "holds"),
        ({"row": "b", "over": "a", "at_most": 0.95}, "holds"),
        ({"row": "c", "at_least": 0}, "not settled"),  # a run has no figure
    ],
)
def test_an_expectation_holds_only_if_its_whole_interval_is_within_the_bounds(
    expected: dict[str, Any], found: str
) -> None:
    assert judged(Expected(**expected), ROWS, [1, 2, 3], 0.95, {}).verdict == found


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        (
            {"row": "a", "figure": "bytes", "minus": "b", "at_least": 0, "at_most": 12_045},
            "bytes of a − b: at least 0 and at most 12,045; found 12,045 [12,045, 12,045]: holds",
        ),
        (
            {"row": "a", "figure": "bytes", "over": "b", "at_most": 41},
            "bytes of a ÷ b: at most 41; found 41.15 [41.15, 41.15]: does not hold",
        ),
        (
            {"row": "d", "figure": "bytes", "over": "b", "at_most": 2},
            "bytes of d ÷ b: at most 2; found 0.2752 [0.04684, 1.616]: holds",
        ),
        (
            {"row": "a", "figure": "bytes", "over": "c", "at_least": 1},
            "bytes of a ÷ c: at least 1; found a ratio to 0: not settled",
        ),
        ({"row": "c", "at_least": 0}, "c: at least 0; found no figure for all seeds (c: 2 of 3 runs): not settled"),
    ],
)
def test_an_expectation_is_said_with_what_was_found(expected: dict[str, Any], said: str) -> None:
    assert str(judged(Expected(**expected), ROWS, [1, 2, 3], 0.95, {})) == said


def test_a_claim_holds_if_all_its_expectations_do_and_fails_if_one_does() -> None:
    holds, fails, open_ = (
        judged(Expected(row="a", at_least=bound), ROWS, [1, 2, 3], 0.95, {}) for bound in (0.7, 0.9, 0.81)
    )
    assert [verdict(each) for each in ([holds], [holds, open_], [open_, fails, holds])] == [
        "holds", "not settled", "does not hold",
    ]  # fmt: skip


def test_one_seed_settles_nothing() -> None:
    assert judged(Expected(row="a", minus="b", at_least=0), ROWS, [1], 0.95, {}).verdict == "not settled"
    missing = judged(Expected(row="c", at_least=0), ROWS, [2], 0.95, {})
    assert str(missing) == "c: at least 0; found no figure for all seeds (c: 0 of 1 run): not settled"


STUDY: dict[str, Any] = {
    "base": {
        "task": {"name": "null", "dimension": 3},
        "algorithm": {"name": "decomfl"},
        "participation": {"clients": 4, "cohort": 2},
        "stop": {"rounds": 4},
    },
    "variants": {"P = 10": [], "P = 5": ["algorithm.perturbations=5"]},
    "claim": "Bytes grow with P",
    "expect": [{"row": "P = 10", "over": "P = 5", "figure": "bytes", "at_least": 1.1}],
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"expect": []}, "expect: this field is required beside claim"),
        ({"expect": [{"row": "P = 7", "at_most": 1}]}, "expect.0.row: there is no row P = 7"),
        ({"expect": [{"row": "P = 5", "figure": "size", "at_most": 1}]}, 'expect.0.figure: "size" is not reported'),
        (
            {"ask": {"target": [5, 0.5]}, "expect": [{"row": "P = 5", "figure": "rounds_to_target", "at_most": 1}]},
            'expect.0.figure: "rounds_to_target" is not reported; did you mean rounds_to_5?',
        ),
        ({"expect": [{"row": "P = 5"}]}, "it has no bound; give at_least, at_most or both"),
        ({"published": {"x": "../secret"}}, "published.x"),
    ],
)
def test_a_mistake_in_a_claim_is_one_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        plan_of(STUDY | change)
    assert any(sentence in each for each in caught.value.sentences), caught.value.sentences


@pytest.mark.slow
def test_a_study_judges_its_claim_from_its_runs(tmp_path: Path) -> None:
    results = study(STUDY, tmp_path)
    assert verdict(results.judged) == "holds"
    assert results.json()["claim"]["verdict"] == "holds"


@pytest.mark.slow
def test_a_study_has_and_judges_false_reports_waits_in_vain_and_clients_without_a_report(tmp_path: Path) -> None:
    lying = {"faults": [{"fault": "byzantine", "attack": "sign-flip", "clients": [0, 1, 2, 3]}]}
    silent = {"faults": [{"fault": "dropout", "clients": [0], "probability": 1.0}], "participation.deadline_s": 9}
    everyone = {"participation": {"clients": 4, "quorum": 1}}
    expect: list[dict[str, Any]] = [
        {"row": "lying", "figure": "commits_with_false_reports", "at_least": 4},
        {"row": "lying", "figure": "commits_beyond_rule", "at_least": 4},
        {"row": "plain", "figure": "commits_beyond_rule", "at_most": 0},
        {"row": "silent", "figure": "in_vain_share", "at_least": 0.9},
        {"row": "silent", "minus": "plain", "figure": "clients_without_report", "at_least": 1, "at_most": 1},
    ]
    variants = {"plain": [], "lying": lying, "silent": silent}
    changed = {"base": STUDY["base"] | everyone, "variants": variants, "seeds": [1, 2], "claim": "so", "expect": expect}
    found = study(STUDY | changed, tmp_path)
    assert [each.verdict for each in found.judged] == ["holds"] * 5
    told = (
        "more reports were false than the aggregation rule withstands, mean over seeds: lying (in 4 commits of a run)"
    )
    assert told in sentences(found)
    for frame in (found.runs, found.table):
        assert {*SUMMED_UP} < {*frame} and frame[frame["row"] == "lying"]["commits_beyond_rule"].eq(4).all()


@pytest.mark.slow
def test_the_page_of_claims_is_computed_from_the_kept_figures() -> None:
    docs = Path(__file__).parents[3] / "docs"
    kept = json.loads((docs / "claims.json").read_text(encoding="utf-8"))
    assert kept.keys() <= studies().keys()
    for found in (load_study(name)[0] for name in studies()):
        assert found.source and found.claim and found.expect and found.description and len(found.seeds) >= 3
    assert claims.page(kept) == (docs / "claims.md").read_text(encoding="utf-8")


def test_every_study_stands_once_in_the_list_of_the_papers_figures_and_every_figure_has_a_study_or_a_reason() -> None:
    names = [name.removeprefix("figures/") for name in studies()]
    rows = list(listed(names))
    assert sorted(name for _, _, shown in rows for name in shown) == sorted(names)
    assert [each.what for _, each, shown in rows if not shown and not each.left_out] == []
    for each in (each for published in PAPERS.values() for each in published):
        for pattern in each.patterns:
            assert [name for name in names if fnmatchcase(name, pattern)], f"{each.what}: no study is named {pattern}"
