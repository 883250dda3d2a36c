"""Runs a scenario's server. A transport connects it to its followers, in this process or in others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from seedbus.agents.availability import Availability
from seedbus.agents.client.client_state import KEPT_DURABLE, prune
from seedbus.agents.errors import JournalDamaged, RunFolderError, Unfinishable
from seedbus.agents.garbage import BuiltToLast, collected_after
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import StoredRound
from seedbus.agents.monitor import Monitor
from seedbus.agents.observer import Observer
from seedbus.agents.round_record import ClosedRound
from seedbus.agents.server.coordinator import Coordinator
from seedbus.agents.server.outages import Outages
from seedbus.agents.server.run_spec import RunSpec
from seedbus.agents.server.server import Server
from seedbus.agents.stop_request import StopRequest
from seedbus.algorithms.contract import Algorithm, BadPayload
from seedbus.algorithms.directions import reference, selftest_once, use_all_cores
from seedbus.bus import (
    Bus,
    Callbacks,
    Deadlock,
    EndOfTime,
    FaultHooks,
    Ledger,
    Links,
    Pace,
    Transport,
    VirtualClock,
    WallClock,
)
from seedbus.bus.ledger import MESSAGES
from seedbus.versions import minor_of, version

OUTCOME = "outcome"
"""The name of the fact that holds how a run ended."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        reason: why, in a sentence.
        rounds: how many were closed.
        version: the newest.
        digest: of the final model, in hexadecimal.
        simulated_s: the run's clock at the end.
        refusals: reason → sender → count.
        faults: for each fault, what it did → how often.
        refusal_details: reason → the sentence of the first refusal for it.
        training_diverged: whether the run ended because training diverged.
        digests: field of the final model's replica (x, …) → its digest, in hexadecimal.
    """

    reason: str
    rounds: int
    version: int
    digest: str
    simulated_s: float
    refusals: dict[str, dict[str, int]]
    faults: list[dict[str, float]]
    refusal_details: dict[str, str] = field(default_factory=dict)
    training_diverged: bool = False
    digests: dict[str, str] = field(default_factory=dict)


def run(
    spec: RunSpec,
    folder: Path,
    journal: Journal,
    observer: Observer,
    connect: Callable[[bytes], Transport],
    stop: StopRequest,
    monitor: Monitor | None = None,
) -> Outcome:
    """Execute a run that has not ended, from its beginning or from the last durable round of its journal.

    Whatever happens, all rounds that were closed are kept.

    Args:
        spec: the run.
        folder: its folder.
        journal: its journal, open for writing.
        observer: is called with what happens.
        connect: makes the transport to its followers, from the run's identifier.
        stop: asks the run to stop after the round in progress.
        monitor: takes readings of the server; None: nobody does.

    Raises:
        StopRequested: it was asked to stop, and has.
        Unfinishable: the next commit cannot be made.
        RunFolderError: the folder cannot be written, or belongs to another build or x₀.
        KeyboardInterrupt: on Ctrl-C.
    """
    use_all_cores()  # for replay only; it changes no bit
    with collected_after() as built_to_last:
        with built_to_last():
            server_run = _ServerRun(spec, folder, journal, observer, connect, stop, built_to_last)
        try:
            reason = server_run.clock.run(server_run.work(monitor))
        except (Deadlock, EndOfTime) as error:
            server_run.tidy()
            raise Unfinishable(server_run.why_stuck(error)) from None
        except BaseException:
            server_run.tidy()
            raise
        finally:
            server_run.archive.close()
        return server_run.finish(reason)


def outcome_in(journal: Journal) -> Outcome | None:
    """Return how the run of a journal has ended; None: it has not. Raises `JournalDamaged`."""
    text = journal.facts().get(OUTCOME)
    if text is None:
        return None
    try:
        stored = json.loads(text)
        return Outcome(**{each.name: stored[each.name] for each in fields(Outcome) if each.name in stored})
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise JournalDamaged(journal.folder / FILE, 0, f"its {OUTCOME} cannot be read ({error})") from None


def history(algorithm: Algorithm, journal: Journal, after: int = 0) -> Iterator[Any]:
    """Yield the commits of a journal from version `after` + 1 on, verified; of a dense run those that are kept."""
    for stored in journal.rounds(after):
        if stored.commit:
            yield from unpacked(algorithm, stored, journal.folder / FILE)


def unpacked(algorithm: Algorithm, stored: StoredRound, path: Path) -> list[Any]:
    """Return the commits of a round of the journal `path`. Raises `JournalDamaged`."""
    try:
        return list(algorithm.unpack_commits(stored.commit))
    except BadPayload as error:
        raise JournalDamaged(
            path, stored.round, f"the commit of round {stored.round} cannot be decoded ({error})"
        ) from None


def check_build(folder: Path, facts: dict[str, str], ours: dict[str, str]) -> None:
    """Raise `RunFolderError` if the facts in a journal name another build than this, or another x₀.

    Versions of Seedbus may differ in their last number: the self-test of arithmetic shows that the bits do not.
    """
    for name, our_fact in ours.items():
        its_fact = facts.get(name, our_fact)
        is_same = minor_of(its_fact) == minor_of(our_fact) if name == "seedbus" else its_fact == our_fact
        if not is_same:
            meaning = " (data, or weights that training begins with)" if name == "x0" else ""
            what = f"it was begun with {name} {its_fact}{meaning}, and this is {name} {our_fact}: the bits would differ"
            raise RunFolderError(folder, what)


class _ServerRun:
    """A run's server, with its clock, ledger, bus and transport."""

    def __init__(
        self,
        spec: RunSpec,
        folder: Path,
        journal: Journal,
        observer: Observer,
        connect: Callable[[bytes], Transport],
        stop: StopRequest,
        built_to_last: BuiltToLast,
    ) -> None:
        # with the reference backend: all have the same self-test, and this one need not be compiled
        facts, own_selftest = journal.facts(), selftest_once(spec.algorithm.facts.law, reference)
        check_build(folder, facts, {"seedbus": version("seedbus"), "selftest": own_selftest.hex()})
        self.spec = spec
        self.journal = journal
        self.built_to_last = built_to_last
        self.clock = VirtualClock() if spec.is_virtual else WallClock()
        self.ledger = Ledger(folder / MESSAGES)
        self.ledger.on_row = spec.on_row
        clients = spec.participation.clients
        hooks = FaultHooks(spec.faults, spec.seed, clients)
        self.availability, outages = Availability(hooks), Outages(hooks)
        if self.availability.is_changing:
            hooks.add(self.availability)
        if outages:
            hooks.add(outages)
        self.coordinator = Coordinator(
            spec,
            observer,
            proofs={"selftest": own_selftest}
            | ({"plugins": spec.plugins} if spec.plugins else {})
            | {name: journal.proof(name) for name in ("x0", "losses", "mask") if name in facts},
            apart=self.availability.at_start if spec.is_virtual else self.availability.away,
            reload=lambda after, last: self._reloaded(after, last),
        )
        self.transport = connect(journal.run_id)
        self.pace = Pace(spec.compute, spec.seed, hooks)
        # called for each client of a round
        self._work = lru_cache(maxsize=16)(spec.algorithm.work)
        self._equal_ns = lru_cache(maxsize=64)(partial(self._answer_ns, 0))
        self.bus = Bus(
            self.clock,
            self.transport,
            self.ledger,
            Links(spec.network, spec.seed, hooks, last_ns=self.clock.last_ns),
            hooks,
            calls=Callbacks(
                tally=self.coordinator.reader.tally,
                answer_ns=self._equal_answer_ns if self.pace.is_equal else self._answer_ns,
                measure_ns=lambda client, round, seeds: self.pace.time_ns(client, round, 1, seeds),
                on_decoded=self.coordinator.reader.read_together,
                on_answer=self.coordinator.positions.on_answer,
                on_delivery=self.coordinator.positions.on_delivery,
            ),
            report_limit=spec.report_limit,
        )
        interruptions = [outages] if outages else []
        self.server = Server(self.bus, self.coordinator, self.availability, interruptions, journal, observer, stop)
        self._under_way: set[tuple[int, int]] | None = None  # at the end of the last durable round
        self._ended_s = 0.0  # when the outcome became durable: a wall clock goes on
        if spec.memory is not None:
            self.server.on_durable = partial(self._prune, spec.memory)
        # its own connection: the journal's may be in use on the journal's thread
        self.archive = Journal.open(folder, for_writing=False)
        self.archive.facts()  # the files are opened now, not when a client needs them

    async def work(self, monitor: Monitor | None) -> str:
        """Execute the run; returns why it ended."""
        try:
            checkpoint = self.journal.checkpoint()
            if checkpoint is None:
                self.ledger.restore(0, b"")
            else:
                with self.journal.decoding():
                    self.server.restore(checkpoint, history(self.spec.algorithm, self.journal))
            registration = self.server.registration(self.spec.scenario, self.spec.processes)
            if monitor is not None:
                monitor.attach(asyncio.get_running_loop(), self.server.instruments().read)
            with self.built_to_last():  # in memory all clients join here
                self.transport.start(registration)
            reason = await self.server.run()
            farewells = self.server.farewells()
            self._keep_end(reason)
            for host, frame in farewells:  # only now: a client that was told so does not come back
                self.transport.post(host, frame)
            return reason
        finally:
            if monitor is not None:
                monitor.detach()
            await self.transport.close()

    def _keep_end(self, reason: str) -> None:
        """Write all rows into the ledger's files, and the outcome into the journal; reason: why the run ended."""
        self.ledger.write_segment(only_taken=True)
        kept = self.ledger.segments
        self.bus.close()
        self.ledger.write_segment()
        self._ended_s = self.clock.now_ns / 1e9
        facts = {OUTCOME: json.dumps(asdict(self._outcome(reason)))}
        self.journal.finish(self.coordinator.unsaved_metrics, self.ledger.segments, facts, kept=kept)

    def finish(self, reason: str) -> Outcome:
        """Return the outcome, which is durable already; what clients sent since they were told of it is added."""
        outcome, segments = self._outcome(reason), self.ledger.segments
        self.bus.close()
        self.ledger.write_segment()
        if self.ledger.segments > segments:
            self.journal.finish([], self.ledger.segments, {OUTCOME: json.dumps(asdict(outcome))})
        if self.spec.memory is not None and self._under_way is not None:  # else it has closed no round since a resume
            prune(self.spec.memory, None, self.coordinator.round, self._under_way, 1)
        return outcome

    def _outcome(self, reason: str) -> Outcome:
        coordinator = self.coordinator
        return Outcome(
            reason,
            coordinator.round,
            coordinator.version,
            coordinator.last_digest,
            self._ended_s,
            coordinator.refusals.by_reason(),
            self.bus.rules.counts(),
            coordinator.refusals.details,
            reason == coordinator.divergence,
            coordinator.last_digests,
        )

    def _prune(self, memory: Path, closed: ClosedRound, under_way: set[tuple[int, int]]) -> None:
        self._under_way = under_way
        prune(memory, {*closed.cohort, *closed.reported}, closed.round + 1, under_way, KEPT_DURABLE)

    def tidy(self) -> None:
        """After a run that stopped: write the ledger's rows up to the last whole round into its files."""
        checkpoint = self.journal.checkpoint()
        if checkpoint is not None:
            with self.journal.decoding():
                self.ledger.restore(checkpoint.segments, checkpoint.rows)
            self.ledger.write_segment()
            self.journal.rotated(self.ledger.segments)

    def why_stuck(self, error: Deadlock | EndOfTime) -> str:
        """Return a sentence that says what the run waits for."""
        if not self.coordinator.missing or isinstance(error, EndOfTime):
            return str(error)
        return self.coordinator.silent.waits_in_vain()

    def _reloaded(self, after: int, last: int) -> list[Any]:
        """Return the commits after version `after` up to `last` from the journal; the server holds them no more."""
        return list(islice(history(self.spec.algorithm, self.archive, after), last - after))

    def _answer_ns(self, client: int, round: int, seeds: int) -> int:
        """Return how long a client works; seeds: one of the plan, and one for each term that it folds."""
        return self.pace.time_ns(client, round, self._work(round).evaluations, max(0, seeds - 1))

    def _equal_answer_ns(self, client: int, round: int, seeds: int) -> int:
        """Return what `_answer_ns` does, if all clients work equally long."""
        return self._equal_ns(round, seeds)
