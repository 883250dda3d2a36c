"""Each mistake in a scenario gets the sentence that stands beside it in a file here; what is accepted has none.

`pytest tests/mistakes --update` writes what is said now into the files, and `git diff` shows what has changed.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from mistake_files import FOLDER, Said, blocks, settings, written
from scenario_files import SMALL

from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.without_effect import caveats

DOCUMENT: dict[str, Any] = yaml.safe_load(SMALL)
FILES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def said(file: str, given: list[str]) -> Said:
    """Return what is wrong with a scenario, or in the file `without_effect` what is told of one that is accepted."""
    try:
        told = caveats(load(DOCUMENT, given)) if file == "without_effect" else load(DOCUMENT, given) and []
    except ScenarioError as error:
        told = error.problems
    assert all(sentence.isprintable() for sentence in told)
    return told[0] if len(told) == 1 else told or None


@pytest.mark.parametrize("file", FILES)
def test_each_mistake_gets_its_sentence(file: str, pytestconfig: pytest.Config) -> None:
    before = blocks(file)
    now = [each | {"rows": {typed: said(file, settings(each, typed)) for typed in each["rows"]}} for each in before]
    if pytestconfig.getoption("update"):
        (FOLDER / f"{file}.yaml").write_text(written(now), encoding="utf-8")
    for block, found in zip(before, now, strict=True):
        assert found["rows"] == block["rows"], block["about"]


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_as_it_is_written(file: str) -> None:
    assert (FOLDER / f"{file}.yaml").read_text(encoding="utf-8") == written(blocks(file)), "pytest --update"
