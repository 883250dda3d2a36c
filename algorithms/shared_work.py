"""Work for several clients at once: optional additions to the contract of an algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

from seedbus.algorithms.contract import Algorithm, CommitT, Declined, PlanT, Replica, ReportT
from seedbus.algorithms.objective import Objective


@runtime_checkable
class SharedWork(Protocol):
    """An algorithm whose clients share work if they have the same version and the same plan."""

    def local_together(
        self, replica: Replica, memories: Sequence[Any], plan: Any, objectives: Sequence[Objective]
    ) -> list[tuple[Any, Any] | Declined]:
        """Return what `one_by_one` returns, to the bit.

        Each client's mini-batch goes through a forward pass of its own.

        Args:
            replica: the replica of all these clients.
            memories: each client's memory.
            plan: the plan of all these clients.
            objectives: each client's objective; they belong to one problem, so they share one point.
        """
        ...


def shares_work(algorithm: object) -> TypeGuard[SharedWork]:
    """Whether hosts call `local_together`; not where a subclass of what defines it overrides `local` alone."""
    return "local_together" in vars(_defining_work(algorithm))


def may_remember(algorithm: Algorithm[Any, Any, Any]) -> bool:
    """Whether clients may have a memory: of those that send no vectors, only where a plug-in defines their work."""
    return algorithm.facts.is_dense or not _defining_work(algorithm).__module__.startswith("seedbus.")


def _defining_work(algorithm: object) -> type:
    """Return the class that defines what hosts call."""
    kinds = type(algorithm).__mro__
    return next((kind for kind in kinds if {"local", "local_together"} & vars(kind).keys()), object)


@runtime_checkable
class SharedReading(Protocol):
    """An algorithm whose server reads reports that have come together at once."""

    def read_together(self, bodies: Sequence[Any], plan: Any) -> list[Any]:
        """Return for each packed report what `unpack_report` returns, to the bit, if it is short and `check` passes it.

        None stands for every other, which is to be read alone. Nothing is raised, whatever the bodies are. The reports
        hold equally many scalars.
        """
        ...


def one_by_one(
    algorithm: Algorithm[PlanT, ReportT, CommitT],
    replica: Replica,
    memories: Sequence[Any],
    plan: PlanT,
    objectives: Sequence[Objective],
) -> list[tuple[ReportT, Any] | Declined]:
    """Call `local` for each client in turn; return each one's report and new memory, or the `Declined` it raised."""
    results: list[tuple[ReportT, Any] | Declined] = []
    for memory, objective in zip(memories, objectives, strict=True):
        try:
            results.append(algorithm.local(replica, memory, plan, objective))
        except Declined as declined:
            results.append(declined)
    return results
