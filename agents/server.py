"""The server: carries out what the coordinator decides. It holds no model.

Order of a round's end, on which recovery rests: aggregate → journal (durable) → tell the evaluator → next round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from seedbus.agents import messages
from seedbus.agents.coordinator import Closed, Coordinator, Outgoing
from seedbus.agents.followers import build_facts
from seedbus.agents.journal import Checkpoint, Entry, Journal
from seedbus.agents.observer import Observer
from seedbus.agents.reception import Reception
from seedbus.algorithms.contract import BadPayload
from seedbus.bus import EVALUATOR, SERVER, Bus, Envelope, Kind, MalformedEnvelope
from seedbus.bus.clock import LAST
from seedbus.bus.network import round_ns


class Server:
    """One run's server on a bus. reception: where the processes of its followers introduce themselves."""

    def __init__(self, bus: Bus, coordinator: Coordinator, journal: Journal, observer: Observer) -> None:
        self.bus, self.coordinator, self.journal, self.observer = bus, coordinator, journal, observer
        self._mailbox = bus.open(SERVER, "the server")
        self.unsaved_metrics: list[dict[str, Any]] = []
        self._held: dict[int, int] = {}
        self._unpublished: Closed | None = None
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="journal")

    def reception(self, scenario: bytes, processes: int) -> Reception:
        """Where this server's followers come in; scenario: what they are told; processes: how many share them."""
        self._reception = Reception(
            self.bus,
            self.coordinator,
            self.observer,
            scenario=scenario,
            processes=processes,
            held=self._stands,
            came=self._came,
        )
        return self._reception

    def restore(self, checkpoint: Checkpoint, log: list[Any]) -> None:
        """Go on from a checkpoint; before `run`."""
        coordinator, bus = checkpoint.state
        self.coordinator.restore(coordinator, log, checkpoint.known)
        self._held = dict(checkpoint.held)
        self.bus.ledger.restore(checkpoint.segments, checkpoint.rows)
        self.bus.restore(bus)
        round, version, cohort, reported, has_commit = checkpoint.last
        if not self.bus.clock.is_virtual:  # what the evaluator was asked and had not answered is not asked again
            self._held[EVALUATOR] = version - has_commit
            self.coordinator.progress.awaited = 0
        self._unpublished = Closed(round, version, tuple(cohort), tuple(reported), log[-1] if has_commit else None)

    async def run(self) -> str:
        """The whole run; returns why it ended."""
        try:
            await self._assemble()
            while (reason := self.coordinator.finished()) is None:
                await self._round()
            await self._until(lambda: self.coordinator.progress.awaited == 0)
            return reason
        finally:
            for host in self._reception.hosts:
                self.bus.transport.post(host, self.bus.book(messages.bye(host)))
            self._disk.shutdown()

    async def _assemble(self) -> None:
        """Wait for all followers; then measure x₀, or take up a run that stopped after its last durable round."""
        began_ns = self.bus.clock.now_ns
        self.bus.clock.hold()  # nothing is simulated while processes come, and real time counts from when they are here
        await self._until(lambda: not self._reception.missing)
        self.bus.clock.release()
        self.bus.clock.now_ns = began_ns
        self.journal.note(build_facts(self.coordinator.proofs))
        if self._unpublished is None:
            self.bus.send(self.coordinator.ask_evaluator())
            await self._until(lambda: not self.coordinator.awaits_metric)
        else:
            await self._publish(self._unpublished)

    def _stands(self) -> dict[int, int]:
        """At which version every follower is. What came late did not bring it back."""
        reached = self.bus.reached
        return self._held | {client: max(version, self._held.get(client, 0)) for client, version in reached.items()}

    def _came(self, plans: list[Outgoing]) -> None:
        """A process has come or gone, and there may be plans to send anew."""
        self._send(plans)
        self._mailbox.put(None)

    async def _round(self) -> None:
        await self._until(lambda: self.coordinator.has_members)
        self._send(self.coordinator.open_round())
        round, deadline_s = self.coordinator.round, self.coordinator.participation.deadline_s
        alarm = None
        if deadline_s is not None:
            due_ns = self.bus.clock.now_ns + round_ns(deadline_s)
            alarm = self.bus.clock.at(due_ns, (round,), lambda: self._mailbox.put(round), LAST)
        await self._until(lambda: self.coordinator.is_round_over)
        if alarm is not None:
            alarm.cancel()
        closed = self.coordinator.close_round()
        await self._keep(closed)
        await self._publish(closed)

    async def _publish(self, closed: Closed) -> None:
        """What follows once a round is durable; a resumed run begins with it."""
        question = self.coordinator.published(closed, sum(self._bytes()))
        self.observer.round_closed(closed, self.bus.clock.now_ns, self.coordinator.progress.bytes)
        if question is not None:
            self.bus.send(question)
        await self._until(lambda: not self.coordinator.awaits_metric)

    async def _keep(self, closed: Closed) -> None:
        """Make the round durable, on the journal's own thread. In simulated time nothing is half done then."""
        await self.bus.all_answered()
        self.bus.book_link_bytes()
        ledger, commit = self.bus.ledger, closed.commit
        entry = Entry(
            round=closed.round,
            version=closed.version,
            cohort=closed.cohort,
            reported=closed.reported,
            commit=None if commit is None else self.coordinator.algorithm.pack_commits([commit]).body,
            known=self.coordinator.take_moved(),
            held=list(self.bus.reached.items()),
            metrics=self.unsaved_metrics,
            rows=ledger.take_new(),
            is_rotated=ledger.is_full,
            segments=ledger.segments + ledger.is_full,
            state=[self.coordinator.checkpoint(), self.bus.checkpoint()],
        )
        self.unsaved_metrics = []
        self._held = self._stands()
        self.bus.reached.clear()

        def write() -> None:
            if entry.is_rotated:
                ledger.write_segment()  # first the file, then the journal that vouches for it
            self.journal.append(entry)

        await self.bus.clock.offload(self._disk, write)

    async def _until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self._read(await self._mailbox.get())

    def _read(self, letter: Envelope | MalformedEnvelope | int | None) -> None:
        """Act upon one letter; whatever is wrong with it is counted and named, and stops nothing."""
        coordinator = self.coordinator
        if letter is None:
            return  # somebody came or went: whoever waits looks again
        if isinstance(letter, int):
            coordinator.deadline_passed(letter)
        elif isinstance(letter, MalformedEnvelope):
            self.observer.refused(
                coordinator.refused(SERVER if letter.peer is None else letter.peer, "malformed", str(letter))
            )
        elif letter.kind is Kind.REPORT:
            refusal = coordinator.reported(letter)
            if refusal is not None:
                self.observer.refused(refusal)
        else:
            try:
                self._read_other(letter)
            except BadPayload as error:
                self.observer.refused(coordinator.refused(letter.client, "bad-payload", str(error)))

    def _read_other(self, letter: Envelope) -> None:
        if letter.kind is Kind.JOIN:
            plans, refusal = self.coordinator.joined(messages.Join.unpack(letter))
            self._send(plans)
            if refusal is not None:
                self.observer.refused(refusal)
        elif letter.kind is Kind.EVALUATION and letter.client == EVALUATOR:
            evaluation = messages.Evaluation.unpack(letter)
            up, down = self._bytes()
            line, diverged = self.coordinator.evaluated(evaluation, self.bus.clock.now_ns, up, down)
            for refusal in diverged:
                self.observer.refused(refusal)
            if line is not None:
                self.unsaved_metrics.append(line)
                self.observer.measured(line)
        else:
            detail = f"a {letter.kind.name} from {letter.client} is not for the server"
            self.observer.refused(self.coordinator.refused(letter.client, "wrong-kind", detail))

    def _send(self, outgoing: Iterable[Outgoing]) -> None:
        for envelope, tally in outgoing:
            self.bus.send(envelope, tally)

    def _bytes(self) -> tuple[int, int]:
        """Bytes of reports and of plans so far, without the digests of verification."""
        return self.bus.sent_bytes(Kind.REPORT), self.bus.sent_bytes(Kind.PLAN)
