"""The process that writes a run, found by a lock that others can see without taking it.

A run holds record locks on its file `running`, one byte for each thing that it says of itself. The system releases them
when the process ends, however it ends, and the system names the process that holds them. So no content of a file is
believed, and no pid is stale. Looking takes no lock and writes nothing.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from seedbus.bus.files import check_file, descriptor

RUNNING = "running"
_WRITES, _LISTENS = 0, 1  # the byte that is locked by a process that writes the run; by one that may be asked to stop
# the system's `struct flock`: type, whence, start, length and pid, in an order of its own
_IS_BSD = sys.platform == "darwin" or "bsd" in sys.platform
_FLOCK = struct.Struct("qqihh" if _IS_BSD else "hhqqi")


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that writes a run.

    Attributes:
        pid: its number; 0 if it is on another machine or in another container.
        listens: whether it stops after the round in progress when it gets SIGUSR1.
    """

    pid: int
    listens: bool


@contextmanager
def held(folder: Path, *, listens: bool) -> Iterator[None]:
    """Show that this process writes the run in a folder, which it has locked.

    Args:
        folder: the run's folder.
        listens: whether this process stops after the round in progress when it gets SIGUSR1.

    Raises:
        OSError: the file cannot be written.
    """
    path = folder / RUNNING
    # a process that closes the file anywhere loses its locks on it, so it is opened here and in `holder` only
    with open(descriptor(path, os.O_RDWR | os.O_CREAT), "rb+") as file:
        for byte in (_WRITES, *([_LISTENS] if listens else [])):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        try:
            yield
        finally:
            with suppress(OSError):  # that of a process that is killed stays, and nobody holds it
                path.unlink()


def holder(folder: Path) -> Holder | None:
    """Return the process that writes the run in a folder now; None if none does.

    A process does not see its own locks, and must not ask about a run that it writes itself.

    Raises:
        OSError: the file cannot be read, or is no regular file.
    """
    path = folder / RUNNING
    if not check_file(path):
        return None
    file = descriptor(path, os.O_RDONLY)
    try:
        pid = _holds(file, _WRITES)
        return None if pid is None else Holder(max(0, pid), _holds(file, _LISTENS) == pid)
    finally:
        os.close(file)


def _holds(file: int, byte: int) -> int | None:
    """Return the pid of the process that has locked a byte; None if none has."""
    kind, start = fcntl.F_RDLCK, byte
    asked = (start, 1, 0, kind, os.SEEK_SET) if _IS_BSD else (kind, os.SEEK_SET, start, 1, 0)
    answer = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, _FLOCK.pack(*asked)))
    kind, pid = (answer[3], answer[2]) if _IS_BSD else (answer[0], answer[4])
    return None if kind == fcntl.F_UNLCK else int(pid)
