"""The journal: durable, one process at a time, and never silently wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from journal_cases import entry, filled

from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import MemberPosition


def test_a_checkpoint_restores_the_last_complete_round(tmp_path: Path) -> None:
    journal = Journal.open(filled(tmp_path / "run"))
    checkpoint = journal.checkpoint()
    assert checkpoint is not None
    assert checkpoint.state == [["coordinator", 4], ["bus"]]
    assert checkpoint.rows == b"".join(bytes([round]) * 8 for round in range(5))
    assert checkpoint.positions == {2: MemberPosition(4)}
    assert checkpoint.actual_versions == {1: 4, 2: 4}
    assert checkpoint.last == (4, 5, [1, 2], [2], True, 0)
    assert [line["round"] for line in checkpoint.metrics] == [0, 1, 2, 3, 4]
    journal.close()


def test_a_client_that_has_left_is_stored_as_the_complement_of_its_version(tmp_path: Path) -> None:
    positions = {1: MemberPosition(0), 2: MemberPosition(0, False), 3: MemberPosition(7, False)}
    with closing(Journal.create(tmp_path, {})) as journal:
        journal.append(entry(0, positions=positions.items()))
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        assert list(database.execute("SELECT client, version FROM known")) == [(1, 0), (2, -1), (3, -8)]
    with closing(Journal.open(tmp_path)) as journal:
        checkpoint = journal.checkpoint()
    assert checkpoint is not None and checkpoint.positions == positions


def test_a_new_journal_has_no_checkpoint(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "run", {})
    assert journal.checkpoint() is None
    journal.close()


def test_the_last_reported_version_of_a_client_counts_even_if_it_decreases(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "run", {})
    journal.append(entry(0, actual_versions=[(1, 7)]))
    journal.append(entry(1, actual_versions=[(1, 3)]))
    checkpoint = journal.checkpoint()
    assert checkpoint is not None
    assert checkpoint.actual_versions == {1: 3}
    journal.close()


def test_rows_that_are_in_a_segment_leave_the_journal(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "run", {})
    journal.append(entry(0))
    journal.append(entry(1, is_rotated=True, segments=1))
    journal.append(entry(2, segments=1))
    checkpoint = journal.checkpoint()
    assert checkpoint is not None
    assert (checkpoint.segments, checkpoint.rows) == (1, bytes([2]) * 8)
    journal.close()


def test_the_table_of_long_values_is_made_again_after_a_round_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbus.pieces.WHOLE", 1_000)
    commit = [[bytes(2_000)]]
    with closing(Journal.create(tmp_path, {})) as journal:
        for actual in ([(1, "two")], [(1, 2)], [(1, "two")], [(1, 2)]):
            round = len(list(journal.rounds()))
            if actual == [(1, 2)]:
                journal.append(entry(round, commit=commit, is_dense=True, actual_versions=actual))
            else:
                with pytest.raises(TypeError):
                    journal.append(entry(round, commit=commit, is_dense=True, actual_versions=actual))
        assert [stored.commit for stored in journal.rounds()][-1] == commit


def test_a_journal_without_long_values_looks_for_their_table_once(tmp_path: Path) -> None:
    with closing(Journal.create(tmp_path, {})) as journal:
        statements = list[str]()
        journal._database.set_trace_callback(statements.append)
        for round in range(5):
            journal.append(entry(round, is_dense=True))
        assert sum("sqlite_master" in each for each in statements) == 1


def test_a_round_that_fails_half_way_leaves_nothing_behind(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "run", {})
    journal.append(entry(0))
    with pytest.raises(TypeError):
        journal.append(entry(1, positions=[(1, MemberPosition(1))], actual_versions=[(1, "two")]))
    assert len(list(journal.rounds())) == 1
    checkpoint = journal.checkpoint()
    assert checkpoint is not None
    assert checkpoint.last.round == 0
    journal.append(entry(1))
    assert len(list(journal.rounds())) == 2
    journal.close()


@pytest.mark.parametrize("column", ["body", "chain"])
@pytest.mark.parametrize("round", [0, 1, 2, 4])
def test_a_flipped_bit_is_detected_and_located(tmp_path: Path, column: str, round: int) -> None:
    folder = filled(tmp_path / "run")
    database = sqlite3.connect(folder / FILE)
    (blob,) = database.execute(f"SELECT {column} FROM rounds WHERE round = ?", (round,)).fetchone()
    database.execute(f"UPDATE rounds SET {column} = ? WHERE round = ?", (bytes([blob[0] ^ 1]) + blob[1:], round))
    database.commit()
    database.close()
    journal = Journal.open(folder)
    sound = []
    first = "round is" if round == 1 else f"{round} rounds are"
    with pytest.raises(JournalDamaged, match=rf"its first {first} sound") as raised:
        for entry_ in journal.rounds():
            sound.append(entry_[0])
    assert sound == list(range(round))
    assert raised.value.good == round
    journal.close()


@pytest.mark.parametrize("after", range(7))
def test_rounds_from_any_version_on_are_read_alone_and_verified(tmp_path: Path, after: int) -> None:
    journal = Journal.create(tmp_path / "run", {"scenario": "{}"})
    versions = [1, 1, 2, 2, 2, 3, 4, 5, 5]  # a round without a commit keeps the version
    for round, version in enumerate(versions):
        is_commit = version > ([0, *versions])[round]
        journal.append(entry(round, version=version, commit=[[b"commit", version]] if is_commit else None))
    versions_read = [each.commit[0][1] for each in journal.rounds(after) if each.commit is not None]
    assert versions_read == list(range(after + 1, 6))
    journal.close()
    database = sqlite3.connect(tmp_path / "run" / FILE)
    database.execute("UPDATE rounds SET body = x'00' WHERE round = 7")
    database.commit()
    database.close()
    journal = Journal.open(tmp_path / "run", for_writing=False)
    if after < 5:
        with pytest.raises(JournalDamaged, match="round 7 does not verify"):
            list(journal.rounds(after))
    journal.close()


def test_a_snapshot_and_its_partial_downloads_are_stored_and_verified(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "run", {"scenario": "{}"})
    journal.append(entry(0, held=b"first", partial_downloads=[(1, b"a"), (2, b"b")]))
    journal.append(entry(1, partial_downloads=[(1, b""), (3, b"c")]))
    journal.close()
    journal = Journal.open(tmp_path / "run")
    checkpoint = journal.checkpoint()
    assert checkpoint is not None
    assert (checkpoint.held, checkpoint.partial_downloads) == (b"first", {2: b"b", 3: b"c"})
    journal.append(entry(2, held=b""))
    checkpoint = journal.checkpoint()
    assert checkpoint is not None and checkpoint.held == b""
    journal.append(entry(3, held=b"second"))
    journal.close()
    database = sqlite3.connect(tmp_path / "run" / FILE)
    database.execute("UPDATE snapshot SET packed = x'7365636f6e65'")
    database.commit()
    database.close()
    journal = Journal.open(tmp_path / "run")
    with pytest.raises(JournalDamaged, match="the checkpoint does not verify"):
        journal.checkpoint()
    journal.close()


def test_a_missing_round_is_detected(tmp_path: Path) -> None:
    folder = filled(tmp_path / "run")
    database = sqlite3.connect(folder / FILE)
    database.execute("DELETE FROM rounds WHERE round = 3")
    database.commit()
    database.close()
    journal = Journal.open(folder)
    with pytest.raises(JournalDamaged, match="round 3 does not verify"):
        list(journal.rounds())
    journal.close()


def test_a_run_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    journal = Journal.open(filled(tmp_path / "run"))
    with pytest.raises(RunFolderError, match="another process is running here"):
        Journal.open(tmp_path / "run")
    journal.close()
    Journal.open(tmp_path / "run").close()


def test_reading_needs_no_lock(tmp_path: Path) -> None:
    journal = Journal.open(filled(tmp_path / "run"))
    reader = Journal.open(tmp_path / "run", for_writing=False)
    assert len(list(reader.rounds())) == 5
    reader.close()
    journal.close()


def test_a_journal_of_more_than_two_gigabytes_is_read(tmp_path: Path) -> None:
    """It limits SQLite's steps by the size of its files, and SQLite's limit has 31 bits."""
    with (filled(tmp_path / "run") / FILE).open("r+b") as file:
        file.truncate(2**31 + 2**20)  # SQLite ignores what follows the last page; the file system stores no zeros
    with closing(Journal.open(tmp_path / "run", for_writing=False)) as reader:
        assert len(list(reader.rounds())) == 5


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="there is a run here already"):
        Journal.create(filled(tmp_path / "run"), {})


def test_every_append_reaches_the_disk_before_it_returns(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "run", {})
    modes = (
        journal._database.execute("PRAGMA synchronous").fetchone(),
        journal._database.execute("PRAGMA journal_mode").fetchone(),
    )
    assert modes == ((2,), ("wal",))
    journal.close()


def _replace(path: Path) -> None:
    path.with_name("copy").write_bytes(path.read_bytes())
    path.with_name("copy").rename(path)


@pytest.mark.parametrize("how", [Path.unlink, _replace])
def test_a_round_in_a_file_that_is_not_in_the_folder_any_more_is_an_error(
    tmp_path: Path, how: Callable[[Path], None]
) -> None:
    """SQLite writes into a deleted file as into any other; a run that ended well could not be replayed."""
    with closing(Journal.create(tmp_path / "run", {})) as journal:
        journal.append(entry(0))
        how(tmp_path / "run" / FILE)
        with pytest.raises(RunFolderError, match=r"journal\.sqlite: the journal was deleted, moved or replaced while"):
            journal.append(entry(1))
        with pytest.raises(RunFolderError, match="because its rounds would be lost"):
            journal.finish([], 0, {})
