"""Archives that were written to do harm: each is refused with one sentence, and nothing of it is left on the disk."""

from __future__ import annotations

import hashlib
import json
import stat
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import pytest
from commands import Command
from worlds import lossy

from seedbus.scenarios.errors import Exit
from seedbus.scenarios.exporting.archive import write_archive
from seedbus.scenarios.exporting.crate import METADATA
from seedbus.scenarios.running.run import run

Files = dict[str, bytes]
END = 22  # bytes of the record at the end


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("made")
    write_archive(run(lossy(stop={"rounds": 3}), folder / "run").folder, folder / "run.zip")
    with ZipFile(folder / "run.zip") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def written(path: Path, files: Files, *more: tuple[ZipInfo | str, bytes], method: int = ZIP_STORED) -> bytearray:
    """Write an archive of these files, and more of any name; return its bytes."""
    with ZipFile(path, "w", method) as archive:
        for name, content in [*files.items(), *more]:
            archive.writestr(name, content)
    return bytearray(path.read_bytes())


def named(name: str, mode: int = stat.S_IFREG) -> ZipInfo:
    member = ZipInfo("x")
    member.filename = name  # as it is: the constructor would cut it at a NUL
    member.create_system, member.external_attr = 3, (mode | 0o644) << 16
    return member


def patched(path: Path, files: Files, change: Callable[[bytearray], object]) -> None:
    content = written(path, files)
    change(content)
    path.write_bytes(content)


def in_end(place: int, form: str, value: int) -> Callable[[bytearray], object]:
    """Return a change of a number in the record at the end of an archive."""
    return lambda content: struct.pack_into(form, content, len(content) - END + place, value)


def in_directory(place: int, form: str, value: int) -> Callable[[bytearray], object]:
    """Return a change of a number in the first entry of the directory."""
    return lambda content: struct.pack_into(form, content, content.index(b"PK\x01\x02") + place, value)


def truncated(path: Path, files: Files) -> None:
    path.write_bytes(written(path, files)[:-1])


def bomb(path: Path, files: Files) -> None:
    written(path, {**files, "report.html": bytes(2**24)}, method=ZIP_DEFLATED)


def crowd(path: Path, files: Files) -> None:
    with ZipFile(path, "w") as archive:
        for number in range(10_001):
            archive.writestr(f"messages/{number:06d}.parquet", b"")


def without(name: str) -> Callable[[Path, Files], object]:
    return lambda path, files: written(path, {each: content for each, content in files.items() if each != name})


def another_end(content: bytearray) -> None:
    """Say of another end where it is, as large archives do: Python would believe that one."""
    in_end(12, "<L", struct.unpack_from("<L", content, len(content) - END + 12)[0] + 20)(content)
    content[-END:-END] = b"PK\x06\x07" + bytes(16)


def renamed(path: Path, files: Files) -> None:
    member = named("report.html")
    name = b"/tmp/escaped"
    member.extra = struct.pack("<HHBL", 0x7075, 5 + len(name), 1, zlib.crc32(b"report.html")) + name
    written(path, {each: content for each, content in files.items() if each != "report.html"}, (member, b"x"))


def deep(path: Path, files: Files) -> None:
    written(path, {**files, METADATA: b"[" * 100_000})


OUT = "which is no file of a run"
HOSTILE: dict[str, tuple[Callable[[Path, Files], object], str]] = {
    "a name that leads out": (lambda path, files: written(path, files, ("../escaped", b"x")), f'"../escaped", {OUT}'),
    "one in the ledger's folder": (
        lambda path, files: written(path, files, ("messages/../../escaped.parquet", b"x")),
        OUT,
    ),
    "an absolute name": (lambda path, files: written(path, files, ("/tmp/escaped", b"x")), f'"/tmp/escaped", {OUT}'),
    "a backslash": (lambda path, files: written(path, files, (named("..\\escaped"), b"x")), OUT),
    "a control character": (lambda path, files: written(path, files, (named("a\x1b[2Jb"), b"x")), "\\u001b[2Jb"),
    "a name cut by NUL": (lambda path, files: written(path, files, (named("analysis.json\0x"), b"x")), OUT),
    "a folder": (lambda path, files: written(path, files, ("messages/", b"")), OUT),
    "another name in an extra field": (renamed, "report.html: it is described by further fields, which are not read"),
    "a symbolic link": (
        lambda path, files: written(path, files, (named("analysis.json", stat.S_IFLNK), b"/etc/passwd")),
        "analysis.json: it is a link or something else that is no file",
    ),
    "a pipe": (
        lambda path, files: written(path, files, (named("analysis.json", stat.S_IFIFO), b"")),
        "analysis.json: it is a link or something else that is no file",
    ),
    "compressed zeros": (bomb, "it is compressed; expected it as it is"),
    "a million files announced": (
        lambda path, files: patched(path, files, in_end(10, "<H", 65_535)),
        "it announces 65,535 files",
    ),
    "a directory of 4 GB announced": (
        lambda path, files: patched(path, files, in_end(12, "<L", 2**32 - 1)),
        "in a directory of 4,294,967,295 bytes; at most 10,000 are read",
    ),
    "too many files": (crowd, "it announces 10,001 files"),
    "fewer announced than there are": (
        lambda path, files: patched(path, files, in_end(8, "<H", 1)),
        "its directory is not at its end, or not all of it",
    ),
    "an end of a larger archive": (
        lambda path, files: patched(path, files, another_end),
        "its directory is not at its end, or not all of it",
    ),
    "something before it": (
        lambda path, files: path.write_bytes(b"#!/bin/sh\n" + written(path, files)),
        "its directory is not at its end, or not all of it",
    ),
    "something after it": (
        lambda path, files: path.write_bytes(written(path, files) + b"x"),
        "it does not end as a ZIP archive without a comment does",
    ),
    "no archive": (lambda path, _: path.write_bytes(b"x"), "it does not end as a ZIP archive"),
    "its end cut off": (truncated, "it does not end as a ZIP archive"),
    "a file twice": (
        lambda path, files: written(path, files, (named("results.json"), b"{}")),
        "results.json: it is there twice",
    ),
    "encrypted": (lambda path, files: patched(path, files, in_directory(8, "<H", 1)), "it is encrypted"),
    "a size that is not there": (
        lambda path, files: patched(
            path, files, lambda content: [in_directory(place, "<L", 2**31)(content) for place in (20, 24)]
        ),
        "its files announce 2,1",
    ),
    "a wrong checksum": (
        lambda path, files: patched(path, files, in_directory(16, "<L", 7)),
        "it cannot be unpacked (Bad CRC-32",
    ),
    "no journal": (without("journal.sqlite"), "it has no journal.sqlite; expected what `seedbus export"),
    "no metadata": (without(METADATA), f"it has no {METADATA}"),
    "metadata too deep": (deep, f"{METADATA}: it is no JSON"),
    "metadata too large": (
        lambda path, files: written(path, {**files, METADATA: bytes(2**24 + 1)}),
        f"{METADATA}: it is larger than 16,777,216 bytes",
    ),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_one_sentence_and_leaves_nothing(
    seedbus: Command, tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    write, what = HOSTILE[case]
    path, room = tmp_path / "in" / "given.zip", tmp_path / "in" / "room"
    room.mkdir(parents=True)
    write(path, files)
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    said = seedbus("verify", path)
    assert (said.code, said.out) == (Exit.FOLDER, "")
    assert said.err.startswith(f"seedbus: {path}") and said.err.count("\n") == 1 and "\x1b" not in said.err
    assert what in said.err
    assert {*path.parent.rglob("*")} == {path, room} and not [*tmp_path.glob("*escaped*")]


@pytest.mark.parametrize("content", [b"[]", b'{"@graph": 7}', b'{"@graph": [1, {"@id": []}, {"@id": "./"}]}', b"null"])
def test_metadata_of_another_form_differ_from_the_files(
    seedbus: Command, tmp_path: Path, files: Files, content: bytes
) -> None:
    written(tmp_path / "given.zip", {**files, METADATA: content})
    said = seedbus("verify", tmp_path / "given.zip")
    assert said.code == Exit.DIFFERS and f"{METADATA}: journal.head" in said.out


def test_results_of_another_form_are_named_with_a_command_for_where_they_would_be_unpacked(
    seedbus: Command, tmp_path: Path, files: Files
) -> None:
    metadata = json.loads(files[METADATA])
    of = next(each for each in metadata["@graph"] if each["@id"] == "results.json")
    of |= {"sha256": hashlib.sha256(b"[").hexdigest(), "contentSize": "1"}
    written(tmp_path / "given.zip", {**files, "results.json": b"[", METADATA: json.dumps(metadata).encode()})
    said = seedbus("verify", tmp_path / "given.zip")
    assert said.code == Exit.FOLDER and "given.zip/results.json: " in said.err and said.err.count("\n") == 1
    assert "--resume given`" in said.err and "seedbus-tmp" not in said.err


def test_a_damaged_journal_is_named_by_the_archive_and_not_by_where_it_was_unpacked(
    seedbus: Command, tmp_path: Path, files: Files
) -> None:
    journal = bytearray(files["journal.sqlite"])
    journal[:16] = bytes(16)
    metadata = json.loads(files[METADATA])
    next(each for each in metadata["@graph"] if each["@id"] == "journal.sqlite")["sha256"] = hashlib.sha256(
        journal
    ).hexdigest()
    written(
        tmp_path / "given.zip",
        {**files, "journal.sqlite": bytes(journal), METADATA: json.dumps(metadata).encode()},
    )
    said = seedbus("verify", tmp_path / "given.zip")
    assert said.code == Exit.FOLDER
    assert said.err.startswith(f"seedbus: {tmp_path / 'given.zip' / 'journal.sqlite'}: the journal is damaged")
