"""Which samples a client uses at one local step.

The invariant: a batch is a function of (seed, client, round, step) and of the client's own samples. It does not
depend on who else takes part, in which order or in which process.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seedbus.models.streams import stream


def passes(samples: NDArray[np.int64], size: int) -> int:
    """How many batches one pass over the samples takes; the last may be smaller."""
    return max(1, -(-samples.size // size))


def of_pass(
    samples: NDArray[np.int64], size: int, *, seed: int, client: int, round: int, step: int
) -> NDArray[np.int64]:
    """The batch of a step that goes through the client's samples, in a new order in each pass."""
    number, place = divmod(step, passes(samples, size))
    order = stream("pass", seed, client, round, number).permutation(samples.size)
    return samples[order[place * size : (place + 1) * size]]


def batch(samples: NDArray[np.int64], size: int, *, seed: int, client: int, round: int, step: int) -> NDArray[np.int64]:
    """`size` of the client's samples, without replacement, in the order drawn; all of them where it has no more."""
    if samples.size <= size:
        return samples
    return stream("batch", seed, client, round, step).choice(samples, size, replace=False)
