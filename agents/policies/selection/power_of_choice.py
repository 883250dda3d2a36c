"""Power-of-choice: the clients whose latest reports were largest.

Cho, Wang, Joshi: "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection
Strategies", arXiv:2010.01243. There the server asks d candidates for their local losses and takes the m highest. Asking
costs messages, and a scalar-only report holds no loss. So this ranks candidates by the norm of the values that they
last reported, which for gradient scalars estimates the norm of the gradient. It is their variant with stale values,
rpow-d, with another measure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from seedbus.agents.policies.selection.known import Known
from seedbus.agents.policies.selection.selection import Selection, drawn
from seedbus.bus.keyed_random import uniform


class PowerOfChoice(Selection):
    """Of candidates drawn uniformly, those whose latest report was largest; those that never reported come first."""

    needs_known: ClassVar[bool] = True

    policy: Literal["power-of-choice"] = "power-of-choice"
    candidates: int = Field(default=3, ge=1, le=1000, description="candidates for every place in the cohort (d = 3m)")

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        """Return `count` of the members, ascending."""
        candidates = drawn(members, min(len(members), count * self.candidates), seed, round)
        candidates.sort(
            key=lambda client: (-known.worth.get(client, math.inf), uniform(seed, "power-of-choice", round, client))
        )
        return sorted(candidates[:count])
