"""A run as an archive: the same bytes each time, all that a reviewer needs, and `verify` notices what was changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import pytest
from commands import Command
from worlds import lossy

from seedbus.scenarios.errors import Exit
from seedbus.scenarios.exporting.archive import write_archive
from seedbus.scenarios.exporting.crate import METADATA, text_of
from seedbus.scenarios.exporting.given import unpacked, verify_archive
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(lossy(stop={"rounds": 6}), tmp_path_factory.mktemp("made") / "run").folder


@pytest.fixture(scope="module")
def archive(made: Path) -> Path:
    write_archive(made, made.parent / "run.zip")
    return made.parent / "run.zip"


def rewritten(archive: Path, path: Path, **changed: bytes) -> Path:
    """Write an archive with other contents of some files."""
    with ZipFile(archive) as before, ZipFile(path, "w", ZIP_STORED) as after:
        for name in before.namelist():
            after.writestr(name, changed.get(name, before.read(name)))
    return path


def described(archive: Path) -> dict[str, Any]:
    with ZipFile(archive) as file:
        content: dict[str, Any] = json.loads(file.read(METADATA))
    return {each["@id"]: each for each in content["@graph"]}


def test_the_same_run_is_the_same_archive_wherever_its_folder_is(made: Path, archive: Path, tmp_path: Path) -> None:
    elsewhere = Path(shutil.copytree(made, tmp_path / "other"))
    (elsewhere / "lock").write_bytes(b"")
    os.utime(elsewhere / "journal.sqlite", (1, 1))
    write_archive(elsewhere, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()


def test_an_archive_is_verified_like_the_runs_folder_and_says_its_versions(
    seedbus: Command, made: Path, archive: Path
) -> None:
    said, of_folder = seedbus("verify", archive), seedbus("verify", made)
    assert (said.code, said.err, of_folder.code) == (Exit.OK, "", Exit.OK)
    lines, versions = said.out.splitlines(), Results.read(made).summary["versions"]
    assert lines[0] == f"8 files, each with the SHA-256 that {METADATA} states"
    assert lines[1].startswith("made with Seedbus ") and all(
        f"{name} {each}" in lines[1] for name, each in versions.items()
    )
    assert [line for line in lines if line.startswith("recomputed")] == of_folder.out.splitlines()[:1]


def test_an_archive_is_an_ro_crate_of_all_of_its_files(archive: Path) -> None:
    entities = described(archive)
    assert entities[METADATA]["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.2"}
    root = entities["./"]
    assert {"name", "description", "datePublished", "license"} <= root.keys() and root["@type"] == "Dataset"
    with ZipFile(archive) as file:
        files = {name for name in file.namelist() if name != METADATA}
        sizes = {info.filename: str(info.file_size) for info in file.infolist()}
    assert {each["@id"] for each in root["hasPart"]} == files
    assert all(entities[name]["contentSize"] == sizes[name] for name in files)
    assert {"scenario.yaml", "journal.sqlite", "results.json", "metrics.jsonl", "report.html"} <= files


def test_a_changed_file_is_named_with_both_digests(seedbus: Command, archive: Path, tmp_path: Path) -> None:
    with ZipFile(archive) as file:
        results = file.read("results.json").replace(b'"rounds": 6', b'"rounds": 7')
    given = rewritten(archive, tmp_path / "given.zip", **{"results.json": results})
    said = seedbus("verify", given)
    assert said.code == Exit.DIFFERS
    assert f"{METADATA}: results.json.sha256 is " in said.out and "; recomputed: " in said.out.splitlines()[0]
    assert f"not checked: all else (a file is not the one that {METADATA} names)" in said.out


@pytest.mark.parametrize(
    ("name", "before", "after", "field"),
    [
        ("results.json", b'"rounds": 6', b'"rounds": 7', "results.json: rounds is 7"),
        ("scenario.yaml", b"probability: 0.3", b"probability: 0.2", "scenario.yaml: faults.0.probability is 0.2"),
    ],
)
def test_whoever_changes_a_file_and_its_digest_is_found_by_the_journal(
    seedbus: Command, archive: Path, tmp_path: Path, name: str, before: bytes, after: bytes, field: str
) -> None:
    with ZipFile(archive) as file:
        content, metadata = file.read(name), json.loads(file.read(METADATA))
    assert before in content
    content = content.replace(before, after)
    for each in metadata["@graph"]:
        if each["@id"] == name:
            each["sha256"] = hashlib.sha256(content).hexdigest()
    given = rewritten(archive, tmp_path / "given.zip", **{name: content, METADATA: text_of(metadata)})
    said = seedbus("verify", given)
    assert said.code == Exit.DIFFERS and field in said.out.splitlines()[0]


@pytest.mark.parametrize(
    ("entity", "field", "value"),
    [("#Seedbus", "softwareVersion", "9.9.9"), ("./", "name", "another"), ("./", "hasPart", []), ("#run", "name", "x")],
)
def test_what_the_metadata_say_follows_from_the_files(
    archive: Path, tmp_path: Path, entity: str, field: str, value: Any
) -> None:
    with ZipFile(archive) as file:
        metadata = json.loads(file.read(METADATA))
    next(each for each in metadata["@graph"] if each["@id"] == entity)[field] = value
    found = verify_archive(rewritten(archive, tmp_path / "given.zip", **{METADATA: text_of(metadata)}))
    assert found.differences and all(each.field.startswith(f"{entity}.{field}") for each in found.differences)


def test_a_run_that_has_not_ended_is_no_archive(seedbus: Command, made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "run"))
    (folder / "results.json").unlink()
    said = seedbus("export", folder, "zip", "--out", tmp_path / "run.zip")
    assert said.code == Exit.FOLDER and "it has no results.json; `seedbus run --resume" in said.err
    results = json.loads((made / "results.json").read_text())
    (folder / "results.json").write_text(json.dumps(results | {"versions": 5}))
    said = seedbus("export", folder, "zip", "--out", tmp_path / "run.zip")
    assert said.code == Exit.FOLDER and "results.json: it is damaged" in said.err and "versions" in said.err
    assert not (tmp_path / "run.zip").exists()


def test_a_part_of_the_journal_that_a_kill_left_beside_it_is_in_the_archive(
    seedbus: Command, made: Path, archive: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "run"))
    with closing(sqlite3.connect(folder / "journal.sqlite")) as journal:
        journal.execute("PRAGMA journal_mode=WAL")
        journal.execute("PRAGMA wal_autocheckpoint=0")
        ((name,),) = journal.execute("SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 1")
        journal.execute(f"CREATE TABLE later AS SELECT * FROM {name}")
        journal.execute("DROP TABLE later")
        journal.commit()
        killed = Path(shutil.copytree(folder, tmp_path / "killed"))
    assert (killed / "journal.sqlite-wal").stat().st_size
    assert seedbus("export", killed, "zip", "--out", tmp_path / "run.zip").code == Exit.OK
    assert not verify_archive(tmp_path / "run.zip").differences
    refused = seedbus("export", killed, "zip", "--out", killed / "journal.sqlite")
    assert refused.code == Exit.USAGE and "is a file of the run; expected another name" in refused.err


def test_nothing_remains_of_an_archive_that_was_read(archive: Path) -> None:
    with unpacked(archive) as folder:
        assert (folder / "journal.sqlite").is_file()
    assert not folder.exists()


@pytest.mark.parametrize("place", ["beside", "SEEDBUS_DATA"])
def test_a_run_of_a_table_is_checked_and_made_again_where_the_author_s_folder_is_not(
    seedbus: Command, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    author, reader = tmp_path / "author", tmp_path / "reader"
    for folder in (author, reader):
        folder.mkdir()
    rows = "".join(f"{number},{'yes' if number % 3 else 'no'}\n" for number in range(40))
    (author / "rows.csv").write_text(f"age,left\n{rows}")
    (author / "s.yaml").write_text(
        "task: {name: table, file: rows.csv, target: left}\nalgorithm: fedavg\n"
        "participation: {clients: 2}\nstop: {rounds: 2}\n"
    )
    assert seedbus("run", author / "s.yaml", "-q", "--out", author / "run").code == Exit.OK
    write_archive(author / "run", reader / "run.zip")
    data = reader if place == "beside" else tmp_path / "data"
    data.mkdir(exist_ok=True)
    (author / "rows.csv").rename(data / "rows.csv")
    shutil.rmtree(author)
    monkeypatch.chdir(reader)
    monkeypatch.setenv("SEEDBUS_DATA", "" if place == "beside" else str(data))
    checked = seedbus("verify", "run.zip")
    assert (checked.code, checked.err) == (Exit.OK, "") and "not checked: a replay" not in checked.out
    shutil.unpack_archive("run.zip", ".")
    assert seedbus("export", ".", "--out", "m.safetensors").code == Exit.OK
    assert seedbus("run", "scenario.yaml", "-q", "--out", "again").code == Exit.OK
    assert Results.read(Path("again")).digest == Results.read(Path()).digest
    (reader / "other").mkdir()
    monkeypatch.chdir(reader / "other")
    (reader / "other" / "rows.csv").write_text(f"age,left\n{rows}")
    (data / "rows.csv").rename(data / "moved.csv")
    assert seedbus("run", reader / "scenario.yaml", "-q").code == Exit.USAGE, "a file that nobody has named"
    monkeypatch.chdir(reader)
    (data / "rows.csv").write_text(f"age,left\n1,no\n{rows}")
    assert "not checked: a replay" in seedbus("verify", "run.zip").out, "another file of that name"
