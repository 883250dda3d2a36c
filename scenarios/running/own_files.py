"""The owners' files that a process has read: whether they have changed since, of which their owner is told once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from seedbus.bus.clock import wall_seconds

EVERY_S = 10.0  # from one look to the next, at least
_SHARE = 100  # a look takes this part of the time at most
_Files = dict[str, tuple[int, int, int]]


class OwnFiles:
    """Files, and what is in folders, as they were when a process was about to read them.

    Args:
        places: the files and folders.
        note: is told of an event of the process.
    """

    def __init__(self, places: Iterable[Path], note: Callable[..., None]) -> None:
        self._places = list(places)
        self._note = note
        self._files = self._found()
        self._next_s = wall_seconds() + EVERY_S
        self._has_told = False

    def look(self) -> None:
        """Tell of files that have changed, if it is time to look."""
        began_s = wall_seconds()
        if self._has_told or began_s < self._next_s:
            return
        now = self._found()
        changed = sorted(name for name in now.keys() | self._files.keys() if now.get(name) != self._files.get(name))
        if changed:
            self._has_told = True
            first, *others = changed
            beside = {"others": len(others)} if others else {}
            self._note("data changed", file=first, **beside, effect="none: the run goes on with what was read at first")
        ended_s = wall_seconds()
        self._next_s = ended_s + max(EVERY_S, _SHARE * (ended_s - began_s))

    def _found(self) -> _Files:
        files = _Files()
        for name in (name for place in self._places for name in _files_of(place)):
            with suppress(OSError):  # it is gone
                status = os.stat(name)
                files[name] = status.st_size, status.st_mtime_ns, status.st_ino
        return files


def _files_of(place: Path) -> Iterator[str]:
    if not place.is_dir():
        yield str(place)
    for folder, _, names in os.walk(place):
        yield from (os.path.join(folder, name) for name in names)
