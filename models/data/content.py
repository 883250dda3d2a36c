"""A digest of files and folders of the user's own, which tells whether they have changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from seedbus.models.errors import DataError


def content_digest(places: Sequence[Path]) -> str:
    """Return 32 hexadecimal digits of the content of files and folders and of the names in the folders.

    Hidden files, whose names begin with a dot, are left out. Where the places are does not matter.

    Raises:
        DataError: a file cannot be read.
    """
    state = []
    for number, place in enumerate(map(str, places)):
        named = _files(place, f"{number}/", set()) if os.path.isdir(place) else [(place, f"{number}/.")]
        for path, name in named:
            try:
                status = os.stat(path)
            except OSError as error:
                raise DataError(path, f"a file that cannot be read ({error.strerror})", "a file") from None
            state.append((path, name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    return _digest(tuple(state))


def _files(folder: str, prefix: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    """Yield path and name of each file in a folder, by name. Paths are texts: there may be a million of them."""
    if (real := os.path.realpath(folder)) in seen:
        return  # a link leads back
    seen.add(real)
    try:
        with os.scandir(folder) as entries:
            found = sorted((entry.name, entry.is_dir()) for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(folder, f"a folder that cannot be read ({error.strerror})", "a folder") from None
    for name, is_folder in found:
        path = os.path.join(folder, name)
        if is_folder:
            yield from _files(path, f"{prefix}{name}/", seen)
        else:
            yield path, prefix + name


@lru_cache(maxsize=16)
def _digest(state: tuple[tuple[str, str, int, int, int, int], ...]) -> str:
    """Read the files, once until their state changes: a study asks for each of its runs."""
    digest = hashlib.blake2b(digest_size=16)
    for path, name, *_ in state:
        try:
            with open(path, "rb") as file:
                content = hashlib.file_digest(file, "blake2b").digest()
        except OSError as error:
            raise DataError(path, f"a file that cannot be read ({error.strerror})", "a file") from None
        digest.update(f"{name}\0".encode(errors="surrogateescape") + content)
    return digest.hexdigest()
