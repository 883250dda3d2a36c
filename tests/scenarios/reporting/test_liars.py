"""How many of a commit's reports were false, beside what its rule withstands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds import DECOMFL, go, scenario

from seedbus.algorithms.aggregation.rules import RULES
from seedbus.scenarios.reporting.closing_table import groups

SIGNS: dict[str, Any] = {"fault": "byzantine", "attack": "sign-flip"}


def reported(folder: Path, faults: list[dict[str, Any]], **changes: Any) -> Any:
    document = {"algorithm": DECOMFL, "participation": {"clients": 9}, "stop": {"rounds": 6}, "faults": faults}
    return go(folder, scenario(**document | changes))


@pytest.mark.parametrize(
    ("rule", "withstands"),
    [("mean", 0), ("median", 4), ({"rule": "trimmed-mean", "f": 2}, 2), ("trimmed-mean", 2), ("krum", 3),
     ({"rule": "krum", "f": 1}, 1), ({"rule": "nnm", "f": 2}, 2), ({"rule": "nnm", "then": "krum"}, 3),
     ({"rule": "clipped", "quantile": 0.75}, 2)],
)  # fmt: skip
def test_commits_with_more_liars_than_the_rule_withstands_are_counted(
    tmp_path: Path, rule: Any, withstands: int
) -> None:
    for number in (withstands, withstands + 1):
        algorithm = DECOMFL | {"aggregation": rule}
        faults = [SIGNS | {"clients": list(range(number))}]
        results = reported(
            tmp_path / str(number), faults, algorithm=algorithm, participation={"clients": 9, "quorum": 9}
        )
        beyond = 6 if number > withstands else 0
        expected = {"commits": 6 if number else 0, "median": number, "most": number, "beyond": beyond}
        assert results.summary["liars"] == expected
        assert results.summary["faults"][0].get("lied", 0) == 6 * number


def test_liars_of_drawn_cohorts_and_rounds_are_those_whose_reports_count(tmp_path: Path) -> None:
    faults = [SIGNS | {"fraction": 0.5, "probability": 0.7}, {"fault": "drop", "kind": "report", "probability": 0.2}]
    crowd = {"clients": 9, "cohort": 4, "quorum": 2, "deadline_s": 5.0}
    results = reported(tmp_path / "run", faults, participation=crowd, stop={"rounds": 30})
    found = results.summary["liars"]
    assert (
        0 < found["median"] <= found["most"] <= 4 and found["commits"] == found["beyond"] < results.summary["version"]
    )
    (row,) = [value for group in groups(results.summary) for name, value in group if name == "false reports"]
    assert row == (
        f"in {found['commits']} of {results.summary['version']} commits, {found['median']:g} (median) and "
        f"{found['most']} at most; in {found['beyond']} more than the rule withstands"
    )


def test_wrong_labels_make_false_reports_and_honest_runs_have_none(tmp_path: Path) -> None:
    task = {"name": "digits", "model": "softmax"}
    flips = [{"fault": "label-flip", "clients": [0, 1]}]
    results = reported(tmp_path / "flips", flips, task=task, participation={"clients": 4}, stop={"rounds": 2})
    assert results.summary["liars"] == {"commits": 2, "median": 2, "most": 2, "beyond": 2}
    assert "liars" not in reported(tmp_path / "honest", []).summary


def test_every_rule_says_what_it_withstands() -> None:
    for kind in RULES.all().values():
        rule: Any = kind()
        found = [rule.withstands(reports) for reports in range(1, 40)]
        assert found == sorted(found) and all(0 <= number < reports / 2 for reports, number in enumerate(found, 1))
