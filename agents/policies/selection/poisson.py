"""Each client by itself, all with the same probability."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import shake_128
from typing import ClassVar, Literal

from seedbus.agents.policies.selection.known import Known
from seedbus.agents.policies.selection.selection import Selection
from seedbus.keyed import keyed_bytes


class Poisson(Selection):
    """Each client by itself, all with the same probability, as the literature on privacy samples: cohorts vary."""

    is_uniform: ClassVar[bool] = True
    is_fixed_size: ClassVar[bool] = False

    policy: Literal["poisson"] = "poisson"

    def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
        """Return each of the members with probability count/len(members), ascending: `count` on average."""
        if count == len(members):
            return list(members)
        import numpy as np  # a scenario is checked without it

        key = keyed_bytes("poisson", seed, round, size=64)
        words = np.frombuffer(shake_128(key).digest(8 * len(members)), "<u8")
        # a word is below this with the probability, but for 2⁻⁶⁴
        places = np.flatnonzero(words < np.uint64((count << 64) // len(members)))
        return [members[place] for place in places.tolist()]
