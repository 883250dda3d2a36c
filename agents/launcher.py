"""Runs a scenario's server, with followers in this process or wherever a transport finds them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from seedbus.agents.availability import Availability, AvailabilityFault
from seedbus.agents.errors import JournalDamaged, RunFolderError, Unfinishable
from seedbus.agents.journal.file import FILE
from seedbus.agents.journal.journal import Journal
from seedbus.agents.messages import AnyAlgorithm, tally
from seedbus.agents.observer import Observer
from seedbus.agents.policies.participation import Participation
from seedbus.agents.policies.snapshot_budget import Lag
from seedbus.agents.server.coordinator import Coordinator
from seedbus.agents.server.follower_positions import FollowerPositions
from seedbus.agents.server.outages import Outage, Outages
from seedbus.agents.server.server import Server
from seedbus.agents.server.stopping import Cadence, Stop
from seedbus.algorithms.contract import Vector
from seedbus.algorithms.directions import reference, selftest, set_threads
from seedbus.bus import (
    Bus,
    Compute,
    Deadlock,
    EndOfTime,
    FaultHooks,
    Ledger,
    Links,
    Network,
    Pace,
    Transport,
    VirtualClock,
    WallClock,
)
from seedbus.bus.envelope import SHORT

MESSAGES = "messages"
OUTCOME = "outcome"


@dataclass(frozen=True, slots=True)
class Setup:
    """All that a run's server is made of.

    faults: what a scenario says of messages, links and compute time, sorted by who they concern once they are there.
    metrics: the names of what the evaluator measures. scenario: what followers are told; processes: how many share
    them; report_limit: bytes that a REPORT may have. x0: makes x₀, where the algorithm is dense.
    """

    seed: int
    algorithm: AnyAlgorithm
    participation: Participation
    stop: Stop
    evaluation: Cadence
    metrics: Sequence[str]
    network: Network
    compute: Compute
    faults: Sequence[object]
    verify_every: int
    is_virtual: bool
    scenario: bytes
    processes: int = 1
    lag: Lag | None = None
    x0: Callable[[], Vector] | None = None
    report_limit: int = SHORT


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. refusals: reason → client, or stranger → how often; faults: what each of them did, how often."""

    reason: str
    rounds: int
    version: int
    digest: str
    simulated_s: float
    refusals: dict[str, dict[str, int]]
    faults: list[dict[str, float]]


def run(
    setup: Setup, folder: Path, journal: Journal, observer: Observer, connect: Callable[[bytes], Transport]
) -> Outcome:
    """Run, or go on with, the run whose journal this is. connect: from the run's name, the way to its followers.

    Raises `Unfinishable`, `RunFolderError`, and on Ctrl-C `KeyboardInterrupt`; whatever happens, all rounds that were
    closed are kept.
    """
    ended = journal.facts().get(OUTCOME)
    if ended is not None:
        return _outcome(ended, folder / FILE)
    set_threads(os.cpu_count() or 1)  # replay only; it changes no bit
    crew = _ServerRun(setup, folder, journal, observer, connect)
    try:
        reason = crew.clock.run(crew.work())
    except (Deadlock, EndOfTime) as error:
        crew.tidy()
        raise Unfinishable(crew.why_stuck(error)) from None
    except BaseException:
        crew.tidy()
        raise
    finally:
        crew.archive.close()
    return crew.finish(reason)


def _outcome(text: str, path: Path) -> Outcome:
    """The outcome that a journal holds. Raises `JournalDamaged`."""
    try:
        found = json.loads(text)
        return Outcome(*(found[field.name] for field in fields(Outcome)))
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise JournalDamaged(path, 0, f"its {OUTCOME} cannot be read ({error})") from None


def history(algorithm: AnyAlgorithm, journal: Journal, after: int = 0) -> Iterator[Any]:
    """The commits of a journal from version after + 1 on, verified and decoded; of a dense run those that are kept."""
    for stored in journal.rounds(after):
        if stored.commit:
            yield from algorithm.unpack_commits(stored.commit)


def check_build(folder: Path, facts: dict[str, str], ours: dict[str, str]) -> None:
    """Raises `RunFolderError` if the facts in a journal name another build than this, or another x₀."""
    for name, our in ours.items():
        their = facts.get(name, our)
        if their != our:
            what = f"it was begun with {name} {their}, and this is {name} {our}: the bits would differ"
            raise RunFolderError(folder, what)


def _no_model() -> Vector:
    raise AssertionError("a server of scalars has no model")


def _those(rules: FaultHooks, kind: Any) -> tuple[list[Any], list[Counter[str]]]:
    """What the scenario says of one kind, and where it is counted how often it did what."""
    active = [each for each in rules.faults if isinstance(each.fault, kind)]
    return [each.fault for each in active], [each.counts for each in active]


class _ServerRun:
    """The server and what it stands on."""

    def __init__(
        self, setup: Setup, folder: Path, journal: Journal, observer: Observer, connect: Callable[[bytes], Transport]
    ) -> None:
        # the reference's, which is every backend's: a server computes nothing that would be worth compiling for
        facts, own_selftest = journal.facts(), selftest(reference)
        check_build(folder, facts, {"seedbus": version("seedbus"), "selftest": own_selftest.hex()})
        self.setup, self.journal = setup, journal
        self.clock = VirtualClock() if setup.is_virtual else WallClock()
        self.ledger = Ledger(folder / MESSAGES)
        clients = setup.participation.clients
        rules = FaultHooks(setup.faults, setup.seed, clients)
        presences, counts = _those(rules, AvailabilityFault)
        self.population = Availability(presences, setup.seed, clients, counts)
        stops, crashes = _those(rules, Outage)
        outages = Outages(stops, crashes)
        rules.add(*([self.population] if presences else []), *([outages] if stops else []))
        self.coordinator = Coordinator(
            setup.algorithm,
            setup.participation,
            seed=setup.seed,
            stop=setup.stop,
            evaluation=setup.evaluation,
            verify_every=setup.verify_every,
            proofs={"selftest": own_selftest}
            | {name: journal.proof(name) for name in ("x0", "losses") if name in facts},
            believes=not setup.is_virtual,
            apart=self.population.at_start if setup.is_virtual else self.population.away,
            lag=setup.lag,
            metrics=setup.metrics,
            state=setup.algorithm.first_state(setup.x0 or _no_model),
            reload=lambda after, last: self._reloaded(after, last),
        )
        self.transport = connect(journal.run_id)
        self.pace = Pace(setup.compute, setup.seed, rules)
        self._evaluations = lru_cache(maxsize=16)(setup.algorithm.evaluations)  # asked for each client of a round
        positions = FollowerPositions()
        self.bus = Bus(
            self.clock,
            self.transport,
            self.ledger,
            Links(setup.network, setup.seed, rules),
            rules,
            tally=lambda envelope: tally(setup.algorithm, self.coordinator.verifier.is_due, envelope),
            answer_ns=self._answer_ns,
            report_limit=setup.report_limit,
            on_answer=positions.answered,
        )
        self.server = Server(self.bus, self.coordinator, positions, self.population, outages, journal, observer)
        # a connection of its own, for the journal's may be in use on the journal's thread
        self.archive = Journal.open(folder, for_writing=False)
        self.archive.facts()  # now, and not when a client needs it, the system opens what there is to open

    async def work(self) -> str:
        try:
            checkpoint = self.journal.checkpoint()
            if checkpoint is None:
                self.ledger.restore(0, b"")
            else:
                self.server.restore(checkpoint, history(self.setup.algorithm, self.journal))
            self.transport.start(self.server.registration(self.setup.scenario, self.setup.processes))
            return await self.server.run()
        finally:
            await self.transport.close()

    def finish(self, reason: str) -> Outcome:
        """All rows into the ledger's files, and the outcome into the journal: the run is over."""
        self.bus.close()
        self.ledger.write_segment()
        coordinator = self.coordinator
        outcome = Outcome(
            reason,
            coordinator.round,
            coordinator.version,
            coordinator.last_digest,
            self.clock.now_ns / 1e9,
            coordinator.refusals.by_reason(),
            self.bus.rules.counts(),
        )
        self.journal.finish(self.server.unsaved_metrics, self.ledger.segments, {OUTCOME: json.dumps(asdict(outcome))})
        return outcome

    def tidy(self) -> None:
        """Leave the folder of a run that stopped in order: the rows up to its last whole round, as files."""
        checkpoint = self.journal.checkpoint()
        if checkpoint is not None:
            self.ledger.restore(checkpoint.segments, checkpoint.rows)
            self.ledger.write_segment()
            self.journal.rotated(self.ledger.segments)

    def why_stuck(self, error: Deadlock | EndOfTime) -> str:
        missing = self.coordinator.missing
        if not missing or isinstance(error, EndOfTime):
            return str(error)
        some = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        return (
            f"round {self.coordinator.round} waits for {len(missing)} clients ({some}) that will never answer; "
            "set participation.deadline_s to let rounds close without them"
        )

    def _reloaded(self, after: int, last: int) -> list[Any]:
        """Commits that are held no more."""
        return list(islice(history(self.setup.algorithm, self.archive, after), last - after))

    def _answer_ns(self, client: int, round: int, seeds: int) -> int:
        """seeds: one of the plan, and one for each term of the commits that it brings."""
        return self.pace.time_ns(client, round, self._evaluations(round), max(0, seeds - 1))
