"""Arrays that are computed from other files once and then mapped into memory; all processes of a machine share a copy.

They are stored in the cache as idx files. Their names are digests of the recipe and of the source files, with size and
modification time. If the cache cannot be written, they are kept in memory instead.

The invariant: the result is what `make` returns, whether it is computed now, was before, or by another process.
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
from seedbus.models.data.roots import own_folder, searched
from seedbus.models.errors import DataError

Arrays = dict[str, NDArray[np.uint8]]


def prepared(recipe: str, sources: Sequence[Path], dimensions: dict[str, int], make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays of `make` by name, read-only; `make` is called only if they are not in the cache.

    Args:
        recipe: identifies the computation and its settings.
        sources: the files that the arrays are computed from.
        dimensions: number of dimensions of each array, by name.
        make: computes the arrays; its exceptions are passed on.
    """
    cached = _read(recipe, sources, dimensions)
    if cached is not None:
        return cached
    arrays = make()
    with suppress(OSError, RuntimeError):  # the cache is full or read-only, or there is no place for one
        for name, path in _paths(recipe, sources, arrays).items():
            idx.write(path, arrays[name])
            _remove_outdated(path)
    for array in arrays.values():
        array.flags.writeable = False
    return _read(recipe, sources, dimensions) or arrays


def data_folder(name: str, expected: str) -> Path:
    """Return the folder of that name in a directory of SEEDBUS_DATA.

    Args:
        name: the folder's name.
        expected: what the folder should contain, for the error message.

    Raises:
        DataError: there is no such folder.
    """
    folder = own_folder(name)
    if folder is None:
        raise DataError(
            f"data set {name}",
            searched(name),
            f"{expected}, in the folder {name}/ of the directory that SEEDBUS_DATA names",
        )
    return folder


def _read(recipe: str, sources: Sequence[Path], dimensions: dict[str, int]) -> Arrays | None:
    """Return the arrays from the cache, or None if they are not complete there."""
    with suppress(OSError, RuntimeError, DataError):
        paths = _paths(recipe, sources, dimensions)
        if all(path.is_file() for path in paths.values()):
            return {name: idx.read(path, dimensions[name]) for name, path in paths.items()}
    return None


def _paths(recipe: str, sources: Sequence[Path], names: Iterable[str]) -> dict[str, Path]:
    """Return the arrays' files: a name begins with a digest of recipe and sources, then one of the sources' state."""
    origin = [recipe, *(os.path.realpath(source) for source in sources)]
    status = [source.stat() for source in sources]
    state = [f"{each.st_size} {each.st_mtime_ns}" for each in status]
    prefix = _digest(origin)
    suffix = _digest(origin + state)
    return {name: idx.cache_folder() / "prepared" / f"{prefix}-{suffix}-{name}" for name in names}


def _remove_outdated(path: Path) -> None:
    """Remove arrays that were computed from earlier versions of the same files."""
    prefix, _, name = path.name.split("-", 2)
    for earlier in set(path.parent.glob(f"{prefix}-*-{name}")) - {path}:
        earlier.unlink(missing_ok=True)


def _digest(words: list[str]) -> str:
    return hashlib.sha256(os.fsencode("\0".join(words))).hexdigest()[:16]
