"""A journal that was written to do harm: reading it ends soon, with one sentence."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from journal_cases import filled
from worlds import lossy

from seedbus.agents.errors import JournalDamaged
from seedbus.agents.journal import file as journal_file
from seedbus.agents.journal.digests import SEAL, seal_of
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.running.run import run

PAGE = 4096
ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n"
READING = [["compare"], ["replay"], ["report"], ["run", "-q", "--resume"]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(lossy(stop={"rounds": 3}), tmp_path_factory.mktemp("whole") / "run").folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def change(folder: Path, script: str) -> None:
    with closing(sqlite3.connect(folder / FILE)) as database:
        database.executescript(script)


def sealed(folder: Path, **facts: str) -> None:
    """Change facts and update the seal over them, which anybody can compute."""
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        changed = dict(database.execute("SELECT name, value FROM facts")) | facts
        changed[SEAL] = seal_of(changed)
        database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", changed.items())


def refused(seedbus: Command, folder: Path, what: str) -> None:
    for command in READING:
        said = seedbus(*command, folder)
        assert said.code == Exit.FOLDER, command
        assert said.err.startswith(f"seedbus: {folder / FILE}: the journal is damaged: ") and said.err.count("\n") == 1
        assert what in said.err


@pytest.mark.parametrize(
    ("script", "what"),
    [
        (f"DROP TABLE metrics; CREATE VIEW metrics AS {ENDLESS} AS number, '{{}}' AS line FROM c", "view metrics"),
        (f"DROP TABLE facts; CREATE VIEW facts AS {ENDLESS} AS name, n AS value FROM c", "view facts"),
        (
            f"CREATE TRIGGER often AFTER INSERT ON facts BEGIN INSERT INTO metrics {ENDLESS}, 1 FROM c; END",
            "trigger of",
        ),
        ("CREATE VIRTUAL TABLE found USING fts5(words)", "table found"),
        ("DROP TABLE rows; CREATE TABLE rows (number INTEGER PRIMARY KEY, packed AS (zeroblob(1e9)))", "table rows"),
        ("DROP TABLE snapshot; CREATE TABLE snapshot (packed CHECK (packed LIKE '%%%%a'))", "table snapshot"),
        ("CREATE INDEX mine ON rounds (hex(round))", "index mine"),
        ('CREATE TABLE "a\x1b]0;title\nb" (c)', "table a ]0;title b"),
    ],
)
def test_what_is_none_of_a_journals_tables_is_not_read(seedbus: Command, folder: Path, script: str, what: str) -> None:
    change(folder, script)
    (folder / "results.json").unlink()
    for command in READING:
        if command == ["report"]:
            continue  # it reports that the run is unfinished without reading the journal
        said = seedbus(*command, folder)
        assert said.code == Exit.FOLDER, command
        assert said.err.startswith(f"seedbus: {folder / FILE}: the journal is damaged: its {what}")
        assert said.err.endswith("is none of a journal's; its first 0 rounds are sound\n") and said.err.count("\n") == 1


def test_a_finished_runs_report_reads_no_view_either(seedbus: Command, folder: Path) -> None:
    change(folder, f"DROP TABLE metrics; CREATE VIEW metrics AS {ENDLESS} AS number, '{{}}' AS line FROM c")
    refused(seedbus, folder, "its view metrics is none of a journal's")


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({"scenario": "[" * 200_000}, "rounds are sound"),
        ({"run": "9" * 2**24 + "9"}, "string or blob too big"),
    ],
    ids=["deep", "long"],
)
def test_a_fact_that_is_too_deep_or_too_long_is_not_taken_in(
    seedbus: Command, folder: Path, facts: dict[str, str], what: str
) -> None:
    sealed(folder, **facts)
    refused(seedbus, folder, what)


def make_circular(path: Path, table: str, depth: int = 6, children: int = 300) -> None:
    """Make every page of a table but the last refer to the next one `children` times."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=DELETE")
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        with database:
            database.execute("INSERT INTO rows (packed) VALUES (zeroblob(?))", (PAGE * 2 * depth,))
        (pages,) = database.execute("PRAGMA page_count").fetchone()
    content = bytearray(path.read_bytes())
    places = [root, *range(pages - depth, pages)]  # the last pages are the blob's
    content[(places[-1] - 1) * PAGE : places[-1] * PAGE] = content[(root - 1) * PAGE : root * PAGE]
    for page, below in itertools.pairwise(places):
        cells = b"".join(struct.pack(">IB", below, 127) for _ in range(children))  # with their largest key
        start = PAGE - len(cells)
        pointers = b"".join(struct.pack(">H", start + 5 * number) for number in range(children))
        head = struct.pack(">BHHHBI", 5, 0, children, start, 0, below)
        content[(page - 1) * PAGE : page * PAGE] = (head + pointers).ljust(start, b"\0") + cells
    path.write_bytes(content)


@pytest.mark.parametrize("table", ["metrics", "known", "rows", "rounds", "facts"])
def test_pages_that_refer_to_each_other_in_circles_come_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setattr(journal_file, "_STEPS", 1_000_000)
    folder = filled(tmp_path / "run")
    make_circular(folder / FILE, table)

    def all_of(journal: Journal) -> None:
        journal.metrics()
        list(journal.rounds())
        journal.checkpoint()

    for options in ({"for_writing": False}, {}):
        with pytest.raises(JournalDamaged) as raised:
            journal = Journal.open(folder, **options)
            with closing(journal):
                all_of(journal)
        assert "\n" not in str(raised.value)


def test_a_search_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_file, "_STEPS", 1_000_000)
    folder = filled(tmp_path / "run")
    make_circular(folder / FILE, "rounds")
    with (
        closing(Journal.open(folder, for_writing=False)) as journal,
        pytest.raises(JournalDamaged, match="reading it does not come to an end"),
    ):
        list(journal.rounds(100))  # looks for a version that is not there


def test_many_statements_that_each_end_are_not_taken_for_one_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_file, "_STEPS", 0)
    folder = filled(tmp_path / "run")
    with closing(Journal.open(folder, for_writing=False)) as journal:
        for _ in range(5000):
            assert journal._reader.length() == 5


def test_measurements_that_are_nested_too_deeply_are_damage(folder: Path, seedbus: Command) -> None:
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        database.execute("UPDATE metrics SET line = ?", ("[" * 200_000,))
    said: Any = seedbus("compare", folder)
    assert said.code == Exit.FOLDER and "it holds what cannot be decoded" in said.err and said.err.count("\n") == 1
