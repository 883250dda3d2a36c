"""Executes a run without a server, in simulated time and in this process.

All nodes' rounds begin at the same instants, `interval_s` apart. In each a node that is there and idle starts a step
from its model as it is then, and makes a commit of it once it has computed; a node that is still at work starts none.
What this module does, no node knows of: it opens the rounds, keeps the journal, and evaluates one node's model. The
journal holds all commits, those of a round as one entry, so replay needs no node either.

After the last round the nodes repair until each has all commits; a step that is still computed then makes none. All
replicas then have the same bits (`verify`).

What the nodes have and which messages are on their way is in no checkpoint: a run that is resumed computes its rounds
again from the first, compares those that are in the journal with it, and adds the others.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import msgpack
import numpy as np

from seedbus.agents.availability import Availability
from seedbus.agents.errors import RunFolderError, StopRequested, Unfinishable
from seedbus.agents.gossip.commit_set import Record
from seedbus.agents.gossip.node import Node, Steps, fold
from seedbus.agents.gossip.settings import METRICS, Gossip
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import Entry, StoredRound
from seedbus.agents.launcher import OUTCOME, Outcome
from seedbus.agents.messages import Evaluation
from seedbus.agents.observer import Observer
from seedbus.agents.problem import ClientProblem
from seedbus.agents.refusals import Mark, Reason, Refusal, Refusals
from seedbus.agents.round_record import NO_RECORD, ClosedRound, RoundRecord
from seedbus.agents.server.run_spec import RunSpec
from seedbus.agents.server.stopping import Progress, Sent
from seedbus.agents.stop_request import StopRequest
from seedbus.algorithms.contract import Declined, Replica, ReportRefused, Vector
from seedbus.algorithms.directions import use_all_cores
from seedbus.bus import Bus, FaultHooks, Kind, Ledger, Links, MemoryTransport, Pace, VirtualClock
from seedbus.bus.envelope import BETWEEN
from seedbus.bus.event_queue import LAST
from seedbus.bus.ledger import MESSAGES
from seedbus.bus.network import round_ns
from seedbus.bus.text import counted

TOO_LARGE = Reason.marked(Mark.TOO_LARGE)


class GossipRun:
    """A run's nodes, with their clock, ledger and bus.

    Args:
        spec: the run.
        gossip: its graph.
        problem: the task with its data.
        journal: its journal, open for writing.
        observer: is called with what happens.
        stop: asks the run to stop after the round in progress.
        place: moves a vector into the memory in which this process computes.
    """

    def __init__(
        self,
        spec: RunSpec,
        gossip: Gossip,
        problem: ClientProblem,
        journal: Journal,
        observer: Observer,
        stop: StopRequest,
        place: Callable[[Vector], Vector],
    ) -> None:
        nodes, seed = spec.participation.clients, spec.seed
        self.spec, self.gossip, self.problem = spec, gossip, problem
        self.journal, self.observer, self.stop = journal, observer, stop
        self.clock = VirtualClock()
        self.ledger = Ledger(journal.folder / MESSAGES)
        self.hooks = FaultHooks(spec.faults, seed, nodes)
        self.availability = Availability(self.hooks)
        if self.availability.is_changing:
            self.hooks.add(self.availability)
        links = Links(spec.network, seed, self.hooks)
        self.bus = Bus(self.clock, MemoryTransport(), self.ledger, links, self.hooks)
        self.pace = Pace(spec.compute, seed, self.hooks)
        self.steps = Steps(spec.algorithm, problem, nodes, seed)
        neighbours = gossip.neighbours(nodes, seed)
        start = spec.algorithm.replica(problem.x0()).placed(place)
        self.nodes = [Node(each, neighbours, self.steps, self.bus, start.copy(), seed) for each in range(nodes)]
        self.start = start
        self.progress = Progress()
        self.refusals = Refusals()
        self.too_large = 0  # of these, how many in the open round show that training diverges
        self.is_over = False  # whether the last round has closed
        self.made: list[Record] = []  # all commits, in the order in which they were made
        self.kept = 0  # of these, how many are in the journal
        self.lines: list[dict[str, Any]] = []  # of metrics, not in the journal yet
        checkpoint = journal.checkpoint()
        self.before = 0 if checkpoint is None else checkpoint.last.round + 1  # rounds that are in the journal
        self.known = journal.rounds()

    def run(self) -> Outcome:
        """Execute the run, or resume it; it has not ended.

        Raises:
            StopRequested: it was asked to stop, and has.
            Unfinishable: the next commit cannot be made.
            RunFolderError: a round that is computed again differs from the journal's, or the folder cannot be written.
            KeyboardInterrupt: on Ctrl-C.
        """
        use_all_cores()  # for replay only; it changes no bit
        reason, rounds = self.clock.run(self._work())
        self.bus.close()
        self.ledger.write_segment()
        whole = self._whole()
        outcome = Outcome(
            reason,
            rounds,
            len(self.made),
            whole.digest(),
            self.clock.now_ns / 1e9,
            self.refusals.by_reason(),
            self.hooks.counts(),
            self.refusals.details,
            reason == self.spec.stop.divergence(rounds, self.progress),
            {name: digest.hex() for name, digest in whole.digests().items()},
        )
        self.journal.finish(self.lines, self.ledger.segments, {OUTCOME: json.dumps(asdict(outcome))})
        return outcome

    async def _work(self) -> tuple[str, int]:
        """Execute the run. Returns why it ended, and the number of rounds."""
        self.ledger.restore(0, b"")
        boxes = [self.bus.open(node.address, f"node {node.address}") for node in self.nodes]
        reading = [asyncio.create_task(box.read(node.handle)) for box, node in zip(boxes, self.nodes, strict=True)]
        await asyncio.sleep(0)  # until all of them read
        try:
            return await self._rounds()
        finally:
            for task in reading:
                if task.done():
                    task.result()  # raises what a node has failed with
                task.cancel()

    async def _rounds(self) -> tuple[str, int]:
        self._measure(0)
        rounds, reason = 0, None
        while reason is None:
            if self.stop.is_made:
                raise StopRequested
            cohort = self._open(rounds)
            await self._until(rounds + 1)
            self._close(rounds, cohort)
            rounds += 1
            reason = self.spec.stop.reason(rounds, self.progress)
        self.is_over = True
        lacking = await self._repair(rounds)
        if self.spec.verify_every:
            self._verify(rounds)
        return reason + lacking, rounds

    def _open(self, round: int) -> list[int]:
        """Open a round, in which idle nodes start a step. Returns these."""
        cohort = [node for node in self._enter(round) if not node.is_busy]
        for node in cohort:
            if not self.hooks.drops_out(node.address, round):
                self._start(node)
        return [node.address for node in cohort]

    def _enter(self, round: int) -> list[Node]:
        """Let nodes leave and return, and tell what they have. Returns those that are there."""
        if round == self.before:  # earlier ones are computed again
            self.ledger.on_row = self.spec.on_row
        returned = {client for client, _ in self.availability.advance(round, self.clock.now_ns).arrived}
        present = [node for node in self.nodes if node.address not in self.availability.away]
        for node in self.nodes:
            node.round = round
        for node in present:
            if node.address in returned:
                node.tell_all()
        if (round + 1) % self.gossip.repair_every == 0:  # in mid-round, when steps that began with it have come around
            when_ns = self.clock.now_ns + round_ns(self.gossip.interval_s / 2)
            self.clock.post(when_ns, (Kind.HAVE, 0, round, 0, 0), _tell, present)
        return present

    def _start(self, node: Node) -> None:
        """A node computes a step from its model as it is now; it has it once its time has passed."""
        round, missed = node.round, node.missed
        try:
            record = node.measure()
        except (Declined, ReportRefused) as error:
            self._refuse(node.address, round, error.reason, str(error))
            return
        self.hooks.reported(node.address, round)
        node.is_busy = True
        evaluations = self.spec.algorithm.work(round).evaluations
        due_ns = self.clock.now_ns + self.pace.time_ns(node.address, round, evaluations, missed)
        self.clock.post(due_ns, (Kind.REPORT, node.address, round, 0, 0), self._made, (node, record))

    def _made(self, step: tuple[Node, Record]) -> None:
        """A node has computed a step: it is a commit now, but after the last round, when none is kept any more."""
        node, record = step
        node.is_busy = False
        if self.is_over:
            return
        with _finishable():
            self.steps.commit(record)
        self.made.append(record)
        node.add([record])

    async def _until(self, round: int) -> None:
        """Wait until a round would begin, and all that is due before has happened."""
        due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        when_ns = round * round_ns(self.gossip.interval_s)
        self.clock.at(when_ns, (Kind.LINK, 0, round, 0, 0), lambda: due.set_result(None), LAST)
        await due

    def _close(self, round: int, cohort: list[int]) -> None:
        """Make a round durable: the commits that were made since the one before."""
        new = self.made[self.kept :]
        commits = [replace(self.steps.commit(each), version=at) for at, each in enumerate(new, self.kept + 1)]
        self.kept = len(self.made)
        self.progress.sent = Sent(sum(self.bus.sent_bytes(kind) for kind in BETWEEN))
        self.progress.now_ns = self.clock.now_ns
        self.progress.barren = self.progress.barren + 1 if self.too_large and not new else 0
        self.too_large = 0
        every = self.spec.evaluation.every
        if (round + 1) % every == 0 or self.spec.stop.reason(round + 1, self.progress) is not None:
            self._measure(round)
        now_ns = self.clock.now_ns
        lags = [len(self.made) - self.nodes[each].has.size for each in cohort]
        record = RoundRecord(opened_ns=now_ns - round_ns(self.gossip.interval_s), closed_ns=now_ns, lags=lags)
        reported = sorted({each[0] for each in new})
        is_full = self.ledger.is_full
        if is_full:
            self.ledger.write_segment()
        body = self.spec.algorithm.pack_commits(commits, whole=True).body if commits else None
        rows = self.ledger.take_new()
        if round < self.before:
            self._compare(round, cohort, reported, body)
            self.lines = []
            return
        self.journal.append(
            Entry(
                round=round,
                version=self.kept,
                cohort=cohort,
                reported=reported,
                commit=body,
                positions=(),
                actual_versions=(),
                metrics=self.lines,
                rows=rows,
                segments=self.ledger.segments,
                is_rotated=is_full,
                state=[],
                record=record,
                partial_downloads=(),
                is_dense=False,
            )
        )
        self.lines = []
        closed = ClosedRound(round, self.kept, tuple(cohort), tuple(reported), commits or None, record)
        self.observer.round_closed(closed, now_ns, self.progress.bytes)

    def _compare(self, round: int, cohort: list[int], reported: list[int], commit: list[Any] | None) -> None:
        """Compare a round that was computed again with the journal's."""
        found = StoredRound(round, self.kept, cohort, reported, NO_RECORD, commit)
        if msgpack.packb(next(self.known)._replace(record=NO_RECORD)) != msgpack.packb(found):
            what = (
                f"round {round} was computed again, and is not the journal's; expected the processor and the versions "
            )
            raise RunFolderError(self.journal.folder, what + "that the run was begun with")

    async def _repair(self, first: int) -> str:
        """Repair until each node has all commits. Returns what is to be said if some do not."""
        for round in range(first, first + self.gossip.repair_rounds + 1):
            lacking = [node for node in self.nodes if node.has.size < len(self.made)]
            if not lacking:
                return ""
            if round < first + self.gossip.repair_rounds:
                self._enter(round)
                await self._until(round + 1)
        most = len(self.made) - min(node.has.size for node in lacking)
        lack = "lacks" if len(lacking) == 1 else "lack"
        return f"; {counted(len(lacking), 'node')} {lack} up to {counted(most, 'commit')}"

    def _measure(self, round: int) -> None:
        """Evaluate one node's model, and how far the nodes are from each other."""
        algorithm, nodes = self.spec.algorithm, self.nodes
        replica = nodes[self.gossip.evaluated].replica
        metrics = self.problem.evaluate(algorithm.point(replica), self.spec.evaluation.split)
        metrics |= algorithm.diagnostics(replica)
        missing = sum(len(self.made) - node.has.size for node in nodes)
        metrics |= dict(zip(METRICS, (missing / len(nodes), self._distance()), strict=True))
        evaluation = Evaluation(round, len(self.made), metrics)
        line = self.progress.measured(evaluation, self.spec.stop, self.clock.now_ns)
        self.lines.append(line)
        if round >= self.before:
            self.observer.measured(line)

    def _distance(self) -> float:
        """Return the root of the mean squared distance of the nodes' models from their mean.

        Sums are NumPy's: the bits of a product of two vectors depend on the processor.
        """
        total, squares = np.zeros(self.problem.dimension), 0.0
        first = np.asarray(self.spec.algorithm.point(self.nodes[0].replica)).astype(np.float64)
        for node in self.nodes:  # relative to one of them, so that little is cancelled
            apart = np.asarray(self.spec.algorithm.point(node.replica)) - first
            total += apart
            squares += float(np.sum(apart * apart))
        mean = total / len(self.nodes)
        return float(np.sqrt(max(0.0, squares / len(self.nodes) - float(np.sum(mean * mean)))))

    def _whole(self) -> Replica:
        """Return the sum of all commits, in the order in which they were made."""
        whole = self.start.copy()
        fold(whole, self.steps, self.made)
        return whole

    def _verify(self, round: int) -> None:
        """Compare each node's digest with that of the sum of its commits in another order: by origin and number."""
        for node in self.nodes:
            sorted_sum = self.start.copy()
            fold(sorted_sum, self.steps, node.has)
            if node.replica.digest() != sorted_sum.digest():
                detail = f"node {node.address} holds other bits than the sum of its {node.has.size} commits"
                self._refuse(node.address, round, "diverged", detail)

    def _refuse(self, node: int, round: int, reason: str, detail: str) -> None:
        self.refusals.of_client(node, reason, detail)
        self.too_large += reason in TOO_LARGE
        if round >= self.before:
            self.observer.refused(Refusal(node, round, reason, detail))


def _tell(nodes: list[Node]) -> None:
    for node in nodes:
        node.tell_one()


@contextmanager
def _finishable() -> Iterator[None]:
    """Turn a sum beyond its range into the error that ends a run."""
    try:
        yield
    except OverflowError as error:
        raise Unfinishable(str(error)) from None
