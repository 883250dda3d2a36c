"""The parts of a training problem that agents use; `models` implements them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.objective import Objective


class ClientProblem(Protocol):
    """A task bound to its data, as clients and the evaluator use it: part of `models.task.Problem`. For one thread."""

    @property
    def dimension(self) -> int:
        """d, the number of trained parameters."""
        ...

    def x0(self) -> Vector:
        """Return the initial model, float32 [d]: it is never sent, so it has the same bits in every process."""
        ...

    def samples(self, client: int) -> int:
        """Return the number of training samples that a client holds."""
        ...

    def objective(self, client: int, round: int) -> Objective:
        """Return a client's loss in a round; its mini-batches are keyed by (seed, client, round, step)."""
        ...

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """Return metrics over a whole split, "train", "validation" or "test"."""
        ...


@runtime_checkable
class MeasuredByLayer(Protocol):
    """A problem that can be evaluated without a vector of its point."""

    def evaluate_at(self, fill: Callable[[slice, Vector], None], split: str) -> dict[str, float]:
        """Return what `evaluate` returns at the point whose spans `fill` writes; see `objective.Layered`."""
        ...


@runtime_checkable
class Identified(Protocol):
    """A problem that may depend on more than x₀ and the seed: on frozen weights, a tokenizer, or files of its user."""

    def identity(self) -> bytes:
        """Return a digest of these, empty if there are none; the processes of a run must have equal digests."""
        ...


@runtime_checkable
class Probed(Protocol):
    """A problem whose losses may have other bits on another machine, because they are compiled or stacked."""

    def probe(self) -> bytes:
        """Return a digest of some losses; empty if their bits do not depend on the machine."""
        ...
