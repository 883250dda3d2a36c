"""Names of scenarios by the settings in which they differ, such as `hiso, drop 0.1` and `decomfl, drop 0.3`.

A setting is named by its last part: `learning_rate 0.01`. Parts that bear a name, such as an algorithm or a fault, are
named by it; the fields of two algorithms are not compared with each other. The one setting of a fault needs no name but
the fault's: `drop 0.1`. Where a section is not set, the name says so: `no mask`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from seedbus.bus.text import printable
from seedbus.scenarios.schema.scenario import Scenario

TAGS = ("name", "kind", "fault", "distribution", "rule", "policy", "method")
"""The fields that hold the name of a part."""
MAX_LEAVES = 3  # in a scenario's name, unless it takes more to tell it from the others
_MAX_CHARACTERS = 30  # of a setting's value
_ABSENT = object()
_IDLE = object()


class Leaf(NamedTuple):
    """A setting in which a scenario differs from others.

    Attributes:
        path: the field's path in the scenario, as `--set` takes it.
        parts: the words that name it, the last one most important; empty for a part's own name.
        value: its value as text.
    """

    path: str
    parts: tuple[str, ...]
    value: str

    def named(self, count: int) -> str:
        """Return the setting's name of at most `count` words, and its value."""
        return " ".join([*self.parts[-count:], self.value])


def settings_of(scenario: Scenario) -> dict[str, Any]:
    """Return all fields of a scenario for `names`, which does not compare those that mean nothing in their fault."""
    fields = scenario.resolved()
    for fault, entry in zip(scenario.faults, fields.get("faults", []), strict=True):
        for name in fault.idle_fields:
            if getattr(fault, name) == type(fault).model_fields[name].default:
                entry[name] = _IDLE
    return fields


def names(scenarios: Sequence[dict[str, Any]], ignored: Sequence[str] = ()) -> list[str]:
    """Return a name for each scenario that tells it from the others; "" where nothing differs.

    Args:
        scenarios: all fields of each, as `settings_of` returns them.
        ignored: fields of a scenario whose differences do not count.
    """
    kept = [{name: value for name, value in each.items() if name not in ignored} for each in scenarios]
    # which plug-ins are used follows from other settings; only where all of those are equal does a digest say something
    found = differences([{name: value for name, value in each.items() if name != "plugins"} for each in kept])
    if not any(found):
        found = differences(kept)
    paths: dict[str, set[str]] = {}
    for leaf in (leaf for leaves in found for leaf in leaves if leaf.parts):
        paths.setdefault(leaf.parts[-1], set()).add(leaf.path)
    scenario_names = []
    for leaves in found:
        # a last part that stands for two fields is named with the part before it
        counts = [2 if leaf.parts and len(paths[leaf.parts[-1]]) > 1 else 1 for leaf in leaves]
        settings = [leaf.named(count) for leaf, count in zip(leaves, counts, strict=True)]
        more = ["…"] if len(leaves) > MAX_LEAVES else []
        scenario_names.append(", ".join([*settings[:MAX_LEAVES], *more]))
    return _told_apart(scenario_names, kept)


def _told_apart(found: list[str], scenarios: Sequence[dict[str, Any]]) -> list[str]:
    """Add to equal names the settings in which their scenarios differ from each other."""
    alike: dict[str, list[int]] = {}
    for index, name in enumerate(found):
        alike.setdefault(name, []).append(index)
    for name, group in alike.items():
        if 1 < len(group) < len(found):  # of fewer scenarios other settings are the first that differ
            for index, more in zip(group, names([scenarios[index] for index in group]), strict=True):
                found[index] = f"{name}, {more}" if more else name
    return found


def differences(scenarios: Sequence[Any]) -> list[list[Leaf]]:
    """Return for each scenario the settings in which it differs from any of the others."""
    found: list[list[Leaf]] = [[] for _ in scenarios]
    for index, leaf in _differing(list(enumerate(scenarios)), "", ()):
        found[index].append(leaf)
    return found


def _differing(values: list[tuple[int, Any]], path: str, parts: tuple[str, ...]) -> Iterator[tuple[int, Leaf]]:
    """Yield (index, leaf) of values, each with its scenario's index, that stand at the same path."""
    values = [(index, value) for index, value in values if value is not _IDLE]
    if all(value == values[0][1] for _, value in values):
        return
    if all(isinstance(value, dict) for _, value in values):
        yield from _of_mappings(values, path, parts)
    elif all(isinstance(value, list) and all(map(_tag, value)) for _, value in values):
        yield from _of_lists(values, path, parts)
    elif all(_is_unset(value) or isinstance(value, dict) for _, value in values):
        yield from _of_sections(values, path, parts)
    else:
        for index, value in values:
            yield index, Leaf(path, parts, _text(value))


def _of_sections(values: list[tuple[int, Any]], path: str, parts: tuple[str, ...]) -> Iterator[tuple[int, Leaf]]:
    """A section that some scenarios do not have, such as `mask`: the others are named by their differences."""
    inner = list(_differing([(index, value) for index, value in values if not _is_unset(value)], path, parts))
    yield from inner
    named = {index for index, _ in inner}
    for index, value in values:
        if index not in named:
            yield index, Leaf(path, (), f"no {parts[-1]}" if _is_unset(value) else _tag(value) or parts[-1])


def _is_unset(value: Any) -> bool:
    return value is None or value is _ABSENT


def _of_mappings(values: list[tuple[int, Any]], path: str, parts: tuple[str, ...]) -> Iterator[tuple[int, Leaf]]:
    tags = {index: _tag(value) if path else None for index, value in values}
    alike: dict[str | None, list[tuple[int, Any]]] = {}
    for index, value in values:
        alike.setdefault(tags[index], []).append((index, value))
    for tag, group in alike.items():
        if len(alike) > 1:
            for index, _ in group:
                yield index, Leaf(path, (), str(tag))
        for key in dict.fromkeys(key for _, value in group for key in value):
            at_key = [(index, value.get(key, _ABSENT)) for index, value in group]
            yield from _differing(at_key, f"{path}.{key}" if path else key, (*parts, key))


def _of_lists(values: list[tuple[int, Any]], path: str, parts: tuple[str, ...]) -> Iterator[tuple[int, Leaf]]:
    """Lists of parts with names, such as faults: those with the same names in the same order are compared in turn."""
    alike: dict[tuple[str | None, ...], list[tuple[int, Any]]] = {}
    for index, value in values:
        alike.setdefault(tuple(map(_tag, value)), []).append((index, value))
    for tags, group in alike.items():
        entries = [[(index, value[number]) for index, value in group] for number in range(len(tags))]
        inner = [
            list(_differing(entry, f"{path}.{number}", (str(tag),)))
            for number, (tag, entry) in enumerate(zip(tags, entries, strict=True))
        ]
        if len(alike) > 1 and not (inner and all(inner)):  # an entry that differs is named by its differences
            for index, _ in group:
                yield index, Leaf(path, (), " + ".join(map(str, tags)) or f"no {parts[-1] if parts else path}")
        for tag, leaves in zip(tags, inner, strict=True):
            is_only = len({leaf.path for _, leaf in leaves}) == 1
            for index, leaf in leaves:
                yield index, leaf._replace(parts=(str(tag),)) if is_only else leaf


def _tag(value: Any) -> str | None:
    """Return the name of a part; None if it has none."""
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in TAGS if isinstance(value.get(name), str)), None)


def _text(value: Any) -> str:
    text = "–" if value is _ABSENT else value if isinstance(value, str) else json.dumps(value)
    return printable(text, _MAX_CHARACTERS + 1)
