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
    for number, place in enumerate(places):
        for path in sorted(_files(place)):
            try:
                status = os.stat(path)
            except OSError as error:
                raise DataError(str(path), f"a file that cannot be read ({error.strerror})", "a file") from None
            name = f"{number}/{path.relative_to(place)}"
            state.append((str(path), name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    return _digest(tuple(state))


def _files(place: Path) -> Iterator[Path]:
    if not place.is_dir():
        yield place
    seen = set()
    for folder, folders, names in os.walk(place, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:
            folders.clear()  # a link leads back
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))  # so that the same one is first
        yield from (Path(folder, name) for name in names if not name.startswith("."))


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
