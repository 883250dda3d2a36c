"""Where a process looks for data: the directories that SEEDBUS_DATA names, separated as those of PATH.

A scenario may name folders, too. Whoever runs a scenario of their own may name any; a process that is sent a scenario
by a server that it does not trust looks for such folders under `Roots` alone. The invariant: what `Roots.locate`
returns lies inside a root once all links are followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seedbus.models.errors import NotAllowed

_HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")


def own_roots() -> list[Path]:
    """The directories that SEEDBUS_DATA names."""
    return [Path(root) for root in os.environ.get("SEEDBUS_DATA", "").split(os.pathsep) if root]


def own_folder(*names: str) -> Path | None:
    """The first folder of one of these names in one of the directories that SEEDBUS_DATA names."""
    return next((root / name for root in own_roots() for name in names if os.path.isdir(root / name)), None)


@dataclass(frozen=True, slots=True)
class Roots:
    """The directories under which a scenario may name folders. published: models that it may name otherwise."""

    folders: Sequence[Path]
    published: frozenset[str] = frozenset()

    def locate(self, named: str) -> Path | None:
        """The folder that a scenario names, without links; None: there is none inside the roots.

        Raises `NotAllowed` for what leads out of them, whether anything is there or not.
        """
        if "\0" in named or named.startswith("~"):
            raise self._refusal(named)
        roots = [os.path.realpath(root) for root in self.folders]
        candidates = [os.path.realpath(os.path.join(root, named)) for root in roots]
        inside = [path for path in candidates if any(Path(path).is_relative_to(root) for root in roots)]
        if not inside:
            raise self._refusal(named)
        return next((Path(path) for path in inside if os.path.isdir(path)), None)

    def model(self, named: str) -> str:
        """The folder of a model as text, or a name on the hub as it is. Raises `NotAllowed` for anything else."""
        is_name = _HUB_NAME.fullmatch(named) is not None
        folder = None if is_name and not self.folders else self.locate(named)
        if folder is not None:
            return str(folder)
        if not is_name or named not in self.published:  # of other names it would show what folders there are
            raise self._refusal(named)
        return named

    def _refusal(self, named: str) -> NotAllowed:
        roots = ", ".join(map(str, self.folders)) or "none"
        return NotAllowed("the folder", named, f"folders inside this process's own (SEEDBUS_DATA, --data): {roots}")
