"""The evaluator: a follower that never trains. It receives every commit when it is made, measures the model, and states
the digests that clients' replicas are compared with.

Its replica is one of its process's, at the evaluator's address. Where replicas are shared, that is without
verification, no client of that process folds again what the evaluator has folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from seedbus.agents import messages
from seedbus.agents.client.replicas import Replicas
from seedbus.agents.messages import DIGEST, EVALUATE, Evaluation
from seedbus.agents.observer import Observer
from seedbus.agents.problem import ClientProblem, MeasuredByLayer
from seedbus.algorithms.contract import Algorithm, BadPayload, CommitGap, Replica, Vector
from seedbus.algorithms.directions import for_blocks
from seedbus.bus import EVALUATOR, Envelope


def measured(
    algorithm: Algorithm, problem: ClientProblem, replica: Replica, newest: Any, split: str
) -> dict[str, float]:
    """Return the metrics of a replica's model on a split.

    Where the algorithm wants it and the problem can do it, one layer after the other is widened from the replica's own
    memory, to the same bits, and no vector of the point is made.
    """
    if algorithm.facts.is_widened and isinstance(problem, MeasuredByLayer):
        return problem.evaluate_at(partial(write_span, algorithm, replica), split)
    return problem.evaluate(algorithm.point(replica, newest), split)


def write_span(algorithm: Algorithm, replica: Replica, span: slice, out: Vector) -> None:
    """Write a span of the coordinates of a replica's model, in little memory of its own."""

    def write(part: slice) -> None:
        fields = {name: field[span][part] for name, field in replica.fields.items()}
        np.copyto(out[part], algorithm.point(Replica(replica.version, fields)))

    for_blocks(out.size, write, like=out)


class Evaluator:
    """Folds commits, measures and answers.

    Attributes:
        algorithm: the run's.
        problem: the task with its data.
        split: what it measures on, "train", "validation" or "test"; None: clients measure, and it tells digests alone.
    """

    def __init__(
        self, algorithm: Algorithm, problem: ClientProblem, replicas: Replicas, split: str | None, observer: Observer
    ) -> None:
        self.algorithm = algorithm
        self.problem = problem
        self.split = split
        self._replicas = replicas
        self._observer = observer
        self._newest: Any = None

    @property
    def replica(self) -> Replica:
        """The evaluator's replica; not to be written to."""
        return self._replicas.get(EVALUATOR)

    def reset(self, version: int, log: Sequence[Any]) -> None:
        """Go to `version`, whatever the version before; log: the commits from 1 on, or from the base of the replicas,
        at least up to `version`."""
        if self._replicas.version(EVALUATOR) > version:
            self._replicas.forget(EVALUATOR)
            self._newest = None
        base = self._replicas.base
        if base is not None and self._replicas.version(EVALUATOR) < base.version <= version:
            self._replicas.install(EVALUATOR, base.copy())
        commits = [commit for commit in log if commit.version <= version]
        if commits:  # a dense algorithm's log may have none: the next COMMIT alone then brings the whole model
            self._fold(commits)

    def on_commit(self, envelope: Envelope) -> list[Envelope]:
        """Fold the commits of a COMMIT; returns the metrics and digests that it asks for, of the version after it."""
        try:
            commits, wants = messages.unpack_commit(self.algorithm, envelope)
            replica = self._fold(commits)
        except (BadPayload, CommitGap) as error:
            self._observer.noted("bad-commit", detail=str(error))
            return []
        metrics = {}
        if wants & EVALUATE:
            metrics = self._measured(replica, self._newest) | self.algorithm.diagnostics(replica)
        digests = replica.digests() if wants & DIGEST else {}
        return [Evaluation(envelope.round, envelope.base, metrics, digests).pack()] if metrics or digests else []

    def try_first_round(self) -> None:
        """Measure the model at x₀, and tell nobody."""
        self._measured(self._replicas.first(), None)

    def _measured(self, replica: Replica, newest: Any) -> dict[str, float]:
        if self.split is None:
            return {}
        return measured(self.algorithm, self.problem, replica, newest, self.split)

    def _fold(self, commits: Sequence[Any]) -> Replica:
        reached = max([self._replicas.version(EVALUATOR), *(commit.version for commit in commits)])
        replica = self._replicas.advance(EVALUATOR, commits, reached)
        self._newest = commits[-1] if commits else self._newest
        return replica
