"""The contracts of a task and of the problem that it is bound to, and the list of all tasks.

A task is a file of `models/tasks`: a frozen pydantic model whose fields are those of a scenario's `task:`, and whose
`name` selects it there. The invariant: a task needs neither torch nor data, so a server can read a scenario and know
the dimension; `bind` loads networks and data sets.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.capabilities import Fact, RulesOut, Statement
from seedbus.discovery import Variants
from seedbus.models.errors import DataError
from seedbus.models.partition import Division, Partition
from seedbus.models.preprocessing import Preprocessing
from seedbus.settings import Settings
from seedbus.vector import Vector as Vector

if TYPE_CHECKING:
    from torch import nn

SPLITS = ("train", "validation", "test")
RISING = ("accuracy", "success", "f1")
"""Metrics of which larger values are better, in every task that has them; of others smaller ones are."""


class PassCost(NamedTuple):
    """What a task's losses cost, known without its weights and its data.

    Attributes:
        flops: floating-point operations of a forward pass of a training sample.
        evaluated_flops: the same of an evaluated sample.
        generated_flops: of an evaluated sample besides, in products with one vector each.
        evaluated: the samples of a split that are evaluated, at most.
        trained: training samples.
    """

    flops: float
    evaluated_flops: float
    generated_flops: float
    evaluated: int
    trained: int


class ClientLoss(Protocol):
    """One client's loss in one round; an `Objective` is what algorithms require of it."""

    @property
    def point(self) -> Vector:
        """The point of the next loss, [d]: the caller writes into it. All losses of a problem share it."""
        ...

    def loss(self, step: int) -> float:
        """Return the mean loss at `point` over a local step's mini-batch, the same batch in every call of a step."""
        ...


class Problem(Protocol):
    """A task bound to its data, partition and seed, in a process that hosts clients.

    All clients share one point: a problem is for one thread, and a client's loss is valid until the next call of a
    method of its problem.
    """

    @property
    def dimension(self) -> int:
        """d, the number of coordinates."""
        ...

    def x0(self) -> Vector:
        """Return the initial point, a new float32 array [d]; it has the same bits in every process."""
        ...

    def objective(self, client: int, round: int) -> ClientLoss:
        """Return one client's loss in one round. It is cheap: data is fetched when a step first needs it."""
        ...

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """Return metrics at x on "train", "validation" or "test", of all samples; always with "loss", their mean."""
        ...

    def samples(self, client: int) -> int:
        """Return the number of training samples that a client holds."""
        ...

    def state_dict(self, x: Vector) -> dict[str, NDArray[Any]]:
        """Return x as named tensors in the shapes of the network, as contiguous copies."""
        ...


Fill = Callable[[slice, Vector], None]
"""Writes the coordinates of a span, which may begin anywhere, into a vector of its length."""

Relabelling = Callable[[int, int, int], NDArray[np.int64] | None]
"""Takes a client, a round and the number of classes, and returns the class that each is taken for; None: itself."""

Note = Callable[..., None]
"""Takes one word, and facts by name, about what a process is doing."""


@runtime_checkable
class HasShapes(Protocol):
    """A problem whose coordinates are the parameters of a network."""

    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the parameters, in the order of their coordinates."""
        ...


@runtime_checkable
class HasNetwork(Protocol):
    """A problem whose coordinates are the parameters of a torch module."""

    def network_at(self, x: Vector) -> nn.Module:
        """Return a copy of the network with the parameters x, in evaluation mode."""
        ...


@runtime_checkable
class HasClasses(Protocol):
    """A problem whose samples may have classes, which can be taken for others where clients learn."""

    @property
    def number_of_classes(self) -> int:
        """The number of classes; 0: the samples have none."""
        ...

    def relabel(self, relabelling: Relabelling | None) -> None:
        """Have clients learn from other classes from now on, or with None from the true ones, as evaluations do."""
        ...


@runtime_checkable
class HasNamedClients(Protocol):
    """A problem whose clients may have names."""

    def client_names(self) -> list[str]:
        """Return the names of clients 0, 1, …, or none if their numbers are their names."""
        ...


@runtime_checkable
class NeedsPreparation(Protocol):
    """A problem that needs a long preparation before its first loss."""

    def prepare(self, note: Note) -> None:
        """Prepare the problem, once in each process that hosts clients. Raises `DataError`."""
        ...


@runtime_checkable
class HasLayers(Protocol):
    """A problem whose losses can be computed layer by layer, with the coordinates of one layer in memory."""

    def check_layers(self) -> None:
        """Compute a loss of a training batch so, before the run. Raises `DataError` if it is not the network's."""
        ...


@runtime_checkable
class HasSlopes(Protocol):
    """A problem whose objectives have derivatives along directions (`algorithms.objective.Sloped`)."""

    def check_slopes(self) -> None:
        """Compute one of a training batch, before the run. Raises `DataError` if torch cannot."""
        ...


@runtime_checkable
class HasFactors(Protocol):
    """A problem whose objectives have losses by factors of directions (`algorithms.objective.Factored`)."""

    def check_factors(self) -> None:
        """Compute one of a training batch, before the run. Raises `DataError` if it is not the network's."""
        ...


@runtime_checkable
class HasParts(Protocol):
    """A problem whose samples can be measured in parts, such as those of one client.

    Attributes:
        parts: for each client the sorted indices of its training samples.
    """

    parts: Sequence[NDArray[np.int64]]

    @property
    def number_of_classes(self) -> int:
        """The number of classes; 0: the samples have none."""
        ...

    def classes(self, split: str) -> NDArray[np.int64]:
        """Return the class of each sample of a split, [n], where there are classes."""
        ...

    def owned(self, split: str) -> Sequence[NDArray[np.int64]] | None:
        """Return for each client the sorted indices of its people's samples of a split; None: none are people's."""
        ...

    def evaluated(self, split: str) -> NDArray[np.int64]:
        """Return the indices of the samples that `evaluate` measures. Raises `DataError` if there are none."""
        ...

    def evaluate_part(self, x: Vector, split: str, indices: NDArray[np.int64]) -> dict[str, float]:
        """Return metrics at x of the samples of a split with these indices, of which there is one at least."""
        ...


class Derivatives(Protocol):
    """The derivatives of F, the mean loss over training samples, at one point."""

    def gradient(self) -> NDArray[np.float64]:
        """Return ∇F, float64 [d]."""
        ...

    def times(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product of ∇²F and a vector, float64 [d] each."""
        ...

    def block(self, places: NDArray[np.int64], advance: Callable[[float], None]) -> NDArray[np.float64]:
        """Return the rows and columns of ∇²F at some coordinates, which takes less time than as many products.

        Args:
            places: the coordinates, [n].
            advance: is told of the work done, in rows, n in all.

        Returns:
            float64 [n, n], symmetric but for rounding errors.
        """
        ...


@runtime_checkable
class TwiceDifferentiable(Protocol):
    """A problem whose Hessian can be measured."""

    def derivatives(self, x: Vector, count: int) -> AbstractContextManager[Derivatives]:
        """Return a context with the derivatives of the mean loss over training samples.

        Args:
            x: the point, [d], which must not be changed within the context.
            count: number of samples, spread evenly over those of all clients; if there are fewer, all.
        """
        ...


class Task(Settings):
    """The schema of `task:`; a subclass narrows `name` to one literal and adds its own fields."""

    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"micro_batch": 1},)
    """Settings with which it lacks capabilities, if it has such fields."""
    metrics: ClassVar[tuple[str, ...]] = ("loss",)
    """The metrics of its problem's `evaluate`, known without the data."""
    has_outputs: ClassVar[bool] = False
    """Whether it has a classifier that learns by cross-entropy, for methods that change its loss."""
    has_samples: ClassVar[bool] = True
    """Whether it has samples; without them any partition but iid is refused."""
    has_owners: ClassVar[bool] = False
    """Whether its samples may have owners, so that `partition: natural` can divide them."""
    has_columns: ClassVar[bool] = False
    """Whether its samples have columns with names, so that `partition: by-column` can divide them."""
    has_stated: ClassVar[bool] = False
    """Whether it states what the samples of all owners have in common, so that `partition: own` can be used."""
    has_test_set: ClassVar[bool] = True
    """Whether it has a test set that is nobody's alone, on which a server can measure."""
    public_files: ClassVar[tuple[str, ...]] = ()
    """Fields that name a public test set, for the process that evaluates; at others they may be null."""
    has_layers: ClassVar[bool] = True
    """Whether its problem may be one that `HasShapes`; a run finds out when it is bound."""
    has_slopes: ClassVar[bool] = True
    """Whether its problem may be one that `HasSlopes`; a run finds out when it is bound."""
    known_classes: ClassVar[int | None] = None
    """The number of its samples' classes, known without the data; 0: they have none; None: the data decides it."""
    uses_device: ClassVar[bool] = True
    """Whether its problem computes on the device of its process; False: on the processor, whatever device is named."""

    name: str = Field(description="which task is trained")

    if TYPE_CHECKING:  # a subclass has a field or a property; pydantic lets no field hide an attribute of its base

        @property
        def dimension(self) -> int:
            """d, the number of coordinates, known without torch and without the data."""
            ...

    def capabilities(self) -> Iterator[Statement]:
        yield RulesOut(Fact.SAMPLES, "has none", when=lambda: not self.has_samples)
        yield RulesOut(Fact.OWNERS, "has samples without owners", when=lambda: not self.has_owners)
        yield RulesOut(Fact.COLUMNS, "has samples without columns", when=lambda: not self.has_columns)
        yield RulesOut(Fact.STATED, "does not state what owners have in common", when=lambda: not self.has_stated)
        yield RulesOut(Fact.LAYERS, "has none", when=lambda: not self.has_layers)
        yield RulesOut(Fact.SLOPES, "has none", when=lambda: not self.has_slopes)
        yield RulesOut(Fact.OUTPUTS, "has none", when=lambda: not self.has_outputs)
        yield RulesOut(Fact.MEANS, "has others", when=lambda: {*self.metrics} != {*self.averaged})
        yield RulesOut(Fact.HELD_OUT, "has none with these settings", when=lambda: not self.may_hold_out)
        if getattr(self, "micro_batch", None) is not None:
            yield RulesOut(Fact.WHOLE_BATCHES, "divides them", "micro_batch")

    @property
    def rising(self) -> Sequence[str]:
        """The metrics of its problem of which larger values are better."""
        return RISING

    @property
    def averaged(self) -> Sequence[str]:
        """The metrics of its problem that are means over samples, so that those of parts make that of all."""
        return self.metrics

    @property
    def declared_dimension(self) -> int | None:
        """d, if the scenario alone decides it; None if it takes code or data of the user."""
        return self.dimension

    @property
    def may_hold_out(self) -> bool:
        """Whether its problem may be one that `mask.HeldOut`, with samples; a run finds out when it is bound."""
        return getattr(self, "validation", None) != 0

    def check_elsewhere(self) -> None:
        """Raise `DataError` if another process could not make this task from the scenario."""

    def caveats(self) -> list[str]:
        """Return what a user should know of it before a run, a sentence each. May raise `DataError`."""
        return []

    def contents(self) -> list[str]:
        """Return what `explain` says of its data, a sentence each. May raise `DataError`."""
        return []

    def memory_saving_settings(self) -> list[str]:
        """Return settings that would need less memory, in the spelling of a scenario."""
        size = getattr(self, "batch_size", 1)
        part = min(size, getattr(self, "micro_batch", None) or size)
        parts = [f"task.micro_batch: {part // 2}"] if part > 1 else []
        return [*parts, *([f"task.batch_size: {size // 2}"] if size > 1 else [])]

    @property
    def stacked_points(self) -> int:
        """The number of points, of d coordinates each, at which losses are computed in one call; 0: one by one."""
        return 0

    def pretrained_size(self) -> int:
        """Return how many numbers of pretrained weights a process loads."""
        return 0

    def pass_cost(self) -> PassCost | None:
        """Return what its losses cost, without loading anything; None: only a trial tells. May raise `DataError`."""
        return None

    def named_files(self) -> list[Path]:
        """Return the user's own files and folders that its fields name, for a digest. Raises `DataError`."""
        return []

    def preprocessing(self) -> Preprocessing | None:
        """Return how samples become inputs, and what outputs mean, for exported models; None: that is not told.

        Raises:
            DataError: the task's data is missing or damaged.
        """
        return None

    def division(self, *, seed: int, clients: int, partition: Partition) -> Division:
        """Return which client holds which training samples, as in the problem that `bind` returns, without its network.

        Args:
            seed: the run's seed.
            clients: number of clients.
            partition: how the training samples are divided.

        Raises:
            DataError: the task has no samples, or they cannot be divided so.
        """
        raise DataError(f"task {self.name}", "no samples that could be divided", "a task with labelled samples")

    @abstractmethod
    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Load the task's data and divide it among clients.

        Args:
            seed: the run's seed.
            clients: number of clients.
            partition: how the training samples are divided.

        Raises:
            DataError: data is missing or damaged, or cannot be divided so.
        """


class NoTask(Task, frozen=True):
    """Stands in a scenario that gets its task when it is run; everything that needs a task refuses it.

    What does not fit a task is found when there is one.
    """

    has_outputs: ClassVar[bool] = True
    has_owners: ClassVar[bool] = True

    name: Literal["none"] = "none"

    @property
    def declared_dimension(self) -> None:
        return None

    @property
    def dimension(self) -> int:
        raise DataError("task", "none", "the model and its data, in the scenario or as `task`")

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Raise `DataError`."""
        raise DataError("task", "none", "the model and its data, in the scenario or as `task`")


TASKS = Variants("task", "name", "seedbus.models.tasks", Task)


def refuse_criterion(criterion: object) -> None:
    """Raise `TypeError` for a criterion: a task without a network has no outputs."""
    if criterion is not None:
        raise TypeError("this task has no network, so a criterion of its outputs cannot be used")


def check_split(split: str) -> None:
    """Raise `DataError` unless `split` is one of `SPLITS`."""
    if split not in SPLITS:
        raise DataError("split", repr(split), "one of " + ", ".join(SPLITS))
