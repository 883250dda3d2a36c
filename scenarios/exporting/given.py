"""An archive that somebody gave: unpacked into a temporary folder under strict rules, and verified there.

Rules, each checked before a byte is unpacked: it ends with its directory, of less than `MOST_FILES` members; every
member is stored as it is, a regular file with the name of a run's file, and there once; together they are not larger
than the archive. So no name leads out of the folder, and no member is larger than what was given.
"""

from __future__ import annotations

import json
import re
import shutil
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.bounded import LARGEST_JSON
from seedbus.bus.errors import LedgerDamaged
from seedbus.bus.files import temporary_folder
from seedbus.bus.text import counted, printable
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.exporting.archive import MOST_FILES
from seedbus.scenarios.exporting.crate import (
    CONTENTS,
    LEDGER,
    METADATA,
    NEEDED,
    entities,
    file_of,
    made_with,
    members,
    metadata,
)
from seedbus.scenarios.running.verify import Verified, differing, verify

_END = struct.Struct("<4s4H2LH")  # signature, numbers of disks and entries, bytes and place of the directory, comment
_LOCATOR = 20  # bytes before it that say where the end of a ZIP64 archive is
_LEDGER = re.compile(rf"{LEDGER}/[0-9]{{6}}\.parquet")
_ENTRY = 46 + 64  # bytes of a directory's entry, with a name of a run's file


@dataclass(frozen=True)
class VerifiedArchive(Verified):
    """A run in an archive, compared with its journal, its ledger and what the archive says of itself.

    Attributes:
        files: how many files have the SHA-256 that the archive states.
        made_with: the versions and the processor of the run, in words; "": a file is another, so nothing was read.
    """

    files: int = 0
    made_with: str = ""

    @property
    def told(self) -> Sequence[str]:
        files = f"{counted(self.files, 'file')}, each with the SHA-256 that {METADATA} states"
        return [files, *([f"made with {self.made_with}"] if self.made_with else [])] if self.files else []


def verify_archive(path: Path) -> VerifiedArchive:
    """Compare what an archive shows with the journal and the ledger in it, as `verify` does for a run's folder.

    Raises:
        RunFolderError: it is no archive of a run, or one that no run was written as.
        JournalDamaged, LedgerDamaged, ScenarioError, DataError: as `verify`.
    """
    with unpacked(path) as folder, _named(path, folder):
        content = (folder / METADATA).read_bytes()
        try:
            shown = entities(json.loads(content, parse_int=str))
        except (ValueError, RecursionError):
            raise RunFolderError(path / METADATA, "it is no JSON") from None
        names = members(folder)
        stated = {name: _stated(shown.get(name)) for name in names}
        files = {name: file_of(folder, name) for name in names}
        wrong = differing(METADATA, stated, {name: _stated(each) for name, each in files.items()})
        if wrong:
            why = f"a file is not the one that {METADATA} names"
            return VerifiedArchive(wrong, 0, [], {"all else": why})
        found = verify(folder)
        given = VerifiedArchive(found.differences, found.recomputed, found.noted, found.unchecked, len(names))
        if found.differences:
            return given
        root = shown.get("./")
        date = root.get("datePublished") if isinstance(root, dict) else None
        right = entities(metadata(folder, date if isinstance(date, str) else ""))
        unchecked = {**found.unchecked, f"datePublished of {METADATA}": "nothing else tells when the run ended"}
        return replace(
            given,
            differences=differing(METADATA, shown, right),
            unchecked=unchecked,
            made_with=made_with(folder),
        )


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yield a temporary folder with the files of an archive of a run, and remove it.

    Raises:
        RunFolderError: a rule of this module is broken.
    """
    with temporary_folder() as folder:
        try:
            with open(path, "rb") as file:
                _unpack(path, file, folder)
        except (BadZipFile, NotImplementedError, EOFError, ValueError, OverflowError, OSError) as error:
            raise RunFolderError(path, f"it cannot be unpacked ({printable(str(error))})") from None
        yield folder


def _unpack(path: Path, file: BinaryIO, folder: Path) -> None:
    size = file.seek(0, 2)
    _check_end(path, file, size)
    with ZipFile(file) as archive:
        listed = archive.infolist()
        _check(path, listed, size)
        (folder / LEDGER).mkdir()
        for member in listed:
            with archive.open(member) as source, open(folder / member.orig_filename, "xb") as target:
                shutil.copyfileobj(source, target)


def _check_end(path: Path, file: BinaryIO, size: int) -> None:
    """Check the end of an archive, before Python's reader takes memory for what it announces."""
    file.seek(max(0, size - _END.size - _LOCATOR))
    tail = file.read()
    end = tail[-_END.size :]
    if not end.startswith(b"PK\x05\x06") or len(end) < _END.size:
        raise RunFolderError(path, "it does not end as a ZIP archive without a comment does; expected one of a run")
    _, disk, first, here, count, length, place, comment = _END.unpack(end)
    if count > MOST_FILES or length > MOST_FILES * _ENTRY:
        what = f"it announces {count:,} files, in a directory of {length:,} bytes"
        raise RunFolderError(path, f"{what}; at most {MOST_FILES:,} are read")
    has_another = tail[-_END.size - _LOCATOR :].startswith(b"PK\x06\x07")  # ZIP64's, which Python would believe
    if disk or first or comment or here != count or place + length + _END.size != size or has_another:
        raise RunFolderError(path, "its directory is not at its end, or not all of it; expected one file and no more")


def _check(path: Path, listed: list[ZipInfo], size: int) -> None:
    """Check the directory of an archive; size: the archive's bytes."""
    seen = set[str]()
    for member in listed:
        name = member.orig_filename
        if name not in CONTENTS and name != METADATA and not _LEDGER.fullmatch(name):
            raise RunFolderError(path, f"it holds {printable(json.dumps(name))}, which is no file of a run")
        what = _wrong(member)
        if name in seen or what:
            raise RunFolderError(path, f"{name}: it is {'there twice' if name in seen else what}")
        seen.add(name)
    if missing := [name for name in (METADATA, *NEEDED) if name not in seen]:
        raise RunFolderError(path, f"it has no {missing[0]}; expected what `seedbus export RUN zip` writes")
    if (total := sum(member.file_size for member in listed)) > size:
        raise RunFolderError(path, f"its files announce {total:,} bytes, and it has {size:,} itself")
    if next(member.file_size for member in listed if member.orig_filename == METADATA) > LARGEST_JSON:
        raise RunFolderError(path, f"{METADATA}: it is larger than {LARGEST_JSON:,} bytes")


def _wrong(member: ZipInfo) -> str:
    """Return what is wrong with a member that has the name of a run's file; "": nothing."""
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
        return "a link or something else that is no file"
    if member.extra:  # which may rename it, or place it anywhere
        return "described by further fields, which are not read"
    if member.flag_bits & 1:
        return "encrypted"
    if member.compress_type != ZIP_STORED or member.file_size != member.compress_size:
        return "compressed; expected it as it is"
    return ""


def _stated(entity: Any) -> Any:
    """Return what metadata state of a file's bytes."""
    return {name: entity.get(name) for name in ("contentSize", "sha256")} if isinstance(entity, dict) else None


@contextmanager
def _named(path: Path, folder: Path) -> Iterator[None]:
    """Have errors name a file in an archive, not where it is now; a command names where its user would unpack it."""
    try:
        yield
    except (JournalDamaged, RunFolderError) as error:
        error.path = Path(str(error.path).replace(str(folder), str(path)))
        if isinstance(error, RunFolderError):
            error.what = error.what.replace(str(folder), path.stem)
        raise
    except LedgerDamaged as error:
        error.path = error.path.replace(str(folder), str(path))
        raise
    except ScenarioError as error:
        error.source = error.source.replace(str(folder), str(path))
        error.problems = [problem.replace(str(folder), path.stem) for problem in error.problems]
        raise
