"""Runs all the agents of a scenario in this process, on the memory transport and the virtual clock."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from seedbus.agents import messages
from seedbus.agents.coordinator import Coordinator
from seedbus.agents.errors import RunFolderError, Unfinishable
from seedbus.agents.evaluator import Evaluator
from seedbus.agents.host import Host
from seedbus.agents.journal import Checkpoint, Journal
from seedbus.agents.messages import AnyAlgorithm
from seedbus.agents.observer import Observer
from seedbus.agents.participation import Participation
from seedbus.agents.problem import Problem
from seedbus.agents.replicas import Replicas
from seedbus.agents.server import Server
from seedbus.agents.stopping import Cadence, Stop
from seedbus.algorithms.contract import Replica, Vector
from seedbus.algorithms.directions import selftest, set_threads
from seedbus.bus import (
    HOST,
    Bus,
    Compute,
    Deadlock,
    EndOfTime,
    Ledger,
    Links,
    MemoryTransport,
    Network,
    Rule,
    Rules,
    VirtualClock,
    decode,
)
from seedbus.bus.envelope import Kind

MESSAGES = "messages"
OUTCOME = "outcome"


@dataclass(frozen=True, slots=True)
class Setup:
    """All that a run is made of."""

    seed: int
    algorithm: AnyAlgorithm
    problem: Problem
    participation: Participation
    stop: Stop
    evaluation: Cadence
    network: Network
    compute: Compute
    rules: Sequence[Rule]
    verify_every: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. refusals: reason → client → how often."""

    reason: str
    rounds: int
    version: int
    digest: str
    simulated_s: float
    refusals: dict[str, dict[str, int]]


def run(setup: Setup, folder: Path, journal: Journal, observer: Observer) -> Outcome:
    """Run, or go on with, the run whose journal this is. Raises `Unfinishable`, `RunFolderError`, and on Ctrl-C
    `KeyboardInterrupt`; whatever happens, all rounds that were closed are kept."""
    ended = journal.facts().get(OUTCOME)
    if ended is not None:
        return Outcome(**json.loads(ended))
    set_threads(os.cpu_count() or 1)  # replay only; it changes no bit
    crew = _Crew(setup, folder, journal, observer)
    try:
        reason = crew.clock.run(crew.work())
    except (Deadlock, EndOfTime) as error:
        crew.tidy()
        raise Unfinishable(crew.why_stuck(error)) from None
    except BaseException:
        crew.tidy()
        raise
    return crew.finish(reason)


def history(algorithm: AnyAlgorithm, journal: Journal) -> list[Any]:
    """All commits of a journal, verified and decoded."""
    packed = (commit for *_, commit in journal.rounds() if commit is not None)
    return [commit for body in packed for commit in algorithm.unpack_commits(body)]


def prove(algorithm: AnyAlgorithm, x0: Vector) -> tuple[bytes, bytes]:
    """What a process shows of itself: the self-test of its directions and arithmetic, and the digest of its x₀."""
    return selftest(), algorithm.replica(x0).digests()["x"]


def check_build(folder: Path, facts: dict[str, str], proof: tuple[bytes, bytes]) -> dict[str, str]:
    """What this build is, for the journal. Raises `RunFolderError` if the facts in there name another."""
    build = {"seedbus": version("seedbus"), "selftest": proof[0].hex(), "x0": proof[1].hex()}
    for name, ours in build.items():
        theirs = facts.get(name, ours)
        if theirs != ours:
            what = f"it was begun with {name} {theirs}, and this is {name} {ours}: the bits would differ"
            raise RunFolderError(folder, what)
    return build


class _Crew:
    """The agents of one process, wired to one bus."""

    def __init__(self, setup: Setup, folder: Path, journal: Journal, observer: Observer) -> None:
        x0 = setup.problem.x0()
        proof = prove(setup.algorithm, x0)
        journal.note(check_build(folder, journal.facts(), proof))
        self.journal, self.clock = journal, VirtualClock()
        self.ledger = Ledger(folder / MESSAGES)
        rules = Rules(setup.rules, setup.seed)
        self.bus = Bus(self.clock, MemoryTransport(), self.ledger, Links(setup.network, setup.seed), rules)
        self.coordinator = Coordinator(
            setup.algorithm,
            setup.participation,
            seed=setup.seed,
            stop=setup.stop,
            evaluation=setup.evaluation,
            verify_every=setup.verify_every,
            proof=proof,
        )
        self.server = Server(self.bus, self.coordinator, journal, observer)
        checkpoint = journal.checkpoint()
        log = history(setup.algorithm, journal) if checkpoint is not None else []
        if checkpoint is None:
            self.ledger.restore(0, b"")
        self.host = self._host(setup, x0, proof, checkpoint, log, observer)
        follower = setup.algorithm.replica(x0)
        self.evaluator = Evaluator(self.bus, setup.algorithm, setup.problem, follower, setup.evaluation.split, observer)
        if checkpoint is not None:
            self.server.restore(checkpoint, log)
            setup.algorithm.apply(follower, log[: self._evaluator_version()])

    async def work(self) -> str:
        server = asyncio.create_task(self.server.run())
        followers = [asyncio.create_task(self.host.run()), asyncio.create_task(self.evaluator.run())]
        tasks = [server, *followers]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
        return server.result()

    def finish(self, reason: str) -> Outcome:
        """All rows into the ledger's files, and the outcome into the journal: the run is over."""
        self.bus.close()
        self.ledger.write_segment()
        coordinator, refusals = self.coordinator, dict[str, dict[str, int]]()
        for (client, why), count in sorted(coordinator.refusals.items()):
            refusals.setdefault(why, {})[str(client)] = count
        outcome = Outcome(
            reason,
            coordinator.round,
            coordinator.version,
            coordinator.last_digest,
            self.clock.now_ns / 1e9,
            refusals,
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

    def _host(
        self,
        setup: Setup,
        x0: Vector,
        proof: tuple[bytes, bytes],
        checkpoint: Checkpoint | None,
        log: list[Any],
        observer: Observer,
    ) -> Host:
        def fresh() -> Replica:
            return setup.algorithm.replica(x0)

        replicas = Replicas(
            setup.algorithm,
            fresh,
            private=setup.verify_every > 0,
            versions=checkpoint.held if checkpoint is not None else None,
            history=lambda version: log[:version],
        )
        return Host(
            self.bus,
            HOST,
            range(setup.participation.clients),
            setup.algorithm,
            setup.problem,
            replicas,
            is_member=checkpoint is not None,
            proof=proof,
            compute=setup.compute,
            seed=setup.seed,
            verify_every=setup.verify_every,
            observer=observer,
        )

    def _evaluator_version(self) -> int:
        """Where the evaluator stood: before the last round's commit, and before those that were on their way to it."""
        coming = [
            commit.version
            for frame in self.bus.under_way(Kind.COMMIT)
            for commit in messages.unpack_commit(self.coordinator.algorithm, decode(frame))[0]
        ]
        return min(coming, default=self.server.published_version + 1) - 1
