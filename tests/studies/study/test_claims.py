"""Claims of studies: what is accepted, how they are judged, and that the page of claims is in step."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import claims
import numpy as np
import pytest
from published_figures import PAPERS, listed

from seedbus.scenarios.schema.loading import studies
from seedbus.studies.study import intervals
from seedbus.studies.study.cells import plan_of
from seedbus.studies.study.claims import SUMMED_UP, Expected, Samples, judged, verdicts
from seedbus.studies.study.claims import claims as claims_of
from seedbus.studies.study.remarks import sentences
from seedbus.studies.study.schema import load_study
from seedbus.studies.study.study import study

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


def test_a_claim_holds_if_all_its_expectations_do_and_fails_if_one_does_and_others_have_their_own_verdict() -> None:
    holds, fails, open_ = (
        judged(Expected(row="a", at_least=bound), ROWS, [1, 2, 3], 0.95, {}) for bound in (0.7, 0.9, 0.81)
    )
    found = [verdicts(["one"] * len(each), each)["one"] for each in ([holds], [holds, open_], [open_, fails, holds])]
    assert found == ["holds", "not settled", "does not hold"]
    assert verdicts(["one", "two", "one"], [holds, fails, open_]) == {"one": "not settled", "two": "does not hold"}


def test_what_is_not_published_leaves_no_verdict_on_a_claim_whatever_was_found() -> None:
    fails = judged(Expected(row="a", at_least=0.9), ROWS, [1, 2, 3], 0.95, {})
    assert verdicts(["one"], [fails], "the rate") == {"one": "not reproducible from what is published"}


def test_levels_margins_differences_and_their_sizes_are_claims_of_their_own_and_so_is_each_figure() -> None:
    expected = [
        Expected(row="a", at_least=0.8),
        Expected(row="a", minus="b", at_least=0.005),
        Expected(row="a", minus="b", figure="at_500_ema", at_least=0.01),
        Expected(row="a", minus="b", at_least=-0.01),
        Expected(row="a", over="b", figure="bytes", at_most=1.01),
        Expected(row="a", over="b", figure="bytes", at_least=0.1, at_most=0.4),
        Expected(row="a", over="b", figure="bytes", at_most=1),  # any effect is enough
    ]
    assert claims_of(expected, ["final", "at_500_ema"], "accuracy") == [
        "the level of accuracy",
        "a difference in accuracy",
        "a difference in accuracy",
        "a margin in accuracy",
        "a margin in bytes",
        "the size of a difference in bytes",
        "a difference in bytes",
    ]
    assert [each.counts_any_effect for each in expected] == [False] * 6 + [True]
    assert not Expected(row="a", over="b", figure="bytes", at_least=1, at_most=1).counts_any_effect


def test_among_many_expectations_one_that_is_missed_by_little_does_not_refute_their_claim() -> None:
    far, near = (Expected(row="a", minus="b", at_least=bound) for bound in (0.2, 0.115))
    alone, among = (judged(near, ROWS, [1, 2, 3], 0.95, {}, together=count) for count in (1, 10))
    assert (alone.verdict, among.verdict) == ("does not hold", "not settled")
    assert "of 10 that hold together" in among.found
    assert judged(far, ROWS, [1, 2, 3], 0.95, {}, together=10).verdict == "does not hold"


def test_a_row_whose_tuned_value_is_at_the_edge_of_what_was_tried_refutes_nothing() -> None:
    far = Expected(row="a", minus="b", at_least=0.2)
    assert judged(far, ROWS, [1, 2, 3], 0.95, {}, at_edge=["c"]).verdict == "does not hold"
    found = judged(far, ROWS, [1, 2, 3], 0.95, {}, at_edge=["b"])
    assert found.verdict == "not settled" and found.found.endswith("with b at the edge of what was tried")
    holds = Expected(row="a", minus="b", at_least=0.05)
    assert judged(holds, ROWS, [1, 2, 3], 0.95, {}, at_edge=["b"]).verdict == "holds"


@pytest.mark.slow
def test_of_claims_with_ten_true_expectations_few_are_refuted_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "bootstrap", lambda values, confidence: (np.mean(values), np.mean(values)))
    rng, seeds = np.random.default_rng(1), [1, 2, 3, 4, 5]
    refuted = {1: 0, 10: 0}
    for _ in range(200):
        drawn = rng.normal(size=(10, 5))  # the true mean is at the bound
        rows = {f"{row}": dict(zip(seeds, values, strict=True)) for row, values in enumerate(drawn.tolist())}
        for together in refuted:
            parts = [
                judged(Expected(row=row, at_least=0), {"final": rows}, seeds, 0.95, {}, together=together)
                for row in rows
            ]
            refuted[together] += any(part.verdict == "does not hold" for part in parts)
    assert refuted[1] > 20 and refuted[10] <= 10


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


@pytest.mark.slow
def test_a_study_judges_its_claim_from_its_runs(tmp_path: Path) -> None:
    results = study(STUDY, tmp_path)
    assert results.verdicts == {"a difference in bytes": "holds"}
    assert results.json()["claim"]["verdicts"] == results.verdicts
    loose = study(STUDY | {"expect": [{"row": "P = 10", "over": "P = 5", "figure": "bytes", "at_least": 1}]}, tmp_path)
    assert "any effect, however small" in " ".join(sentences(loose)) and "any effect" not in " ".join(
        sentences(results)
    )
    wrong = study(STUDY | {"unpublished": "the rate"}, tmp_path)
    assert "Claim: Bytes grow with P: not reproducible from what is published" in sentences(wrong)


@pytest.mark.slow
def test_a_study_refutes_no_claim_by_a_row_that_was_tuned_at_the_edge_of_its_grid(tmp_path: Path) -> None:
    base = STUDY["base"] | {"task": {"name": "quadratic", "dimension": 5}, "stop": {"rounds": 30}}
    tuned: dict[str, Any] = {
        "base": base,
        "variants": {"P = 10": ["algorithm.perturbations=10"], "P = 5": ["algorithm.perturbations=5"]},
        "tune": {"algorithm.learning_rate": [1e-6, 2e-6]},
        "ask": {"metric": "loss"},
        "claim": "it learns",
        "expect": [{"row": "P = 5", "at_most": -1.0}],
    }
    edge = study(tuned | {"tuning": {"further": 0}}, tmp_path / "edge")
    assert edge.at_edge == {row: ["algorithm.learning_rate"] for row in ("P = 10", "P = 5")}
    assert edge.verdicts == {"the level of loss": "not settled"}
    plain = {name: value for name, value in tuned.items() if name != "tune"}
    assert study(plain, tmp_path / "plain").verdicts == {"the level of loss": "does not hold"}


@pytest.mark.slow
def test_a_study_does_not_refute_a_claim_by_one_of_many_expectations_that_its_runs_miss_by_little(
    tmp_path: Path,
) -> None:
    base = STUDY["base"] | {"task": {"name": "quadratic", "dimension": 5}}
    asked: dict[str, Any] = {"base": base, "variants": {"P = 10": []}, "ask": {"metric": "loss"}, "claim": "so"}
    true = [{"row": "P = 10", "at_most": 1e9 + number} for number in range(9)]
    first = study(asked | {"expect": true[:1]}, tmp_path)
    _, _, high = intervals.covering([member.figures["final"] or 0.0 for member in first.members["P = 10"]])
    missed = {"row": "P = 10", "at_least": high * (1 + 1e-9)}
    for expect, verdict in (([missed], "does not hold"), ([missed, *true], "not settled")):
        assert study(asked | {"expect": expect}, tmp_path).verdicts == {"the level of loss": verdict}


@pytest.mark.slow
def test_an_amount_has_the_interval_of_its_logarithms_in_the_table_of_a_study_and_in_its_claims(tmp_path: Path) -> None:
    base = STUDY["base"] | {"network": {"latency": {"distribution": "lognormal", "median": 0.1, "sigma": 1}}}
    expect = [{"row": "P = 10", "figure": "simulated_s", "at_most": 1e6}]
    found = study({"base": base, "variants": {"P = 10": []}, "claim": "so", "expect": expect}, tmp_path)
    values = [member.figures["simulated_s"] or 0.0 for member in found.members["P = 10"]]
    mean, low, high = intervals.covering(values, within=intervals.AMOUNT)
    assert low > intervals.covering(values)[1] * 1.01, "an interval of plain values would be another"
    row = found.table.iloc[0]
    assert (row["simulated_s"], row["simulated_s_low"], row["simulated_s_high"]) == (np.mean(values), low, high)
    assert found.judged[0].found == f"{mean:.4g} [{low:.4g}, {high:.4g}]"


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
        assert not any(each.counts_any_effect for each in found.expect), found.name
    assert claims.page(kept) == (docs / "claims.md").read_text(encoding="utf-8")


def test_what_was_kept_is_used_while_the_runs_are_the_same_and_only_what_is_said_of_them_changes() -> None:
    figures: dict[str, Any] = {"bytes": {"P = 10": {}, "P = 5": {}}}
    facts = {"figures": figures, "study": claims.digest(plan_of(STUDY))}
    other = STUDY | {"expect": [{"row": "P = 5", "figure": "bytes", "at_most": 1}], "unpublished": "the rate"}
    assert claims.is_current(facts, plan_of(other))
    assert not claims.is_current(
        facts, plan_of(STUDY | {"expect": [{"row": "P = 5", "figure": "rounds", "at_most": 1}]})
    )
    assert not claims.is_current(facts, plan_of(STUDY | {"seeds": [4, 5]}))


def test_every_study_stands_once_in_the_list_of_the_papers_figures_and_every_figure_has_a_study_or_a_reason() -> None:
    names = [name.removeprefix("figures/") for name in studies()]
    rows = list(listed(names))
    assert sorted(name for _, _, shown in rows for name in shown) == sorted(names)
    assert [each.what for _, each, shown in rows if not shown and not each.left_out] == []
    for each in (each for published in PAPERS.values() for each in published):
        for pattern in each.patterns:
            assert [name for name in names if fnmatchcase(name, pattern)], f"{each.what}: no study is named {pattern}"
