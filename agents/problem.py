"""The interface through which agents use a task; `models` implements it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.objective import Objective


class Problem(Protocol):
    """A task bound to its data, its partition and the scenario's seed. It belongs to one thread."""

    @property
    def dimension(self) -> int:
        """d, the number of trained parameters."""
        ...

    def x0(self) -> Vector:
        """Return the initial model, float32 [d]. It is never sent, so it has the same bits in every process."""
        ...

    def objective(self, client: int, round: int) -> Objective:
        """Return the client's loss in a round, on the mini-batches that (seed, client, round, step) determine."""
        ...

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """Return metrics of the model x, [d], over a whole split, "test" or "validation"."""
        ...


@runtime_checkable
class Identified(Protocol):
    """A problem that depends on more than x₀ and the seed, such as frozen weights, a tokenizer or downloaded texts."""

    def identity(self) -> bytes:
        """Return a digest of all that. Two processes may run together only if theirs are the same."""
        ...


@runtime_checkable
class Probed(Protocol):
    """A problem whose losses may have other bits on another machine, because they are compiled, for example."""

    def probe(self) -> bytes:
        """Return a digest of some losses; b"" if they do not depend on the machine."""
        ...
