"""The server: it carries out what the coordinator decides, and holds no model.

Recovery depends on the order in which a round ends: aggregate → journal (durable) → tell the evaluator → next round;
and a run: outcome → journal (durable) → tell the processes of clients, which do not come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from seedbus.agents import messages
from seedbus.agents.availability import Availability
from seedbus.agents.client.worker import build_facts
from seedbus.agents.errors import StopRequested
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import Checkpoint, Entry
from seedbus.agents.observer import Observer
from seedbus.agents.round_record import ClosedRound
from seedbus.agents.server.arrivals import Arrivals
from seedbus.agents.server.coordinator import Coordinator, DeadlinePassed, Event
from seedbus.agents.server.instruments import Instruments
from seedbus.agents.server.registration import Registration
from seedbus.agents.server.round import Phase
from seedbus.agents.server.state import ServerState, restored
from seedbus.agents.server.stopping import Sent
from seedbus.agents.stop_request import StopRequest
from seedbus.bus import EVALUATOR, SERVER, Bus, Envelope, Kind
from seedbus.bus.envelope import DOWN, REPORT, UP
from seedbus.bus.event_queue import LAST
from seedbus.pieces import Frame


class Interruption(Protocol):
    """What may take the open round from the server in one of its phases.

    Attributes:
        is_away: whether the server hears nothing now.
    """

    is_away: bool

    async def strikes(self, round: int, phase: Phase, server: Server) -> bool:
        """Strike, if it is to, and come back. Returns whether the server has lost what is not durable."""
        ...


class Server:
    """One run's server on a bus.

    Attributes:
        on_durable: called with each durable round, on the journal's thread, and with (client, round) of the plans that
            were under way; None: nobody is told.
    """

    on_durable: Callable[[ClosedRound, set[tuple[int, int]]], None] | None = None

    def __init__(
        self,
        bus: Bus,
        coordinator: Coordinator,
        availability: Availability,
        interruptions: Sequence[Interruption],
        journal: Journal,
        observer: Observer,
        stop: StopRequest,
    ) -> None:
        self.bus = bus
        self.coordinator = coordinator
        self.journal = journal
        self.observer = observer
        self._availability = availability
        self._interruptions = interruptions
        self._stop = stop
        self._mailbox = bus.open(SERVER, "the server")
        self._arrivals = Arrivals(self, availability)
        coordinator.handlers[Kind.JOIN] = self._arrivals.joined
        bus.on_no_join = self._not_joined
        bus.on_idle = self.look_again
        self._unpublished: ClosedRound | None = None
        self._instruments: Instruments | None = None
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="journal")

    def registration(self, scenario: bytes, processes: int) -> Registration:
        """Where processes of clients join this run.

        Args:
            scenario: what they are told of the run.
            processes: how many of them share the clients.
        """
        self._registration = Registration(
            self.bus,
            self.coordinator,
            self.observer,
            scenario=scenario,
            processes=processes,
            on_change=self._came,
        )
        return self._registration

    def instruments(self) -> Instruments:
        """Return the server's instruments, which are kept from now on; to be called after `registration`."""
        self._instruments = Instruments(self.bus, self._mailbox, self.coordinator, self._registration)
        return self._instruments

    def restore(self, checkpoint: Checkpoint, log: Iterable[Any]) -> None:
        """Continue from a checkpoint; to be called before `run`.

        Args:
            checkpoint: the journal's.
            log: all commits before it that the journal has, in order.

        Raises:
            ValueError: its state has another form than a server writes.
        """
        is_virtual, last_round = self.bus.clock.is_virtual, checkpoint.last.round
        state = restored(checkpoint.state, last_round, is_virtual=is_virtual)
        base = None if checkpoint.base is None else checkpoint.base.replica
        self.coordinator.restore(state.coordinator, log, checkpoint.positions, checkpoint.held, base)
        self._availability.unpack(state.availability)
        self._arrivals.unpack(state.arrivals)
        self.coordinator.positions.restore_actual(checkpoint.actual_versions, checkpoint.partial_downloads)
        self.bus.ledger.restore(checkpoint.segments, checkpoint.rows)
        self.bus.restore(state.bus)
        self._arrivals.began_ns = checkpoint.last.opened_ns
        last, commit = checkpoint.last, None
        if last.has_commit:
            commit, *_ = self.coordinator.history.since(last.version - 1)
        if not self.bus.clock.is_virtual:  # a question that the evaluator has not answered is not asked again
            self.coordinator.positions.actual[EVALUATOR] = last.version - last.has_commit
            self.coordinator.progress.asked = []
        self._unpublished = ClosedRound(last.round, last.version, tuple(last.cohort), tuple(last.reported), commit)

    async def run(self) -> str:
        """Run until the stopping rule holds; returns why it ended.

        A run that is interrupted or fails may be resumed: its clients keep calling, since only the end has `farewells`.

        Raises:
            StopRequested: it was asked to stop; no round is open, and all closed ones are durable.
        """
        loop = asyncio.get_running_loop()
        self._stop.wakes(lambda: self._wake(loop))
        try:
            await self._assemble()
            while (reason := self.coordinator.finished()) is None:
                self._stop_if_asked()
                if await self._arrivals.round_may_open():
                    await self._round()
            await self._measured()
            return reason
        finally:
            self._stop.wakes(lambda: None)
            self._disk.shutdown()

    def farewells(self) -> list[tuple[int, Frame]]:
        """Record that each process is told that the run is over; returns (host, frame) of what is to tell it."""
        return [(host, self.bus.record(messages.bye(host))) for host in self._registration.hosts]

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop is closed: the run is over
            loop.call_soon_threadsafe(self.look_again)

    def _stop_if_asked(self) -> None:
        """Raise `StopRequested` if the run is to stop, unless a round is open, which is closed first."""
        if self._stop.is_made and self.coordinator.rounds.current is None:
            raise StopRequested

    async def _assemble(self) -> None:
        """Wait until rounds may begin; then evaluate x₀, or publish a resumed run's last durable round."""
        began_ns = self.bus.clock.now_ns
        self.bus.clock.hold()  # no simulated time passes while processes join, and real time begins afterwards
        await self.until(lambda: self._registration.may_begin)
        self.bus.clock.release()
        self.bus.clock.now_ns = began_ns
        self.journal.note(build_facts(self.coordinator.joining.proofs))
        if self._unpublished is None:
            self.bus.send_all(self.coordinator.ask_evaluator())
            await self._measured()
        else:
            await self._publish(self._unpublished)

    def _came(self, clients: Iterable[int]) -> None:
        """A process has joined with these clients, or is gone with them."""
        if not self.bus.clock.is_virtual:
            for client in clients:
                # a process that joins brings its clients, and those of a process that is gone cannot join
                self._arrivals.pending_joins.pop(client, None)
            self.coordinator.positions.begin_anew(clients)
        self.look_again()

    def _not_joined(self, client: int) -> None:
        """A client that was told to join sends no JOIN."""
        self._arrivals.answered(client)
        self.look_again()

    async def _round(self) -> None:
        bus, coordinator = self.bus, self.coordinator
        bus.losing.clear()
        bus.send_all(coordinator.open_round(self._arrivals.began_ns, self._arrivals.computing()))
        await self.until(lambda: not coordinator.catch_up.awaits_evaluator)
        exchange = coordinator.exchange
        await self._ask(exchange.before_plans)
        now_ns = bus.clock.now_ns  # in real time the evaluator takes some, too
        bus.send_all(coordinator.send_plans(now_ns))
        passed, deadline_ns = DeadlinePassed(coordinator.round), coordinator.rounds.deadlines.ns
        alarm = None
        if deadline_ns is not None:
            alarm = bus.clock.at(now_ns + deadline_ns, passed, lambda: self._mailbox.put(passed), LAST)
        is_lost = await self._loses("asking") or await self._gathered()
        if exchange.after_reports and not is_lost:
            if alarm is not None:
                alarm.cancel()
            await self._ask(exchange.after_reports)
        is_lost = is_lost or await self._loses("committing")
        if alarm is not None:
            alarm.cancel()
        if is_lost:
            coordinator.crashed()
            return
        closed = coordinator.close_round(bus.clock.now_ns)
        bus.send_all(closed.outgoing)  # before the checkpoint, which then has it among the messages in flight
        await self._keep(closed)
        await self._publish(closed)

    async def _ask(self, stages: Sequence[int]) -> None:
        """Ask what the round asks beside reports, and wait for the answers; each stage has its own deadline."""
        for stage in stages:
            self.bus.send_all(self.coordinator.ask(stage))
            await self._until_deadline(lambda: not self.coordinator.exchange.waiting)

    async def _gathered(self) -> bool:
        """Wait until the round is over. Returns true if the server has lost it before."""
        coordinator = self.coordinator
        if self._interruptions:
            await self.until(lambda: coordinator.rounds.is_over or coordinator.rounds.is_half_reported)
            if await self._loses("gathering"):
                return True
        await self.until(lambda: coordinator.rounds.is_over)
        if coordinator.participation.is_streamed and not self.bus.clock.is_virtual:
            while self._mailbox:  # what came while the commit before was made durable enters the same one
                self._read(await self._mailbox.get())
        return False

    async def _loses(self, phase: Phase, round: int | None = None) -> bool:
        """Whether the server loses here what is not durable; round: None for the open one."""
        round = self.coordinator.round if round is None else round
        for each in self._interruptions:
            if await each.strikes(round, phase, self):
                return True
        return False

    def look_again(self) -> None:
        """Make a wait look whether it is over."""
        self._mailbox.put(None)

    @property
    def lacks_processes(self) -> bool:
        """Whether any follower has no process."""
        return bool(self._registration.missing)

    async def until_time(self, latest_ns: int, is_done: Callable[[], bool] = lambda: False) -> None:
        """Wait until an instant (ns of the run's clock), or until something is done."""
        if is_done():
            return
        passed: list[None] = []

        def ring() -> None:
            passed.append(None)
            self.look_again()

        alarm = self.bus.clock.at(latest_ns, (self.coordinator.round,), ring, LAST)
        await self.until(lambda: is_done() or bool(passed))
        alarm.cancel()

    async def _until_deadline(self, is_done: Callable[[], bool]) -> None:
        """Wait until something is done, for `participation.deadline_s` at most, if it is set."""
        if (deadline_ns := self.coordinator.participation.latest_ns(self.bus.clock.now_ns)) is None:
            await self.until(is_done)
        else:
            await self.until_time(deadline_ns, is_done)

    async def _publish(self, closed: ClosedRound) -> None:
        """Tell the evaluator of a durable round; a resumed run begins with this."""
        while await self._loses("publishing", closed.round):
            pass  # several of one moment follow each other
        self.bus.send_all(self.coordinator.published(closed, self._sent(), self.bus.clock.now_ns))
        self.observer.round_closed(closed, self.bus.clock.now_ns, self.coordinator.progress.bytes)
        if self._instruments is not None:
            self._instruments.closed(closed.record.opened_ns)
        await self._measured()

    async def _measured(self) -> None:
        """Wait for what is measured, where what follows depends on it."""
        coordinator = self.coordinator
        if coordinator.measuring is None:
            await self.until(lambda: not coordinator.awaits_metric)
        else:
            await self._until_deadline(lambda: not coordinator.awaits_metric)
            await self.until(lambda: not coordinator.awaits_digest)
            coordinator.end_measuring(self.bus.clock.now_ns)

    async def _keep(self, closed: ClosedRound) -> None:
        """Make the round durable, on the journal's own thread, once every client in simulated time has answered."""
        await self.bus.answers.all_received()
        self.bus.record_link_bytes()
        ledger, commit = self.bus.ledger, closed.commit
        actual_versions, partial_downloads = self.coordinator.positions.take_actual()
        entry = Entry(
            round=closed.round,
            version=closed.version,
            cohort=closed.cohort,
            reported=closed.reported,
            record=closed.record,
            commit=None if commit is None else self.coordinator.algorithm.pack_commits([commit], whole=True).body,
            is_dense=self.coordinator.algorithm.facts.is_dense,
            positions=self.coordinator.positions.take_believed(),
            actual_versions=actual_versions,
            partial_downloads=partial_downloads,
            held=self.coordinator.catch_up.take_new(),
            metrics=self.coordinator.unsaved_metrics,
            rows=ledger.take_new(),
            is_rotated=ledger.is_full,
            segments=ledger.segments,
            state=ServerState(
                coordinator=self.coordinator.checkpoint(),
                bus=self.bus.checkpoint(),
                availability=self._availability.pack(),
                arrivals=self._arrivals.pack(),
            ),
        )
        self.coordinator.unsaved_metrics = []
        self._arrivals.rejected.clear()
        under_way = set() if self.on_durable is None else self.bus.computing

        def write() -> None:
            if entry.is_rotated:
                ledger.write_segment()  # first the files, then the journal, which counts on them
            self.journal.append(replace(entry, segments=ledger.segments))
            if self.on_durable is not None:
                self.on_durable(closed, under_way)

        await self.bus.clock.offload(self._disk, write)

    async def until(self, is_done: Callable[[], bool]) -> None:
        """Act upon what comes until something is done."""

        def is_over() -> bool:
            return is_done() or (self._gives_up() and is_done())

        def act(event: Event | None) -> bool:
            self._read(event)
            if self._stop.is_made:
                self._stop_if_asked()
            return is_over()

        if not is_over():
            await self._mailbox.read(act)

    def _gives_up(self) -> bool:
        """Wait no more for answers that cannot come, because nothing is under way. Returns whether that is so.

        Otherwise a member that answers a plan with nothing, or with an old report, would hold up a run without a
        deadline for ever.
        """
        if not self.bus.is_idle or self._mailbox or any(each.is_away for each in self._interruptions):
            return False
        availability = self._availability
        outgoing = self.coordinator.no_answer(
            self.bus.losing,
            awaits_process=not self.bus.clock.is_virtual and not self._registration.missing <= {EVALUATOR},
            may_come=bool(self._arrivals.pending_joins) or (availability.is_changing and not availability.is_over),
        )
        self.bus.send_all(outgoing)
        return True

    def _read(self, event: Event | None) -> None:
        """Act upon what has come; None: a process has joined or is gone, or the run is to stop."""
        if event is None:
            return
        now_ns = self.bus.clock.now_ns
        if outgoing := self.coordinator.handle(event, now_ns):
            self.bus.send_all(outgoing)
        if self._instruments is not None and isinstance(event, Envelope) and event.kind is REPORT:
            self._instruments.reported(event, now_ns)

    def _sent(self) -> Sent:
        return Sent(*(sum(map(self.bus.sent_bytes, kinds)) for kinds in (UP, DOWN)))
