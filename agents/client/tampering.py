"""Clients that lie: a report that a client made is replaced, on its way out, by what a scenario has it say.

At most one lie strikes a report: the first, in the order of what they say (their repr), that has something to say of
it. So the order in which a scenario lists them changes nothing.

A lie depends on the scenario, the client, the round and the honest report, and on nothing that a process remembers: one
that takes a dead one's place tells the same lies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from seedbus.bus.keyed_random import KeyedRandom, with_random


@runtime_checkable
class Tamper(Protocol):
    """Implemented by faults that are about what clients say. Its repr keys its draws: all that it is, and no more."""

    def tamper(self, client: int, round: int, report: Any, earlier: Callable[[], Any], random: KeyedRandom) -> Any:
        """What the client says in the place of `report`, which is left as it is; None where this does not strike.

        earlier: what it would have reported in round 0, of x₀, whether it was asked then or not.
        """
        ...


class Tampering:
    """All the lies of a run. things: what a scenario says, of which those that are lies are taken."""

    def __init__(self, things: Sequence[Any], seed: int, clients: int) -> None:
        lies = [thing for thing in things if isinstance(thing, Tamper)]
        self._lies = sorted(with_random(lies, seed, clients), key=lambda lie: repr(lie[0]))
        self.seed = seed

    def told(self, client: int, round: int, report: Any, earlier: Callable[[], Any]) -> Any:
        """What the client says."""
        for lie, random in self._lies:
            said = lie.tamper(client, round, report, earlier, random)
            if said is not None:
                return said
        return report


HONEST = Tampering((), 0, 0)
