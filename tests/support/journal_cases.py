"""Journals with given entries, runs that were killed, and damaged bytes."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import Entry, MemberPosition
from seedbus.agents.round_record import RoundRecord
from seedbus.scenarios.running.run import run

WAL = f"{FILE}-wal"
PAGE = 4096  # bytes
HEADER, FRAME = 32, 24 + PAGE  # bytes of a write-ahead log before its first frame, and of a frame


def measured(round: int) -> dict[str, Any]:
    """Return a line of metrics."""
    return {"round": round, "version": round + 1, "time_s": 0.0, "loss": 0.5, "bytes_up": 0, "bytes_down": 0}


def entry(round: int, **changes: Any) -> Entry:
    """Return an entry of a journal, valid but for the changes."""
    fields: dict[str, Any] = {
        "round": round,
        "version": round + 1,
        "cohort": [1, 2],
        "reported": [2],
        "commit": [[b"commit", round]],
        "positions": [(2, MemberPosition(round))],
        "actual_versions": [(1, round), (2, round)],
        "metrics": [measured(round)],
        "rows": bytes([round]) * 8,
        "segments": 0,
        "is_rotated": False,
        "state": [["coordinator", round], ["bus"]],
        "record": RoundRecord(lags=[0, 0]),
    }
    return Entry(**(fields | changes))


def filled(folder: Path, rounds: int = 5) -> Path:
    """Write a journal with `rounds` rounds, close it, and return its folder."""
    journal = Journal.create(folder, {"scenario": "{}"})
    for round in range(rounds):
        journal.append(entry(round))
    journal.close()
    return folder


class _Killed(BaseException):
    """Stands for a kill of the process."""


def flipped(content: bytes, at: int, mask: int = 1) -> bytes:
    """Return the content with one byte changed, by default in its lowest bit."""
    return content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :]


def killed_run(base: Path, monkeypatch: pytest.MonkeyPatch, what: Any) -> Path:
    """Return a run's folder as a kill after the eighth round leaves it."""
    append = Journal.append

    def until_eight(self: Journal, entry: Any) -> None:
        append(self, entry)
        if entry.round == 7:
            shutil.copytree(self.folder, base / "killed")
            raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", until_eight)
        with suppress(_Killed):
            run(what, base / "run")
    return base / "killed"
