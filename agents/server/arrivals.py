"""What comes before a round: clients leave and return, a client that returns joins anew, and the round waits for its
time, for enough clients, and for those at work, where that helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from seedbus.agents import messages
from seedbus.agents.availability import RETURNS, Availability, Moves, Returns
from seedbus.agents.errors import TooFew
from seedbus.agents.observer import Observer
from seedbus.agents.refusals import Mark, Reason
from seedbus.agents.server.coordinator import Coordinator
from seedbus.algorithms.contract import ReportRefused
from seedbus.bus import Bus, Envelope
from seedbus.bus.errors import EndOfTime
from seedbus.bus.network import round_ns
from seedbus.bus.text import counted

# clients come and go this often without ever making a quorum, and so many times more per client, before a run ends
MAX_IDLE_CYCLES = 10_000
MAX_IDLE_CYCLES_PER_CLIENT = 100
IsDone = Callable[[], bool]


class Waiting(Protocol):
    """The server: it hears messages, and others, while it waits."""

    bus: Bus
    coordinator: Coordinator
    observer: Observer

    @property
    def lacks_processes(self) -> bool: ...
    def look_again(self) -> None: ...
    async def until(self, is_done: IsDone) -> None: ...
    async def until_time(self, latest_ns: int, is_done: IsDone) -> None: ...


class Arrivals:
    """Clients of a run that come and go, and rounds that wait for them.

    Attributes:
        began_ns: when the newest round began; -1: none has.
        pending_joins: how many JOINs each client owes that was told to join.
        rejected: clients that were told in this round to start again from x₀, because what they hold is of no use.
            Each is told once a round: otherwise a client that keeps giving the same answer would be told forever.
    """

    def __init__(self, server: Waiting, availability: Availability) -> None:
        """Begin with no JOIN owed.

        Args:
            server: waits, and sends.
            availability: which clients are there.
        """
        self._server = server
        self._bus = server.bus
        self._coordinator = server.coordinator
        self._availability = availability
        self.began_ns = -1
        self.pending_joins: Counter[int] = Counter()
        self.rejected: set[int] = set()

    async def round_may_open(self) -> bool:
        """Wait until the next round may open. Returns whether it may: not if the run is over meanwhile."""
        coordinator, clock = self._coordinator, self._bus.clock
        due_ns = coordinator.participation.next_ns(clock.now_ns, self.began_ns)
        if coordinator.stop.simulated_s is not None:
            due_ns = min(due_ns, max(clock.now_ns, round_ns(coordinator.stop.simulated_s)))
        if due_ns > clock.now_ns:
            await self.wait(due_ns)
            self._bus.send_all(coordinator.waited(clock.now_ns))
        if coordinator.finished() is not None:
            return False
        if not await self._are_enough():
            self._bus.send_all(coordinator.waited(clock.now_ns))
            return False
        return True

    async def _are_enough(self) -> bool:
        """Wait until a round can ask as many clients as a commit needs. Returns whether it can, see `gather`."""
        if not await self.gather():
            return False
        self.began_ns = self._bus.clock.now_ns
        await self._wait_for_free()
        return self._coordinator.has_members or await self.gather()  # some may have left

    async def _wait_for_free(self) -> None:
        """Wait until so many clients are free that a commit can be made, for `participation.deadline_s` at most.

        Ends when the last of these is free. Waiting for the next message instead would end later if a process joins in
        between, and never where messages are lost.
        """
        coordinator = self._coordinator
        lacking, members = self._lacking(), len(coordinator.positions.members)
        if not lacking:
            return

        def is_done() -> bool:
            nonlocal lacking, members
            lacking -= 1  # each call is for a message, or a plan that left the bus, which free one client at most
            if lacking <= 0 or members != len(coordinator.positions.members):
                members = len(coordinator.positions.members)
                lacking = self._lacking()  # costs as much as clients are at work
            return not lacking

        self._bus.on_free = self._server.look_again
        try:
            await self.wait(coordinator.participation.latest_ns(self._bus.clock.now_ns), is_done)
        finally:
            self._bus.on_free = None

    def _lacking(self) -> int:
        """Return how many clients at work have to be free before a round can make a commit."""
        return self._coordinator.rounds.lacking(self._coordinator.positions.members, self.computing())

    def computing(self) -> set[tuple[int, int]] | None:
        """Who computes; None where it does not matter, as in streams, of which each commit would look at all plans."""
        return self._bus.computing if self._coordinator.participation.spares_those_at_work else None

    async def gather(self) -> bool:
        """Let clients come and go; then wait for enough of them, if waiting can help.

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
                await self._server.until(
                    lambda: coordinator.has_members or (availability.is_changing and not self.pending_joins)
                )
            else:
                try:
                    await self._server.until_time(next_ns, lambda: coordinator.has_members)
                except EndOfTime:
                    break
            most = max(most, len(coordinator.positions.members))
            if coordinator.has_members:
                return True
            if availability.is_over and (clock.is_virtual or not self._server.lacks_processes):
                if clock.is_virtual and coordinator.stop.simulated_s is not None and coordinator.round:
                    limit_ns = max(clock.now_ns, round(coordinator.stop.simulated_s * 1e9))
                    await self._server.until_time(limit_ns, lambda: coordinator.has_members)
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
            times = [each for each in (self._availability.next_ns(), latest_ns) if each is not None]
            times = [each for each in times if each <= self._bus.clock.last_ns]
            server = self._server
            await (server.until_time(min(times), is_done) if times else server.until(is_done))
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

    def joined(self, envelope: Envelope, now_ns: int) -> None:
        """A client states its version, because it came back or cannot follow a plan.

        Raises:
            BadPayload: the message cannot be read.
            ReportRefused: the client may not join.
        """
        is_due = self.answered(envelope.client)  # also by a JOIN that cannot be read: nobody waits for another
        join = messages.Join.unpack(envelope)
        if self._availability.has_left(join.sender):
            return  # it is gone again
        try:
            self._coordinator.joining.joined(join, round=envelope.round, is_due=is_due)
        except ReportRefused as error:
            is_there = self._bus.transport.reaches(join.sender)
            if error.reason in _FROM_X0 and join.sender not in self.rejected and is_there:
                self.rejected.add(join.sender)
                answer = messages.refuse(join.sender, error.reason, str(error))
                self._bus.send(answer._replace(round=self._coordinator.round))
                self.pending_joins[join.sender] += 1
            raise

    def pack(self) -> list[Any]:
        return sorted(self.pending_joins.items())

    def unpack(self, packed: list[Any]) -> None:
        # in real time a process that joins brings all of its clients that are there
        self.pending_joins = Counter(dict(packed) if self._bus.clock.is_virtual else {})

    def _move(self, moves: Moves) -> None:
        self._bus.send_all(self._coordinator.left(moves.left))
        for client, brings in moves.arrived:
            self._wake(client, brings)

    def _wake(self, client: int, brings: Returns) -> None:
        """A client is there again: tell it to join, with the state that it still has."""
        self._server.observer.noted("returned", client=client, returns=brings)
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
