"""The page on what goes with what in a scenario, from what its parts state of themselves (seedbus/capabilities.py).

python benchmarks/combinations_page.py --write docs
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.gossip.settings import Gossip
from seedbus.agents.policies.deadline import Deadline
from seedbus.agents.policies.participation import Late, Participation
from seedbus.agents.policies.selection.selection import SELECTIONS
from seedbus.agents.privacy.settings import Privacy
from seedbus.agents.secure.settings import SecureAggregation
from seedbus.agents.server.stopping import Cadence, Stop
from seedbus.algorithms.aggregation.rules import RULES
from seedbus.bus import Compute
from seedbus.capabilities import Fact, Gives, Needs, RulesOut, Stated, Statement, examples, given
from seedbus.models.mask import Mask
from seedbus.models.partition import PARTITIONS
from seedbus.models.task import TASKS
from seedbus.scenarios.faults.base import FAULTS
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.scenarios.schema.scenario import Scenario

PAGE = "combinations.md"
KINDS = {
    "task": TASKS,
    "partition": PARTITIONS,
    "algorithm": ALGORITHMS,
    "aggregation": RULES,
    "selection": SELECTIONS,
    "fault": FAULTS,
}
NOISE: dict[str, Any] = {"clip": 1, "noise_multiplier": 1.0}
SECTIONS: tuple[tuple[str, Any], ...] = (
    ("mask", Mask(rule="gradient", density=0.5)),
    ("participation", Participation(clients=2, mode="stream")),
    ("participation.late", Late()),
    ("participation.deadline", Deadline()),
    ("topology", Gossip()),
    ("lag", Lag(snapshot_after_s=1.0)),
    ("secure_aggregation", SecureAggregation()),
    ("privacy", Privacy(mechanism="distributed", **NOISE)),
    ("privacy", Privacy(cohorts="secret", **NOISE)),
    ("compute", Compute()),
)
PLAIN: dict[str, Any] = {
    "seed_shift": True,
    "clock": "wall",
    "verify_every": 2,
    "evaluation": Cadence(split="train"),
    "stop": Stop(rounds=1, bytes=1, simulated_s=1.0, epsilon=1.0),
}
MOST = 8
"""So many names of one kind are told; of more, only those for which it is not so, if they are fewer."""
INTRODUCTION = """# What goes with what

A scenario's parts say what they need and what they rule out, and `seedbus` refuses a scenario in which one rules out
what another needs, with both reasons and with what is accepted. These are their words, as a table; settings that are
in brackets make the difference. Numbers have limits of their own, which [the reference](reference.md) and the refusals
tell.

| in the run | needed by | not so with |
|---|---|---|
"""


def stated() -> Iterator[tuple[str, str, Statement]]:
    """Yield a kind or "", the name of one of it or of a field, and what is stated of it."""
    for kind, variants in KINDS.items():
        for name, statements in examples(variants):
            yield from ((kind, name, each) for each in statements)
    for path, section in SECTIONS:
        yield from (("", _named(path, section, each.field), each) for each in section.capabilities())
    for field, value in PLAIN.items():
        yield from (("", name, each) for name, each in _beside(field, value))


def _named(path: str, section: Any, field: str) -> str:
    value = getattr(section, field) if field else None
    return (f"{path}.{field}" if field else path) + (f": {value}" if isinstance(value, str) else "")


def _beside(field: str, value: Any) -> Iterator[tuple[str, Statement]]:
    """Yield what is stated beside a field of the scenario with this value, with the path that it is about."""
    (found,) = (each for each in Scenario.model_fields[field].metadata if isinstance(each, Stated))
    for statement in found.by(value):
        inner = statement.field.removeprefix(".")
        yield _named(field, value, inner) if inner else f"{field}: {value}".replace("True", "true"), statement


def page() -> str:
    """Return the page."""
    return INTRODUCTION + "".join(f"| {' | '.join(row)} |\n" for row in needs_and_rulings(list(stated())))


GIVEN = given(Scenario)


def needs_and_rulings(all_stated: Sequence[tuple[str, str, Statement]]) -> Iterator[tuple[str, str, str]]:
    """Yield each fact that a part needs, which parts need it, and with which it is not so."""
    for fact in Fact:
        about = [(kind, name, each) for kind, name, each in all_stated if each.fact is fact]
        needing = _cell((kind, name) for kind, name, each in about if isinstance(each, Needs))
        lacking = _cell((kind, name) for kind, name, each in about if isinstance(each, RulesOut) and _holds(each))
        giving = [name for _, name, each in about if isinstance(each, Gives) and not GIVEN[fact].startswith(name)]
        if fact in GIVEN:
            lacking = "all but " + ", ".join(f"`{name}`" for name in (GIVEN[fact], *giving))
        if needing:
            yield fact.value, needing, lacking


def _holds(statement: Statement) -> bool:
    try:
        return statement.when()
    except Exception:  # it takes the user's data to know
        return False


def _cell(found: Iterable[tuple[str, str]]) -> str:
    by_kind = dict[str, dict[str, None]]()
    for kind, name in found:
        by_kind.setdefault(kind, {})[name] = None
    return "; ".join(_words(kind, list(names)) for kind, names in by_kind.items())


def _words(kind: str, names: list[str]) -> str:
    if not kind:
        return ", ".join(f"`{name}`" for name in names)
    own, others = _settings(names), _settings(name for name, _ in examples(KINDS[kind]) if name not in names)
    if len(own) > MOST and len(others) < len(own):
        return f"each {kind} but {_grouped(others)}"
    return f"{kind} {_grouped(own)}"


def _settings(names: Iterable[str]) -> dict[str, str]:
    """Return the first settings with which each is there."""
    found = dict[str, str]()
    for name in names:
        own, _, settings = name.partition(" with ")
        found.setdefault(own, settings)
    return found


def _grouped(found: dict[str, str]) -> str:
    groups = dict[str, list[str]]()
    for name, settings in found.items():
        groups.setdefault(settings, []).append(f"`{name}`")
    return ", ".join(", ".join(names) + (f" (`{settings}`)" if settings else "") for settings, names in groups.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", metavar="FOLDER", type=Path, help=f"write {PAGE} there")
    folder = parser.parse_args().write
    if folder is not None:
        (folder / PAGE).write_text(page(), encoding="utf-8")
    else:
        print(page())


if __name__ == "__main__":
    main()
