"""Clients come and go while a run goes on: who is there again introduces itself, and is waited for where that helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from seedbus.agents import messages
from seedbus.agents.availability import RETURNS, Availability, Moves, Returns
from seedbus.agents.errors import TooFew
from seedbus.agents.messages import Join, Outgoing
from seedbus.agents.observer import Observer
from seedbus.agents.refusals import Mark, Reason
from seedbus.agents.server.coordinator import Coordinator
from seedbus.bus import Bus
from seedbus.bus.errors import EndOfTime

MAX_IDLE_CYCLES, VAIN_EACH = (
    10_000,
    100,
)  # comings and goings without a quorum, and so many a client, after which it is given up
IsDone = Callable[[], bool]


class Arrivals:
    """Comings and goings as a server brings them about.

    until: waits until something is done; until_time: or until an instant. pending_joins: JOINs that clients owe which
    were told
    to introduce themselves; rejected: those who were told so in this round because what they hold is of no use, once
    each, for who answers in the same way would be told for ever.
    """

    def __init__(
        self,
        bus: Bus,
        coordinator: Coordinator,
        population: Availability,
        observer: Observer,
        until: Callable[[IsDone], Awaitable[None]],
        until_time: Callable[[int, IsDone], Awaitable[None]],
    ) -> None:
        self._bus, self._coordinator, self._population, self._observer = bus, coordinator, population, observer
        self._until, self._until_time = until, until_time
        self.pending_joins: Counter[int] = Counter()
        self.rejected: set[int] = set()

    async def gather(self, is_complete: IsDone) -> None:
        """Let clients come and go; then wait for enough of them, if waiting can help. Raises `TooFew`.

        is_complete: whether every client has its process.
        """
        coordinator, population, clock = self._coordinator, self._population, self._bus.clock
        quorum, clients = coordinator.participation.quorum, coordinator.participation.clients
        most = 0
        for _ in range(MAX_IDLE_CYCLES + VAIN_EACH * clients):
            self._move(population.advance(coordinator.round, clock.now_ns))
            next_ns = population.next_ns()
            if next_ns is None or population.in_time < quorum:
                # those who are a matter of rounds come only if rounds go on
                await self._until(
                    lambda: coordinator.has_members or (population.is_changing and not self.pending_joins)
                )
            else:
                try:
                    await self._until_time(next_ns, lambda: coordinator.has_members)
                except EndOfTime:
                    break
            most = max(most, coordinator.members)
            if coordinator.has_members:
                return
            if population.is_over and (clock.is_virtual or is_complete()):
                raise self._unfinishable(f"{most} of {clients} are there, and nobody comes or goes any more")
            if next_ns is None or population.in_time < quorum:
                return
        now_s = clock.now_ns / 1e9
        raise self._unfinishable(f"at most {most} of {clients} were there at a time until {now_s:,.0f} s")

    def joined(self, join: Join, round: int) -> list[Outgoing]:
        """A client says where it is, because it has lost its place or has come back; returns plans to send anew."""
        pending_joins = self.pending_joins.pop(join.sender, 0)
        if pending_joins > 1:
            self.pending_joins[join.sender] = pending_joins - 1
        if self._population.has_left(join.sender):
            return []  # it is gone again
        plans, refusal = self._coordinator.joined(join, round=round, is_due=pending_joins > 0)
        if refusal is not None:
            self._observer.refused(refusal)
            if refusal.reason in _FROM_X0 and join.sender not in self.rejected:
                self.rejected.add(join.sender)
                answer = messages.refuse(join.sender, refusal.reason, refusal.detail)
                self._bus.send(answer._replace(round=self._coordinator.round))
                self.pending_joins[join.sender] += 1
        return plans

    def pack(self) -> list[Any]:
        return sorted(self.pending_joins.items())

    def unpack(self, packed: list[Any]) -> None:
        # in real time a process that comes brings all its clients that are there
        self.pending_joins = Counter(dict(packed) if self._bus.clock.is_virtual else {})

    def _move(self, moves: Moves) -> None:
        self._coordinator.left(moves.left)
        for client, brings in moves.arrived:
            self._wake(client, brings)

    def _wake(self, client: int, brings: Returns) -> None:
        """A client is there again: it is to introduce itself, with what it has."""
        self._observer.noted("returned", client=client, returns=brings)
        self.pending_joins[client] += 1
        self.rejected.discard(client)
        most = self._coordinator.version if brings == "with-state" else 0
        self._bus.wake(client, self._coordinator.round, [RETURNS.index(brings)], most)

    def _unfinishable(self, why: str) -> TooFew:
        return TooFew(
            f"round {self._coordinator.round} needs {self._coordinator.participation.quorum} clients "
            f"(participation.quorum), and {why}; lower the quorum, or change what faults say of who is there"
        )


_FROM_X0 = Reason.marked(Mark.FROM_X0)
