"""What keys the directions of a round."""

from __future__ import annotations

from seedbus.bus.keyed_random import bits


def of_directions(seed: int, round: int) -> int:
    """64 bits, from the scenario's seed."""
    return bits(seed, "directions", round)
