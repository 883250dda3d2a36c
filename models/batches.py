"""Which samples a client uses at one local step.

The invariant: a batch is a function of (seed, client, round, step) and of the client's own samples. It does not
depend on who else takes part, in which order or in which process.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seedbus.models.streams import stream


def batch(samples: NDArray[np.int64], size: int, *, seed: int, client: int, round: int, step: int) -> NDArray[np.int64]:
    """`size` of the client's samples, without replacement, in the order drawn; all of them where it has no more."""
    if samples.size <= size:
        return samples
    return stream("batch", seed, client, round, step).choice(samples, size, replace=False)
