"""The evaluator: a follower that never trains. It receives every commit as it happens and is the truth that replicas
are compared with.

It is among the replicas of its process, at its own address: unless they are private, for verification, what it has
folded no client there folds again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seedbus.agents import messages
from seedbus.agents.messages import DIGEST, EVALUATE, AnyAlgorithm, Evaluation
from seedbus.agents.observer import Observer
from seedbus.agents.problem import Problem
from seedbus.agents.replicas import Replicas
from seedbus.agents.source import Source
from seedbus.algorithms.contract import BadPayload, CommitGap, Replica
from seedbus.bus import EVALUATOR, Envelope


class Evaluator:
    """Folds commits, measures and answers."""

    def __init__(
        self, algorithm: AnyAlgorithm, problem: Problem, replicas: Replicas, split: str, observer: Observer
    ) -> None:
        self.algorithm, self.problem, self.split = algorithm, problem, split
        self._replicas, self._observer = replicas, observer
        self._source = Source()

    @property
    def replica(self) -> Replica:
        """Not to be written to."""
        return self._replicas.get(EVALUATOR)

    def stand_at(self, version: int, log: Sequence[Any]) -> None:
        """Be at `version`, whatever it was at before; log: the commits 1, 2, …, at least to there."""
        if self._replicas.version(EVALUATOR) > version:
            self._replicas.forget(EVALUATOR)
        self._replicas.advance(EVALUATOR, log[:version], version)

    def committed(self, envelope: Envelope) -> list[Envelope]:
        """The answer to a COMMIT: what it asks for, of the version that it leads to."""
        try:
            commits, wants = messages.unpack_commit(self.algorithm, envelope)
            reached = max([self.replica.version, *(commit.version for commit in commits)])
            replica = self._replicas.advance(EVALUATOR, commits, reached)
        except (BadPayload, CommitGap) as error:
            self._observer.noted("bad-commit", detail=str(error))
            return []
        metrics = {}
        if wants & EVALUATE:
            metrics = self.problem.evaluate(replica.x, self.split) | self.algorithm.diagnostics(replica)
        digests = replica.digests() if wants & DIGEST else {}
        return [Evaluation(envelope.round, envelope.base, metrics, digests).pack()] if metrics or digests else []

    def fetched(self, envelope: Envelope) -> list[Envelope]:
        """Pieces of the replica, for the server's snapshot."""
        try:
            return self._source.pieces(envelope, self.replica)
        except BadPayload as error:
            self._observer.noted("bad-fetch", client=envelope.client, detail=str(error))
            return []
