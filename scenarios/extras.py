"""Packages that only some commands need, and which extra of Seedbus brings each."""

from __future__ import annotations

import re
from collections import Counter
from importlib.util import find_spec

from seedbus.scenarios.errors import ScenarioError

_REQUIREMENT = re.compile(r"""([\w.-]+)[^;]*;.*extra == ["'](\w+)["']""")


def require(what: str, *packages: str) -> None:
    """Check that packages are installed, before work whose results need them. Raises `ScenarioError`: one is not."""
    for package in packages:
        if (sentence := missing(package)) is not None:
            raise ScenarioError(what, [sentence])


def missing(package: str) -> str | None:
    """Return the sentence about a package if it is not installed; None: it is."""
    return None if find_spec(package) else lacks(package) or f"{package} is not installed"


def lacks(package: str) -> str | None:
    """Return the sentence about a package that is not installed, or a module of it; None: no extra brings it."""
    name = package.partition(".")[0]
    extras = _extras().get(name)
    if extras is None:
        return None
    return f'{name} is not installed here; expected it after `pip install "seedbus[{extras}]"`'


def _extras() -> dict[str, str]:
    """Return by package the extra that brings it; of several the one that brings the least."""
    from importlib import metadata

    try:
        lines = metadata.requires("seedbus") or []
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        return {}
    found = [match.groups() for line in lines if (match := _REQUIREMENT.match(line))]
    brought = Counter(extra for _, extra in found)
    return {package: extra for package, extra in sorted(found, key=lambda each: -brought[each[1]]) if extra != "dev"}
