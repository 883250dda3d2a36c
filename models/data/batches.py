"""Mini-batches: which samples a client uses in one local step.

The invariant: a batch is a function of (seed, client, round, step) and of the client's own samples. It does not depend
on which other clients take part, on their order, or on the process.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from seedbus.models.generators import brief

MICRO_BATCH = (
    "most samples of a forward pass: losses of a larger batch's parts are added in their order; none: all at once"
)
"""The description of the field `micro_batch`."""


def parts(count: int, most: int | None) -> list[slice]:
    """Return the parts of a batch of `count` samples, with at most `most` samples each; None: one part."""
    size = most or max(1, count)
    return [slice(start, min(start + size, count)) for start in range(0, max(1, count), size)]


def batches_per_pass(samples: NDArray[np.int64], size: int) -> int:
    """Return the number of batches of `size` in one pass over the samples; the last one may be smaller."""
    return max(1, -(-samples.size // size))


def batch_of_pass(
    samples: NDArray[np.int64], size: int, *, seed: int, client: int, round: int, step: int
) -> NDArray[np.int64]:
    """Return the batch of a step that goes through the client's samples, in a new order in each pass.

    Args:
        samples: indices of the client's samples, [n].
        size: samples a batch; the last batch of a pass may be smaller.
        seed: the run's seed.
        client: the client's number.
        round: the round's number.
        step: the local step, from 0.
    """
    number, place = divmod(step, batches_per_pass(samples, size))
    return samples[_order(samples.size, seed, client, round, number)[place * size : (place + 1) * size]]


@lru_cache(maxsize=64)  # clients whose steps take turns
def _order(count: int, seed: int, client: int, round: int, number: int) -> NDArray[np.int64]:
    return brief("pass", seed, client, round, number).permutation(count)


def batch(samples: NDArray[np.int64], size: int, *, seed: int, client: int, round: int, step: int) -> NDArray[np.int64]:
    """Return `size` of the client's samples, drawn without replacement, in the order drawn.

    If the client has no more than `size` samples, it returns all of them. The arguments are those of `batch_of_pass`.
    """
    if samples.size <= size:
        return samples
    return brief("batch", seed, client, round, step).choice(samples, size, replace=False)
