"""A mask: the coordinates of a task that are trained. All others keep their initial values.

Ran et al. "Mitigating Non-IID Drift in Zeroth-Order Federated LLM Fine-Tuning with Transferable Sparsity" (Meerkat),
ICLR 2026, arXiv:2506.03337: a client perturbs and updates only the coordinates of one sparse mask, the same for the
whole run. Here these coordinates *are* the x of the run, a vector of s numbers (`masked_problem`). So directions,
replicas, replay and catching up cost s instead of d, with every algorithm, arithmetic and backend, to the same bits.

    gradient    the largest mean squared gradients at x₀, over data that no client holds: Meerkat's choice
    largest     the largest |x₀|
    smallest    the smallest |x₀|: Liu et al. "Sparse MeZO", arXiv:2402.15751, which chooses them layer by layer
    random      a draw that the scenario's seed keys

**Ours**: Meerkat takes gradients on its model's pre-training text, and here they are taken on the batches of the
validation split, `MOST_BATCHES` at most. A gradient's last bits depend on the processor, so another processor may
choose another mask; the mask's digest is one of the proofs of a JOIN, and such a process is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.capabilities import Fact, Needs, RulesOut, Statement
from seedbus.models.errors import DataError
from seedbus.models.generators import generator
from seedbus.settings import Settings
from seedbus.vector import Vector

MOST_BATCHES: Final = 64
"""Batches of the validation split over which squared gradients are averaged, at most."""


@runtime_checkable
class HeldOut(Protocol):
    """A problem with gradients on samples that no client holds."""

    def held_out_gradients(self) -> Iterator[Vector]:
        """Yield the gradient at x₀ of each batch of the validation split, [d]; the next one overwrites it."""
        ...


class Mask(Settings):
    """The coordinates that are trained, chosen once, before the first round (Meerkat, arXiv:2506.03337)."""

    rule: Literal["gradient", "largest", "smallest", "random"] = Field(
        description="which coordinates: gradient: those of the largest squared gradients at x₀ on the validation "
        "split, as Meerkat; largest or smallest: by |x₀|; random: a draw keyed by the seed"
    )
    density: float = Field(gt=0, lt=1, description="share of the coordinates that are trained (Meerkat: 0.001)")

    def capabilities(self) -> Iterator[Statement]:
        yield RulesOut(Fact.ALL_COORDINATES, "leaves parts of them")
        if self.rule == "gradient":
            yield Needs(Fact.HELD_OUT, "needs gradients on a validation split", "rule")

    def count(self, dimension: int) -> int:
        """Return s, how many of d coordinates are trained: at least 1."""
        return max(1, round(self.density * dimension))

    def choose(self, problem: Any, x0: Vector, seed: int) -> NDArray[np.int64]:
        """Return the coordinates that are trained, ascending, [s].

        Args:
            problem: the task with its data.
            x0: its initial point, [d].
            seed: the run's seed.

        Raises:
            DataError: the problem has no gradients on held-out samples.
        """
        return largest(self._scores(problem, x0, seed), self.count(x0.size))

    def _scores(self, problem: Any, x0: Vector, seed: int) -> NDArray[Any]:
        if self.rule == "random":
            return generator("mask", seed).random(x0.size)
        if self.rule == "largest":
            return np.abs(x0)
        if self.rule == "smallest":
            return -np.abs(x0)
        return mean_squares(problem, x0.size)


def largest(scores: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Return the places of the `count` largest scores, ascending; of equal scores the first are taken."""
    bound = np.partition(scores, scores.size - count)[scores.size - count]
    chosen = scores > bound
    ties = np.flatnonzero(scores == bound)
    chosen[ties[: count - int(chosen.sum())]] = True
    return np.flatnonzero(chosen)


def mean_squares(problem: Any, dimension: int) -> NDArray[np.float64]:
    """Return the mean squared gradient over the first batches of the validation split, [d]. Raises `DataError`."""
    batches = problem.held_out_gradients() if isinstance(problem, HeldOut) else iter(())
    sums, count = np.zeros(dimension), 0
    for gradient in islice(batches, MOST_BATCHES):
        sums += np.square(np.asarray(gradient, np.float64))
        count += 1
    if not count:
        raise without_gradients()
    wrong = np.flatnonzero(~np.isfinite(sums))
    if wrong.size:
        found = f"gradient, and at x₀ a gradient that is not finite, at {wrong.size} of {dimension} coordinates"
        raise DataError("mask.rule", found, "largest, smallest or random, or a network with finite gradients at x₀")
    return sums / count


def without_gradients() -> DataError:
    """Return why `rule: gradient` is refused for a task."""
    found = "gradient, and this task has no gradients on a validation split"
    return DataError("mask.rule", found, "largest, smallest or random, or a task with task.validation above 0")
