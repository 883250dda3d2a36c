"""The evaluator: a follower that never trains. It receives every commit as it happens and is the truth that replicas
are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seedbus.agents import messages
from seedbus.agents.messages import DIGEST, EVALUATE, AnyAlgorithm, Evaluation
from seedbus.agents.observer import Observer
from seedbus.agents.problem import Problem
from seedbus.agents.source import Source
from seedbus.algorithms.contract import BadPayload, CommitGap, Vector
from seedbus.bus import Envelope


class Evaluator:
    """Folds commits, measures and answers."""

    def __init__(self, algorithm: AnyAlgorithm, problem: Problem, x0: Vector, split: str, observer: Observer) -> None:
        self.algorithm, self.problem, self.split = algorithm, problem, split
        self._x0, self._observer = x0, observer
        self.replica = algorithm.replica(x0)
        self._newest: Any = None
        self._source = Source()

    def stand_at(self, version: int, log: Sequence[Any]) -> None:
        """Be at `version`, whatever it was at before; log: the commits 1, 2, …, at least to there."""
        if self.replica.version > version:
            self.replica, self._newest = self.algorithm.replica(self._x0), None
        self._fold([commit for commit in log if commit.version <= version])

    def committed(self, envelope: Envelope) -> list[Envelope]:
        """The answer to a COMMIT: what it asks for, of the version that it leads to."""
        try:
            commits, wants = messages.unpack_commit(self.algorithm, envelope)
            self._fold(commits)
        except (BadPayload, CommitGap) as error:
            self._observer.noted("bad-commit", detail=str(error))
            return []
        metrics = {}
        if wants & EVALUATE:
            point = self.algorithm.point(self.replica, self._newest)
            metrics = self.problem.evaluate(point, self.split) | self.algorithm.diagnostics(self.replica)
        digests = self.replica.digests() if wants & DIGEST else {}
        return [Evaluation(envelope.round, envelope.base, metrics, digests).pack()] if metrics or digests else []

    def _fold(self, commits: Sequence[Any]) -> None:
        self.algorithm.apply(self.replica, commits)
        self._newest = commits[-1] if commits else self._newest

    def fetched(self, envelope: Envelope) -> list[Envelope]:
        """Pieces of the replica, for the server's snapshot."""
        try:
            return self._source.pieces(envelope, self.replica)
        except BadPayload as error:
            self._observer.noted("bad-fetch", client=envelope.client, detail=str(error))
            return []
