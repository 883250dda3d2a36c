"""Quantities of an analysis as figures of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.findings import ANALYSIS, kept
from seedbus.scenarios.reporting.page import PAGE
from seedbus.studies.analysis.analyse import INSTRUMENTS
from seedbus.studies.analysis.quantities import QUANTITIES, Plain, quantities
from seedbus.studies.study.cells import plan_of
from seedbus.studies.study.remarks import sentences
from seedbus.studies.study.study import study
from seedbus.studies.study.tables import cells

D, CONDITION = 30, 1e4
KAPPA = float(np.geomspace(1 / CONDITION, 1, D).sum())
"""The quadratic's curvature is known: a geometric sequence whose largest value is 1."""
STUDY: dict[str, Any] = {
    "base": {
        "task": {"name": "quadratic", "dimension": D, "condition": CONDITION},
        "algorithm": {"name": "decomfl"},
        "participation": {"clients": 4, "cohort": 2},
        "stop": {"rounds": 4},
    },
    "variants": {"DeComFL": [], "HiSo": ["algorithm.name=hiso"]},
    "ask": {"metric": "loss", "splits": ["train"], "analysis": ["kappa", "kappa_share", "zeta_share"]},
    "claim": "The effective rank is low",
    "expect": [{"row": "HiSo", "figure": "kappa_share", "at_least": KAPPA / D - 1e-9, "at_most": KAPPA / D + 1e-9}],
}


@pytest.mark.slow
def test_a_study_may_ask_for_what_an_analysis_measures_and_expect_it(tmp_path: Path) -> None:
    found = study(STUDY, tmp_path)
    assert not found.failures and {*found.verdicts.values()} == {"holds"}
    hiso, decomfl = found.members["HiSo"][0], found.members["DeComFL"][0]
    assert hiso.figures["kappa"] == pytest.approx(KAPPA) and hiso.figures["train_loss"]
    assert hiso.figures["zeta_share"] and decomfl.figures["zeta_share"] is None  # DeComFL has no H
    assert (hiso.run.folder / ANALYSIS).is_file() and not (hiso.run.folder / PAGE).exists()
    heads, rows = cells(found)
    column = heads.index("effective rank κ")
    assert [row[column] for row in rows] == [f"{KAPPA:.4g}"] * 2

    before = (hiso.run.folder / "results.json").stat().st_mtime_ns
    more = study(
        STUDY | {"ask": {"metric": "loss", "analysis": ["divergence", "kappa"]}, "claim": "", "expect": []}, tmp_path
    )
    again = more.members["HiSo"][0]
    assert again.figures["divergence"] and again.figures["kappa"] == hiso.figures["kappa"]
    assert (again.run.folder / "results.json").stat().st_mtime_ns == before, "the run was made again"


@pytest.mark.slow
def test_how_clients_are_served_is_told_by_the_metric_of_the_study(tmp_path: Path) -> None:
    small = {"task": "digits", "algorithm": "decomfl", "participation": {"clients": 4}, "stop": {"rounds": 1}}
    analysis = ["test_worst_tenth", "clients_deviation", "break_even"]
    for metric in (None, "loss"):  # the same run, which is measured again
        asked = {"ask": {"analysis": analysis} | ({} if metric is None else {"metric": metric})}
        found = study({"description": "units", "base": small, "seeds": [1]} | asked, tmp_path)
        heads, (row,) = cells(found)
        (member,) = next(iter(found.members.values()))
        shown, figures, name = dict(zip(heads, row, strict=True)), member.figures, metric or "accuracy"
        worst, deviation = figures["test_worst_tenth"], figures["clients_deviation"]
        assert worst is not None and deviation is not None
        words = "{:.2%}".format if metric is None else "{:.4g}".format
        assert shown[f"{name}, worst tenth of clients on test"] == words(worst)
        assert shown[f"{name}, deviation between clients"] == words(deviation)
        (finding,) = [each for each in kept(member.run.folder) if each.name == "fairness"]
        (fact,) = finding.facts["rounds"]
        assert fact["metric"] == name and fact["test"]["worst_tenth"] == worst
        assert "%" not in shown["lag of break-even"] and ("%" in shown["last value"]) == (metric is None)


@pytest.mark.slow
def test_rows_are_compared_by_the_means_over_clients_that_are_asked_for(tmp_path: Path) -> None:
    small = {"task": "digits", "algorithm": "fedavg", "participation": {"clients": 4}, "stop": {"rounds": 3}}
    variants: dict[str, Any] = {"still": ["algorithm.learning_rate=1e-6"], "learning": []}
    for metric, words in (("accuracy", "points"), ("loss", "by")):
        asked = ["clients_deviation", "test_clients_mean", "worst_tenth", "break_even"]
        ask = {"metric": metric, "analysis": asked, "against": "still"}
        found = study({"base": small, "variants": variants, "seeds": [1, 2, 3], "ask": ask}, tmp_path)
        assert list(found.compared_by) == ["final", "test_clients_mean", "worst_tenth"]
        for figure in ("test_clients_mean", "worst_tenth"):
            ((row, other, difference),) = found.compared_by[figure]
            means = [
                np.mean([member.figures[figure] or 0.0 for member in found.members[each]]) for each in (row, other)
            ]
            assert difference.mean == pytest.approx(means[0] - means[1])
            assert found.better(row, other, difference) == "learning"
        said = sentences(found)
        heads = [each for each in said if each.startswith("Differences")]
        assert [
            f"Differences in {metric} ({where})"
            for where in ("average at the end", "mean of clients on test", "worst tenth of clients")
        ] == [each.partition(",")[0] for each in heads]
        assert sum(each.startswith("learning is better than still") and words in each for each in said) >= 2


@pytest.mark.slow
def test_a_study_may_ask_how_a_group_and_the_others_are_served(tmp_path: Path) -> None:
    small: dict[str, Any] = {
        "task": "digits",
        "algorithm": "decomfl",
        "participation": {"clients": 4},
        "faults": [{"fault": "straggler", "factor": 9, "fraction": 0.25}],
        "stop": {"rounds": 1},
    }
    slow = "fault 0: straggler"
    asked = {"analysis": [f"{on}{of}:{slow}" for on in ("", "test_") for of in ("group", "others", "gap")]}
    variants: dict[str, Any] = {"slow": [], "none": {"faults": []}}
    found = study({"base": small, "variants": variants, "seeds": [1], "ask": asked}, tmp_path)
    ((member,), (without,)) = (found.members[row] for row in ("slow", "none"))
    figures, ((_, fact),) = member.figures, [(each.name, each.facts) for each in kept(member.run.folder)]
    ((client,),) = fact["groups"].values()
    for on, kind in (("", "own"), ("test_", "test")):
        values = np.array(fact["rounds"][-1][kind]["values"])
        group, others = values[client], np.delete(values, client).mean()
        assert figures[f"{on}group:{slow}"] == group and figures[f"{on}others:{slow}"] == pytest.approx(others)
        assert figures[f"{on}gap:{slow}"] == pytest.approx(others - group)
        served = fact["rounds"][-1][kind]["groups"][slow]
        assert member.samples[f"{on}gap:{slow}"] == min(served["samples"], served["others"]["samples"]) > 0
    assert not any(without.figures[name] for name in asked["analysis"]), "it has no such group"
    heads, rows = cells(found)
    column = heads.index("accuracy, mean of all but fault 0: straggler on test")
    assert rows[0][column] == f"{figures[f'test_others:{slow}']:.2%}" and rows[1][column] == "–"


@pytest.mark.parametrize(
    ("name", "groups", "sentence"),
    [
        ("test_gap:slov", {"slow": [0]}, "did you mean slow?"),
        ("group:slow", {}, "name clients in client_groups, or in a fault"),
    ],
)
def test_a_group_that_no_row_has_is_one_sentence(name: str, groups: Any, sentence: str) -> None:
    asked = {"ask": {"metric": "loss", "analysis": [name]}, "claim": "", "expect": []}
    with pytest.raises(ScenarioError) as caught:
        plan_of(STUDY | {"base": STUDY["base"] | {"client_groups": groups}} | asked)
    what = f'ask.analysis: "{name}" is not measured: no row has a group of clients of that name; {sentence}'
    assert caught.value.sentences == [f"the study: {what}"]


def test_every_quantity_has_an_instrument_and_a_mistake_in_its_name_is_one_sentence() -> None:
    assert QUANTITIES.keys() == set(get_args(Plain))
    assert {each.instrument for each in QUANTITIES.values()} <= INSTRUMENTS.keys()
    with pytest.raises(ScenarioError) as caught:
        plan_of(STUDY | {"ask": {"metric": "loss", "analysis": ["kapa"]}})
    assert any('ask.analysis.0: "kapa" is not accepted; expected' in each for each in caught.value.sentences)
    assert caught.value.sentences[0].endswith(
        "group:NAME, others:NAME or gap:NAME of a group of clients, or test_ and these"
    )


def test_the_last_model_counts_and_what_a_run_does_not_have_is_none() -> None:
    models = [{"divergence": 1.0, "cka": []}, {"divergence": 2.0, "cka": []}]
    assert quantities("divergence", {"rounds": models}) == {"divergence": 2.0, "cka": None}
    assert quantities("break-even", {"break_even_lag": 7}) == {"break_even": 7.0}
    assert quantities("break-even", {"nothing": "dense"}) == {"break_even": None}
