"""The model that an owner of clients keeps: the file `replica` of `seedbus client --out`.

    the seal of the line, a space, JSON in one line     scenario, build, round, version and digest
    bytes                                               the replica's fields, packed as `PackedReplica` has them

It is replaced as a whole, so a process that is killed leaves the one before. Nothing that travels is made from it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seedbus.agents.catch_up.chunks import little
from seedbus.agents.errors import RunFolderError
from seedbus.agents.extensions import ClientPart
from seedbus.agents.journal.digests import digest
from seedbus.agents.messages import PackedReplica
from seedbus.algorithms.contract import Replica
from seedbus.bus.clock import wall_seconds
from seedbus.bus.files import PRIVATE, atomic_write, check_file, read
from seedbus.bus.records import Count, Text, record
from seedbus.models.errors import NotAllowed
from seedbus.models.task import Note
from seedbus.scenarios.consent.terms import Accepted, terms_of
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.scenario import Scenario

FILE = "replica"
BEFORE = "replica.before"
SPARED = 20
"""How many times as long as writing took nothing is written then: of a large model not each version."""


class _Head(NamedTuple):
    """The line of the file; scenario: its fields; the others as of `KeptModel`."""

    scenario: dict[str, Any]
    build: dict[Text, Text]
    round: Count
    version: Count
    digest: Text


class KeptModel(NamedTuple):
    """What the file has.

    Attributes:
        scenario: with which its process joined.
        build: the facts that decide the bits (`build_facts`).
        round: the number of rounds that the model has gone through.
        replica: the model, with the algorithm's own fields.
    """

    scenario: Scenario
    build: dict[str, str]
    round: int
    replica: PackedReplica


class OwnModel(ClientPart):
    """Keeps the model to which a process's clients were brought last.

    A file that is damaged, of other terms or of a later version is renamed to `BEFORE` first.

    Args:
        folder: the owner's.
        scenario: that with which the process joins.
        note: is told what could not be kept, and what was renamed.

    Attributes:
        build: the facts that decide its bits; set before the first message.
    """

    def __init__(self, folder: Path, scenario: Scenario, note: Note) -> None:
        self.build: Mapping[str, str] = {}
        self._path = folder / FILE
        self._scenario = scenario
        self._note = note
        self._newest: tuple[Replica, int] | None = None  # with its number of rounds
        self._kept = -1  # the version that this process has written; -1: none
        self._next_s = 0.0  # when the next one may be written
        self._thread: threading.Thread | None = None  # which changes replicas

    def reached(self, client: int, rounds: int, replica: Replica) -> None:
        self._newest, self._thread = (replica, rounds), threading.current_thread()
        if replica.version != self._kept and wall_seconds() >= self._next_s:
            self._write(replica, rounds)

    def close(self) -> None:
        """Write the last model, unless a client is at work: then another thread may be changing it."""
        is_at_work = self._thread is not None and self._thread.is_alive()
        if self._newest is not None and self._newest[0].version != self._kept and not is_at_work:
            self._write(*self._newest)

    def _write(self, replica: Replica, rounds: int) -> None:
        began_s = wall_seconds()
        told = _Head(self._scenario.resolved(), dict(self.build), rounds, replica.version, replica.digest())
        line = json.dumps(told._asdict()).encode()
        try:
            if self._kept < 0:
                self._set_aside(replica.version)
            with atomic_write(self._path, PRIVATE) as file:
                file.write(digest(line).hex().encode() + b" " + line + b"\n")
                for _, field in sorted(replica.fields.items()):
                    file.write(little(field).data.cast("B"))
            self._kept = replica.version
        except OSError as error:
            self._note("model-not-kept", what=f"{self._path}: the model cannot be written ({error.strerror})")
        ended_s = wall_seconds()
        self._next_s = ended_s + SPARED * (ended_s - began_s)

    def _set_aside(self, version: int) -> None:
        """Rename the file of a process before this one if this run does not lead on from it."""
        if not check_file(self._path):
            return
        try:
            kept = read_model(self._path.parent)
            Accepted(terms_of(kept.scenario), "that model is of").check(self._scenario)
            if kept.replica.version <= version:
                return
            why = f"it is of version {kept.replica.version}, and the run is at {version}"
        except (RunFolderError, ScenarioError, NotAllowed) as error:
            why = str(error)
        self._path.replace(self._path.with_name(BEFORE))
        self._note("model-set-aside", what=f"the model in {self._path} is now {BEFORE} beside it: {why}")


def read_model(folder: Path) -> KeptModel:
    """Return the model that an owner has kept in a folder.

    Raises:
        RunFolderError: the file cannot be read, or is damaged.
        ScenarioError: its scenario needs what this installation does not have.
    """
    path = folder / FILE
    try:
        head, _, fields = read(path).partition(b"\n")
        seal, _, line = head.partition(b" ")
        if seal != digest(line).hex().encode():
            raise ValueError("its first line does not verify")
        said = json.loads(line)
        told = record(_Head, [said[name] for name in _Head._fields])
        replica = PackedReplica(told.version, bytes.fromhex(told.digest), fields)
    except OSError as error:
        raise RunFolderError(path, f"it cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunFolderError(path, f"the model is damaged ({error})") from None
    return KeptModel(validate(told.scenario, str(path), is_kept=True), told.build, told.round, replica)
