"""What an algorithm keeps between rounds, and its form: an optional addition to the contract of an algorithm.

A run goes on from what it kept in files, which anybody can write.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Stateful(Protocol):
    """An algorithm that can tell the state of its server, and the memory of a client, from other data."""

    def check_state(self, state: Any) -> None:
        """Raise `BadPayload` for a state that neither `first_state` nor `aggregate` can have returned."""
        ...

    def check_memory(self, memory: Any) -> None:
        """Raise `BadPayload` for a memory, not None, that `local` cannot have returned."""
        ...
