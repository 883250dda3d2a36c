"""The ledger: complete segments or none, restoring a checkpoint, and a hash that is independent of segmentation."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.bus import EVALUATOR, HOST, SERVER, Fate, Kind, Ledger, LedgerDamaged, ledger_hash, read_ledger
from seedbus.bus.ledger import _DIGEST, COLUMNS, Row, _digest

NEITHER = "it has columns that are neither whole numbers of 32 or 64 bits nor words that it may have"
ROUNDS = (Kind.PLAN, Kind.REPORT, Kind.COMMIT, Kind.EVALUATION, Kind.DECLINE)


def row(number: int, kind: Kind = Kind.PLAN, framing: int = 0) -> Row:
    """Return a row in which every field depends on `number`."""
    sent_ns = number * 10**10
    return Row(
        sent_ns,
        sent_ns + 7,
        number // 4,
        kind,
        -1,
        number % 4,
        8,
        30 + number,
        framing,
        32,
        number,
        10,
        1,
        Fate.DELIVERED,
        number % 2,
        number % 3 - 1,
    )


def rows(count: int) -> list[Row]:
    return [row(number, ROUNDS[number % 4]) for number in range(count)]


def written(folder: Path, every: list[Row], segment_rows: int = 10) -> Ledger:
    ledger = Ledger(folder, segment_rows)
    for each in every:
        ledger.append(each)
        if ledger.is_full:
            ledger.write_segment()
    ledger.write_segment()
    return ledger


def read(folder: Path) -> list[Row]:
    columns = read_ledger(folder)
    return [Row(*numbers) for numbers in zip(*(columns[name].tolist() for name in COLUMNS), strict=True)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_rows_are_read_back_unchanged_for_any_segmentation(tmp_path: Path) -> None:
    for segment_rows in (1, 7, 10, 1000):
        ledger = written(tmp_path / str(segment_rows), rows(30), segment_rows)
        assert read(tmp_path / str(segment_rows)) == rows(30)
        assert ledger.segments == len(names(tmp_path / str(segment_rows))) == -(-30 // segment_rows)


def test_a_segment_is_due_when_it_is_full_and_not_before(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, segment_rows=3)
    due = [ledger.is_full]
    for each in rows(3):
        ledger.append(each)
        due.append(ledger.is_full)
    ledger.write_segment()
    ledger.write_segment()
    due.append(ledger.is_full)
    assert due == [False, False, False, True, False] and names(tmp_path) == ["000000.parquet"]


def test_a_ledger_without_rows_is_empty_and_leaves_no_file(tmp_path: Path) -> None:
    written(tmp_path / "messages", [])
    assert read(tmp_path / "messages") == [] and not (tmp_path / "messages").exists()
    assert ledger_hash(read_ledger(tmp_path / "messages")) == ledger_hash(read_ledger(tmp_path / "nowhere"))


def test_new_rows_are_taken_once(tmp_path: Path) -> None:
    ledger, width = Ledger(tmp_path), 8 * len(COLUMNS)
    ledger.append(row(0))
    ledger.append(row(1))
    assert np.frombuffer(ledger.take_new(), np.int64).reshape(-1, len(COLUMNS)).tolist() == [[*row(0)], [*row(1)]]
    assert ledger.take_new() == b""
    ledger.append(row(2))
    assert len(ledger.take_new()) == width
    ledger.write_segment()
    ledger.append(row(3))
    assert len(ledger.take_new()) == width


@pytest.mark.slow
@settings(max_examples=15)
@given(st.integers(0, 16), st.integers(0, 8), st.integers(3, 9))
def test_a_restored_ledger_continues_as_if_never_interrupted(
    tmp_path_factory: pytest.TempPathFactory, before: int, rows_lost: int, segment_rows: int
) -> None:
    folder, every = tmp_path_factory.mktemp("messages"), rows(24)
    ledger, pending = Ledger(folder, segment_rows), b""
    for each in every[:before]:
        ledger.append(each)
        pending += ledger.take_new()
        if ledger.is_full:
            ledger.write_segment()
            pending = b""
    segments, totals = ledger.segments, ledger.totals.copy()
    for each in every[before : before + rows_lost]:  # after the checkpoint, and lost with the process
        ledger.append(each)
        if ledger.is_full:
            ledger.write_segment()

    resumed = Ledger(folder, segment_rows)
    resumed.restore(segments, pending)
    assert resumed.totals == totals and resumed.take_new() == b""
    for each in every[before:]:
        resumed.append(each)
        if resumed.is_full:
            resumed.write_segment()
    resumed.write_segment()
    assert read(folder) == every
    assert resumed.totals == written(folder / "whole", every).totals


def test_restoring_removes_later_and_partially_written_segments(tmp_path: Path) -> None:
    written(tmp_path, rows(30))
    (tmp_path / "000003.unfinished").write_bytes(b"PAR1")
    Ledger(tmp_path).restore(2, b"")
    assert names(tmp_path) == ["000000.parquet", "000001.parquet"] and read(tmp_path) == rows(20)


def test_a_segment_that_could_not_be_completed_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path)
    ledger.append(row(0))

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        ledger.write_segment()
    assert read(tmp_path) == [] and ledger.segments == 0
    monkeypatch.undo()
    ledger.write_segment()
    assert read(tmp_path) == [row(0)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 100 rows in one segment."""
    monkeypatch.setattr("seedbus.bus.ledger._FEW_ROWS", 100)


@pytest.mark.usefixtures("small")
def test_more_rows_than_reading_accepts_become_several_segments(tmp_path: Path) -> None:
    ledger = written(tmp_path / "a", rows(400), 310)
    assert ledger.segments == len(names(tmp_path / "a")) == 4 + 1  # of 310 and 90 rows
    assert read(tmp_path / "a") == rows(400)
    assert hash_of(tmp_path / "b", rows(400)) == ledger_hash(read_ledger(tmp_path / "a"))
    assert ledger.totals == written(tmp_path / "c", rows(400), 90).totals and ledger.take_new() == b""


@pytest.mark.usefixtures("small")
def test_rows_added_while_several_segments_are_written_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, every = Ledger(tmp_path), rows(254)
    for each in every[:250]:
        ledger.append(each)
    ledger.take_new()
    added, write = iter(every[250:]), pq.write_table

    def adding(*arguments: Any, **options: Any) -> None:
        ledger.append(next(added))
        write(*arguments, **options)

    monkeypatch.setattr(pq, "write_table", adding)
    ledger.write_segment()
    assert ledger.segments == 3 and read(tmp_path) == every[:250]
    assert (
        len(ledger.take_new()) == 3 * 8 * len(COLUMNS) and sum(ledger.totals[kind, "messages"] for kind in Kind) == 253
    )


@pytest.mark.usefixtures("small")
def test_a_crash_between_two_segments_leaves_what_a_checkpoint_can_go_back_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, every = Ledger(tmp_path), rows(250)
    for each in every:
        ledger.append(each)
    pending, write = ledger.take_new(), pq.write_table

    def once(*arguments: Any, **options: Any) -> None:
        if ledger.segments:
            raise OSError(28, "No space left on device")
        write(*arguments, **options)

    monkeypatch.setattr(pq, "write_table", once)
    with pytest.raises(OSError, match="No space left"):
        ledger.write_segment()
    monkeypatch.undo()
    assert read(tmp_path) == every[:100] and ledger.segments == 1
    resumed = Ledger(tmp_path)
    resumed.restore(0, pending)
    resumed.write_segment()
    assert read(tmp_path) == every


@pytest.mark.parametrize("segment_rows", [1, 7, 1000])
def test_the_hash_does_not_depend_on_the_segments(tmp_path: Path, segment_rows: int) -> None:
    written(tmp_path / "a", rows(30), segment_rows)
    written(tmp_path / "b", rows(30), 10)
    assert ledger_hash(read_ledger(tmp_path / "a")) == ledger_hash(read_ledger(tmp_path / "b"))


def hash_of(folder: Path, every: list[Row]) -> str:
    written(folder, every)
    return ledger_hash(read_ledger(folder))


def test_the_hash_does_not_depend_on_framing_faults_or_joining_processes(tmp_path: Path) -> None:
    hosts = (Kind.JOIN, Kind.WELCOME, Kind.REFUSE, Kind.BYE)
    joining = [row(number, kind)._replace(sender=SERVER, recipient=HOST) for number, kind in enumerate(hosts)]
    joining += [row(9, Kind.LINK), row(10, Kind.LINK)._replace(sender=SERVER, recipient=3)]
    other = [*joining[:2], *(each._replace(framing_bytes=9, fault=-1) for each in rows(20)), *joining]
    assert hash_of(tmp_path / "a", rows(20)) == hash_of(tmp_path / "b", other)


@pytest.mark.parametrize("column", [name for name in COLUMNS if name not in ("framing_bytes", "fault")])
def test_the_hash_depends_on_every_other_number(tmp_path: Path, column: str) -> None:
    changed = rows(20)
    value = {"kind": Kind.REPORT, "fate": Fate.DROPPED}.get(column, 2**31)
    changed[4] = changed[4]._replace(**{column: value})
    assert hash_of(tmp_path / "a", rows(20)) != hash_of(tmp_path / "b", changed)


def test_the_hash_depends_on_the_order_and_the_number_of_rows(tmp_path: Path) -> None:
    swapped = [*rows(20)[:4], *rows(20)[5:3:-1], *rows(20)[6:]]
    hashes = [hash_of(tmp_path / str(n), every) for n, every in enumerate([rows(20), swapped, rows(19), rows(21)])]
    assert len(set(hashes)) == 4 and sorted(swapped) == sorted(rows(20))


def test_numbers_past_32_bits_survive(tmp_path: Path) -> None:
    wide = row(1)._replace(sent_ns=2**52, round=2**32 - 1, payload_bytes=2**31, recipient=2**32 - 1)
    written(tmp_path, [wide, row(2)])
    assert read(tmp_path) == [wide, row(2)]


def test_a_ledger_from_before_commits_that_came_again_were_counted_has_none(tmp_path: Path) -> None:
    """Its rows are all numbers, lack the column and that of faults, and have the hash that they had then."""
    plain = [each._replace(repeated=0, fault=-1) for each in rows(20)]
    older = {name: column for name, column in columns_of(plain).items() if name not in ("repeated", "fault")}
    table = pa.table(older).replace_schema_metadata({_DIGEST: _digest(older)})
    pq.write_table(table, tmp_path / "000000.parquet")
    assert read(tmp_path) == plain
    then = hashlib.sha256()
    for name, column in older.items():
        then.update(b"" if name == "framing_bytes" else name.encode() + hashlib.sha256(column.tobytes()).digest())
    assert ledger_hash(read_ledger(tmp_path)) == then.hexdigest()


def test_files_have_kinds_ends_and_fates_in_words_and_the_bytes_of_each_message(tmp_path: Path) -> None:
    ends = [(SERVER, 2**32 - 1), (17, SERVER), (EVALUATOR, SERVER), (SERVER, HOST - 3), (3, 4)]
    kinds, fates = (Kind.PLAN, Kind.REPORT, Kind.EVALUATION, Kind.BYE, Kind.HAVE), [*Fate, Fate.DELIVERED]
    every = [
        row(number, kind, framing=9)._replace(sender=sender, recipient=recipient, fate=fate)
        for number, (kind, (sender, recipient), fate) in enumerate(zip(kinds, ends, fates, strict=True))
    ]
    written(tmp_path, every, 2)
    table = pa.concat_tables([pq.read_table(path) for path in sorted(tmp_path.iterdir())], promote_options="permissive")
    assert table.select(["kind", "sender", "recipient", "fate", "bytes"]).to_pylist() == [
        {"kind": kind, "sender": sender, "recipient": recipient, "fate": fate, "bytes": 8 + 30 + number + 9}
        for number, (kind, sender, recipient, fate) in enumerate(
            (
                ("plan", "server", "client 4294967295", "delivered"),
                ("report", "client 17", "server", "dropped"),
                ("evaluation", "evaluator", "server", "refused"),
                ("bye", "server", "process 4", "under way"),
                ("have", "client 3", "client 4", "delivered"),
            )
        )
    ]
    assert read(tmp_path) == every


def columns_of(every: list[Row]) -> dict[str, np.ndarray]:
    table = np.array(every, np.int64)
    return {name: np.ascontiguousarray(table[:, number]) for number, name in enumerate(COLUMNS)}


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    written(tmp_path, rows(30))
    (tmp_path / "000001.parquet").unlink()
    with pytest.raises(LedgerDamaged, match=r"000001\.parquet: is missing; the run's messages are incomplete"):
        read_ledger(tmp_path)
    with pytest.raises(LedgerDamaged, match=r"000001\.parquet: is missing"):
        Ledger(tmp_path).restore(3, b"")


@pytest.mark.parametrize("size", [0, 1, 4, 100, -1])
def test_a_segment_cut_short_is_named(tmp_path: Path, size: int) -> None:
    written(tmp_path, rows(20))
    path = tmp_path / "000001.parquet"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(LedgerDamaged, match=r"000001\.parquet: is damaged \(.+\)") as caught:
        read_ledger(tmp_path)
    assert caught.value.path == str(path) and "\n" not in str(caught.value)


def test_a_segment_with_other_columns_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"sent_ns": [1, 2]}), tmp_path / "000000.parquet")
    with pytest.raises(LedgerDamaged, match=r"000000\.parquet: is damaged"):
        read_ledger(tmp_path)


def test_a_flipped_bit_of_a_segment_never_changes_a_number_unnoticed(tmp_path: Path) -> None:
    written(tmp_path, rows(10))
    path = tmp_path / "000000.parquet"
    sound, noticed = path.read_bytes(), 0
    for place in range(0, len(sound), 29):
        flipped = bytearray(sound)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            assert read(tmp_path) == rows(10), f"byte {place}"
        except LedgerDamaged:
            noticed += 1
    assert noticed > 50


def forged(path: Path, **columns: pa.Array) -> None:
    """Write a segment whose columns are zeros but for these, with the digest that belongs to them."""
    count = len(next(iter(columns.values()), [0]))
    zeros = pa.array(np.zeros(count, np.int32))
    table = pa.table({name: columns.get(name, zeros) for name in COLUMNS})
    stored = {name: np.asarray(table.column(name).cast(pa.int64(), safe=False)) for name in COLUMNS}
    pq.write_table(table.replace_schema_metadata({_DIGEST: _digest(stored)}), path)


@pytest.mark.slow
def test_a_small_segment_that_declares_millions_of_rows_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged(tmp_path / "000000.parquet", sent_ns=pa.array(np.zeros(1_000_001, np.int32)))
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("its rows were read"))
    with pytest.raises(LedgerDamaged, match=r"it declares 1000001 rows in \d+ bytes; expected at most 1000000 rows"):
        read_ledger(tmp_path)


def test_a_segment_of_texts_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int32()), pa.array(["7" * 1000]))
    pq.write_table(pa.table(dict.fromkeys(COLUMNS, long)), tmp_path / "000000.parquet")
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("its rows were read"))
    with pytest.raises(LedgerDamaged, match=f"is damaged .{NEITHER}"):
        read_ledger(tmp_path)


@pytest.mark.parametrize("width", [pa.int16(), pa.uint64()])
def test_a_segment_of_numbers_of_other_widths_is_damaged(tmp_path: Path, width: pa.DataType) -> None:
    forged(tmp_path / "000000.parquet", sent_ns=pa.array(np.zeros(2, np.int64)).cast(width))
    with pytest.raises(LedgerDamaged, match=NEITHER):
        read_ledger(tmp_path)


@pytest.mark.parametrize("column", ["kind", "fate"])
def test_a_forged_segment_with_a_kind_that_there_is_not_is_named(tmp_path: Path, column: str) -> None:
    forged(tmp_path / "000000.parquet", **{column: pa.array([999], pa.int32())})
    with pytest.raises(LedgerDamaged, match=r"000000\.parquet: is damaged \(999 is not a valid"):
        read_ledger(tmp_path)


@pytest.mark.parametrize(
    ("column", "words"),
    [("kind", "PLAN"), ("sender", "client 01"), ("recipient", "client \uff19"), ("fate", "lost")],
)
def test_a_forged_segment_with_words_that_no_message_has_is_named(tmp_path: Path, column: str, words: str) -> None:
    forged(tmp_path / "000000.parquet")
    table = pq.read_table(tmp_path / "000000.parquet")
    forgery = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array([words], pa.string()))
    pq.write_table(table.set_column(COLUMNS.index(column), column, forgery), tmp_path / "000000.parquet")
    with pytest.raises(LedgerDamaged, match=rf"000000\.parquet: is damaged \(.*{words}"):
        read_ledger(tmp_path)


def test_a_forged_segment_whose_bytes_are_not_the_sum_of_their_parts_is_damaged(tmp_path: Path) -> None:
    written(tmp_path, rows(3))
    path = tmp_path / "000000.parquet"
    table = pq.read_table(path)
    more = pa.array([size + 1 for size in table.column("bytes").to_pylist()], pa.int32())
    pq.write_table(table.set_column(table.column_names.index("bytes"), "bytes", more), path)
    with pytest.raises(LedgerDamaged, match="its rows are not those that were written"):
        read_ledger(tmp_path)


@pytest.mark.parametrize("round", [-1, -(2**63), 2**32, 2**63 - 1])
def test_a_forged_segment_with_a_round_that_no_message_can_have_is_named(tmp_path: Path, round: int) -> None:
    forged(tmp_path / "000000.parquet", round=pa.array([0, round], pa.int64()))
    with pytest.raises(LedgerDamaged, match=r"000000\.parquet: is damaged \(it has rounds that no message can have\)"):
        read_ledger(tmp_path)


def test_a_segment_with_missing_numbers_is_named(tmp_path: Path) -> None:
    forged(tmp_path / "000000.parquet", round=pa.array([1, 2], pa.int32()))
    table = pq.read_table(tmp_path / "000000.parquet")
    missing = table.set_column(table.column_names.index("round"), "round", pa.array([1, None], pa.int32()))
    pq.write_table(missing, tmp_path / "000000.parquet")
    with pytest.raises(LedgerDamaged, match=r"000000\.parquet: is damaged \(numbers are missing in it: 1\)"):
        read_ledger(tmp_path)


def test_columns_that_the_ledger_has_not_are_passed_over(tmp_path: Path) -> None:
    written(tmp_path, rows(3))
    path = tmp_path / "000000.parquet"
    table = pq.read_table(path)
    pq.write_table(table.append_column("more", pa.array([[1], [2], [3]])), path)
    assert read(tmp_path) == rows(3)
