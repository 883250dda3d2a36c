"""The command `seedbus` where nothing is installed but its core: `python core_alone.py run quickstart`.

Of what the quickstart's digits need, scikit-learn, the files are there, but it cannot be imported. At the end a line on
stderr names the core's packages that were imported.
"""

from __future__ import annotations

import atexit
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from types import ModuleType
from typing import ClassVar

IMPORTED = "imported of the core: "


def _name(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


def core() -> set[str]:
    """Return the distributions that Seedbus requires without an extra, and what these require."""
    found, left = {"seedbus"}, ["seedbus"]
    while left:
        try:
            lines = requires(left.pop()) or []
        except PackageNotFoundError:  # for another system or version of Python
            continue
        needed = {_name(re.split(r"[^\w.-]", line)[0]) for line in lines if "extra ==" not in line}
        left += needed - found
        found |= needed
    return found


class CoreAlone(PathFinder):
    """Finds no module of a distribution that is not of the core."""

    blocked: ClassVar[set[str]] = set()

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in cls.blocked:
            return super().find_spec(fullname, path, target)
        found = super().find_spec(fullname, path, target) if fullname == "sklearn" else None
        return None if found is None else ModuleSpec(fullname, None, origin=found.origin)


def _tell(required: set[str]) -> None:
    homes = packages_distributions()
    found = {_name(each) for module in list(sys.modules) for each in homes.get(module, ())}
    sys.stderr.write(IMPORTED + " ".join(sorted(found & required)) + "\n")


if __name__ == "__main__":
    direct = {_name(re.split(r"[^\w.-]", line)[0]) for line in requires("seedbus") or () if "extra ==" not in line}
    allowed, homes = core(), packages_distributions()
    CoreAlone.blocked = {name for name, of in homes.items() if not {_name(each) for each in of} & allowed}
    sys.meta_path[sys.meta_path.index(PathFinder)] = CoreAlone
    atexit.register(_tell, direct)
    from seedbus.__main__ import main

    main()
