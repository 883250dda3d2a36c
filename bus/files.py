"""File operations in a folder whose content is not trusted: symbolic links in it are never followed.

The folder itself may be a link, because its user names it. A path in it that this program opens, creates, replaces or
removes must be a regular file: writing through a link would change a file elsewhere, and opening a pipe could block
forever. Otherwise `WrongFileType`, an `OSError`, names what is there instead.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from seedbus.bounded import LARGEST_TEXT, read_text

PRIVATE = 0o600
"""The mode of a file that is this user's alone."""
TEMPORARY = "seedbus-tmp-"  # how the names of temporary folders begin

MOST_TEXT = LARGEST_TEXT

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFREG: "a file",
}
# O_NONBLOCK: opening a pipe does not block. O_NOCTTY: a terminal does not become this process's controlling terminal.
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class WrongFileType(OSError):
    """A path that should be a regular file or a folder is something else."""

    def __init__(self, path: Path, found: str, expected: str) -> None:
        self.what = f"{path.name} is {found}; expected {expected}"
        super().__init__(errno.EEXIST, self.what, str(path))


class Untrusted(OSError):
    """A file that this process would trust, and that another user may change, or read though it is a secret.

    Attributes:
        found: what is wrong with it.
        remedy: what would be accepted.
    """

    def __init__(self, path: Path, found: str, remedy: str) -> None:
        self.found, self.remedy = found, remedy
        super().__init__(errno.EPERM, f"{found}; expected {remedy}", str(path))


def check_file(path: Path, *, is_written: bool = False) -> bool:
    """Return whether a regular file exists at `path`.

    Args:
        path: the file.
        is_written: whether the file is to be written in place; it must then have no other name (hard link).

    Raises:
        WrongFileType: something else is there, such as a symbolic link, even one to a regular file.
    """
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    _check(path, status, is_written)
    return True


def check_folder(path: Path) -> bool:
    """Return whether a folder exists at `path`.

    Raises:
        WrongFileType: something else is there, such as a symbolic link to a folder.
    """
    try:
        kind = stat.S_IFMT(path.lstat().st_mode)
    except FileNotFoundError:
        return False
    if kind != stat.S_IFDIR:
        raise WrongFileType(path, _KINDS.get(kind, "something else"), "a folder")
    return True


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Create a folder with a mode, and its parents, if they do not exist; the parents may be links.

    Raises:
        WrongFileType: something else is there.
    """
    path.mkdir(mode, parents=True, exist_ok=True)
    check_folder(path)


def descriptor(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open a regular file and return its descriptor.

    Args:
        path: the file.
        flags: as for `os.open`.
        mode: of a file that is created.

    Raises:
        WrongFileType: something else is there.
    """
    check_file(path)  # before opening, because opening a device may have side effects
    opened = os.open(path, flags & ~os.O_TRUNC | _FLAGS, mode)  # O_NOFOLLOW: it may have become a link meanwhile
    try:
        _check(path, os.fstat(opened), flags & os.O_ACCMODE != os.O_RDONLY)
        if flags & os.O_TRUNC:
            os.ftruncate(opened, 0)
    except BaseException:
        os.close(opened)
        raise
    return opened


def private(path: str, flags: int) -> int:
    """Open a regular file as `descriptor` does, this user's alone if it is created: an `opener` for `open`."""
    return descriptor(Path(path), flags, PRIVATE)


def read(path: Path, most: int | None = None) -> bytes:
    """Return the content of a regular file.

    Args:
        path: the file.
        most: how many bytes it may have, being a text; None: as many as it has, of any kind.

    Raises:
        WrongFileType: something else is there.
        OSError: it cannot be read, has more bytes, or is no text.
    """
    with open(path, "rb", opener=lambda _, flags: descriptor(path, flags)) as file:
        return file.read() if most is None else read_text(file, most)


def read_trusted(path: Path, most: int, *, is_secret: bool = False) -> bytes:
    """Return the content of a file that only this user and root can change, as OpenSSH does for its keys.

    Its user names it, so it may be a link; then the link's folder counts beside that of the file. Others may write into
    neither, unless nobody may replace the files of others there (the sticky bit, as /tmp has it).

    Args:
        path: the file.
        most: how many bytes it may have.
        is_secret: whether others may not even read it.

    Raises:
        WrongFileType: it is no regular file.
        Untrusted: others can change it, or read a secret.
        OSError: it cannot be read, or has more bytes.
    """
    target = path.resolve(strict=True)
    with open(descriptor(target, os.O_RDONLY), "rb") as file:
        _check_trusted(target, os.fstat(file.fileno()), 0o077 if is_secret else 0o022)
        for folder in dict.fromkeys([target.parent, path.absolute().parent]):
            status = folder.stat()
            _check_trusted(folder, status, 0 if status.st_mode & stat.S_ISVTX else 0o022)
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return content


@contextmanager
def atomic_write(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Write a file atomically: it appears under its name, synced to disk, once the block ends without an error.

    Args:
        path: the file.
        mode: its mode.

    Raises:
        WrongFileType: something other than a regular file has its name, or the name of the temporary file.
    """
    unfinished = path.parent / f"{path.name}.unfinished"
    check_file(path)  # renaming would replace a link safely; the check is for its error message
    remove(unfinished)  # left by a process that was killed
    # O_EXCL: a file that has appeared under this name meanwhile is not written into
    with open(descriptor(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync_folder(path.parent)


def whole_lines(path: Path) -> list[str]:
    """Return the lines of a file to which lines are appended, and cut off a last one of a process that was killed.

    Raises:
        WrongFileType: something else is there.
        OSError: it cannot be read or changed; a file that is missing has no lines.
    """
    if not check_file(path, is_written=True):
        return []
    content = read(path)
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
    return content[:whole].decode(errors="replace").splitlines()


def remove(path: Path) -> None:
    """Remove a regular file if it exists. Raises `WrongFileType` if something else is there."""
    if check_file(path):
        with suppress(FileNotFoundError):
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk: files that were created, renamed or removed in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def temporary_folder(place: str | None = None) -> Iterator[Path]:
    """Make a folder that only this user may enter, and remove it after the block.

    If this process is killed, the next one that makes such a folder removes it: a lock says which are in use.

    Args:
        place: where it is made; default: the system's folder for temporary files.
    """
    parent = Path(tempfile.gettempdir() if place is None else place)
    _remove_abandoned(parent)
    with ExitStack() as stack:
        is_ours = False
        while not is_ours:
            folder = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=parent))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            try:
                is_ours = _lock(folder, stack, fcntl.LOCK_EX)
            except FileNotFoundError:
                continue  # another process took it for abandoned before it was locked
            except OSError:
                break  # some network file systems have no such locks, and nobody removes it there
        yield folder


def _remove_abandoned(parent: Path) -> None:
    """Remove this user's temporary folders that no process has locked."""
    for folder in parent.glob(f"{TEMPORARY}*"):
        with suppress(OSError), ExitStack() as stack:  # another user's, or removed meanwhile
            if _lock(folder, stack, fcntl.LOCK_EX | fcntl.LOCK_NB):
                shutil.rmtree(folder, ignore_errors=True)


def _lock(folder: Path, stack: ExitStack, operation: int) -> bool:
    """Lock a folder until the end of a stack, and return whether it is still there and is this user's."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    stack.callback(os.close, opened)
    fcntl.flock(opened, operation)
    status = os.fstat(opened)
    return status.st_uid == os.geteuid() and os.path.samestat(status, os.lstat(folder))


def _check(path: Path, status: os.stat_result, is_written: bool) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise WrongFileType(path, _KINDS.get(kind, "something else"), "a file")
    if is_written and status.st_nlink > 1:  # an unpacked archive may contain hard links
        raise WrongFileType(path, "a file that has another name elsewhere (a hard link)", "a file of its own")


def _check_trusted(path: Path, status: os.stat_result, forbidden: int) -> None:
    """Raise `Untrusted` if a file or folder is another user's, or its mode has one of the forbidden bits."""
    is_folder, user = stat.S_ISDIR(status.st_mode), os.geteuid()
    what = f"its folder {path}" if is_folder else "it"
    if status.st_uid not in (0, user):
        remedy = f"one of user {user}, whose this process is, or of root: `chown {user} {path}`"
        raise Untrusted(path, f"{what} belongs to user {status.st_uid}", remedy)
    found = status.st_mode & forbidden
    if found:
        mode = f"(mode {status.st_mode & 0o777:o})"
        remedy = f"`chmod go-w {path}`" if is_folder else f"mode 600: `chmod 600 {path}`"
        raise Untrusted(path, f"others may {'write' if found & 0o022 else 'read'} {what} {mode}", remedy)
