"""What most algorithms have in common: the base class of both families, and of algorithms that belong to neither.

An algorithm that derives from it answers the other questions of the contract (`algorithms.contract.Algorithm`) as the
simplest ones do: a replica is x alone, each commit builds on the one before, and the server keeps no state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

from seedbus.algorithms.aggregation.rules import Mean
from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.contract import Declined, Replica, Shapes, commits_after
from seedbus.settings import Settings
from seedbus.vector import Vector


class BaseAlgorithm(Settings):
    """An algorithm of which a subclass says only what differs from the simplest one.

    What it has to say, as a plug-in's check names it: `name`, a field; `plan`,
    `work` and `local`; `check`, `values`, `with_values` and `aggregate`; `apply`; and of the wire
    `sizes`, `pack_plan`, `pack_report` and `pack_commits`, and their `unpack_` counterparts.
    """

    _dimension: int = 0

    def sized(self, dimension: int, shapes: Shapes = ()) -> Self:
        """Return a copy for models of `dimension` coordinates, which it has as `_dimension`."""
        copied = self.model_copy()
        copied._dimension = dimension
        return copied

    @property
    def facts(self) -> Facts:
        """What holds of it; `dataclasses.replace(super().facts, …)` says what else does."""
        return Facts(label=str(type(self).model_fields["name"].default), rule=Mean())

    # -- the replica and the log

    def replica(self, x0: Vector) -> Replica:
        return Replica(0, {"x": x0.copy()})

    def point(self, replica: Replica, newest: Any = None) -> Vector:
        return replica.x

    def pending(self, version: int, commits: Sequence[Any]) -> Sequence[Any]:
        return commits_after(version, commits)

    def read_together(self, bodies: Sequence[Any], plan: Any) -> list[Any]:
        return [None] * len(bodies)

    def diagnostics(self, replica: Replica) -> dict[str, float]:
        return {}

    # -- the client

    @abstractmethod
    def local(self, replica: Replica, memory: Any, plan: Any, objective: Any) -> tuple[Any, Any]:
        """Run a client's local steps of one round; return its report and its new memory. The replica is not changed.

        Raises:
            Declined: the result cannot be sent.
        """

    def local_together(
        self, replica: Replica, memories: Sequence[Any], plan: Any, objectives: Sequence[Any]
    ) -> list[tuple[Any, Any] | Declined]:
        """Return each client's report and new memory, or why it declines: what `local` returns or raises for each."""
        results: list[tuple[Any, Any] | Declined] = []
        for memory, objective in zip(memories, objectives, strict=True):
            try:
                results.append(self.local(replica, memory, plan, objective))
            except Declined as declined:
                results.append(declined)
        return results

    # -- the server

    def first_state(self, x0: Callable[[], Vector]) -> Any:
        return None

    def check_state(self, state: Any) -> None:
        """Accept every state: it has a form of its own."""

    def check_memory(self, memory: Any) -> None:
        """Accept every memory: it has a form of its own."""
