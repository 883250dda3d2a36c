"""What does not go together is refused with the reasons of both parts, and with what is accepted instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import combinations_page
import pytest
from pydantic import ValidationError

from seedbus.capabilities import Objection, objection
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.studies.stress.draws import Chooser
from seedbus.studies.stress.random_scenarios import any_document

PAGE = Path(__file__).resolve().parents[3] / "docs" / "combinations.md"
SMALL: dict[str, Any] = {
    "task": {"name": "quadratic"},
    "algorithm": {"name": "decomfl"},
    "participation": {"clients": 8},
    "stop": {"rounds": 5},
}
EXACT = {"name": "decomfl", "arithmetic": "integer"}
WHOLE = EXACT | {"precision": "int32"}
UNITS = {"name": "fedavg", "compression": "fixed-point", "weighting": "uniform"}
CROWD = {"clients": 8, "quorum": 2}
GOSSIP: dict[str, Any] = {"algorithm": EXACT, "topology": {"kind": "gossip", "graph": "ring"}}
MASKED: dict[str, Any] = {"algorithm": WHOLE, "participation": CROWD, "secure_aggregation": {}}
NOISE = {"clip": 1000, "noise_multiplier": 1.0}
PRIVATE: dict[str, Any] = {"algorithm": WHOLE, "participation": CROWD, "privacy": NOISE}
SECRET: dict[str, Any] = {"algorithm": WHOLE, "privacy": NOISE | {"cohorts": "secret"}}


def test_parts_that_go_together_have_nothing_against_each_other() -> None:
    for changes in (MASKED, PRIVATE, SECRET, GOSSIP, MASKED | {"privacy": NOISE | {"mechanism": "distributed"}}):
        assert objection(Scenario(**SMALL | changes)) is None


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_refused_names_both_parts(seed: int) -> None:
    """That what is accepted runs is what `seedbus stress` tries."""
    choose = Chooser(seed, "objections")
    for _ in range(5):
        try:
            Scenario.model_validate(any_document(choose, seed))
        except ValidationError as error:
            found = error.errors()[0].get("ctx", {}).get("error")
            if isinstance(found, Objection):
                parts = [each.subject for each in (found.needer, found.other) if each is not None]
                assert all(part in str(found) for part in parts) and ("expected" in str(found) or "out" in str(found))


def test_what_is_said_to_be_accepted_is() -> None:
    said = str(refusal({"algorithm": {"name": "hiso"}, "participation": CROWD, "secure_aggregation": {}}))
    for name in ("decomfl", "fedscalar-shared"):
        assert name in said
        Scenario(**SMALL | MASKED | {"algorithm": WHOLE | {"name": name}})
    Scenario(**SMALL | MASKED | {"algorithm": UNITS})


def refusal(changes: dict[str, Any]) -> ScenarioError:
    with pytest.raises(ScenarioError) as refused:
        Scenario(**SMALL | changes)
    return refused.value


def test_the_page_has_what_the_parts_state_now() -> None:
    assert PAGE.read_text(encoding="utf-8") == combinations_page.page(), "run `make docs`"
