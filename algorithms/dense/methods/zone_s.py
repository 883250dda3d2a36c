"""ZONE-S: a primal-dual zeroth-order method; each client remembers its multiplier.

Hajinezhad, Hong, Garcia. "ZONE: Zeroth-Order Nonconvex Multiagent Optimization Over Networks", IEEE TAC 2019,
arXiv:1710.09997, the algorithm for a star, as FedZO's authors use it as a baseline (arXiv:2201.09531, §V-A). It
solves min Σ f_i(z_i) subject to z_i = z with the augmented Lagrangian
Σ f_i(z_i) + ⟨λ_i, z_i − z⟩ + (ρ/2)‖z_i − z‖²:

    drawn client   z_i⁺ = z − (λ_i + G_i(z))/(αρ),   λ_i⁺ = λ_i + αρ(z_i⁺ − z) = −G_i(z)
    other client   z_j⁺ = z,   λ_j⁺ = λ_j
    server         z⁺ = argmin of the Lagrangian = (1/N) Σ_j (z_j⁺ + λ_j/ρ) = z + (1/m) Σ_drawn (−λ_i − G_i)/ρ + s/ρ,
                   s = (1/N) Σ_j λ_j;   s⁺ = s + (1/N) Σ_drawn (λ_i⁺ − λ_i)

η = 1/ρ is `learning_rate`; FedZO's authors use ρ = 500. Client i reports Δ_i = −η(λ_i + G_i), from which the server
computes z and s, so one vector travels in each direction. If all clients take part in a round, z moves by −η·mean of
G_i.

**Ours**: the server's step uses the multipliers from before the round. So does NESTT-G, the variant with gradients
(arXiv:1605.07747), which with α = 1/N is therefore SAGA, as its authors say; with λ⁺ the new estimates would count
(1 + α)/α times. Where m of N clients report, α is m/N, the share of those drawn (theirs is m = 1), and all clients have
the same ρ. G is FedZO's estimator (dense.methods.zeroth_order) instead of their J Gaussian directions. Further local
steps descend the client's Lagrangian: w ← z − η(λ_i + G_i(w)). N is the number of members. A client that loses its
state has λ_i = 0 while s still contains the old one; a report that never arrives changes λ_i but not s; a late one
whose round had another η changes s by Δ_i over the η of the commit's round: each leaves z with an offset.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.dense.methods.fedprox import pull
from seedbus.algorithms.dense.methods.method import Local, Server
from seedbus.algorithms.dense.methods.zeroth_order import ZerothOrder

MULTIPLIER = "zone-s.lambda"
MEAN = "zone-s.s"


class ZoneS(ZerothOrder):
    """ZONE-S (arXiv:1710.09997): zeroth-order primal-dual steps, with a multiplier at each client; FedZO's baseline."""

    defaults: ClassVar = {"weighting": "uniform", "learning_rate": 2e-3, "local_steps": 1}

    name: Literal["zone-s"] = "zone-s"

    def correct(self, gradient: Vector, local: Local) -> None:
        pull(gradient, local, 1 / local.plan.learning_rate)
        gradient += local.remembered(MULTIPLIER)

    def remember(self, local: Local) -> None:
        local.memory[MULTIPLIER] = local.remembered(MULTIPLIER) + local.update / np.float32(local.plan.learning_rate)

    def move(self, server: Server) -> bool:
        s = server.vector(MEAN)
        rate = np.float32(server.plan.learning_rate)
        server.x += np.float32(server.plan.server_learning_rate) * (server.update + rate * s)
        s += np.float32(server.reporters / server.members) / rate * server.moved
        return True
