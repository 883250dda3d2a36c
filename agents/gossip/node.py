"""A node: it makes steps from its own model, and floods its commits, and those it hears of, to its neighbours.

Kim and Lee, "SeedFlood: A Step Toward Scalable Decentralized Training of LLMs" (arXiv:2602.18181): a zeroth-order step
is a seed and a few scalars, so each node's steps can reach every other node. Here a node's model is the exact sum of
the commits that it has (algorithms.scalar_only.exact), so it does not depend on when and in which order they came.

    FLOOD    commits, at most 64: the sender's own step, what it has just heard, or what it knows the recipient to lack
    HAVE     a summary of what the sender has. The recipient sends what that lacks, and answers with its own summary if
             it lacks something too

A commit that a node has not seen is added, and sent on to all neighbours but the one that it came from; one that it has
seen is dropped. Its seed is a function of the scenario's seed, its origin and its round, and is not sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import msgpack

from seedbus.agents import messages
from seedbus.agents.gossip.commit_set import CommitSet, Record
from seedbus.agents.problem import ClientProblem
from seedbus.agents.seeds import of_step
from seedbus.algorithms.contract import Algorithm, Replica, local
from seedbus.bus import Bus, Envelope, Kind, Tally
from seedbus.bus.envelope import ARRAY_LIMIT, NO_TALLY
from seedbus.bus.keyed_random import below
from seedbus.discovery import PluginError


class Steps:
    """Makes nodes' steps, and makes commits of them: one for each record, which all nodes of this process share.

    Attributes:
        algorithm: the run's.
    """

    def __init__(self, algorithm: Algorithm, problem: ClientProblem, nodes: int, seed: int) -> None:
        self.algorithm = algorithm
        self._problem = problem
        self._nodes = nodes
        self._seed = seed
        self._commits: dict[tuple[int, int], Any] = {}
        self._state = algorithm.first_state(problem.x0)

    def measure(self, node: int, number: int, round: int, replica: Replica) -> Record:
        """Return the record of a node's step from its replica.

        Raises:
            Declined: the result cannot be sent.
            ReportRefused: the result must not enter a model.
            PluginError: the algorithm's clients remember something, which no node keeps.
        """
        plan = self._plan(node, round)
        report, memory = local(self.algorithm, replica, None, plan, self._problem.objective(node, round))
        if memory is not None:
            what = f"a client of {self.algorithm.facts.label} remembers something"
            raise PluginError(f"{what}; without a server (topology) nodes keep nothing from step to step")
        body = self.algorithm.pack_report(plan, report).body
        messages.read_report(self.algorithm, body, plan)
        return [node, number, round, *body]

    def commit(self, record: Record) -> Any:
        """Return the commit of a record. A round in which all nodes commit moves x by the mean of their steps.

        Raises:
            OverflowError: the sum of all commits would leave the range of its numbers.
        """
        origin, number, round, *body = record
        if (origin, number) not in self._commits:
            plan = self._plan(origin, round)
            reports = {origin: messages.read_report(self.algorithm, body, plan)}
            made, self._state = self.algorithm.aggregate(self._state, plan, reports, share=1 / self._nodes)
            self._commits[origin, number] = made
        return self._commits[origin, number]

    def tally(self, records: Sequence[Record], *, is_repair: bool) -> Tally:
        """Return what the ledger records of commits."""
        scalars = sum(self.algorithm.work(round).scalars for _, _, round, *_ in records)
        return Tally(scalars, len(records), len(msgpack.packb(records)) if is_repair else 0)

    def _plan(self, node: int, round: int) -> Any:
        return self.algorithm.plan(round, 0, of_step(self._seed, node, round))


class Node:
    """One node.

    Attributes:
        address: its number.
        has: the commits that it has.
        round: the round that is open.
        is_busy: whether it works on a step.
    """

    def __init__(
        self, address: int, neighbours: Sequence[Sequence[int]], steps: Steps, bus: Bus, start: Replica, seed: int
    ) -> None:
        """Begin without commits.

        Args:
            address: its number.
            neighbours: those of each node, ascending.
            steps: the run's.
            bus: the run's.
            start: its own replica at version 0.
            seed: the scenario's.
        """
        self.address = address
        self.has = CommitSet(len(neighbours))
        self.round = 0
        self.is_busy = False
        self._neighbours = neighbours[address]
        self._steps = steps
        self._bus = bus
        self._replica = start
        self._seed = seed
        self._unfolded: list[Record] = []
        self._missed = 0

    @property
    def missed(self) -> int:
        """How many commits it has got since its last step; an evaluation folds them at once, and at no cost."""
        return self._missed

    @property
    def replica(self) -> Replica:
        """Its model: the sum of all commits that it has, and their number as the version; not to be written to."""
        fold(self._replica, self._steps, self._unfolded)
        self._unfolded = []
        return self._replica

    def measure(self) -> Record:
        """Return a step of the open round, from its model. Raises what `Steps.measure` raises."""
        self._missed = 0
        return self._steps.measure(self.address, self.has.count(self.address), self.round, self.replica)

    def add(self, records: Sequence[Record], sender: int | None = None) -> None:
        """Take commits, its own or those that a neighbour sent, and send what is new to its other neighbours."""
        new = [record for record in records if self.has.add(record)]
        self._unfolded += new
        self._missed += len(new)
        if new:
            for neighbour in self._neighbours:
                if neighbour != sender:
                    self._send(Kind.FLOOD, neighbour, new, self._steps.tally(new, is_repair=False))

    def tell_one(self) -> None:
        """Tell one neighbour, drawn at random, which commits it has."""
        self._tell(self._neighbours[below(len(self._neighbours), self._seed, "repair", self.address, self.round)])

    def tell_all(self) -> None:
        """Tell all neighbours which commits it has, as it has been away."""
        for neighbour in self._neighbours:
            self._tell(neighbour)

    def handle(self, envelope: Envelope) -> bool:
        """Take a message. Returns False: there may be more."""
        sender, body = envelope.client, envelope.body
        if envelope.kind is Kind.FLOOD:
            self.add(body, sender)
            return False
        *summary, is_answer = body
        lacking = self.has.beyond(summary)
        for start in range(0, len(lacking), ARRAY_LIMIT):
            part = lacking[start : start + ARRAY_LIMIT]
            self._send(Kind.FLOOD, sender, part, self._steps.tally(part, is_repair=True))
        if not is_answer and self.has.lacks(summary):
            self._tell(sender, is_answer=True)
        return False

    def _tell(self, neighbour: int, *, is_answer: bool = False) -> None:
        self._send(Kind.HAVE, neighbour, [*self.has.summary(), is_answer])

    def _send(self, kind: Kind, neighbour: int, body: list[Any], tally: Tally = NO_TALLY) -> None:
        self._bus.send(Envelope(kind, self.address, self.round, neighbour, body), tally)


def fold(replica: Replica, steps: Steps, records: Iterable[Record]) -> None:
    """Add commits to a replica, as those that follow its version: the order is its own, and changes no bit of x."""
    versions = count(replica.version + 1)
    steps.algorithm.apply(replica, [replace(steps.commit(each), version=next(versions)) for each in records])
