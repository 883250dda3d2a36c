"""`journal.head` makes the loss of a durable round visible."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from journal_cases import FRAME, HEADER, PAGE, WAL, entry, flipped, killed_run
from worlds import lossy, outcome

from seedbus.agents.errors import JournalDamaged
from seedbus.agents.journal.digests import digest
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.head import _FIELDS, _SLOT, HEAD, HeadWriter, read_head
from seedbus.agents.journal.journal import Journal
from seedbus.agents.observer import NullObserver
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.studies.study.runs import Run

ROUNDS = 20
WHAT = lossy(stop={"rounds": 12})


class Copies:
    """A journal of twenty rounds as a kill leaves it: all rounds are in the write-ahead log."""

    def __init__(self, base: Path) -> None:
        self.folder = base / "damaged"
        with closing(Journal.create(base / "run", {"scenario": "{}"})) as journal:
            for round in range(ROUNDS):
                journal.append(entry(round))
            self.files = {path.name: path.read_bytes() for path in (base / "run").iterdir() if path.name != "lock"}

    def with_(self, **changed: bytes | None) -> tuple[int, JournalDamaged | None, bool]:
        """Open a damaged copy; return its number of rounds, the error about lost rounds, and whether its head is
        damaged."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for name, content in (self.files | {FILE: self.files[FILE]} | changed).items():
            if content is not None:
                (self.folder / name).write_bytes(content)
        with closing(Journal.open(self.folder)) as journal:
            damage = journal.lost()
            return len(list(journal.rounds())), damage, journal.is_head_damaged


@pytest.fixture
def copies(memory: Path) -> Copies:
    return Copies(memory)


def test_the_newest_write_of_a_head_counts_and_a_torn_one_leaves_the_write_before(tmp_path: Path) -> None:
    for round in range(7):
        with closing(HeadWriter(tmp_path)) as writer:
            for each in (round, 10 + round):
                writer.put(each, digest(bytes([each])))
                head = read_head(tmp_path)
                assert (head.round, head.link, head.is_damaged) == (each, digest(bytes([each])), False)
        content = bytearray(whole := (tmp_path / HEAD).read_bytes())
        content[content.rindex(_FIELDS.pack(2 * round + 1, 10 + round, head.link))] ^= 1
        (tmp_path / HEAD).write_bytes(content)
        before = read_head(tmp_path)
        assert (before.round, before.is_damaged) == (round, True)
        (tmp_path / HEAD).write_bytes(whole)


@pytest.mark.slow
@pytest.mark.parametrize("step", [1013, pytest.param(61, marks=pytest.mark.soak)])
def test_a_flipped_bit_of_the_log_that_loses_rounds_is_reported(copies: Copies, step: int) -> None:
    """Flip every byte of the log's header and of two frame headers, and every `step`-th other byte."""
    log, outcomes = copies.files[WAL], Counter[str]()
    for at in sorted(
        {*range(HEADER + 24), *range(HEADER + 5 * FRAME, HEADER + 5 * FRAME + 24), *range(0, len(log), step)}
    ):
        count, damage, _ = copies.with_(**{WAL: flipped(log, at, 1 << at % 8)})
        if damage is None:
            assert count == ROUNDS, f"at {at}: {ROUNDS - count} rounds are gone without a word"
        else:
            assert f"rounds {count} to {ROUNDS - 1} were durable and are lost" in str(damage), f"at {at}"
            assert damage.good == count < ROUNDS
        outcomes["whole" if damage is None else "named"] += 1
    assert outcomes["named"] > 60
    for end in range(0, len(log), len(log) // 12):
        count, damage, _ = copies.with_(**{WAL: log[:end]})
        assert damage is not None and damage.good == count < ROUNDS
    count, damage, _ = copies.with_(**{WAL: None})
    assert count == 0 and damage is not None


def test_a_flipped_bit_of_the_head_is_reported_and_the_other_slot_still_counts(copies: Copies) -> None:
    head, log = copies.files[HEAD], copies.files[WAL]
    assert len(head) == PAGE + 48
    for at in [*range(48), *range(PAGE, PAGE + 48)]:
        count, damage, is_damaged = copies.with_(**{HEAD: flipped(head, at, 1 << at % 8)})
        assert (count, damage, is_damaged) == (ROUNDS, None, True), f"at {at}"
        _, damage, _ = copies.with_(**{HEAD: flipped(head, at), WAL: flipped(log, HEADER + 5 * FRAME)})
        assert damage is not None
    both = flipped(flipped(head, 3), PAGE + 40)
    assert "nothing in journal.head can be read" in str(copies.with_(**{HEAD: both})[1])
    for at in (0, 47, 48, PAGE, PAGE + 47):  # cut off: a missing slot was never written
        assert copies.with_(**{HEAD: head[:at]})[0] == ROUNDS


@pytest.mark.parametrize(("number", "round"), [(2**64 - 1, 0), (ROUNDS, 2**63)])
def test_a_head_with_numbers_that_no_run_reaches_is_damaged(copies: Copies, number: int, round: int) -> None:
    fields = _FIELDS.pack(number, round, bytes(16))
    forged = _SLOT.pack(fields, digest(fields)) + copies.files[HEAD][_SLOT.size :]
    assert copies.with_(**{HEAD: forged}) == (ROUNDS, None, True)
    with closing(Journal.open(copies.folder)) as journal:
        journal.append(entry(ROUNDS))


def test_a_head_that_lags_or_is_missing_is_no_damage(copies: Copies, memory: Path) -> None:
    assert copies.with_(**{HEAD: None}) == (ROUNDS, None, False)
    assert copies.with_(**{HEAD: b""}) == (ROUNDS, None, False)
    assert copies.with_(**{HEAD: bytes(PAGE + 48)}) == (ROUNDS, None, False), "a power cut left no bytes in it"
    with closing(Journal.open(copies.folder)) as journal:
        journal._head_writer = None  # killed between the commit and the head
        journal.append(entry(ROUNDS))
    assert copies.with_(**{HEAD: copies.files[HEAD]})[1] is None
    with closing(Journal.open(copies.folder)) as journal:
        assert journal.lost() is None
        journal.append(entry(ROUNDS))
    (copies.folder / HEAD).rename(copies.folder / "kept")
    with closing(Journal.open(copies.folder)) as journal:  # a new head is written
        journal.append(entry(ROUNDS + 1))
    assert (copies.folder / HEAD).exists()


def test_an_older_copy_of_a_journal_or_of_another_run_is_reported(copies: Copies, memory: Path) -> None:
    with closing(Journal.create(memory / "other", {"scenario": "other"})) as journal:
        for round in range(ROUNDS):
            journal.append(entry(round))
    _, damage, _ = copies.with_(**{FILE: (memory / "other" / FILE).read_bytes(), WAL: None})
    assert f"round {ROUNDS - 1} is not the one that journal.head vouches for" in str(damage)


# whole runs


class Notes(NullObserver):
    def __init__(self) -> None:
        self.said: dict[str, Any] = {}

    def noted(self, event: str, **facts: Any) -> None:
        self.said[event] = facts.get("what")


def rolled_back(folder: Path) -> None:
    """Flip one bit in the middle of the log."""
    log = (folder / WAL).read_bytes()
    (folder / WAL).write_bytes(flipped(log, HEADER + (len(log) - HEADER) // FRAME // 2 * FRAME))


@pytest.fixture
def killed(memory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = killed_run(memory, monkeypatch, WHAT)
    rolled_back(folder)
    return folder


def test_a_simulated_run_that_lost_rounds_reports_it_once_and_ends_alike(killed: Path, memory: Path) -> None:
    notes = Notes()
    assert outcome(run(WHAT, killed, resume=True, observer=notes)) == outcome(run(WHAT, memory / "whole"))
    assert "to 7 were durable and are lost; its first" in notes.said["lost"]
    logged = [json.loads(line) for line in (killed / "log.jsonl").read_text().splitlines()]
    assert [line["what"] for line in logged if line["event"] == "lost"] == [notes.said["lost"]]
    (killed / "results.json").unlink()
    again = Notes()
    run(WHAT, killed, resume=True, observer=again)
    assert "lost" not in again.said


def test_the_command_prints_the_lost_rounds_even_with_quiet(killed: Path, seedbus: Command) -> None:
    result = seedbus("run", "--resume", killed, "-q")
    assert result.code == Exit.OK
    assert result.err.startswith(f"seedbus: note: {killed / FILE}: the journal is damaged: rounds ")
    assert result.err.count("\n") == 1


def test_reading_a_journal_that_lost_rounds_fails_after_the_intact_ones(killed: Path, seedbus: Command) -> None:
    with closing(Journal.open(killed, for_writing=False)) as journal:
        damage = journal.lost()
    assert damage is not None and damage.good
    replay(killed, damage.good)
    for read in (lambda: replay(killed), lambda: replay(killed, damage.good + 1), lambda: Run.read(killed)):
        with pytest.raises(JournalDamaged, match="were durable and are lost"):
            read()
    for command in (["export", killed], ["compare", killed]):
        result = seedbus(*command)
        assert result.code == Exit.FOLDER and result.err == f"seedbus: {damage}\n"


def test_a_real_time_run_that_lost_rounds_is_not_resumed_and_not_changed(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = lossy(stop={"rounds": 12}, clock="wall", verify=False, network={}, faults=[], participation={"clients": 3})
    folder = killed_run(memory, monkeypatch, what)
    rolled_back(folder)
    before = {
        path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.suffix[-4:] != "-shm"
    }
    for _ in range(2):
        with pytest.raises(JournalDamaged, match="to 7 were durable and are lost"):
            run(what, folder, resume=True)
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert not (folder / "results.json").exists()
    (folder / HEAD).unlink()  # the procedure in docs/reference.md
    assert run(what, folder, resume=True).summary["rounds"] == 12
