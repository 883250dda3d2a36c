"""FedNova: updates are divided by the work in them before they are averaged, and the step has the mean work.

Wang, Liu, Liang, Joshi, Poor. "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
NeurIPS 2020, arXiv:2007.07481:

    client   d_i = −Δ_i / (η‖a_i‖₁)
    server   θ ← θ − τ_eff Σ ω_i η d_i,   τ_eff = Σ ω_i ‖a_i‖₁

Without momentum ‖a_i‖₁ is τ_i, the number of local steps. Otherwise it is the sum of 1 + ρ + … + ρ^(k−1) over k = 1 …
τ_i, as the authors' code has it too (github.com/JYWa/FedNova). So where all clients make equally many steps this is
FedAvg. A client reports Δ_i/‖a_i‖₁, and ‖a_i‖₁, a number. Terms of other methods, such as FedProx's, are not part of
‖a_i‖₁.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from seedbus.algorithms.dense.methods.method import Local, Method, Server

_WORK = "fednova.work"


class FedNova(Method):
    """FedNova (arXiv:2007.07481): normalised averaging, for clients that make unequally many local steps."""

    counts_steps = True

    name: Literal["fednova"] = "fednova"

    @property
    def measures(self) -> tuple[str, ...]:
        return (_WORK,)

    def finish(self, local: Local) -> None:
        done = work(local.steps, local.momentum)
        local.update = local.update / np.float32(done)
        local.measured[_WORK] = done

    def move(self, server: Server) -> bool:
        server.x += np.float32(server.plan.server_learning_rate * server.measured[_WORK]) * server.update
        server.update = np.float32(server.measured[_WORK]) * server.update  # the step, for other methods to learn
        return True


def work(steps: int, momentum: float) -> float:
    """Return ‖a‖₁ of some local steps with momentum ρ: the weights of all gradients in an update −ηΣ, added up."""
    if not momentum:
        return float(steps)
    total = weight = 0.0
    for _ in range(steps):  # and not the closed form: powers differ between machines
        weight = weight * momentum + 1
        total += weight
    return total
