"""The losses of `dense_federation` for FedZO, and its estimate (equation 4) computed a second time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from algorithm_cases import seed_of
from dense_federation import D

from seedbus.algorithms.directions import reference


def equation4(loss: Callable[[Any], float], at: Any, key: int, mu: float, *, step: int = 0, **fields: Any) -> Any:
    """The gradient estimate of a step, float64 [d], computed independently of the package."""
    expected = np.zeros_like(at)
    for n in range(fields["perturbations"]):
        z = np.zeros_like(at)
        reference("gaussian").fill(z, seed=key, step=step, perturbation=n)
        v, factor = z / np.linalg.norm(z), z.size / mu
        if fields["sphere"] == "sqrt-d":
            v, factor = v * math.sqrt(z.size), 1 / mu
        behind = loss(at) if fields["estimator"] == "forward" else loss(at - mu * v)
        rise = (loss(at + mu * v) - behind) / (1 if fields["estimator"] == "forward" else 2)
        expected += factor * rise * v / fields["perturbations"]
    return expected


class Slope:
    """The losses of `dense_federation.Bowl` without their gradients: ½ Σ_j a_j (x_j − c_j)²."""

    def __init__(self, client: int, round: int) -> None:
        self.point = np.zeros(D, np.float32)
        self.samples = 1
        self.key = seed_of(100 * round + client)
        self.steps_an_epoch = 1
        self._client = client
        self._round = round

    def loss(self, step: int) -> float:
        return self.at(self.point.astype(np.float64), step)

    def at(self, x: Any, step: int = 0) -> float:
        where = np.arange(D)
        away = x - np.cos(2 * where + 3 * self._client + 0.1 * step + 0.01 * self._round)
        return float((1.5 + np.sin(where + self._client)) @ away**2) / 2
