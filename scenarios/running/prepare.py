"""Prepare a run: check it, load its data, and define how its clients are created."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seedbus.agents.client.client_spec import ClientSpec
from seedbus.agents.client.client_state import ClientStateStore
from seedbus.agents.client.forging import Forging, forges
from seedbus.agents.client.relabelling import Relabel, Relabelling
from seedbus.agents.client.tampering import Tampering
from seedbus.agents.client.worker import Followers, build_facts, prove
from seedbus.agents.measuring.client import OwnParts
from seedbus.agents.observer import Observer
from seedbus.agents.server.run_spec import RunSpec
from seedbus.algorithms.contract import Algorithm, Shapes
from seedbus.algorithms.directions.warm import warm
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.bus import Follower, Offer, Recruit
from seedbus.models.device import placed_beside
from seedbus.models.errors import DataError
from seedbus.models.masked_problem import MaskedProblem
from seedbus.models.numeric_state import use_one_thread
from seedbus.models.partition import Partition
from seedbus.models.task import (
    HasClasses,
    HasFactors,
    HasLayers,
    HasNamedClients,
    HasShapes,
    HasSlopes,
    NeedsPreparation,
    Note,
    Problem,
)
from seedbus.scenarios.consent.own_model import OwnModel
from seedbus.scenarios.consent.own_record import Recorder
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.own_data import refuse_without, with_own
from seedbus.scenarios.running.possible import refuse_before_loading, refuse_classes, refuse_impossible, refuse_size
from seedbus.scenarios.running.seed_secret import read_secret, seed_key
from seedbus.scenarios.schema.plugin_use import proof
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that can begin.

    Attributes:
        problem: the task with its data; None if only the worker processes need it.
        files: digests of the files that the scenario names.
        client_names: the names of clients 0, 1, …; none if they have no names, or this process has not their data.
        plays: makes its spec that of a rehearsal of another run; returns it as it is if this is none.
    """

    scenario: Scenario
    placement: Placement
    problem: Problem | None
    files: dict[str, str]
    client_names: Sequence[str] = ()
    plays: Callable[[RunSpec], RunSpec] = lambda spec: spec


def prepare(scenario: Scenario, placement: Placement, note: Note, problem: Problem | None = None) -> Prepared:
    """Check a run and load the data that its server's process needs. Nothing is written.

    Args:
        scenario: the run's scenario.
        placement: where the clients are.
        note: is told of long preparations.
        problem: stands for the task with its data; None: they are loaded.

    Raises:
        ScenarioError, DataError, BadEndpoint: the scenario cannot run here as it is.
    """
    refuse_impossible(scenario, placement)
    if problem is None:
        refuse_without(scenario, placement)
    files = scenario.check()
    if placement.is_here and scenario.seed_shift:
        read_secret()  # it is missed before data is loaded
    if problem is not None:
        relabel(scenario, problem)
        _check_network(scenario, problem)
    elif placement.is_here:
        everybody = range(scenario.participation.clients)
        problem = bind_for_clients(with_own(scenario, placement.own, everybody, evaluates=True), note)
    elif scenario.algorithm.facts.is_dense:  # the server of a dense algorithm needs x₀
        problem = bind(scenario)
    return Prepared(scenario, placement, problem, files, _client_names(scenario, placement, problem))


def _client_names(scenario: Scenario, placement: Placement, problem: Problem | None) -> list[str]:
    """Return the names of clients 0, 1, …; those of data on other machines, which may be other data, are not known."""
    if problem is not None:
        return problem.client_names() if isinstance(problem, HasNamedClients) else []
    if type(scenario.partition).names_of is Partition.names_of or not placement.is_local:
        return []
    clients = scenario.participation.clients
    try:
        return [*scenario.task.division(seed=scenario.seed, clients=clients, partition=scenario.partition).clients]
    except DataError:  # a task need not show its division, and workers tell what their data lacks
        return []


def bind(scenario: Scenario) -> Problem:
    """Return the scenario's task with its data.

    Raises:
        DataError, ScenarioError: the data is missing or unsuitable, or no message can hold the model.
    """
    refuse_before_loading(scenario)
    problem: Problem = scenario.task.bind(
        seed=scenario.seed, clients=scenario.participation.clients, partition=scenario.partition
    )
    refuse_size(scenario, problem.dimension)
    use_one_thread()  # only a task that needs torch has imported it
    if scenario.mask is not None:
        problem = MaskedProblem(problem, scenario.mask, scenario.seed)
    if scenario.evaluation.split != "test" and scenario.evaluation.by == "server":
        problem.evaluate(problem.x0(), scenario.evaluation.split)  # finds an empty split now, not in round 1
    return problem


def bind_for_clients(scenario: Scenario, note: Note) -> Problem:
    """Return the scenario's task with its data, after compiling all kernels that clients need.

    Args:
        scenario: the run's scenario.
        note: is told of long preparations.

    Raises:
        DataError, ScenarioError: the data is missing or cannot be used.
    """
    problem = bind(scenario)
    relabel(scenario, problem)
    if isinstance(problem, NeedsPreparation):
        problem.prepare(note)
    _check_network(scenario, problem)
    if scenario.algorithm.facts.law is not None:
        warm(lambda: note("kernels", compiling="once on this machine"))
    return problem


def _check_network(scenario: Scenario, problem: Problem) -> None:
    """Raise `DataError` or `ScenarioError` unless the network takes what the algorithm asks of it.

    That may be losses layer by layer or by factors, which must not be others, or derivatives along directions.
    """
    algorithm = scenario.algorithm
    if algorithm.facts.needs_slopes:
        if not isinstance(problem, HasSlopes):
            found = f"{scenario.task.name} has no derivatives along directions; estimator: forward-mode needs them"
            raise ScenarioError("task", [found])
        problem.check_slopes()
    if algorithm.facts.needs_factors:
        if not isinstance(problem, HasFactors):
            found = f"{scenario.task.name} has no losses by factors of directions; forward: factored needs them"
            raise ScenarioError("task", [found])
        problem.check_factors()
    if isinstance(algorithm, ScalarOnly) and algorithm.revert == "light" and isinstance(problem, HasLayers):
        problem.check_layers()


def relabel(scenario: Scenario, problem: Problem) -> None:
    """Have clients learn from wrong labels where a fault says so, and from the true ones otherwise.

    Args:
        scenario: the run's scenario.
        problem: its task with its data, perhaps of an earlier run with other faults.

    Raises:
        ScenarioError: a fault changes labels, and the samples have no such classes.
    """
    if not any(isinstance(fault, Relabel) for fault in scenario.faults):
        if hasattr(problem, "relabel"):  # not `HasClasses`, which would count the classes
            problem.relabel(None)
        return
    refuse_classes(scenario, problem.number_of_classes if isinstance(problem, HasClasses) else 0)
    if isinstance(problem, HasClasses):
        problem.relabel(Relabelling(scenario.faults, scenario.seed, scenario.participation.clients))


def proofs_of(scenario: Scenario, problem: Problem) -> dict[str, bytes]:
    """Return what this process shows of itself in a JOIN, by name."""
    return prove(scenario.algorithm, problem, proof(scenario.plugins), placed_beside(problem))


def build_of(scenario: Scenario, problem: Problem) -> dict[str, str]:
    """Return the facts that decide a run's bits in this process, by name."""
    return build_facts(proofs_of(scenario, problem))


def followed(scenario: Scenario, problem: Problem) -> Algorithm:
    """Return the algorithm as followers have it, with the secret shift of seeds if the scenario has one.

    Raises:
        ScenarioError: this process has no secret for the shift.
    """
    algorithm = scenario.algorithm
    shapes: Shapes = ()
    if algorithm.facts.needs_layers:
        if not isinstance(problem, HasShapes):
            raise ScenarioError(
                "task", [f"algorithm {algorithm.facts.label} needs layers, and {scenario.task.name} has none"]
            )
        shapes = problem.shapes()
    algorithm = algorithm.sized(problem.dimension, shapes)
    if scenario.seed_shift and isinstance(algorithm, ScalarOnly):
        return algorithm.shifted(seed_key(scenario.seed, scenario.task.name, problem.dimension))
    return algorithm


def _measures(scenario: Scenario, problem: Problem, folder: Path | None) -> OwnParts | None:
    """Return what measures on clients' own samples, and writes that into a folder; None: the server measures."""
    evaluation, rounds = scenario.evaluation, scenario.stop.most_rounds
    if evaluation.by != "clients":
        return None
    names, in_sums = scenario.task.metrics, scenario.shows_sums_alone
    return OwnParts(problem, evaluation.split, names, evaluation.every, rounds, folder, in_sums=in_sums)


def recruit(
    scenario: Scenario,
    problem: Problem,
    observer: Observer,
    memory: Path | None = None,
    on_first_memory: Callable[[], None] = lambda: None,
    own_model: OwnModel | None = None,
) -> Recruit:
    """Return the function that creates a scenario's clients.

    Args:
        scenario: the run's scenario.
        problem: its task with its data.
        observer: is told of what clients refuse.
        memory: the folder for the state that clients keep between rounds; None: this process keeps it.
        on_first_memory: is called when there is such a state that this process alone keeps.
        own_model: keeps the model for the clients' owner, who keeps what they answer in `memory` too; None: it is not
            kept.
    """
    in_process = ClientStateStore(on_first=on_first_memory)
    faults, seed, clients = scenario.faults, scenario.seed, scenario.participation.clients
    measures = _measures(scenario, problem, memory)
    spec = ClientSpec(
        followed(scenario, problem),
        split=None if measures else scenario.evaluation.split,
        measures=measures,
        verify_every=scenario.verify_every if scenario.verify else 0,
        tampering=Tampering(faults, seed, clients),
        gathers=scenario.clock == "virtual",
        plugins=proof(scenario.plugins),
        place=placed_beside(problem),
        parts=lambda: [
            *(part for feature in scenario.features for part in feature.client_parts()),
            *([] if own_model is None or memory is None else [Recorder(memory, scenario), own_model]),
        ],
    )

    def followers(offer: Offer) -> Follower:
        use_one_thread()  # on a new thread torch uses as many as were set last, maybe at the end of another run
        memories = in_process if memory is None else ClientStateStore(memory, spec.algorithm)
        honest = Followers(offer, spec, problem, observer, memories)
        if own_model is not None:
            own_model.build = build_facts(honest.host.member_proof)
        if not forges(faults):
            return honest
        return Forging(honest, faults, seed=seed, clients=clients, verify_every=spec.verify_every)

    return followers
