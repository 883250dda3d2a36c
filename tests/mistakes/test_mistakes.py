"""Each mistake in a scenario or a study gets the sentence beside it in a file here; what is accepted has none.

`pytest tests/mistakes --update` writes what is said now into the files, and `git diff` shows what has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
import yaml
from mistake_files import FOLDER, Said, check, settings
from scenario_files import SMALL

from seedbus.scenarios.consent.sentences import consent
from seedbus.scenarios.consent.who_sees import who_sees
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.without_effect import caveats
from seedbus.studies.explain.words import words
from seedbus.studies.study.cells import plan_of

DOCUMENT: dict[str, Any] = yaml.safe_load(SMALL)
FILES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def explained(scenario: Scenario, usual: Scenario) -> list[str]:
    """Return what `seedbus explain` says in words of a scenario and not of the usual one, but for defaults."""
    known = set(chain(*words(usual).values()))
    said = chain(*words(scenario).values())
    return [sentence for sentence in said if sentence not in known and not sentence.startswith("default: ")]


def seen_otherwise(scenario: Scenario, usual: Scenario) -> list[str]:
    """Return who sees what of it in other words than of the usual one."""
    others = who_sees(usual)
    return [
        f"{viewer}: {matter}: {words}"
        for viewer, cells in who_sees(scenario).items()
        for matter, words in cells.items()
        if words != others[viewer][matter]
    ]


ACCEPTED: dict[str, Callable[[Scenario, Scenario], list[str]]] = {
    "without_effect": lambda scenario, _: caveats(scenario),
    "explained": explained,
    "consent": lambda scenario, _: [f"{topic}: {sentence}" for topic, sentence in consent(scenario).items()],
    "who_sees": seen_otherwise,
}
"""What is told of scenarios that are accepted, by the file."""


def study(fields: list[str]) -> dict[str, Any]:
    """Return a study with these fields, in YAML; those of `base` change the small scenario, and null leaves one out."""
    given: dict[str, Any] = {"base": {}}
    for each in fields:
        given |= yaml.safe_load(each)
    base = given["base"]
    return {
        name: DOCUMENT | base if name == "base" and isinstance(base, dict) else value
        for name, value in given.items()
        if value is not None
    }


def said(file: str, block: dict[str, Any], typed: str) -> Said:
    """Return what is wrong with the scenario of a row, or in some files what is told of one that is accepted."""
    told: list[str] = []
    try:
        if file == "studies":
            plan_of(study(settings(block, typed)))
        else:
            scenario = load(DOCUMENT, settings(block, typed))
            told = ACCEPTED[file](scenario, load(DOCUMENT, block.get("set"))) if file in ACCEPTED else []
    except ScenarioError as error:
        told = error.problems
    assert all(sentence.isprintable() for sentence in told)
    return told[0] if len(told) == 1 else told or None


@pytest.mark.parametrize("file", FILES)
def test_each_mistake_gets_its_sentence(file: str, pytestconfig: pytest.Config) -> None:
    check(file, lambda block, typed: said(file, block, typed), pytestconfig.getoption("update"))
