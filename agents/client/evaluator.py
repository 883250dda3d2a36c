"""The evaluator: a follower that never trains. It receives every commit as it happens and is the truth that replicas
are compared with.

It is among the replicas of its process, at its own address: unless they are private, for verification, what it has
folded no client there folds again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seedbus.agents import messages
from seedbus.agents.client.replicas import Replicas
from seedbus.agents.client.snapshot_source import Source
from seedbus.agents.messages import DIGEST, EVALUATE, AnyAlgorithm, Evaluation
from seedbus.agents.observer import Observer
from seedbus.agents.problem import ClientProblem
from seedbus.algorithms.contract import BadPayload, CommitGap, Replica
from seedbus.bus import EVALUATOR, Envelope


class Evaluator:
    """Folds commits, measures and answers."""

    def __init__(
        self, algorithm: AnyAlgorithm, problem: ClientProblem, replicas: Replicas, split: str, observer: Observer
    ) -> None:
        self.algorithm, self.problem, self.split = algorithm, problem, split
        self._replicas, self._observer = replicas, observer
        self._newest: Any = None
        self._source = Source()

    @property
    def replica(self) -> Replica:
        """Not to be written to."""
        return self._replicas.get(EVALUATOR)

    def stand_at(self, version: int, log: Sequence[Any]) -> None:
        """Be at `version`, whatever it was at before; log: the commits 1, 2, …, at least to there."""
        if self._replicas.version(EVALUATOR) > version:
            self._replicas.forget(EVALUATOR)
            self._newest = None
        known = [commit for commit in log if commit.version <= version]
        if known:  # of a dense algorithm perhaps none: then the next COMMIT is all that it needs
            self._fold(known)

    def committed(self, envelope: Envelope) -> list[Envelope]:
        """The answer to a COMMIT: what it asks for, of the version that it leads to."""
        try:
            commits, wants = messages.unpack_commit(self.algorithm, envelope)
            replica = self._fold(commits)
        except (BadPayload, CommitGap) as error:
            self._observer.noted("bad-commit", detail=str(error))
            return []
        metrics = {}
        if wants & EVALUATE:
            point = self.algorithm.evaluation_point(replica, self._newest)
            metrics = self.problem.evaluate(point, self.split) | self.algorithm.diagnostics(replica)
        digests = replica.digests() if wants & DIGEST else {}
        return [Evaluation(envelope.round, envelope.base, metrics, digests).pack()] if metrics or digests else []

    def _fold(self, commits: Sequence[Any]) -> Replica:
        reached = max([self._replicas.version(EVALUATOR), *(commit.version for commit in commits)])
        replica = self._replicas.advance(EVALUATOR, commits, reached)
        self._newest = commits[-1] if commits else self._newest
        return replica

    def fetched(self, envelope: Envelope) -> list[Envelope]:
        """Pieces of the replica, for the server's snapshot."""
        try:
            return self._source.pieces(envelope, self.replica)
        except BadPayload as error:
            self._observer.noted("bad-fetch", client=envelope.client, detail=str(error))
            return []
