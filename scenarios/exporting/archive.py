"""A finished run as one ZIP archive: the same files give the same bytes, whatever machine writes it.

So its members are sorted, stored without compression (libraries compress differently, and a member cannot be larger
than its archive), all of one date, and nothing of the machine is in it. The day on which the run ended is that of the
file `results.json`: nothing else tells it.
"""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.file import FILE as JOURNAL
from seedbus.bus.files import atomic_write, check_file, temporary_folder
from seedbus.scenarios.exporting.crate import LEDGER, METADATA, NEEDED, chunks, members, metadata, text_of
from seedbus.scenarios.run_folder import RESULTS, resuming, scenario_of

MOST_FILES = 10_000
MOST_BYTES = 2**31 - 2**24  # with its directory; a larger archive has other headers, which other programs may not read
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that the format has


def write_archive(run: Path, path: Path) -> int:
    """Write a finished run as an archive; return how many files of the run it holds.

    Raises:
        RunFolderError: the run has not ended, is too large for an archive, or a file cannot be read or written.
        JournalDamaged, ScenarioError: the journal cannot be read.
    """
    scenario_of(run)
    if missing := [name for name in NEEDED if not (run / name).exists()]:
        raise RunFolderError(run, f"it has no {missing[0]}; `{resuming(run)}` writes what a finished run has")
    names = members(run)
    size = sum((run / name).lstat().st_size for name in names)
    if len(names) >= MOST_FILES or size > MOST_BYTES:
        what = f"it has {len(names):,} files of {size:,} bytes"
        raise RunFolderError(run, f"{what}; an archive holds less than {MOST_FILES:,}, of {MOST_BYTES:,} at most")
    ended = datetime.fromtimestamp((run / RESULTS).lstat().st_mtime, UTC).date().isoformat()
    try:
        with _settled(run, names) as folder, atomic_write(path) as file, ZipFile(file, "w", ZIP_STORED) as archive:
            _add(archive, METADATA, [text_of(metadata(folder, ended))])
            for name in names:
                _add(archive, name, chunks(folder / name))
    except OSError as error:
        raise RunFolderError(path, f"the archive cannot be written ({error.strerror})") from None
    return len(names)


@contextmanager
def _settled(run: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield a folder with these files, whose journal is whole: a copy, where a kill has left a part of it beside it."""
    beside = f"{JOURNAL}-wal"
    if not check_file(run / beside):
        yield run
        return
    with temporary_folder() as folder:
        (folder / LEDGER).mkdir()
        for name in (*names, beside):
            with open(folder / name, "xb") as file:
                file.writelines(chunks(run / name))
        with closing(sqlite3.connect(folder / JOURNAL)) as journal:
            journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        yield folder


def _add(archive: ZipFile, name: str, content: Iterable[bytes]) -> None:
    member = ZipInfo(name, _DATE)
    member.create_system, member.external_attr = 3, (stat.S_IFREG | 0o644) << 16
    with archive.open(member, "w") as file:
        for chunk in content:
            file.write(chunk)
