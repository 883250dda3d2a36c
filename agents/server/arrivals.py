"""Clients leave and return during a run: a client that returns joins anew, and rounds wait where that helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from seedbus.agents import messages
from seedbus.agents.availability import RETURNS, Availability, Moves, Returns
from seedbus.agents.errors import TooFew
from seedbus.agents.observer import Observer
from seedbus.agents.refusals import Mark, Reason
from seedbus.agents.server.coordinator import Coordinator
from seedbus.bus import Bus, Envelope
from seedbus.bus.errors import EndOfTime
from seedbus.bus.event_queue import LAST_NS
from seedbus.bus.text import counted

# clients come and go this often without ever making a quorum, and so many times more per client, before a run ends
MAX_IDLE_CYCLES = 10_000
MAX_IDLE_CYCLES_PER_CLIENT = 100
IsDone = Callable[[], bool]


class Arrivals:
    """Clients of a run that come and go.

    Attributes:
        pending_joins: how many JOINs each client owes that was told to join.
        rejected: clients that were told in this round to start again from x₀, because what they hold is of no use.
            Each is told once a round: otherwise a client that keeps giving the same answer would be told forever.
    """

    def __init__(
        self,
        bus: Bus,
        coordinator: Coordinator,
        availability: Availability,
        observer: Observer,
        until: Callable[[IsDone], Awaitable[None]],
        until_time: Callable[[int, IsDone], Awaitable[None]],
    ) -> None:
        """Begin with no JOIN owed.

        Args:
            bus: carries messages.
            coordinator: decides about JOINs.
            availability: which clients are there.
            observer: is told of clients that return, and of refusals.
            until: waits until something is done.
            until_time: waits until something is done or an instant (ns) has come.
        """
        self._bus = bus
        self._coordinator = coordinator
        self._availability = availability
        self._observer = observer
        self._until = until
        self._until_time = until_time
        self.pending_joins: Counter[int] = Counter()
        self.rejected: set[int] = set()

    async def gather(self, is_complete: IsDone) -> bool:
        """Let clients come and go; then wait for enough of them, if waiting can help.

        Args:
            is_complete: whether every client has its process.

        Returns:
            Whether a round may begin. Not if there will never be enough, and `stop.simulated_s` has come meanwhile.

        Raises:
            TooFew: there will never be enough, and no time ends the run, or it has had no round.
        """
        coordinator, availability, clock = self._coordinator, self._availability, self._bus.clock
        quorum, clients = coordinator.participation.quorum, coordinator.participation.clients
        most = 0
        for _ in range(MAX_IDLE_CYCLES + MAX_IDLE_CYCLES_PER_CLIENT * clients):
            self._advance()
            next_ns = availability.next_ns()
            if next_ns is None or availability.in_time < quorum:
                # clients that are away for a number of rounds come back only if rounds go on
                await self._until(
                    lambda: coordinator.has_members or (availability.is_changing and not self.pending_joins)
                )
            else:
                try:
                    await self._until_time(next_ns, lambda: coordinator.has_members)
                except EndOfTime:
                    break
            most = max(most, coordinator.members)
            if coordinator.has_members:
                return True
            if availability.is_over and (clock.is_virtual or is_complete()):
                if clock.is_virtual and coordinator.stop.simulated_s is not None and coordinator.round:
                    limit_ns = max(clock.now_ns, round(coordinator.stop.simulated_s * 1e9))
                    await self._until_time(limit_ns, lambda: coordinator.has_members)
                    return coordinator.has_members
                raise self._unfinishable(f"{most} of {clients} are there, and nobody comes or goes any more")
            if next_ns is None or availability.in_time < quorum:
                return True
        now_s = clock.now_ns / 1e9
        raise self._unfinishable(f"at most {most} of {clients} were there at a time until {now_s:,.0f} s")

    async def wait(self, latest_ns: int | None, is_done: IsDone = lambda: False) -> None:
        """Let clients come and go, each at its instant, until something is done or an instant (ns) has come."""
        while True:
            self._advance()
            times = [each for each in (self._availability.next_ns(), latest_ns) if each is not None and each <= LAST_NS]
            await (self._until_time(min(times), is_done) if times else self._until(is_done))
            if is_done() or (latest_ns is not None and self._bus.clock.now_ns >= latest_ns):
                return

    def _advance(self) -> None:
        """Let those come and go whose instant has come."""
        self._move(self._availability.advance(self._coordinator.round, self._bus.clock.now_ns))

    def answered(self, client: int) -> bool:
        """A client that was told to join has answered, if only with silence. Returns whether it owed a JOIN."""
        pending_joins = self.pending_joins.pop(client, 0)
        if pending_joins > 1:
            self.pending_joins[client] = pending_joins - 1
        return pending_joins > 0

    def joined(self, envelope: Envelope) -> None:
        """A client states its version, because it came back or cannot follow a plan. Raises `BadPayload`."""
        is_due = self.answered(envelope.client)  # also by a JOIN that cannot be read: nobody waits for another
        join = messages.Join.unpack(envelope)
        if self._availability.has_left(join.sender):
            return  # it is gone again
        refusal = self._coordinator.joined(join, round=envelope.round, is_due=is_due)
        if refusal is not None:
            self._observer.refused(refusal)
            is_there = self._bus.transport.reaches(join.sender)
            if refusal.reason in _FROM_X0 and join.sender not in self.rejected and is_there:
                self.rejected.add(join.sender)
                answer = messages.refuse(join.sender, refusal.reason, refusal.detail)
                self._bus.send(answer._replace(round=self._coordinator.round))
                self.pending_joins[join.sender] += 1

    def pack(self) -> list[Any]:
        return sorted(self.pending_joins.items())

    def unpack(self, packed: list[Any]) -> None:
        # in real time a process that joins brings all of its clients that are there
        self.pending_joins = Counter(dict(packed) if self._bus.clock.is_virtual else {})

    def _move(self, moves: Moves) -> None:
        self._coordinator.left(moves.left)
        for client, brings in moves.arrived:
            self._wake(client, brings)

    def _wake(self, client: int, brings: Returns) -> None:
        """A client is there again: tell it to join, with the state that it still has."""
        self._observer.noted("returned", client=client, returns=brings)
        self.rejected.discard(client)
        if not self._bus.transport.reaches(client):  # in real time: its process is gone, and the next one brings it
            return
        self.pending_joins[client] += 1
        most = self._coordinator.version if brings == "with-state" else 0
        self._bus.wake(client, self._coordinator.round, [RETURNS.index(brings)], most)

    def _unfinishable(self, why: str) -> TooFew:
        return TooFew(
            f"round {self._coordinator.round} needs {counted(self._coordinator.participation.quorum, 'client')} "
            f"(participation.quorum), and {why}; lower the quorum, or change the faults that take clients away"
        )


_FROM_X0 = Reason.marked(Mark.FROM_X0)
