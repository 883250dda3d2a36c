"""Who watches a run: progress bars, logs and tests. Observers decide nothing and must not fail."""

from __future__ import annotations

from typing import Any, Protocol

from seedbus.agents.refusals import Refusal
from seedbus.agents.round_record import ClosedRound


class Observer(Protocol):
    """Told of what happens, as it happens."""

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None: ...

    def measured(self, line: dict[str, Any]) -> None: ...

    def refused(self, refusal: Refusal) -> None: ...

    def noted(self, event: str, **facts: Any) -> None: ...


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
