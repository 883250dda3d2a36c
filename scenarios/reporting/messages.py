"""The messages of a run in words, one a line: what `seedbus export RUN messages` prints, and what the log has of each.

They are read from the ledger's files, a file at a time, and from the journal, so that a run may still be going on.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.holder import holder
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import Glance
from seedbus.bus.ledger import COLUMNS, DROPPED, FATES, MESSAGES, Columns, parts_of
from seedbus.bus.text import counted
from seedbus.bus.words import KINDS, end_in_words
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.terminal import note, shown
from seedbus.scenarios.run_folder import RESULTS, scenario_of
from seedbus.scenarios.schema.scenario import Scenario

FIELDS = ("time", "from", "to", "kind", "round", "payload", "header", "framed", "fate")
Message = tuple[float, str, str, str, int, int, int, int, str]
"""What `FIELDS` are of a message: seconds of the run's clock, and bytes."""
_end = lru_cache(maxsize=2**16)(end_in_words)


class Words:
    """Puts the rows of a run's ledger into words.

    Args:
        faults: the scenario's. A message that was dropped by one has its name, with its number if there are several
            such.
    """

    def __init__(self, faults: Sequence[Any]) -> None:
        names = [shown(fault.fault) for fault in faults]
        often = Counter(names)
        self._names = {n: f"fault {n}: {name}" if often[name] > 1 else name for n, name in enumerate(names)}

    def of(self, row: Iterable[int]) -> Message:
        """Return a row, all fields of `seedbus.bus.ledger.Row`, in words; its time is that at which it was sent."""
        sent_ns, _, round, kind, sender, recipient, header, payload, framing, *_, fate, _, fault = row
        became = FATES[fate]
        if fate == DROPPED and fault in self._names:
            became += f" by {self._names[fault]}"
        framed = header + payload + framing
        return sent_ns / 1e9, _end(sender), _end(recipient), KINDS[kind], round, payload, header, framed, became


@dataclass(frozen=True)
class Only:
    """Which messages are shown: those that a client sends or receives, of a kind, of a round from 0; None: all."""

    client: Annotated[int, Field(ge=0)] | None = None
    kind: str | None = None
    round: Annotated[int, Field(ge=0)] | None = None


def show_messages(folder: Path, form: str, only: Only, out: Path | None = None) -> None:
    """Print the messages of a run, in the order in which it was known what became of them, or write them to a file.

    Args:
        folder: the run's; it may go on.
        form: one of `FORMS`.
        only: which of them.
        out: the file; None: stdout.

    Raises:
        ScenarioError: there is no such client or kind; or the scenario needs what this installation does not have.
        RunFolderError, JournalDamaged, LedgerDamaged: they cannot be read.
    """
    scenario = scenario_of(folder)
    kinds = {name: number for number, name in KINDS.items()}
    clients, kind = scenario.participation.clients, (only.kind or "").strip().lower()
    if only.client is not None and only.client >= clients:
        raise ScenarioError(f"--only client={only.client}", [f"there is no such client; expected 0 to {clients - 1}"])
    if only.kind is not None and kind not in kinds:
        expected = f"expected one of {', '.join(sorted(kinds))}"
        raise ScenarioError(f"--only kind={shown(only.kind, 50)}", [f"there is no such kind; {expected}"])
    wanted = {"round": only.round, "kind": kinds.get(kind)}
    glance, words, (head, text) = _glance(folder, scenario), Words(scenario.faults), FORMS[form]
    seen, total, found = set[int](), 0, 0
    with nullcontext(sys.stdout) if out is None else open(out, "w", encoding="utf-8") as file:
        file.write(head)
        for part in parts_of(folder / MESSAGES, glance.segments, glance.rows):
            rows = np.flatnonzero(_is_wanted(part, wanted, only.client))
            seen |= set(np.unique(part["kind"]).tolist())
            total, found = total + part["kind"].size, found + rows.size
            columns = (part[name][rows].tolist() for name in COLUMNS)
            file.write(text(map(words.of, zip(*columns, strict=True))))
        file.flush()
    if not found and total:
        has = f"{', '.join(sorted(KINDS[number] for number in seen))}, in rounds 0 to {max(0, glance.rounds - 1)}"
        note(f"none of the run's {counted(total, 'message')} is as asked for; it has {has}")
    if not (folder / RESULTS).exists():
        note(f"this run is not finished; it had closed {counted(glance.rounds, 'round')}, and sent this until then")


def _glance(folder: Path, scenario: Scenario) -> Glance:
    """Return what the journal holds now."""
    with closing(Journal.open(folder, for_writing=False)) as journal:
        glance = journal.glance()
    if not scenario.has_server and holder(folder) and len(list((folder / MESSAGES).glob("*"))) < glance.segments:
        what = "it computes its rounds again, up to where it was stopped; its messages are there once it has"
        raise RunFolderError(folder, what)
    return glance


def _is_wanted(part: Columns, wanted: dict[str, int | None], client: int | None) -> NDArray[np.bool_]:
    """Return a mask [rows] of those with the wanted values, to or from a client."""
    mask = np.ones(part["kind"].size, bool)
    for name, value in wanted.items():
        if value is not None:
            mask &= part[name] == value
    if client is not None:
        mask &= (part["sender"] == client) | (part["recipient"] == client)
    return mask


def _table(messages: Iterable[Message]) -> str:
    return "".join(_ROW.format(f"{time:.6f}", *rest) for time, *rest in messages)


def _csv(messages: Iterable[Message]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(messages)
    return text.getvalue()


def _jsonl(messages: Iterable[Message]) -> str:
    return "".join(json.dumps(dict(zip(FIELDS, message, strict=True))) + "\n" for message in messages)


_ROW = "{:>12}  {:<11}  {:<11}  {:<10}  {:>6}  {:>9}  {:>6}  {:>9}  {}\n"
FORMS: dict[str, tuple[str, Callable[[Iterable[Message]], str]]] = {
    "text": (_ROW.format(*FIELDS), _table),
    "csv": (",".join(FIELDS) + "\n", _csv),
    "jsonl": ("", _jsonl),
}
"""The formats: the first line, and the lines of messages."""
