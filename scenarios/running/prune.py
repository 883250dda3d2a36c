"""Prune the journal of a stopped run: the model of a round takes the place of the commits that made it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from seedbus.agents.catch_up.chunks import little
from seedbus.agents.catch_up.client import version_of
from seedbus.agents.journal.base import Base
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import Checkpoint
from seedbus.agents.messages import PackedReplica
from seedbus.bus import EVALUATOR
from seedbus.models.task import Task
from seedbus.pieces import frame_of
from seedbus.scenarios.errors import ScenarioError, path_of
from seedbus.scenarios.run_folder import scenario_of
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.schema.scenario import Scenario


@dataclass(frozen=True)
class Pruned:
    """What was pruned.

    Attributes:
        round: the first round whose commit the journal has.
        version: the version that the rounds before it made.
        digest: of the model at that version, with the algorithm's own fields.
        link: the link of the chain that the round before it added, in hexadecimal.
        bytes_before, bytes_after: of the journal.
    """

    round: int
    version: int
    digest: str
    link: str
    bytes_before: int
    bytes_after: int


def prune(run: str | Path, *, task: Task | None = None) -> Pruned | None:
    """Replace the first commits of a run that does not go on now by the model that they make.

    All commits are kept that a client may still be sent: those after the version of the member that lags most, and the
    newest.

    Args:
        run: the run's folder.
        task: the run's task, if it holds functions or data sets that only a Python program has.

    Returns:
        What was pruned; None: all commits are needed.

    Raises:
        RunFolderError: the folder cannot be used, or the run goes on now.
        JournalDamaged: the journal is damaged.
        DataError: the task's data, or the model that training begins with, is missing.
        ScenarioError: the run's journal cannot be pruned.
    """
    folder = path_of(run, "run", "the folder of a run")
    scenario = scenario_of(folder).with_task(task)
    _refuse(scenario, folder)
    with closing(Journal.open(folder)) as journal:
        lost, checkpoint = journal.lost(), journal.checkpoint()
        if lost is not None:
            raise lost
        before = None if checkpoint is None else checkpoint.base
        version = 0 if checkpoint is None else _needed(checkpoint, is_virtual=scenario.clock != "wall")
        if version <= (0 if before is None else before.replica.version):
            return None
        round = next(stored.round for stored in journal.rounds(version))
        replica = replay(folder, round, task=task).replica
        fields = frame_of([little(field).data.cast("B") for _, field in sorted(replica.fields.items())])
        packed = PackedReplica(version, bytes.fromhex(replica.digest()), fields)
        link, blocks = journal.link_before(round), [] if before is None else before.blocks
        size = (folder / FILE).stat().st_size
        journal.prune(Base(round, link, blocks, packed))
    return Pruned(round, version, replica.digest(), link.hex(), size, (folder / FILE).stat().st_size)


def _refuse(scenario: Scenario, folder: Path) -> None:
    """Raise `ScenarioError` if a journal keeps no commits that a model can take the place of."""
    name = scenario.algorithm.facts.label
    if scenario.algorithm.facts.is_dense:
        raise ScenarioError(str(folder), [f"algorithm {name} is dense: the journal has 65 models of it at most"])
    if not scenario.has_server:
        raise ScenarioError(str(folder), ["nodes without a server send each other any commit of the journal"])
    if scenario.seed_shift:
        raise ScenarioError(str(folder), ["seed_shift hides the model from the server, and a pruned journal has it"])


def _needed(checkpoint: Checkpoint, *, is_virtual: bool) -> int:
    """Return the version after which a follower may be sent commits; one at x₀ or gone is given the model instead."""
    versions = [position.version for position in checkpoint.positions.values() if position.is_member]
    if is_virtual:  # its clients are where they were; those of real time join anew
        versions += [version for client, version in checkpoint.actual_versions.items() if client != EVALUATOR]
        versions += [version_of(note, client) for client, note in checkpoint.partial_downloads.items()]
    newest = [checkpoint.last.version - 1]
    newest += [checkpoint.actual_versions.get(EVALUATOR, 0)] if is_virtual else []
    return min([version for version in versions if version] + newest)
