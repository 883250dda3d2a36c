"""What a task is, and which tasks there are.

A task is a file of `models/tasks`: a frozen pydantic model whose fields are what a scenario may say under `task:`, and
whose `name` is its name there. The invariant: a task's class needs neither torch nor the data, so a server can read a
scenario and know the dimension; `bind` is where networks and data sets are loaded.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from seedbus.models.errors import DataError
from seedbus.models.partitions import Iid, Partition

# float32 in every run; float64 only in the reference that the theory tests use.
Vector = NDArray[np.floating[Any]]

SPLITS = ("train", "validation", "test")


class Objective(Protocol):
    """One client's loss in one round."""

    @property
    def point(self) -> Vector:
        """Where the next loss is taken, shape [d]: the caller writes into it. All objectives of a problem share it."""
        ...

    def loss(self, step: int) -> float:
        """The mean loss at `point` over local step `step`'s mini-batch, the same batch at every call of that step."""
        ...


class Problem(Protocol):
    """A task bound to its data, partition and seed: what a process that hosts clients holds.

    There is one point for all clients: a problem is for one thread, and an objective is used up before the next method
    of its problem is called.
    """

    @property
    def dimension(self) -> int:
        """d, the number of coordinates."""
        ...

    def x0(self) -> Vector:
        """The initial point, float32 [d], a new array: from the task's name and the seed only, one set of bits."""
        ...

    def objective(self, client: int, round: int) -> Objective:
        """The loss of one client in one round. Cheap: data is fetched when a step first asks for it."""
        ...

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """Metrics at x on "train", "validation" or "test", means over samples; "loss" is always there."""
        ...

    def samples(self, client: int) -> int:
        """How many training samples the client holds."""
        ...

    def state_dict(self, x: Vector) -> dict[str, NDArray[Any]]:
        """x as named tensors in the shapes that their network gives them: contiguous copies."""
        ...


Fill = Callable[[slice, Vector], None]
"""Writes the coordinates of a span, which begins anywhere, into a vector of its length."""

Note = Callable[..., None]
"""Told in one word, and facts by name, what a process is busy with."""


@runtime_checkable
class Prepares(Protocol):
    """A problem that does something long before its first loss."""

    def prepare(self, note: Note) -> None:
        """Done once by each process that hosts clients. Raises `DataError`."""
        ...


class Task(BaseModel, frozen=True, extra="forbid"):
    """The schema of `task:`; a subclass narrows `name` to one literal and adds its own fields."""

    metrics: ClassVar[tuple[str, ...]] = ("loss",)
    """What its problem's `evaluate` measures, known without the data."""
    has_outputs: ClassVar[bool] = False
    """Whether there is a network that classifies, for methods that look at what it says."""
    has_owners: ClassVar[bool] = False
    """Whether its samples are people's, so that `partition: natural` can divide them."""

    name: str = Field(description="which task is trained")

    if TYPE_CHECKING:  # a field or a property of the subclass: pydantic lets no field hide an attribute of its base

        @property
        def dimension(self) -> int:
            """d, the number of coordinates, known without torch and without the data."""
            ...

    def smaller(self) -> list[str]:
        """Settings with which it would take less memory, as a scenario spells them."""
        size = getattr(self, "batch_size", 1)
        return [f"task.batch_size: {size // 2}"] if size > 1 else []

    def stored(self) -> int:
        """How many numbers a process loads beside its samples and x: pretrained weights."""
        return 0

    @abstractmethod
    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Load what the task needs and divide it among `clients` clients. Raises `DataError`."""


def tasks() -> dict[str, type[Task]]:
    """Every task of `models/tasks` by its name in a scenario, sorted."""
    found: dict[str, type[Task]] = {}
    package = importlib.import_module(f"{__package__}.tasks")
    for info in pkgutil.iter_modules(package.__path__, prefix=f"{package.__name__}."):
        module = importlib.import_module(info.name)
        found |= {_name(value): value for value in vars(module).values() if _is_task(value, info.name)}
    return dict(sorted(found.items()))


def refuse_partition(task: str, partition: Partition) -> None:
    """For tasks without labelled samples: a partition that could have no effect is an error, never ignored."""
    if not isinstance(partition, Iid):
        raise DataError(f"partition {partition.kind}", f"task {task}, which has no labels to divide by", "kind: iid")


def refuse_criterion(criterion: object) -> None:
    """For tasks without a network: there are no outputs that a criterion could judge."""
    if criterion is not None:
        raise TypeError("this task has no network, so nothing can be judged by its outputs")


def check_split(split: str) -> None:
    """Raise `DataError` unless `split` is one of `SPLITS`."""
    if split not in SPLITS:
        raise DataError("split", repr(split), "one of " + ", ".join(SPLITS))


def _is_task(value: object, module: str) -> TypeGuard[type[Task]]:
    """Whether the value is a task defined in that module, and not a class that only holds what several share."""
    if not isinstance(value, type) or not issubclass(value, Task):
        return False
    return value.__module__ == module and not value.model_fields["name"].is_required()


def _name(task: type[Task]) -> str:
    return str(task.model_fields["name"].default)
