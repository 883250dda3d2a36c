"""A feature of a run is its section, its room and its line in one table: without the line nothing is left of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds import DECOMFL, scenario

from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import FEATURES, Scenario
from seedbus.scenarios.schema.without_effect import all_caveats
from seedbus.studies.explain.words import words

WHOLE: dict[str, Any] = {
    "algorithm": DECOMFL | {"momentum": 0.0, "arithmetic": "integer", "precision": "int32"},
    "participation": {"clients": 6, "cohort": 4, "quorum": 2},
    "stop": {"rounds": 3},
}
SECTIONS: dict[str, Any] = {
    "lag": {"snapshot_after_commits": 1},
    "secure_aggregation": {"neighbours": 4},
    "privacy": {"clip": 100_000, "noise_multiplier": 1.5},
    "topology": {"kind": "gossip", "graph": "ring"},
}


def with_section(name: str) -> Scenario:
    changes = WHOLE | ({"participation": {"clients": 6}} if name == "topology" else {})
    return scenario(**changes, **{name: SECTIONS[name]})


@pytest.fixture(autouse=True)
def _installed() -> None:
    for package in ("cryptography", "dp_accounting"):
        pytest.importorskip(package, reason="secure aggregation and privacy need packages of their own")


def told(of: Scenario, folder: Path) -> tuple[Any, ...]:
    """What a run and those who read its scenario tell, but for the time that it took, and bytes of its offer, which has
    the text of the section all the same."""
    results = run(of, folder, page=False)
    results.summary["traffic"].pop("wire", None)
    summary = {name: value for name, value in results.summary.items() if name not in ("run", "wall_s", "cpu_s")}
    return summary, results.lines, list(results.rounds), words(of), all_caveats(of)


def test_every_feature_has_a_case_here() -> None:
    assert FEATURES.keys() == SECTIONS.keys()


@pytest.mark.parametrize("name", SECTIONS)
def test_a_feature_without_its_line_in_the_table_is_as_one_without_its_section(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = with_section(name)
    plain = it.model_copy(update={name: None})
    with_it, without = told(it, tmp_path / "with"), told(plain, tmp_path / "without")
    assert with_it[0] != without[0] and with_it[3] != without[3]
    monkeypatch.delitem(FEATURES, name)
    assert told(it, tmp_path / "gone") == without
