"""What the owner of a client keeps of each round that asked her, so that no journal can tell her otherwise later.

The file `reports.jsonl` of `seedbus client --out` has a line with the scenario whenever her process joins, and one for
each answer, which is written before the answer leaves: the round, the version and the digest of the model that she was
brought to, and "report", or why she declined.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seedbus.agents.errors import RunFolderError
from seedbus.agents.extensions import ClientPart, WorkResult
from seedbus.algorithms.contract import Algorithm, Declined, Replica
from seedbus.bus import Envelope
from seedbus.bus.files import make_folder, private, read, whole_lines
from seedbus.bus.records import Count, Text, record
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.scenario import Scenario

FILE = "reports.jsonl"
REPORT = "report"


class Answer(NamedTuple):
    """An answer that a client gave.

    Attributes:
        client: the client.
        round: the round that asked it.
        version: the version at which it worked.
        model: the digest of its model at that version.
        answer: `REPORT`, or why it declined.
    """

    client: Count
    round: Count
    version: Count
    model: Text
    answer: Text


class OwnRecord(NamedTuple):
    """What an owner has kept.

    Attributes:
        scenarios: those with which she joined.
        answers: those of her clients, in the order in which they left.
    """

    scenarios: list[Scenario]
    answers: list[Answer]


class Recorder(ClientPart):
    """Writes what a process's clients answer.

    Args:
        folder: the owner's.
        scenario: that with which the process joins.
    """

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self._path = folder / FILE
        self._models: dict[int, str] = {}
        make_folder(folder, 0o700)
        whole_lines(self._path)  # a process before this one may have been killed while it wrote
        self._append(scenario.resolved())

    def planned(self, plan: Envelope, replica: Replica) -> None:
        self._models[plan.client] = replica.digest()

    def sent(
        self, algorithm: Algorithm, client: int, plan: Any, outcome: WorkResult, beside: Sequence[int] = ()
    ) -> WorkResult:
        answer = outcome.reason if isinstance(outcome, Declined) else REPORT
        self._append(Answer(client, plan.round, plan.version, self._models[client], answer)._asdict())
        return outcome

    def _append(self, line: dict[str, Any]) -> None:
        with open(self._path, "a", encoding="utf-8", opener=private) as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


def read_record(folder: Path) -> OwnRecord:
    """Return what an owner has kept in a folder. Raises `RunFolderError`: it has no such file, or that is damaged."""
    path, found = folder / FILE, OwnRecord([], [])
    try:
        lines = read(path).decode().splitlines()
    except OSError as error:
        what = f"it cannot be read ({error.strerror}); expected the folder of `seedbus client --out`"
        raise RunFolderError(path, what) from None
    except UnicodeDecodeError:
        raise RunFolderError(path, "it is not UTF-8 text; expected the file of `seedbus client --out`") from None
    for number, line in enumerate(lines, 1):
        try:
            fields = json.loads(line)
            if isinstance(fields, dict) and "task" in fields:
                found.scenarios.append(validate(fields, f"{path}, line {number}", is_kept=True))
            else:
                found.answers.append(record(Answer, [fields[name] for name in Answer._fields]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if isinstance(error, ScenarioError):
                raise
            if number == len(lines):  # the process was killed while it wrote: that answer did not leave
                break
            raise RunFolderError(path, f"line {number} is damaged: {error}") from None
    if not found.scenarios:
        raise RunFolderError(path, "it has no scenario; expected the file of `seedbus client --out`")
    return found
