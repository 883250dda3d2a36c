"""Runs of a scenario in a temporary folder, to learn what the whole run will cost.

A *rehearsal* leaves the model out: every loss is 0, and a scalar-only algorithm has one coordinate. Cohorts, faults,
latencies and the sizes of messages are drawn by key and do not depend on losses, so a whole rehearsal has the messages,
bytes and simulated times of the run itself, in a fraction of its time. (Commits of FedKSeed leave out numbers of 0 and
are as narrow as the largest allows. Its clients draw losses, so that their scalars are about 1, and the bytes of its
rehearsal are an estimate.) A *trial* is the scenario itself, cut short.
All times but simulated ones are processor time of this process, so what else the machine does changes them little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray
from pydantic import PrivateAttr

from seedbus.agents.client.client_state import bytes_of_a_client
from seedbus.agents.feature import Foreseen, foreseen
from seedbus.agents.observer import NullObserver
from seedbus.agents.round_record import ClosedRound
from seedbus.agents.server.stopping import Progress, Stop
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.schedule import at
from seedbus.bus.clock import cpu_seconds
from seedbus.bus.files import temporary_folder
from seedbus.models.device import HOST, devices_of, on_device
from seedbus.models.errors import DataError
from seedbus.models.generators import client_key, generator
from seedbus.models.partitions.iid import Iid
from seedbus.models.task import Fill, Problem, Relabelling, Vector
from seedbus.scenarios.errors import Interrupted, ScenarioError
from seedbus.scenarios.run_folder import MEMORY
from seedbus.scenarios.running.memory_hints import memory_hints
from seedbus.scenarios.running.own_data import with_specimens
from seedbus.scenarios.running.prepare import bind_for_clients
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement

_TIME_IS_UP = "the time is up"


class SilentProblem:
    """A problem whose losses and metrics are 0; see `task.Problem`.

    Attributes:
        mask_digest: as long as the run's, because JOINs of clients have it and take time.
        losses_digest: the same.
    """

    mask_digest = losses_digest = b""

    def __init__(self, dimension: int, metrics: Sequence[str], sizes: Sequence[int] = ()) -> None:
        """Make the problem.

        Args:
            dimension: number of coordinates, d.
            metrics: the names of the task's metrics.
            sizes: number of training samples of each client, which a dense report tells; empty: 1 each.
        """
        self.dimension = dimension
        self.point: Vector = np.zeros(dimension, np.float32)
        self._metrics = metrics
        self._sizes = sizes

    def x0(self) -> NDArray[np.float32]:
        return np.zeros(self.dimension, np.float32)

    def probe(self) -> bytes:
        return self.losses_digest

    def shapes(self) -> list[tuple[int, ...]]:
        return [(self.dimension,)]

    @property
    def number_of_classes(self) -> int:
        return 2**20  # more than a fault can name

    def relabel(self, relabelling: Relabelling | None) -> None:
        pass  # losses do not depend on labels

    def samples(self, client: int) -> int:
        return self._sizes[client] if self._sizes else 1

    def objective(self, client: int, round: int) -> SilentLoss:
        return SilentLoss(self.point, self.samples(client))

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        return dict.fromkeys(self._metrics, 0.0)

    def state_dict(self, x: Vector) -> dict[str, Vector]:
        return {"x": x.copy()}


@dataclass(frozen=True, slots=True)
class SilentLoss:
    """A client's loss that is 0 everywhere, with the gradient 0 for any criterion."""

    point: Vector
    samples: int
    steps_an_epoch: int = 1
    key: int = 0

    def loss(self, step: int) -> float:
        return 0.0

    def loss_at(self, step: int, fill: Fill) -> float:
        fill(slice(0, self.point.size), self.point)
        return 0.0

    def gradient(self, step: int, criterion: Any = None) -> Vector:
        return np.zeros_like(self.point)


class DrawnProblem(SilentProblem):
    """A problem whose losses are drawn, so that gradient scalars are about 1."""

    def __init__(self, dimension: int, metrics: Sequence[str], seed: int, smoothing: Any) -> None:
        """Make the problem.

        Args:
            dimension: number of coordinates, d.
            metrics: the names of the task's metrics.
            seed: the scenario's.
            smoothing: μ; may change by round.
        """
        super().__init__(dimension, metrics)
        self._seed = seed
        self._smoothing = smoothing

    def objective(self, client: int, round: int) -> DrawnLoss:  # type: ignore[override]
        return DrawnLoss(self.point, client_key(self._seed, client, round), at(self._smoothing, round))


class DrawnLoss:
    """A client's loss, which is another random number at each evaluation, as large as the smoothing."""

    samples = steps_an_epoch = 1

    def __init__(self, point: Vector, key: int, smoothing: float) -> None:
        self.point = point
        self.key = key
        self._smoothing = smoothing
        self._draws = generator("rehearsal", key)

    def loss(self, step: int) -> float:
        return self._smoothing * (4 * self._draws.random() - 2)

    def loss_at(self, step: int, fill: Fill) -> float:
        fill(slice(0, self.point.size), self.point)
        return self.loss(step)

    def gradient(self, step: int, criterion: Any = None) -> Vector:
        return np.full_like(self.point, self.point.size**-0.5)


class TimedStop(Stop):
    """A scenario's end of training, or after the first round that ends past a limit of processor time."""

    _until_s: float = PrivateAttr(0.0)
    _fewest: int = PrivateAttr(1)
    _verdicts: dict[int, bool] = PrivateAttr(default_factory=dict)  # rounds done → whether the time was up

    @staticmethod
    def of(stop: Stop, seconds: float, fewest: int) -> TimedStop:
        """Return a scenario's `stop` without its target, limited to so many seconds from now; fewest: of its rounds."""
        timed = TimedStop(**dict(stop) | {"target": None})
        timed._until_s = cpu_seconds() + seconds
        timed._fewest = fewest
        return timed

    def reason(self, rounds_done: int, progress: Progress) -> str | None:
        is_up = self._verdicts.setdefault(rounds_done, cpu_seconds() >= self._until_s)
        return super().reason(rounds_done, progress) or (_TIME_IS_UP if is_up and rounds_done >= self._fewest else None)


class Course(NullObserver):
    """The course of a run: for each round what it took, and how many replicas there were.

    Attributes:
        closed_s: when each round was over, in processor seconds since the run began, [R].
        bytes: bytes of the algorithm until the end of each round, [R].
        asked: number of clients that each round asked, [R].
        lags: commits that these had missed, summed, [R].
        replicas: distinct replicas of the clients after each round, [R]; see `agents.client.replicas`.
        measured_s: when the last evaluation was over.
        spending: what its commits have spent of what `stop.epsilon` limits; None: nothing.
    """

    def __init__(self, *, is_verified: bool, spending: Foreseen | None = None) -> None:
        self.closed_s: list[float] = []
        self.bytes: list[int] = []
        self.asked: list[int] = []
        self.lags: list[int] = []
        self.replicas: list[int] = []
        self.measured_s = 0.0
        self.spending = spending
        self._is_verified = is_verified
        self._versions: dict[int, int] = {}
        self._holders = Counter[int]()
        self._began_s = cpu_seconds()

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        self.closed_s.append(cpu_seconds() - self._began_s)
        self.bytes.append(bytes_so_far)
        self.asked.append(len(closed.cohort))
        self.lags.append(sum(closed.record.lags))
        if self.spending is not None:
            self.spending.closed(closed.reported if closed.commit is not None else ())
        self._hold(closed.cohort, closed.version - (closed.commit is not None))
        self.replicas.append(len(self._versions) if self._is_verified else len(self._holders))

    def measured(self, line: dict[str, Any]) -> None:
        self.measured_s = cpu_seconds() - self._began_s

    @property
    def clients(self) -> int:
        """How many clients were asked at least once."""
        return len(self._versions)

    @property
    def evaluation_s(self) -> float:
        """Seconds of the last evaluation, after which nothing else was left to do."""
        return max(0.0, self.measured_s - self.closed_s[-1])

    @property
    def seconds(self) -> list[float]:
        """Seconds of each round, [R]; of a run whose model is evaluated at the start and at the end only."""
        first = max(0.0, self.closed_s[0] - self.evaluation_s)
        return [first, *(after - before for before, after in pairwise(self.closed_s))]

    def _hold(self, clients: Sequence[int], version: int) -> None:
        for client in clients:
            before = self._versions.get(client)
            if before is not None:
                self._holders[before] -= 1
                if not self._holders[before]:
                    del self._holders[before]
            self._versions[client] = version
            self._holders[version] += 1


@dataclass(frozen=True)
class Rehearsed:
    """A run in a temporary folder, which is gone.

    Attributes:
        course: what its rounds took.
        summary: its `results.json`.
        around_s: processor seconds before its first round and after its last evaluation.
        is_whole: whether it went to the scenario's end.
        remembered: bytes on the disk of what a client remembers; 0: nothing.
    """

    course: Course
    summary: dict[str, Any]
    around_s: float
    is_whole: bool
    remembered: int = 0

    @property
    def rounds(self) -> int:
        return len(self.course.closed_s)


def do_commits_vary(algorithm: Any) -> TypeGuard[ScalarOnly]:
    """Whether the bytes of an algorithm's commits depend on losses, so that a rehearsal has not the run's."""
    return isinstance(algorithm, ScalarOnly) and algorithm.facts.commits_vary


def rehearse(scenario: Scenario, seconds: float) -> Rehearsed:
    """Run a scenario without its model for about so many seconds, one round at least."""
    task, algorithm = scenario.task, scenario.algorithm
    # a client that lags may get all coordinates, and so may all messages but those of a scalar-only algorithm
    sends_vectors = not isinstance(algorithm, ScalarOnly)
    dimension = scenario.dimension if sends_vectors or scenario.sends_replicas else 1
    sizes = _sizes(scenario) if sends_vectors else []
    with memory_hints(scenario):
        if do_commits_vary(algorithm):
            problem: SilentProblem = DrawnProblem(dimension, task.metrics, scenario.seed, algorithm.smoothing)
        else:
            problem = SilentProblem(dimension, task.metrics, sizes)
        if scenario.mask is not None:
            problem.mask_digest = bytes(16)
        if getattr(task, "forward", "eager") != "eager":
            problem.losses_digest = bytes(8)
    return _run(scenario, seconds, problem)


def try_out(scenario: Scenario, seconds: float) -> Rehearsed:
    """Run a scenario itself for about so many seconds, one round at least.

    Clients keep what they reported in the last round and in this one. Where these are vectors, only the second round
    shows how much memory that is, so there are two at least.

    Raises:
        ScenarioError, DataError: it cannot run here.
    """
    began_s = cpu_seconds()
    (device,) = devices_of("")
    with memory_hints(scenario, device), on_device(device):
        problem = bind_for_clients(with_specimens(scenario), NullObserver().noted)
    fewest = 2 if scenario.algorithm.facts.is_dense else 1
    return _run(scenario, seconds, problem, cpu_seconds() - began_s, fewest, device)


def _run(
    scenario: Scenario, seconds: float, problem: Problem, bound_s: float = 0.0, fewest: int = 1, device: str = HOST
) -> Rehearsed:
    """Run a scenario with this problem, which lies on a device, for so many seconds and this many rounds at least.

    bound_s: seconds that the problem took to load.
    """
    changes = {
        "stop": TimedStop.of(scenario.stop, seconds, fewest),
        "evaluation": scenario.evaluation.model_copy(update={"every": scenario.stop.most_rounds, "by": "server"}),
        "clock": "virtual",
        "expect": {},
    }
    if scenario.partition.is_partial:  # the problem has all samples, or none is needed
        changes["partition"] = Iid()
    spending, budget = foreseen(scenario), scenario.stop.epsilon
    if spending is not None and budget is not None and (first := spending.epsilon(1)) > budget:
        why = f"one commit could cost ε = {first:.4g}, so no round begins; a larger ε or more noise is accepted"
        raise ScenarioError(scenario.name, [f"stop.epsilon is {budget:g}, and {why}"])
    began_s, course = cpu_seconds(), Course(is_verified=scenario.verify, spending=spending)
    with temporary_folder() as folder:
        try:
            results = run(
                scenario.model_copy(update=changes),
                folder / "run",
                observer=course,
                placement=Placement(devices=(device,)),
                problem=problem,
            )
        except Interrupted:
            raise KeyboardInterrupt from None  # there is no folder to go on with
        remembered = bytes_of_a_client(folder / "run" / MEMORY)
    around_s = bound_s + cpu_seconds() - began_s - course.measured_s
    return Rehearsed(course, results.summary, around_s, results.summary["reason"] != _TIME_IS_UP, remembered)


def _sizes(scenario: Scenario) -> list[int]:
    """Return how many training samples each client holds; [] if that cannot be told here."""
    try:
        division = scenario.task.division(
            seed=scenario.seed, clients=scenario.participation.clients, partition=scenario.partition
        )
    except DataError:
        return []
    return [int(part.size) for part in division.parts]
