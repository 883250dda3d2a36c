"""Rebuilding any round's model: x₀ and the journal are the model."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from seedbus.agents.client.worker import build_facts, prove
from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.reader import KEPT_EVERY
from seedbus.agents.journal.records import StoredRound
from seedbus.agents.launcher import check_build
from seedbus.algorithms.contract import Replica
from seedbus.bus.files import whole
from seedbus.models.task import Problem
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.run_folder import scenario_of
from seedbus.scenarios.running.prepare import bind


@dataclass(frozen=True)
class Replayed:
    """The model as it stood after a round: the replica, and the problem that names its tensors."""

    round: int
    replica: Replica
    problem: Problem

    @property
    def digest(self) -> str:
        return self.replica.digest()

    def save(self, path: str | Path) -> None:
        """Write the model's tensors, and the algorithm's own fields, as safetensors. Raises `RunFolderError`."""
        from safetensors.numpy import save

        tensors = dict(self.problem.state_dict(self.replica.x))
        tensors |= {f"seedbus.{name}": field for name, field in self.replica.fields.items() if name != "x"}
        facts = {"round": str(self.round), "version": str(self.replica.version), "digest": self.digest}
        path = Path(path)
        if path.is_dir():
            raise RunFolderError(path, "the model cannot be written (it is a folder; expected the name of a file)")
        try:
            with whole(path) as file:
                file.write(save(tensors, metadata=facts))
        except OSError as error:
            raise RunFolderError(path, f"the model cannot be written ({error.strerror})") from None


def replay(run: str | Path, round: int | None = None) -> Replayed:
    """The model of a run after `round` rounds (default: all), rebuilt from its journal, even if that is damaged later.

    Raises `RunFolderError`, `JournalDamaged`, `DataError`, and `ScenarioError` for a round that the run never had.
    """
    scenario = scenario_of(Path(run))
    with closing(Journal.open(Path(run), for_writing=False)) as journal:
        rounds, facts = _sound(journal, round), journal.facts()
    last = len(rounds) if round is None else round
    if not 0 <= last <= len(rounds):
        raise ScenarioError(
            f"--round {last}", [f"the run in {run} has {len(rounds)} rounds; expected 0 to {len(rounds)}"]
        )
    problem = bind(scenario)
    check_build(Path(run), facts, build_facts(prove(scenario.algorithm, problem)))
    algorithm = scenario.algorithm.sized(problem.dimension)
    replica = algorithm.replica(problem.x0())
    packed = [stored.commit for stored in rounds[:last] if stored.commit is not None]
    if packed and not packed[-1]:
        raise ScenarioError(f"--round {last}", [_kept(run, rounds)])
    algorithm.apply(replica, [commit for body in packed for commit in algorithm.unpack_commits(body)])
    return Replayed(last, replica, problem)


def _kept(run: str | Path, rounds: list[StoredRound]) -> str:
    kept = [stored.round + 1 for stored in rounds if stored.commit]
    return (
        f"of a dense run every {KEPT_EVERY}th model is kept; that in {run} has those after {', '.join(map(str, kept))}"
    )


def _sound(journal: Journal, wanted: int | None) -> list[StoredRound]:
    """All rounds of a journal; of a damaged one the sound ones, if they are as many as are wanted."""
    rounds: list[StoredRound] = []
    try:
        for each in journal.rounds():
            rounds.append(each)
    except JournalDamaged:
        if wanted is None or wanted > len(rounds):
            raise
    return rounds
