"""Where a process looks for data: the directories in SEEDBUS_DATA, separated as in PATH.

A scenario may name folders and files, too; a user's own scenario may name any. A process that receives its scenario
from an untrusted server looks for them under `Roots` only. The invariant: a path that `Roots.locate` returns lies
inside a root after all links are resolved.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seedbus.models.errors import NotAllowed

_HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")


def own_roots() -> list[Path]:
    """Return the directories in SEEDBUS_DATA."""
    return [Path(root) for root in os.environ.get("SEEDBUS_DATA", "").split(os.pathsep) if root]


def own_folder(*names: str) -> Path | None:
    """Return the first folder of one of these names in the directories of SEEDBUS_DATA, or None."""
    return next((root / name for root in own_roots() for name in names if os.path.isdir(root / name)), None)


def searched(name: str) -> str:
    """Return where `own_folder` has looked for a folder, and found none, in words for an error message."""
    roots = own_roots()
    if not roots:
        return "no environment variable SEEDBUS_DATA"
    missing = [str(root) for root in roots if not os.path.isdir(root)]
    absent = f" (SEEDBUS_DATA names {' and '.join(missing)}, and there is no such folder)" if missing else ""
    return f"no folder {', '.join(str(root / name) for root in roots)}{absent}"


def is_model(path: str) -> bool:
    """Return whether a path is what a task may name as a model: a folder, or a GGUF file."""
    return os.path.isdir(path) or (path.endswith(".gguf") and os.path.isfile(path))


def locate(named: str, context: Mapping[str, Any] | None, is_there: Callable[[str], bool] = os.path.isdir) -> str:
    """Return the path of a file or folder that a scenario names: absolute if it is beside the scenario's file.

    Args:
        named: its path, as the scenario has it.
        context: of the scenario's validation: `folder`, in which the scenario's file is; and `roots`, in which the
            path must lie because the scenario was sent by a server.
        is_there: whether a path is what is looked for; `os.path.isfile` for a file.

    Raises:
        NotAllowed: the server names a path outside of the roots.
        ValueError: there is nothing of that name inside the roots.
    """
    roots: Roots | None = (context or {}).get("roots")
    if roots is not None:
        located = roots.locate(named, is_there)
        if located is None:
            noun = "file" if is_there is os.path.isfile else "folder"
            raise ValueError(f"there is no such {noun} in {', '.join(map(str, roots.folders))}")
        return str(located)
    folder = (context or {}).get("folder")
    beside = [] if folder is None else [Path(folder, name) for name in _names(named)]
    return next((str(path.absolute()) for path in beside if is_there(str(path))), named)


def public_or_none(
    named: str, context: Mapping[str, Any] | None, is_there: Callable[[str], bool] = os.path.isdir
) -> str | None:
    """Return what `locate` does, for a test set that only the process that evaluates needs to have.

    Where a server sends a name of what is not inside the roots, nothing is looked at, and it is None.
    """
    try:
        return locate(named, context, is_there)
    except (NotAllowed, ValueError):
        return None


def find(named: str, is_there: Callable[[str], bool] = os.path.isdir) -> Path | None:
    """Return the path of what `locate` returned: in a directory of SEEDBUS_DATA, or as it is; None if nowhere."""
    candidates = [*(root / name for name in _names(named) for root in own_roots()), Path(named)]
    if _IS_OF_GIVEN_RUN.get():
        candidates += map(Path, _names(named)[1:])
    return next((path for path in candidates if is_there(str(path))), None)


@contextmanager
def of_given_run() -> Iterator[None]:
    """Find files also by their bare names in the working directory: a run's digests tell if they are others."""
    token = _IS_OF_GIVEN_RUN.set(True)
    try:
        yield
    finally:
        _IS_OF_GIVEN_RUN.reset(token)


_IS_OF_GIVEN_RUN = ContextVar("is_of_given_run", default=False)


def _names(named: str) -> list[str]:
    """Return a path as it is; of an absolute one also its last part, for a scenario that somebody else has moved."""
    return [named, *([Path(named).name] if os.path.isabs(named) else [])]


@dataclass(frozen=True, slots=True)
class Roots:
    """The directories under which a scenario may name folders and files.

    Attributes:
        folders: the directories.
        published: names of models on the hub that a scenario may name as well.
    """

    folders: Sequence[Path]
    published: frozenset[str] = frozenset()

    def locate(self, named: str, is_there: Callable[[str], bool] = os.path.isdir) -> Path | None:
        """Return the folder that a scenario names, with links resolved; None if it does not exist inside the roots.

        Args:
            named: its path, absolute or relative to a root.
            is_there: whether a path is what is looked for; `os.path.isfile` for a file.

        Raises:
            NotAllowed: the path leads out of the roots, whether it exists or not.
        """
        if "\0" in named or named.startswith("~"):
            raise self._refusal(named)
        roots = [os.path.realpath(root) for root in self.folders]
        spelled = [*roots, *(os.path.abspath(root) for root in self.folders)]
        candidates = [os.path.normpath(os.path.join(root, named)) for root in roots]
        # links are followed inside the roots alone: to look at a path elsewhere may mount what it names
        followed = [os.path.realpath(path) for path in candidates if _is_inside(path, spelled)]
        inside = [path for path in followed if _is_inside(path, roots)]
        if not inside:
            raise self._refusal(named)
        return next((Path(path) for path in inside if is_there(path)), None)

    def model(self, named: str) -> str:
        """Return the path of a model, or a published name unchanged. Raises `NotAllowed` for anything else."""
        is_name = _HUB_NAME.fullmatch(named) is not None
        path = None if is_name and not self.folders else self.locate(named, is_model)
        if path is not None:
            return str(path)
        if not is_name or named not in self.published:  # answers for other names would reveal which folders exist
            raise self._refusal(named)
        return named

    def _refusal(self, named: str) -> NotAllowed:
        roots = ", ".join(map(str, self.folders)) or "none"
        return NotAllowed("the path", named, f"paths inside this process's own (SEEDBUS_DATA, --data): {roots}")


def _is_inside(path: str, folders: Sequence[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)
