"""Constants, directions and losses that the tests of the scalar-only algorithms' theory share."""

from __future__ import annotations

from typing import Any

import numpy as np
from algorithm_cases import Quadratic
from numpy.typing import NDArray

from seedbus.algorithms.directions import reference

Array = NDArray[np.floating[Any]]
DIMENSION, CLIENTS, ROUNDS = 131, 7, 8
SMOOTHING, RATE, GRAIN = 2.0**-10, 2.0**-3, 2.0**-22


def direction_of(seed: int, step: int, perturbation: int, dimension: int = DIMENSION) -> Array:
    """z(step, perturbation), float64 [dimension]."""
    z = np.empty(dimension)
    reference("gaussian").fill(z, seed=seed, step=step, perturbation=perturbation)
    return z


def loss_at(client: int, round: int, step: int, x: Array) -> float:
    """A client's loss at x, float64 [d], on the mini-batch of a step: a multiple of `GRAIN`."""
    objective = Quadratic(x.size, client, round, np.float64, GRAIN)
    objective.point[:] = x
    return objective.loss(step)
