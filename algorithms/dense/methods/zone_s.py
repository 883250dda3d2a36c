"""ZONE-S: a primal-dual method of clients that know losses alone; every client remembers its multiplier.

Hajinezhad, Hong, Garcia. "ZONE: Zeroth-Order Nonconvex Multiagent Optimization Over Networks", IEEE TAC 2019,
arXiv:1710.09997, the algorithm for a star, as FedZO's authors compare it with theirs (arXiv:2201.09531, §V-A). It
splits min Σ f_i(z_i) subject to z_i = z, and acts on the augmented Lagrangian
Σ f_i(z_i) + ⟨λ_i, z_i − z⟩ + (ρ/2)‖z_i − z‖²:

    who is drawn   z_i⁺ = z − (λ_i + G_i(z))/(αρ),   λ_i⁺ = λ_i + αρ(z_i⁺ − z) = −G_i(z)
    who is not     z_j⁺ = z,   λ_j⁺ = λ_j
    server         z⁺ = argmin of the Lagrangian = (1/N) Σ_j (z_j⁺ + λ_j/ρ) = z + (1/m) Σ_drawn (−λ_i − G_i)/ρ + s/ρ,
                   s = (1/N) Σ_j λ_j;   s⁺ = s + (1/N) Σ_drawn (λ_i⁺ − λ_i)

η = 1/ρ is `learning_rate`; FedZO's authors give ρ = 500. Client i reports Δ_i = −η(λ_i + G_i), out of which the server
makes z and s, so one vector travels up and one down. With everybody in every round, z moves by −η·mean of G_i.

**Ours**: the server's step takes the multipliers as they were. So does this method's sibling with gradients, NESTT-G
(arXiv:1605.07747), and so α = 1/N is SAGA, as its authors say; with λ⁺ the new estimates would count (1 + α)/α times.
Where m of N report, α is m/N, the share of those drawn (theirs is m = 1), and ρ is one for all. G is FedZO's estimator
(dense.methods.zeroth_order) in the place of their J Gaussian directions. Further local steps go on at the
client's Lagrangian: w ← z − η(λ_i + G_i(w)). N is how many members there are. Who loses its state has λ_i = 0 while s
still holds the old one, and a report that never arrives moves λ_i and not s: both leave z with an offset.
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
    """ZONE-S (arXiv:1710.09997): a zeroth-order primal-dual step, with multipliers of clients; FedZO's baseline."""

    defaults: ClassVar = {"weighting": "uniform", "learning_rate": 2e-3, "local_steps": 1}

    name: Literal["zone-s"] = "zone-s"

    def correct(self, gradient: Vector, local: Local) -> None:
        pull(gradient, local, 1 / local.plan.learning_rate)
        gradient += local.remembered(MULTIPLIER)

    def finish(self, local: Local) -> None:
        local.memory[MULTIPLIER] = local.remembered(MULTIPLIER) + local.update / np.float32(local.plan.learning_rate)

    def move(self, server: Server) -> bool:
        s, rate = server.vector(MEAN), np.float32(server.plan.learning_rate)
        server.x += np.float32(server.plan.server_learning_rate) * (server.update + rate * s)
        s += np.float32(server.reporters / server.members) / rate * server.update
        return True
