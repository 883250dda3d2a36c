"""FedExP: the server's step is extrapolated where updates disagree.

Jhunjhunwala, Wang, Joshi. "FedExP: Speeding Up Federated Averaging via Extrapolation", ICLR 2023, arXiv:2301.09604:

    η_g = max(1, Σ_i ‖Δ_i‖² / (2M(‖Δ̄‖² + ε))),   w ← w + η_g·Δ̄,   Δ̄ = (1/M) Σ_i Δ_i

A client reports ‖Δ_i‖² beside Δ_i, a number. As in the authors' code (github.com/Divyansh03/FedExP), what is evaluated
is the mean of the last two iterates w; clients start from w. The means have the weights ω_i, which are 1/M by default.
The code differs: it evaluates w itself after the first round; it weighs by samples, has Mε in the place of ε, and
multiplies ε by the square of the rate's decay each round. With a codec ‖Δ_i‖² is that of the update before it is
compressed, and Δ̄ the mean of those that the server decodes.

**Ours**: with late reports Σ ω_i is another number than 1. η_g is that of the means, Σ ω_i Δ_i/Σ ω_i and likewise for
the squares, and the step is η_g·Σ ω_i Δ_i. So a discount shortens the step, and does not change η_g.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.method import Local, Method, Server
from seedbus.vector import inner

_SQUARE, _ITERATE = "fedexp.square", "fedexp.w"


class FedExP(Method):
    """FedExP (arXiv:2301.09604): the server's step adapts, by the norms of the updates over that of their mean."""

    defaults: ClassVar = {"weighting": "uniform"}

    name: Literal["fedexp"] = "fedexp"
    epsilon: float = Field(
        default=1e-3, gt=1e-37, lt=1e37, description="ε, added to the squared norm of the mean update"
    )

    @property
    def measures(self) -> tuple[str, ...]:
        return (_SQUARE,)

    def finish(self, local: Local) -> None:
        local.measured[_SQUARE] = inner(local.update, local.update)

    def move(self, server: Server) -> bool:
        square_of_mean = inner(server.update, server.update) / server.weight**2
        rate = max(1.0, server.measured[_SQUARE] / (2 * (square_of_mean + self.epsilon)))
        before = server.state[_ITERATE] if _ITERATE in server.state else server.x
        after = before + np.float32(server.plan.server_learning_rate * rate) * server.update
        server.state[_ITERATE] = after
        np.copyto(server.x, (before + after) * np.float32(0.5))
        return True

    def ahead(self, x: Vector, server: Server) -> Vector:
        return server.state[_ITERATE]
