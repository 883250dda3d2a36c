"""What most algorithms have in common: the base class of both families, and of algorithms that belong to neither.

An algorithm that derives from it answers the other questions of the contract (`algorithms.contract.Algorithm`) as the
simplest ones do: a replica is x alone, each commit builds on the one before, and the server keeps no state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.contract import BadPayload, Declined, Replica, ReportRefused, Shapes
from seedbus.settings import Settings
from seedbus.vector import Vector


class BaseAlgorithm(Settings):
    """An algorithm of which a subclass says only what differs from the simplest one.

    What it has to say, as a plug-in's check names it: `name` and `aggregation`, fields or constants; `plan`,
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
        own: Any = self  # a subclass has the rule
        return Facts(label=str(type(self).model_fields["name"].default), rule=own.aggregation)

    # -- the replica and the log

    def replica(self, x0: Vector) -> Replica:
        return Replica(0, {"x": x0.copy()})

    def point(self, replica: Replica, newest: Any = None) -> Vector:
        return replica.x

    # -- reports

    @abstractmethod
    def unpack_report(self, body: Any, plan: Any) -> Any:
        """Return the report that `pack_report` packed. Raises `BadPayload` for a body that it cannot have made."""

    @abstractmethod
    def check(self, plan: Any, report: Any) -> None:
        """Raise `ReportRefused` if the report must not be aggregated."""

    def read_reports(self, bodies: Sequence[Any], plan: Any) -> list[Any]:
        """Return of each body what `unpack_report` returns and `check` passes, or the error that one of them raises."""
        return [self._read(body, plan) for body in bodies]

    def _read(self, body: Any, plan: Any) -> Any:
        try:
            report = self.unpack_report(body, plan)
            self.check(plan, report)
        except (BadPayload, ReportRefused) as error:
            return error
        return report

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
