"""For every fault, lines of a scenario that have an effect, lines that have none, and lines that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

Line = dict[str, Any]


class Case(NamedTuple):
    """The lines with which one fault is tested.

    Attributes:
        strikes: name → (line, effect) of lines with an effect in `world`, which the results count under that word.
        idles: lines without intensity, which do not change a byte.
        world: further fields that the scenario needs.
        alters: whether the effect shows in the ledger.
    """

    strikes: dict[str, tuple[Line, str]]
    idles: list[Line]
    world: Line = {}  # noqa: RUF012
    alters: bool = True


DATA = Path(__file__).with_name("data")


def _line(written: Line) -> Line:
    """Return a line whose file, if it names one, lies in `DATA`."""
    return {name: str(DATA / value) if name == "file" else value for name, value in written.items()}


def _case(strikes: dict[str, tuple[Line, str]], idles: list[Line], **more: Any) -> Case:
    return Case({name: (_line(line), does) for name, (line, does) in strikes.items()}, [*map(_line, idles)], **more)


CASES = {name: _case(**fields) for name, fields in yaml.safe_load((DATA / "faults.yaml").read_text("utf-8")).items()}
"""A fault without a case fails the contract's first test."""


STRIKING = [
    pytest.param(name, {"fault": name} | line, does, id=f"{name}-{special}")
    for name, case in CASES.items()
    for special, (line, does) in case.strikes.items()
]
"""(fault, line, effect) of all lines with an effect, for parametrised tests."""

FIRST = [next(each for each in STRIKING if each.values[0] == name) for name in CASES]
"""The first line with an effect of every fault."""

OTHERS_IN_SOAK = [
    each if each in FIRST else pytest.param(*each.values, id=each.id, marks=pytest.mark.soak) for each in STRIKING
]
"""All of `STRIKING`, of which those that are not in `FIRST` belong to the soak suite."""

IDLING = [
    pytest.param(name, {"fault": name} | line, id=f"{name}-{number}")
    for name, case in CASES.items()
    for number, line in enumerate(case.idles)
]
"""(fault, line) of all lines without an effect."""
