"""Compare what a finished run shows with what its journal and its ledger give.

The fields of `results.json` are computed again: from the rounds, the evaluations and the outcome in the journal, from
all rows of the ledger, and, as the digests of the model, by a replay. What nobody can compute again, such as the time
that the run took, is compared with what the journal noted when the file was written. What has no such note is named. Of
all this the page is made once more, and compared; and `scenario.yaml` with the scenario in the journal.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.digests import digest
from seedbus.agents.journal.journal import Journal
from seedbus.agents.launcher import Outcome, check_build, outcome_in
from seedbus.bus.text import printable
from seedbus.models.data.roots import of_given_run
from seedbus.models.errors import DataError
from seedbus.models.task import Task
from seedbus.scenarios.errors import ScenarioError, path_of
from seedbus.scenarios.reporting.findings import ANALYSIS, kept
from seedbus.scenarios.reporting.page import PAGE, Finished, page
from seedbus.scenarios.reporting.results import content_of, decoded, strict
from seedbus.scenarios.reporting.results_digest import NO_DIGEST, NOTED, Written, noted, written
from seedbus.scenarios.reporting.run_report import Found, recomputed
from seedbus.scenarios.run_folder import METRICS, RESULTS, SCENARIO, fields_in, resuming, scenario_of
from seedbus.scenarios.running.recording import LOG
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.schema.expectations import Bounds, judged
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import parse
from seedbus.versions import version

RECOMPUTED, WAS_NOTED = "recomputed", "noted"
_NOTHING = "nothing"
_RUN_FOLDER = re.compile(rb"(?<=<tr><td>run folder</td><td>)[^<]*")
_AROUND = 40  # characters of a page's line before and after the first that differs
_Leaves = dict[tuple[str | int, ...], str]
"""Values by their places in JSON, as JSON text."""


@dataclass(frozen=True)
class Difference:
    """A value in a file that should be another one.

    Attributes:
        file: the file's name.
        field: where in the file it is, such as `metrics.accuracy` or `line 3.loss`.
        shown: what the file has there, as JSON; "nothing": it has no such field.
        right: what should be there, as JSON.
        how: how that is known: "recomputed", or "noted" in the journal when the file was written.
    """

    file: str
    field: str
    shown: str
    right: str
    how: str = RECOMPUTED

    def __str__(self) -> str:
        return f"{self.file}: {self.field} is {self.shown}; {self.how}: {self.right}"


@dataclass(frozen=True)
class Verified:
    """What a run shows, compared with its journal and its ledger.

    Attributes:
        differences: the values that differ, in the order of the files.
        recomputed: how many values were computed again.
        noted: the fields that were compared with the journal's note alone, since nobody can compute them again.
        unchecked: fields or files → why they were not checked.
    """

    differences: Sequence[Difference]
    recomputed: int
    noted: Sequence[str]
    unchecked: Mapping[str, str]

    @property
    def told(self) -> Sequence[str]:
        """What else is said of it, a sentence each."""
        return ()


@of_given_run()
def verify(run: str | Path, *, task: Task | None = None) -> Verified:
    """Compare the results and the metrics of a finished run with its journal and its ledger.

    Args:
        run: the run's folder.
        task: the run's task, if it holds functions or data sets that only a Python program has.

    Raises:
        RunFolderError: the run is not finished, was begun by another version, or its files cannot be read.
        JournalDamaged, LedgerDamaged: the journal or the ledger is damaged.
        ScenarioError: the scenario needs what this installation does not have.
    """
    folder = path_of(run, "run", "the folder of a run")
    scenario = scenario_of(folder).with_task(task)
    with closing(Journal.open(folder, for_writing=False)) as journal:
        journal.checkpoint()  # verifies all of the journal
        check_build(folder, journal.facts(), {"seedbus": version("seedbus")})
        outcome, notes = outcome_in(journal), written(journal)
        if outcome is None or not (folder / RESULTS).exists():
            raise RunFolderError(folder, f"this run has no {RESULTS} yet; `{resuming(folder)}` writes it")
        reasons = {ANALYSIS: f"only {PAGE} is compared with it", LOG: "nothing of it is read"}
        unchecked = {name: why for name, why in reasons.items() if (folder / name).exists()}
        if (base := journal.base()) is not None:
            unchecked[f"the commits of rounds 0 to {base.round - 1:,}"] = (
                f"they were pruned: the chain of digests goes on from {base.link.hex()}, and a replay from the model "
                f"that they made, {base.replica.digest.hex()}"
            )
        outcome, why_not = _replayed(folder, journal, outcome, task)
        if why_not:
            unchecked["a replay of the model"] = why_not
        found = recomputed(scenario, folder, folder, journal, outcome)
        content = content_of(folder / RESULTS)
        own = digest(content).hex()
        note = next((each for each in notes if each.results == own), notes[-1] if notes else None)
        with journal.decoding():
            right = _right(scenario, found, note)
            noted_before = [_right(scenario, found, each) for each in notes if each is not note]
    shown = decoded(folder / RESULTS, content, _Number)
    if note is None:
        unchecked |= {name: NO_DIGEST for name in (*NOTED, PAGE) if name in shown or (folder / name).exists()}
    computed, differences = _compared(shown | noted(shown), right, unchecked)
    if not differences and note is not None and note.results != own:
        differences = [Difference(RESULTS, "its digest", own, note.results, WAS_NOTED)]
    differences = _compared_scenario(folder) + differences
    more, others = _compared_lines(content_of(folder / METRICS), found.lines)
    if any(each.field.startswith("client_names") for each in differences):
        unchecked[PAGE] = f"it shows clients' names, and those in {RESULTS} are others"
    elif note is not None and (folder / PAGE).exists():
        names = {"client_names": shown["client_names"]} if "client_names" in shown else {}
        others += _compared_page(scenario, folder, found, [each | names for each in (right, *noted_before)])
    of_note = [name for name in NOTED if name in right and note is not None]
    return Verified([*differences, *others], computed + more, of_note, unchecked)


def _replayed(folder: Path, journal: Journal, outcome: Outcome, task: Task | None) -> tuple[Outcome, str]:
    """Return the outcome with the rounds of the journal, and the digests of the model that a replay makes of them.

    Returns:
        The outcome, and why the model was not made again; "": it was.
    """
    newest = deque(((stored.round + 1, stored.version) for stored in journal.rounds()), maxlen=1)
    rounds, version_of_last = newest.pop() if newest else (0, 0)
    outcome = replace(outcome, rounds=rounds, version=version_of_last)
    lines = journal.metrics()
    if lines and lines[-1]["version"] != outcome.version:
        return outcome, f"its digest is that of version {lines[-1]['version']}, the last that was evaluated"
    try:
        replica = replay(folder, task=task).replica
    except (DataError, ScenarioError, RunFolderError) as error:
        return outcome, str(error)
    digests = {name: each.hex() for name, each in replica.digests().items()}
    return replace(outcome, digest=replica.digest(), digests=digests), ""


def _right(scenario: Scenario, found: Found, note: Written | None) -> dict[str, Any]:
    """Return what `results.json` should hold: what can be computed again, and what was noted."""
    kept = {} if note is None else note.kept
    expect: Mapping[str, Bounds] = scenario.expect
    if note is not None:  # it may have been judged again by other bounds
        bounds = {name: {end: each[end] for end in Bounds.model_fields} for name, each in kept["expectations"].items()}
        expect = {name: Bounds.model_validate(each) for name, each in bounds.items()}
    judgement = judged(expect, found.summary, [strict(line) for line in found.lines])
    return {**found.summary, **{name: kept[name] for name in NOTED if name in kept}, "expectations": judgement}


def _compared(
    shown: dict[str, Any], right: dict[str, Any], unchecked: Mapping[str, str]
) -> tuple[int, list[Difference]]:
    """Compare the fields of `results.json`.

    Returns:
        How many were computed again, and what differs.
    """
    there, expected = (_leaves({k: v for k, v in each.items() if k not in unchecked}) for each in (shown, right))
    return sum(path[0] not in NOTED for path in expected), _differing(RESULTS, "", there, expected)


def _compared_scenario(folder: Path) -> list[Difference]:
    """Compare `scenario.yaml`, if it is there, with the journal's scenario; what changes no bit may be another."""
    if not (folder / SCENARIO).exists():
        return []
    text = content_of(folder / SCENARIO)
    try:
        shown = parse(text.decode())
    except (ValueError, RecursionError) as error:
        return [Difference(SCENARIO, "its text", printable(str(error)), "a scenario")]
    free = ("transport", "expect")
    right = {name: value for name, value in fields_in(folder).items() if name not in free}
    shown = {name: value for name, value in shown.items() if name not in free} if isinstance(shown, dict) else shown
    return differing(SCENARIO, shown, right)


def _compared_lines(content: bytes, lines: Sequence[dict[str, Any]]) -> tuple[int, list[Difference]]:
    """Compare `metrics.jsonl` with the evaluations in the journal; see `_compared`."""
    there, expected = content.decode(errors="replace").splitlines(), [json.dumps(strict(line)) for line in lines]
    differences = []
    if len(there) != len(expected):
        differences.append(Difference(METRICS, "its number of lines", str(len(there)), str(len(expected))))
    for number, (was, now) in enumerate(zip(there, expected, strict=False), 1):
        if was != now:
            differences += _within_line(f"line {number}", was, now)
    return sum(map(len, lines)), differences


def _within_line(line: str, was: str, now: str) -> list[Difference]:
    """Return the fields in which a line of `metrics.jsonl` differs; the whole line if there is no such field."""
    try:
        there, right = (_leaves(json.loads(each, parse_float=_Number, parse_int=_Number)) for each in (was, now))
    except (ValueError, RecursionError):
        there, right = {}, {}
    return _differing(METRICS, f"{line}: ", there, right) or [Difference(METRICS, line, was, now)]


def _compared_page(
    scenario: Scenario, folder: Path, found: Found, summaries: Sequence[dict[str, Any]]
) -> list[Difference]:
    """Compare the page with those that are made of summaries, the right one first; any of them may have been written.

    It may name the run's folder otherwise: as it was given to the command that wrote it.
    """
    there, findings = _RUN_FOLDER.sub(b"", content_of(folder / PAGE)).split(b"\n"), kept(folder)
    pages = []
    for summary in summaries:
        content = page(Finished.found(scenario, summary, *found[1:], findings))
        pages.append(_RUN_FOLDER.sub(b"", content).split(b"\n"))
    if there in pages:
        return []
    differences = []
    if len(there) != len(pages[0]):
        differences.append(Difference(PAGE, "its number of lines", str(len(there)), str(len(pages[0]))))
    for number, (was, now) in enumerate(zip(there, pages[0], strict=False), 1):
        if was != now:
            at = next((at for at, pair in enumerate(zip(was, now, strict=False)) if pair[0] != pair[1]), 0)
            texts = (each[max(0, at - _AROUND) : at + _AROUND].decode(errors="replace") for each in (was, now))
            differences.append(Difference(PAGE, f"line {number}", *map(json.dumps, texts)))
    return differences


def differing(file: str, shown: Any, right: Any, how: str = RECOMPUTED) -> list[Difference]:
    """Return the values in which what a file shows, as JSON has it, differs from what should be there."""
    return [replace(each, how=how) for each in _differing(file, "", _leaves(shown), _leaves(right))]


def _differing(file: str, where: str, there: _Leaves, right: _Leaves) -> list[Difference]:
    return [
        Difference(
            file,
            where + ".".join(map(str, path)),
            there.get(path, _NOTHING),
            right.get(path, _NOTHING),
            WAS_NOTED if file == RESULTS and path[0] in NOTED else RECOMPUTED,
        )
        for path in {**there, **right}
        if there.get(path) != right.get(path)
    ]


class _Number(str):
    """A number as it is written, so that a changed digit counts even if the value would be the same."""


def _leaves(value: Any) -> _Leaves:
    """Return the values in JSON by their places; an empty list or mapping is one."""
    found: _Leaves = {}
    pending: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while pending:
        place, each = pending.pop()
        if isinstance(each, dict | list) and each:
            parts = each.items() if isinstance(each, dict) else enumerate(each)
            pending += [((*place, name), part) for name, part in reversed([*parts])]
        else:
            found[place] = each if isinstance(each, _Number) else json.dumps(each)
    return found
