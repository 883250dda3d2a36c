"""What a stream cannot have: whatever waits for the other reports of a round, or depends on their order."""

from __future__ import annotations

from typing import Any

from seedbus.agents.server.collusion import Collude
from seedbus.algorithms.order_free import OrderFree


def refuse_rounds(scenario: Any) -> None:
    """Raise `ValueError` if a `Scenario` with `participation.mode: stream` needs rounds."""
    what, algorithm = "participation.mode: stream commits each report as it comes", scenario.algorithm
    if algorithm.aggregation.rule != "mean":
        raise ValueError(
            f"{what}, and algorithm.aggregation: {algorithm.aggregation.rule} compares those of a round; mean is "
            "accepted"
        )
    if not (isinstance(algorithm, OrderFree) and algorithm.is_order_free):
        raise ValueError(
            f"{what}, in any order, and what algorithm {algorithm.name} adds to x with these settings depends on "
            "the order; decomfl, fedscalar-shared and mezo with arithmetic: integer, and fedkseed, are accepted"
        )
    for number, fault in enumerate(scenario.faults):
        if isinstance(fault, Collude):
            raise ValueError(f"{what}, and faults.{number} compares those of a round; mode: rounds is accepted")
    if scenario.secure_aggregation is not None:
        raise ValueError(
            f"{what}, and secure_aggregation hides reports in the sum of a round; mode: rounds is accepted"
        )
    if scenario.privacy is not None:
        raise ValueError(f"{what}, and privacy accounts for the sum of a round; mode: rounds is accepted")
