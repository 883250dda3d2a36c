"""A file of the states that a pretrained model hands to its first trained block, for all processes of a machine.

A row of SST-2 takes 135 million weights some 50 ms, and each run of a study needs the same 2,000 or more. The file is
$SEEDBUS_CACHE/states/DIGEST.sqlite, where the digest is that of all on which the bits depend.

The invariants: states are returned only as they were computed, with their digest; and a file that is damaged, full,
locked or not writable costs time alone.
"""

from __future__ import annotations

import hashlib
import platform
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import Tensor

from seedbus.models.data.idx import cache_folder
from seedbus.versions import processor, version

MOST_BYTES = 4 << 30
"""Of all files; once they are larger, those that were written to longest ago go, but for the one in use."""
_DIGEST = 16


class StatesFile:
    """Holds float32 [tokens, hidden] by a row's tokens, int64 [tokens] as bytes. For one thread, and many processes."""

    def __init__(self, path: Path) -> None:
        """Open or make the file."""
        self._path = path
        self._room = 0  # bytes that may still be added
        self._database: sqlite3.Connection | None = None
        with suppress(OSError, RuntimeError):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._room = MOST_BYTES - _make_room(path)
            with self._costs_time_alone():
                # of one thread at a time: what is checked at the start is another than the one that computes
                self._database = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
                self._database.execute("pragma journal_mode = wal")
                self._database.execute("pragma synchronous = off")
                self._database.execute(
                    "create table if not exists states (key blob primary key, digest blob, states blob)"
                )

    def get(self, key: bytes) -> Tensor | None:
        """Return the states under a key; None: there are none."""
        found = None
        with self._costs_time_alone():
            if self._database is not None:
                query = "select digest, states from states where key = ?"
                found = self._database.execute(query, (key,)).fetchone()
        if found is None or not isinstance(found[1], bytes) or found[0] != _digest(key, found[1]):
            return None
        return torch.frombuffer(bytearray(found[1]), dtype=torch.float32).view(len(key) // 8, -1)

    def put(self, key: bytes, states: Tensor) -> None:
        """Keep states under a key, in the place of others."""
        self._room -= len(key) + states.nbytes
        if self._database is not None and states.dtype is torch.float32 and self._room >= 0:
            data = states.numpy().tobytes()
            with self._costs_time_alone():
                self._database.execute(
                    "insert or replace into states values (?, ?, ?)", (key, _digest(key, data), data)
                )

    def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            self._database.close()

    @contextmanager
    def _costs_time_alone(self) -> Iterator[None]:
        """Go on without the file where it fails; a damaged one is deleted, so that the next process begins another."""
        try:
            yield
        except sqlite3.OperationalError:  # it is locked for long, or the disk is full
            self._database = None
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            self._database = None
            _delete(self._path)


def states_path(digest: bytes) -> Path:
    """Return the path of the file for a digest of the frozen weights, their precision and which block is the first.

    The other facts that decide the bits on a processor are added: its instructions, the number of threads, libraries.
    """
    facts = (
        platform.machine(),
        processor(),
        torch.backends.cpu.get_cpu_capability(),
        torch.get_num_threads(),
        torch.__version__,
        version("transformers"),
    )
    name = hashlib.blake2b(digest + repr(facts).encode(), digest_size=_DIGEST).hexdigest()
    return cache_folder() / "states" / f"{name}.sqlite"


def _digest(key: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, key=hashlib.blake2b(key).digest(), digest_size=_DIGEST).digest()


def _make_room(path: Path) -> int:
    """Delete other files, those of the longest ago first, until all take at most `MOST_BYTES`; return this one's."""
    found: list[tuple[bool, float, int, Path]] = []
    for file in path.parent.glob("*.sqlite"):
        with suppress(OSError):  # another process deletes, too
            status = file.stat()
            found.append((file != path, -status.st_mtime, status.st_size, file))
    total = own = 0
    for is_other, _, size, file in sorted(found):
        total += size
        own += 0 if is_other else size
        if total > MOST_BYTES and is_other:
            _delete(file)
    return own


def _delete(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):  # with what SQLite keeps beside it
        file.unlink(missing_ok=True)
