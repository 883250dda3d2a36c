"""The evaluator: a follower that never trains. It receives every commit as it happens and is the truth that replicas
are compared with."""

from __future__ import annotations

from seedbus.agents import messages
from seedbus.agents.messages import DIGEST, EVALUATE, AnyAlgorithm, Evaluation
from seedbus.agents.observer import Observer
from seedbus.agents.problem import Problem
from seedbus.algorithms.contract import BadPayload, CommitGap, Replica
from seedbus.bus import EVALUATOR, Bus, Envelope, Kind, MalformedEnvelope


class Evaluator:
    """Folds commits, measures and answers."""

    def __init__(
        self, bus: Bus, algorithm: AnyAlgorithm, problem: Problem, replica: Replica, split: str, observer: Observer
    ) -> None:
        self.bus, self.algorithm, self.problem, self.replica = bus, algorithm, problem, replica
        self.split, self._observer = split, observer
        self._mailbox = bus.open(EVALUATOR, "the evaluator")

    async def run(self) -> None:
        """Answer until the server says goodbye."""
        while True:
            letter = await self._mailbox.get()
            if isinstance(letter, MalformedEnvelope):
                self._observer.noted("malformed", detail=str(letter))
            elif letter.kind is Kind.COMMIT:
                try:
                    self._commit(letter)
                except (BadPayload, CommitGap) as error:
                    self._observer.noted("bad-commit", detail=str(error))
            elif letter.kind is Kind.BYE:
                return

    def _commit(self, letter: Envelope) -> None:
        commits, wants = messages.unpack_commit(self.algorithm, letter)
        self.algorithm.apply(self.replica, commits)
        metrics = {}
        if wants & EVALUATE:
            metrics = self.problem.evaluate(self.replica.x, self.split) | self.algorithm.diagnostics(self.replica)
        digests = self.replica.digests() if wants & DIGEST else {}
        if metrics or digests:
            envelope, tally = Evaluation(letter.round, letter.base, metrics, digests).pack()
            self.bus.send(envelope, tally)
