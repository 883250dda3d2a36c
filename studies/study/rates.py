"""What this machine computes in a second, measured by short products: for estimates of runs that cannot be tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from seedbus.algorithms.directions import directions
from seedbus.bus.clock import cpu_seconds, wall_seconds
from seedbus.models.device import HOST, devices_of, on_device, torch_device, vector_on
from seedbus.models.numeric_state import numeric_state

ROWS, WIDTH = 360, 2048  # of a product: tokens, and a layer of OPT-1.3B
COORDINATES = 2**20
LEAST_S = 0.05  # of work that is long enough to be timed


class Rates(NamedTuple):
    """What a process does in a second.

    Attributes:
        flops: floating-point operations of products of float32 matrices.
        alone: the same of a matrix with one vector, as where a text is generated token by token.
        coordinates: of directions that are drawn and added.
    """

    flops: float
    alone: float
    coordinates: float


@numeric_state()
def measured() -> Rates:
    """Measure in about a second what this process does on its device."""
    import torch

    (name,) = devices_of("")
    seconds = cpu_seconds if name == HOST else wall_seconds  # a GPU's work is no time of this process
    with on_device(name), torch.inference_mode():
        device = torch_device()
        rows, matrix = torch.ones(ROWS, WIDTH, device=device), torch.ones(WIDTH, WIDTH, device=device)
        x = vector_on(np.zeros(COORDINATES, np.float32), device)
        point, source = x.copy(), directions("gaussian")

        def draw(count: int) -> None:
            for number in range(count):
                source.perturb(point, x, 1e-3, seed=7, step=0, perturbation=number)
            float(point[:1].sum())  # a GPU is waited for

        def multiply(vectors: torch.Tensor) -> Callable[[int], None]:
            def work(count: int) -> None:
                for _ in range(count):
                    product = vectors @ matrix
                float(product[0, 0])

            return work

        operations = 2 * WIDTH**2
        return Rates(
            flops=ROWS * operations / _seconds(multiply(rows), seconds),
            alone=operations / _seconds(multiply(rows[:1]), seconds),
            coordinates=COORDINATES / _seconds(draw, seconds),
        )


def _seconds(work: Callable[[int], None], now: Callable[[], float]) -> float:
    """Return how long a piece of work takes: the best of three, of as many as take long enough."""
    work(1)  # loads what it needs
    count, best = 1, 0.0
    while True:
        taken = []
        for _ in range(3):
            began = now()
            work(count)
            taken.append(now() - began)
        best = min(taken)
        if best >= LEAST_S:
            return best / count
        count *= 4
