"""Observers of a run: progress bars, logs and tests. They decide nothing and must not fail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from seedbus.agents.refusals import Refusal
from seedbus.agents.round_record import ClosedRound


class Observer(Protocol):
    """Is called with what happens, as it happens."""

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        """A round was closed, and is durable; bytes_so_far: of the algorithm, both ways."""
        ...

    def measured(self, line: dict[str, Any]) -> None:
        """The evaluator measured; line: a line of metrics."""
        ...

    def refused(self, refusal: Refusal) -> None:
        """A message was refused."""
        ...

    def noted(self, event: str, **facts: Any) -> None:
        """Something else happened."""
        ...


class Observers:
    """Passes everything on to several observers, in their order."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self.observers = list(observers)

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        for observer in self.observers:
            observer.round_closed(closed, now_ns, bytes_so_far)

    def measured(self, line: dict[str, Any]) -> None:
        for observer in self.observers:
            observer.measured(line)

    def refused(self, refusal: Refusal) -> None:
        for observer in self.observers:
            observer.refused(refusal)

    def noted(self, event: str, **facts: Any) -> None:
        for observer in self.observers:
            observer.noted(event, **facts)


class NullObserver:
    """An observer that does nothing."""

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        pass

    def measured(self, line: dict[str, Any]) -> None:
        pass

    def refused(self, refusal: Refusal) -> None:
        pass

    def noted(self, event: str, **facts: Any) -> None:
        pass
