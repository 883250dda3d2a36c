"""Files in a folder that somebody else may have filled: they are opened, made and replaced, but no link is followed.

The folder that a user names may itself be a link. What has the name of one of our files in it must be a regular file:
a link would take what is written to where it points, a pipe would keep a process waiting for ever. `Misplaced`, an
`OSError`, names what was found instead.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFREG: "a file",
}
# a pipe is not waited for, and a terminal does not become that of this process
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Misplaced(OSError):
    """Something else is where a file or a folder of ours belongs."""

    def __init__(self, path: Path, found: str, expected: str) -> None:
        self.what = f"{path.name} is {found}; expected {expected}"
        super().__init__(errno.EEXIST, self.what, str(path))


def check_file(path: Path, *, is_written: bool = False) -> bool:
    """Whether there is a file of that name. Raises `Misplaced` if something else has it, a link to a file too.

    is_written: it is to be written in place, and so may have no other name.
    """
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    _check(path, status, is_written)
    return True


def check_folder(path: Path) -> bool:
    """Whether there is a folder of that name, and no link to one. Raises `Misplaced`."""
    try:
        kind = stat.S_IFMT(path.lstat().st_mode)
    except FileNotFoundError:
        return False
    if kind != stat.S_IFDIR:
        raise Misplaced(path, _KINDS.get(kind, "something else"), "a folder")
    return True


def make_folder(path: Path) -> None:
    """A folder that is there afterwards. Raises `Misplaced`; its parents may be links."""
    path.mkdir(parents=True, exist_ok=True)
    check_folder(path)


def descriptor(path: Path, flags: int) -> int:
    """A regular file, opened. flags: as for `os.open`. Raises `Misplaced`."""
    check_file(path)  # before it is opened, for to open a device may have effects of its own
    opened = os.open(path, flags & ~os.O_TRUNC | _FLAGS, 0o666)  # O_NOFOLLOW: it may have become a link since
    try:
        _check(path, os.fstat(opened), flags & os.O_ACCMODE != os.O_RDONLY)
        if flags & os.O_TRUNC:
            os.ftruncate(opened, 0)
    except BaseException:
        os.close(opened)
        raise
    return opened


def read(path: Path) -> bytes:
    """All of a regular file. Raises `Misplaced`."""
    with open(descriptor(path, os.O_RDONLY), "rb") as file:
        return file.read()


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write; it gets its name, and is on the disk, once all of it is written. Raises `Misplaced`."""
    unfinished = path.parent / f"{path.name}.unfinished"
    check_file(path)  # the new name would replace a link and not follow it: this is for the sentence
    remove(unfinished)  # of a process that was killed
    # O_EXCL: whatever else has taken the name meanwhile is not written into
    with open(descriptor(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove a regular file, if it is there. Raises `Misplaced`."""
    if check_file(path):
        with suppress(FileNotFoundError):
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder as durable as what they name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check(path: Path, status: os.stat_result, is_written: bool) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise Misplaced(path, _KINDS.get(kind, "something else"), "a file")
    if is_written and status.st_nlink > 1:  # an unpacked archive can hold links of this kind too
        raise Misplaced(path, "a file that has another name elsewhere (a hard link)", "a file of its own")
