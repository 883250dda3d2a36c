"""What an algorithm needs, and what it rules out, by the members that it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from seedbus.algorithms.order_free import OrderFree
from seedbus.algorithms.shaped import Shaped
from seedbus.algorithms.summed import Summed
from seedbus.capabilities import Fact, Needs, RulesOut, Statement


def of_algorithm(algorithm: Any) -> Iterator[Statement]:
    """Yield what is stated of an algorithm with its settings."""
    if isinstance(algorithm, Shaped):
        yield Needs(Fact.ALL_COORDINATES, "takes directions of whole layers")
        yield Needs(Fact.LAYERS, "needs layers")
    if algorithm.needs_outputs:
        yield Needs(Fact.WHOLE_BATCHES, "needs outputs of whole batches")
        yield Needs(Fact.OUTPUTS, "needs the outputs of a classifier that learns by cross-entropy")
    if not (isinstance(algorithm, Summed) and algorithm.adds_up):
        yield RulesOut(Fact.ADDS_UP, "reports none with these settings")
    elif algorithm.tracks_sums:
        yield RulesOut(Fact.FORGETFUL, "has clients that remember what they reported")
    if not (isinstance(algorithm, OrderFree) and algorithm.is_order_free):
        yield RulesOut(Fact.ORDER_FREE, "adds to x what depends on their order with these settings")
    if getattr(algorithm, "arithmetic", "float") != "integer":
        yield RulesOut(Fact.EXACT, "has commits that are no exact sum with these settings")
    if not getattr(algorithm, "has_round_seeds", False):
        yield RulesOut(Fact.ROUND_SEEDS, "has none")
    if not getattr(algorithm, "has_round_seeds", True):
        yield RulesOut(Fact.COMPARABLE, "gives each client directions of its own")
    if algorithm.is_dense:
        yield RulesOut(Fact.LOG, "always sends its clients the newest model")
    if not algorithm.takes_late:
        summed, stepped = "sums all reports of a round at once", "takes steps to which late scalars do not add"
        yield RulesOut(Fact.LATE, f"{summed} in its channel" if algorithm.is_dense else stepped)
