"""MeZO: memory-efficient zeroth-order optimisation, the one-client case.

Malladi, Gao, Nichani, Damian, Lee, Chen, Arora. "Fine-Tuning Language Models with Just Forward Passes", NeurIPS 2023,
arXiv:2305.17333, Algorithm 1: one client, one local step, central differences. It is DeComFL with these choices fixed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.fields import Count
from seedbus.algorithms.schedule import Scheduled


class MeZO(ScalarOnly):
    """MeZO (arXiv:2305.17333): centralised zeroth-order SGD; for a scenario with one client."""

    name: Literal["mezo"] = "mezo"
    perturbations: Scheduled[Count] = Field(default=1, description="P (the paper's n-SPSA); may change by round")
    local_steps: Literal[1] = Field(default=1, description="K is 1")
    estimator: Literal["central"] = Field(default="central", description="two evaluations a perturbation")

    @property
    def facts(self) -> Facts:
        return replace(super().facts, most_clients=1)
