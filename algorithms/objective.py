"""What an algorithm asks of a client's loss: values, and, of tasks that have them, gradients and outputs.

`models` implements these; this module imports no framework.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

# float32 in every run; float64 only in the reference that the theory tests use.
Vector = NDArray[np.floating[Any]]


class Objective(Protocol):
    """One client's loss in one round, as an algorithm sees it. `models` implements it."""

    @property
    def point(self) -> Vector:
        """Where the next loss is taken, shape [d]: the caller writes x + μz straight into it, so nothing is copied."""
        ...

    def loss(self, step: int) -> float:
        """f(point; ξ): the mean loss over local step `step`'s mini-batch, the same batch at every call of that step."""
        ...


@runtime_checkable
class Layered(Protocol):
    """An objective that needs no point: it asks for coordinates as its forward pass comes to them."""

    def loss_at(self, step: int, fill: Callable[[slice, Vector], None]) -> float:
        """f(y; ξ): fill(span, out) writes y[span] to out, for a span that begins anywhere; a layer that is reached
        again asks again."""
        ...


class Outputs(Protocol):
    """What a network says to one mini-batch: torch tensors, with their graph where a gradient is to be taken."""

    @property
    def logits(self) -> Any:
        """[b, classes]"""
        ...

    @property
    def hidden(self) -> tuple[Any, ...]:
        """What comes out of each of its blocks but the last, [b, …] each."""
        ...

    @property
    def features(self) -> Any:
        """What goes into the last of them, [b, features]."""
        ...

    @property
    def labels(self) -> Any:
        """int64 [b]"""
        ...


Criterion = Callable[[Outputs], Any]
"""A loss out of a network's outputs: a torch scalar."""


PASSES = 3  # evaluations of f that a gradient takes: a pass forward, and one backward, which is two


class Differentiable(Objective, Protocol):
    """An objective with gradients: what first-order local training needs."""

    @property
    def samples(self) -> int:
        """How many training samples the client holds."""
        ...

    @property
    def key(self) -> int:
        """64 bits of this client and round, for what the client draws by itself."""
        ...

    @property
    def steps_an_epoch(self) -> int:
        """How many mini-batches make one pass over the client's samples."""
        ...

    def gradient(self, step: int, criterion: Criterion | None = None) -> Vector:
        """∇ at `point` of the mean loss over the step's mini-batch, or of a criterion; [d], the next call's too.

        Raises `TypeError` for a criterion where there are no outputs to judge.
        """
        ...

    def outputs(self, step: int, at: Vector) -> Outputs:
        """What the network says at another point to the step's mini-batch, without a graph."""
        ...

    def through(self, hidden: Any, number: int, at: Vector) -> Any:
        """Logits, [b, classes], of what came out of the block of that number, sent through the later ones as they are
        at another point: with a graph that leads back to `hidden`."""
        ...

    def counts(self) -> NDArray[np.int64]:
        """How many of the client's samples belong to each class, [classes]."""
        ...
