"""What agents need of a task: `models` implements it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.objective import Objective


class Problem(Protocol):
    """A task bound to its data, its partition and the scenario's seed. It belongs to one thread."""

    @property
    def dimension(self) -> int: ...

    def x0(self) -> Vector:
        """The initial model, float32 [d]: the same bits everywhere, for it is never sent."""
        ...

    def objective(self, client: int, round: int) -> Objective:
        """The client's loss in that round, on the mini-batches that belong to (seed, client, round, step)."""
        ...

    def evaluate(self, x: Vector, split: str) -> dict[str, float]:
        """Metrics over a whole split ("test" or "validation")."""
        ...


@runtime_checkable
class Identified(Protocol):
    """A problem that more decides than x₀ and the seed: frozen weights, a tokenizer, texts from somewhere."""

    def identity(self) -> bytes:
        """A digest of all that: two processes may run together only if theirs are the same."""
        ...


@runtime_checkable
class Probed(Protocol):
    """A problem whose losses have bits that depend on where they were made ready: compiled on this machine, say."""

    def probe(self) -> bytes:
        """A digest of some losses; none where they depend on nothing of the kind."""
        ...
