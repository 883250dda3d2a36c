"""Reports that may be committed in any order and grouping: an optional addition to the contract of an algorithm.

A stream (`participation.mode: stream`) needs it: its reports commit as they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from seedbus.algorithms.contract import LateReports


@runtime_checkable
class OrderFree(Protocol):
    """An algorithm whose model may be a sum of what single reports add to it."""

    @property
    def is_order_free(self) -> bool:
        """Whether it is, with its settings."""
        ...

    def aggregate_each(self, state: Any, plan: Any, groups: Sequence[LateReports]) -> tuple[Any, Any]:
        """Server: return one commit of all these reports, and the new state.

        What a report adds is a function of the report, its own plan and its weight. So any order and any grouping of
        the same reports into commits lead to the same model, to the bit.

        Args:
            state: the state after the previous commit.
            plan: the plan of the open round, whose version the commit follows.
            groups: reports by the plan that they answer, at least one report in all.

        Raises:
            OverflowError: the model would leave the range of its numbers.
        """
        ...
