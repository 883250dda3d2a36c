"""The key of a round's directions."""

from __future__ import annotations

from seedbus.bus.keyed_random import bits


def of_directions(seed: int, round: int) -> int:
    """Return 64 bits; seed: the scenario's."""
    return bits(seed, "directions", round)
