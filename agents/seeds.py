"""The key of the directions of a round, or of one node's step."""

from __future__ import annotations

from seedbus.bus.keyed_random import bits
from seedbus.capabilities import Fact, Needs, RulesOut, Stated

SHIFT = Stated(
    Needs(Fact.SERVER, "shifts the seeds that a server sends"),
    Needs(Fact.ROUND_SEEDS, "changes the seed of each round"),
    RulesOut(Fact.SERVER_MODEL, "hides the model from it"),
)
"""What a scenario with a secret shift of the seeds needs, and rules out."""


def of_directions(seed: int, round: int) -> int:
    """Return 64 bits; seed: the scenario's."""
    return bits(seed, "directions", round)


def of_step(seed: int, node: int, round: int) -> int:
    """Return 64 bits for a node's step in a run without a server; seed: the scenario's."""
    return bits(seed, "directions", node, round)
