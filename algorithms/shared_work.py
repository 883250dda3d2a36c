"""Clients of one process that share work: what an algorithm may offer beside the contract, and what it must equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from seedbus.algorithms.contract import Algorithm, CommitT, Declined, PlanT, Replica, ReportT
from seedbus.algorithms.objective import Objective


@runtime_checkable
class Together(Protocol):
    """An algorithm whose clients share work where they stand at one version and have one plan."""

    def local_together(
        self, replica: Replica, memories: Sequence[Any], plan: Any, objectives: Sequence[Objective]
    ) -> list[tuple[Any, Any] | Declined]:
        """What `one_by_one` gives, to the bit: a client's batch goes through a forward pass of its own.

        Objectives are of one problem, so they share one point.
        """
        ...


def one_by_one(
    algorithm: Algorithm[PlanT, ReportT, CommitT],
    replica: Replica,
    memories: Sequence[Any],
    plan: PlanT,
    objectives: Sequence[Objective],
) -> list[tuple[ReportT, Any] | Declined]:
    """What `local` gives, or raises, for each client."""
    found: list[tuple[ReportT, Any] | Declined] = []
    for memory, objective in zip(memories, objectives, strict=True):
        try:
            found.append(algorithm.local(replica, memory, plan, objective))
        except Declined as why:
            found.append(why)
    return found
