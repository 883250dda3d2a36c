"""Arrays made from other files once, and then mapped into memory: all processes of a machine share one copy.

They lie in the cache as idx files, under names that say from what they were made: which files, of which size and time
of change, and by which recipe. Where the cache cannot be written they are kept in memory instead.

The invariant: what comes back is what `make` returns, whether it was made now, before, or by another process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seedbus.models.data import idx
from seedbus.models.data.roots import own_folder, own_roots
from seedbus.models.errors import DataError

Arrays = dict[str, NDArray[np.uint8]]


def prepared(recipe: str, sources: Sequence[Path], dimensions: dict[str, int], make: Callable[[], Arrays]) -> Arrays:
    """The arrays of `make` by name, read-only; it is called only where no process has prepared them before.

    recipe: what is made of the sources, and its settings. dimensions: of each array, by name. Raises what `make` does.
    """
    earlier = _read(recipe, sources, dimensions)
    if earlier is not None:
        return earlier
    made = make()
    with suppress(OSError, RuntimeError):  # a cache that is full, read-only, or nowhere
        for name, path in _paths(recipe, sources, made).items():
            idx.write(path, made[name])
            _forget_earlier(path)
    for array in made.values():
        array.flags.writeable = False
    return _read(recipe, sources, dimensions) or made


def data_folder(name: str, expected: str) -> Path:
    """The folder of that name where SEEDBUS_DATA points. Raises `DataError`, with what is expected to be in it."""
    folder = own_folder(name)
    if folder is None:
        looked = ", ".join(str(root / name) for root in own_roots())
        raise DataError(
            f"data set {name}",
            f"no folder {looked}" if looked else "no environment variable SEEDBUS_DATA",
            f"{expected}, in the folder {name}/ of the directory that SEEDBUS_DATA names",
        )
    return folder


def _read(recipe: str, sources: Sequence[Path], dimensions: dict[str, int]) -> Arrays | None:
    """What is in the cache, whole; else nothing."""
    with suppress(OSError, RuntimeError, DataError):
        paths = _paths(recipe, sources, dimensions)
        if all(path.is_file() for path in paths.values()):
            return {name: idx.read(path, dimensions[name]) for name, path in paths.items()}
    return None


def _paths(recipe: str, sources: Sequence[Path], names: Iterable[str]) -> dict[str, Path]:
    """Where the arrays lie: the first half of a name is what they are made of, the second the files' state today."""
    whence = [recipe, *(os.path.realpath(source) for source in sources)]
    status = [source.stat() for source in sources]
    state = [f"{each.st_size} {each.st_mtime_ns}" for each in status]
    prefix, suffix = _digest(whence), _digest(whence + state)
    return {name: idx.cache_folder() / "prepared" / f"{prefix}-{suffix}-{name}" for name in names}


def _forget_earlier(path: Path) -> None:
    """Remove what was made of the same files when they were others."""
    prefix, _, name = path.name.split("-", 2)
    for earlier in set(path.parent.glob(f"{prefix}-*-{name}")) - {path}:
        earlier.unlink(missing_ok=True)


def _digest(words: list[str]) -> str:
    return hashlib.sha256(os.fsencode("\0".join(words))).hexdigest()[:16]
