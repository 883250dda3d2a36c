"""Each value that no call in Python accepts is named in a sentence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from mistake_files import Said, check
from worlds import TINY, go, scenario

import seedbus
from seedbus.agents.observer import NullObserver
from seedbus.plugin import check as check_plugin
from seedbus.plugin import load_plugin, register
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.tracking.tracker import TRACKERS


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


CIRCLE = list[Any]()
CIRCLE.append(CIRCLE)
KNOWN: dict[str, Any] = {name: getattr(seedbus, name) for name in seedbus.__all__} | {
    "CIRCLE": CIRCLE,
    "HALF": "\ud800",
    "NESTED": nested(100_000),
    "NullObserver": NullObserver,
    "Results": Results,
    "STUDY": {"name": "one", "base": "quickstart", "seeds": [1]},
    "TINY": TINY,
    "TRACKERS": TRACKERS,
    "check": check_plugin,
    "load_plugin": load_plugin,
    "math": math,
    "nested": nested,
    "register": register,
    "scenario": scenario,
}


def test_a_value_that_no_call_accepts_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.chdir(tmp_path)
    go(Path("finished"), scenario(stop={"rounds": 2}))

    def said(_: dict[str, Any], call: str) -> Said:
        with pytest.raises(ScenarioError) as raised:
            eval(call, KNOWN | {"finished": Path("finished")})
        told = [sentence.replace(f"{tmp_path}/", "") for sentence in raised.value.sentences]
        assert all(sentence.isprintable() for sentence in told)
        return told[0] if len(told) == 1 else told

    check("python/calls", said, pytestconfig.getoption("update"))
