"""What a run's journal keeps of `results.json` and `metrics.jsonl`, so that a change of either is noticed.

Before `results.json` is written, the journal notes the digest of both files, and the values in it that nobody can
compute again, such as the time that the run took. Whoever reads the files compares digests; `seedbus verify` computes
the values again and names those that differ.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from seedbus.agents.errors import AgentError, JournalDamaged
from seedbus.agents.journal.digests import digest
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.bus.files import MOST_TEXT, read
from seedbus.bus.records import Text, record
from seedbus.scenarios.run_folder import METRICS, RESULTS

NOTED = ("run", "wall_s", "cpu_s", "was_resumed", "seedbus", "versions", "processor", "client_names")
"""The fields of `results.json` that nobody can compute again, or only with the data, as names of clients."""
WARNING = "warning"
"""The field of a summary that has been read which says that it may not be what the run wrote."""
NO_DIGEST = f"this run keeps no digest of {RESULTS}, as runs of earlier versions"
_FACT = "results"


class Warned(NamedTuple):
    """Why the files of a finished run may not tell what the run found.

    Attributes:
        sentence: the reason; "": they are as the run wrote them.
        is_changed: whether they are known to be others.
    """

    sentence: str = ""
    is_changed: bool = False


class Written(NamedTuple):
    """What the journal keeps of the files that tell the results.

    Attributes:
        results: digest of `results.json`, in hexadecimal.
        metrics: digest of `metrics.jsonl`.
        kept: of `results.json` what `noted` returns, and the expectations with their bounds.
    """

    results: Text
    metrics: Text
    kept: dict[Text, Any]


_Notes = Annotated[list[Written], Meta(min_length=1, max_length=2)]


def keep(folder: Path, journal: Journal, summary: Mapping[str, Any], text: bytes) -> None:
    """Note in the journal what is about to be written.

    The note of what is there now remains, since this process may be killed before it has written.

    Args:
        folder: the run's folder.
        journal: the run's, open for writing.
        summary: what `results.json` is to hold.
        text: the same as text.

    Raises:
        OSError: a file cannot be read.
        JournalDamaged: see `written`.
    """
    there = digest(read(folder / RESULTS, MOST_TEXT)).hex() if os.path.lexists(folder / RESULTS) else ""
    before = [note for note in written(journal) if note.results == there]
    metrics = before[0].metrics if before else digest(read(folder / METRICS)).hex()
    now = Written(digest(text).hex(), metrics, noted(summary) | {"expectations": summary["expectations"]})
    journal.note({_FACT: json.dumps([*before[:1], now])})


def noted(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields `NOTED` of a summary; of the names of clients, which may be many, the digest."""
    found = {name: summary[name] for name in NOTED if name in summary}
    if "client_names" in found:
        found["client_names"] = digest(json.dumps(found["client_names"]).encode()).hex()
    return found


def written(journal: Journal) -> list[Written]:
    """Return what a run has noted of its files, newest last: one note, or two of results that were judged again.

    Of a run of an earlier version there is none.

    Raises:
        JournalDamaged: the note has another form than a run writes.
    """
    text = journal.facts().get(_FACT)
    if text is None:
        return []
    with journal.decoding():
        notes = json.loads(text)
        try:
            return record(_Notes, notes)
        except ValueError as error:
            what = f"its note of {RESULTS} is not one of a run ({error})"
            raise JournalDamaged(journal.folder / FILE, 0, what) from None


def warned(folder: Path, results: bytes) -> Warned:
    """Compare the files of a finished run with what its journal keeps of them.

    Args:
        folder: the run's folder.
        results: the content of `results.json`.
    """
    if not os.path.lexists(folder / FILE):
        return Warned(f"there is no journal here, so {RESULTS} cannot be checked")
    try:
        with closing(Journal.open(folder, for_writing=False)) as journal:
            notes = written(journal)
    except AgentError as error:
        return Warned(f"{RESULTS} cannot be checked: {error}")
    if not notes:
        return Warned(f"{NO_DIGEST}; `seedbus verify` computes it again")
    changed = [RESULTS] if digest(results).hex() not in {note.results for note in notes} else []
    with suppress(OSError):  # whoever needs the evaluations says that they cannot be read
        if digest(read(folder / METRICS, MOST_TEXT)).hex() not in {note.metrics for note in notes}:
            changed.append(METRICS)
    if not changed:
        return Warned()
    what = "it is not what the run wrote" if len(changed) == 1 else "they are not what the run wrote"
    return Warned(f"{' and '.join(changed)}: {what}; `seedbus verify` names what differs", is_changed=True)
