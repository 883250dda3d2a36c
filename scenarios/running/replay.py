"""Rebuild the model after any round from x₀ and the commits in the journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from seedbus.agents.catch_up import chunks
from seedbus.agents.errors import JournalDamaged, RunFolderError
from seedbus.agents.journal.base import Base
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.reader import kept_every
from seedbus.agents.journal.records import StoredRound
from seedbus.agents.launcher import check_build, unpacked
from seedbus.agents.problem import Identified
from seedbus.algorithms.contract import BadPayload, Replica, Vector
from seedbus.algorithms.directions import use_all_cores
from seedbus.bus.files import atomic_write
from seedbus.bus.text import counted
from seedbus.models.data.roots import of_given_run
from seedbus.models.masked_problem import MaskedProblem
from seedbus.models.numeric_state import numeric_state
from seedbus.models.preprocessing import KEY, Preprocessing
from seedbus.models.task import HasNetwork, Problem, Task
from seedbus.scenarios.consent import own_model
from seedbus.scenarios.errors import ScenarioError, path_of
from seedbus.scenarios.run_folder import refuse_another, scenario_of
from seedbus.scenarios.running.own_data import with_own
from seedbus.scenarios.running.prepare import bind, build_of, followed, relabel
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.sentences import is_whole

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Replayed:
    """The model after a round.

    Attributes:
        round: number of rounds that it has gone through.
        replica: the model, with the algorithm's own fields.
        problem: the task, which names the model's tensors.
        point: the model's coordinates, as they are evaluated, float32 [d]; where clients are sent others, as those of
            FedACG and FedExP are, the replica holds what they are sent.
        preprocessing: how samples become inputs of the model, and what its outputs mean; None: the task does not tell.
        chain: the link of the journal's chain of digests after the round, in hexadecimal.
    """

    round: int
    replica: Replica = field(repr=False)
    problem: Problem = field(repr=False)
    point: Vector = field(repr=False)
    preprocessing: Preprocessing | None = field(default=None, repr=False)
    chain: str = field(default="", repr=False)

    @property
    def digest(self) -> str:
        return self.replica.digest()

    def network(self) -> nn.Module:
        """Return the task's network with this model's weights: a copy, in evaluation mode, on the run's device.

        Raises:
            ScenarioError: the task has no network.
        """
        problem = getattr(self.problem, "inside", self.problem)  # of a mask
        if not isinstance(problem, HasNetwork) or not isinstance(self.problem, HasNetwork):
            raise ScenarioError("Replayed.network", ["its task has no network; its coordinates are in `point`"])
        return self.problem.network_at(self.point)

    def save(self, path: str | Path) -> None:
        """Write the tensors of the network's `state_dict` as safetensors, float32.

        The preprocessing is in the file's metadata, as JSON. The algorithm's own fields, such as a momentum, are not in
        the file: the run's folder keeps them, and `replica` has them.

        Raises:
            RunFolderError: the file cannot be written.
            ScenarioError: `path` is no name of a file, or one of another format.
        """
        from safetensors.numpy import save

        tensors = dict(self.problem.state_dict(self.point))
        facts = {"round": str(self.round), "version": str(self.replica.version), "digest": self.digest}
        if self.preprocessing is not None:
            facts[KEY] = self.preprocessing.text()
        path = path_of(path, "path", "the name of a file")
        if path.suffix in (".pt", ".pth", ".bin", ".ckpt", ".npz", ".onnx", ".gguf"):
            what = f"it is written as safetensors, which {path.suffix} is not; expected {path.stem}.safetensors"
            raise ScenarioError(str(path), [what])
        if path.is_dir():
            raise RunFolderError(path, "the model cannot be written (it is a folder; expected the name of a file)")
        try:
            with atomic_write(path) as file:
                file.write(save(tensors, metadata=facts))
        except OSError as error:
            raise RunFolderError(path, f"the model cannot be written ({error.strerror})") from None


@numeric_state()
def replay(run: str | Path, round: int | None = None, *, task: Task | None = None) -> Replayed:
    """Rebuild the model of a run from its journal. Damage behind the requested round does no harm.

    Args:
        run: the run's folder; or an owner's, of which the model that `seedbus client --out` keeps there is returned.
        round: number of rounds to replay; None: all.
        task: the run's task, if it holds functions or data sets that only a Python program has.

    Raises:
        RunFolderError: the folder cannot be used, or its run was begun by another build.
        JournalDamaged: a round that is needed is damaged.
        DataError: the task's data is missing.
        ScenarioError: the run has no such round, kept no model of it, or its commits were pruned.
    """
    (replayed,) = replays(run, [round], task=task)
    return replayed


def replays(
    run: str | Path, rounds: Sequence[int | None], *, task: Task | None = None, own: str = ""
) -> Iterator[Replayed]:
    """Yield the models after several rounds, in their order, as `replay` returns them. The task is bound once.

    Args:
        run: as there.
        rounds: of each model the number of rounds; None: all.
        task: as there.
        own: all owners' files or folders, as `with_own` takes them, for an analysis; "": the model needs none.

    Raises:
        RunFolderError, JournalDamaged, DataError, ScenarioError: as `replay` does.
    """
    folder = path_of(run, "run", "the folder of a run")
    wrong = [number for number in rounds if not (number is None or is_whole(number))]
    if wrong:
        raise ScenarioError("round", [f"{wrong[0]!r} is not accepted; expected a number of rounds"])
    is_owners = (folder / own_model.FILE).is_file() and not (folder / FILE).exists()
    yield from _of_owner(folder, rounds, task) if is_owners else _of_run(folder, rounds, task, own)


def _of_run(folder: Path, rounds: Sequence[int | None], task: Task | None, own_data: str) -> Iterator[Replayed]:
    """Yield the models of a run's journal. Raises as `replays` does."""
    own = scenario_of(folder)
    scenario = own.with_task(task)
    refuse_another(scenario, own, folder)
    with closing(Journal.open(folder, for_writing=False)) as journal:
        needed = None if None in rounds else max((each for each in rounds if each is not None), default=0)
        stored = _undamaged(journal, needed)
        facts, base = journal.facts(), journal.base()
        numbers = _checked(folder, rounds, stored, base)
        chains = [journal.link_before(number).hex() for number in numbers]
    if own_data:
        scenario = with_own(scenario, own_data, range(scenario.participation.clients), evaluates=True)
    with of_given_run():  # tables are read when they are needed first
        problem = bind(scenario)
        relabel(scenario, problem)  # for an analysis that has clients train again
        check_build(folder, facts, build_of(scenario, problem))
        preprocessing = _preprocessing(scenario, problem)
        algorithm = followed(scenario, problem)
    use_all_cores()  # which changes no bit
    for number, chain in zip(numbers, chains, strict=True):
        replica = algorithm.replica(problem.x0())
        made = _with_commit(stored[:number])
        if base is not None and number:
            try:
                replica = chunks.unpacked(base.replica, replica)
            except BadPayload as error:
                raise JournalDamaged(folder / FILE, 0, f"its base is {error}") from None
            made = [each for each in made if each.commit]
        folded = made[-1:] if algorithm.facts.is_dense else made  # a dense commit is a whole model
        commits = [commit for each in folded for commit in unpacked(algorithm, each, folder / FILE)]
        algorithm.apply(replica, commits)
        point = algorithm.point(replica, commits[-1] if commits else None)
        yield Replayed(number, replica, problem, point, preprocessing, chain)


def _preprocessing(scenario: Scenario, problem: Problem) -> Preprocessing | None:
    """Return what the task tells of its samples; and which weights a model of theirs needs that are not in its file."""
    about, inside = scenario.task.preprocessing(), problem.inside if isinstance(problem, MaskedProblem) else problem
    if about is None or about.settings is None or not isinstance(inside, Identified):
        return about
    return about.model_copy(update={"frozen": inside.identity().hex()})


def _of_owner(folder: Path, rounds: Sequence[int | None], task: Task | None) -> Iterator[Replayed]:
    """Yield the model that an owner has kept, if `rounds` names no other. Raises as `replays` does."""
    kept = own_model.read_model(folder)
    scenario = kept.scenario.with_task(task)
    refuse_another(scenario, kept.scenario, folder)
    problem = bind(scenario)
    check_build(folder, kept.build, build_of(scenario, problem))
    algorithm = followed(scenario, problem)
    try:
        replica = chunks.unpacked(kept.replica, algorithm.replica(problem.x0()))
    except BadPayload as error:
        raise RunFolderError(folder / own_model.FILE, f"the model is damaged ({error})") from None
    for number in rounds:
        if number not in (None, kept.round):
            what = f"{folder} is an owner's, with the model after {counted(kept.round, 'round')} alone"
            raise ScenarioError(f"round {number}", [f"{what}; expected {kept.round}, or none"])
        yield Replayed(kept.round, replica, problem, algorithm.point(replica), _preprocessing(scenario, problem))


def _checked(run: str | Path, rounds: Sequence[int | None], stored: list[StoredRound], base: Base | None) -> list[int]:
    """Return numbers of rounds of which a model can be made. Raises `ScenarioError`: of one of them none can."""
    numbers = [len(stored) if each is None else int(each) for each in rounds]
    for number in numbers:
        if not 0 <= number <= len(stored):
            raise ScenarioError(
                f"round {number}",
                [f"the run in {run} has {counted(len(stored), 'round')}; expected 0 to {len(stored)}"],
            )
        made = _with_commit(stored[:number])
        if base is not None and 0 < number < base.round:
            what = f"its commits were pruned; expected 0 or {base.round:,} to {len(stored):,}"
            raise ScenarioError(f"round {number} of {run}", [what])
        if base is None and made and not made[-1].commit:
            raise ScenarioError(f"round {number}", [_kept_models(run, stored)])
    return numbers


def _with_commit(rounds: list[StoredRound]) -> list[StoredRound]:
    return [stored for stored in rounds if stored.commit is not None]


def _kept_models(run: str | Path, rounds: list[StoredRound]) -> str:
    kept = [0, *(stored.round + 1 for stored in rounds if stored.commit)]
    every = kept_every(rounds[-1].version)
    return (
        f"its model is not kept; a dense run keeps every {every}th and the last: in {run} those after rounds "
        f"{', '.join(map(str, kept))}"
    )


def _undamaged(journal: Journal, needed: int | None) -> list[StoredRound]:
    """Return the rounds of a journal up to the first damaged one.

    Args:
        journal: the run's journal.
        needed: number of rounds that must be undamaged; None: all.

    Raises:
        JournalDamaged: fewer are.
    """
    rounds: list[StoredRound] = []
    try:
        for stored in journal.rounds():
            rounds.append(stored)
    except JournalDamaged:
        if needed is None or needed > len(rounds):
            raise
    return rounds
