"""The coordinator: what the server decides, without a single await.

    join ─► open_round ─► report … report ─► close_round ─► (durable) ─► published ─► open_round ─► …
                          refused, deadline ┘

Rules
- Events go in (`joined`, `reported`, `deadline_passed`, `evaluated`), envelopes and decisions come out; whoever calls
  does the sending, the waiting and the storing.
- Reports are kept by client and aggregated in client order: who was fast never shows.
- A report counts at most once, for the round that asked for it and from its cohort only; everything else is a
  `Refusal`, counted by reason and client, and the round goes on. A client that declines is counted among them, and not
  waited for.
- Commits are made only in `close_round`, so a cohort starts at one version. A late report enters a later commit as a
  term of its own, where participation says so.
- All that the future depends on is in `checkpoint`.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seedbus.agents import messages
from seedbus.agents.journal.records import MemberPosition
from seedbus.agents.messages import AnyAlgorithm, Evaluation, Join, Outgoing
from seedbus.agents.policies.participation import Participation
from seedbus.agents.policies.snapshot_budget import Lag
from seedbus.agents.refusals import NOBODY, Mark, Reason, Refusal, Refusals
from seedbus.agents.round_record import ClosedRound
from seedbus.agents.server.catch_up import CatchUp
from seedbus.agents.server.client_positions import ClientPositions
from seedbus.agents.server.commit_window import Reload
from seedbus.agents.server.joining import Joining
from seedbus.agents.server.reports import ReportHandler
from seedbus.agents.server.rounds import Rounds
from seedbus.agents.server.stopping import Cadence, Progress, Stop
from seedbus.agents.verification import KEPT, Verifier
from seedbus.algorithms.contract import BadPayload, ReportRefused, whole_digest
from seedbus.bus import EVALUATOR, Envelope

_BAD_ANSWERS = Reason.marked(Mark.BAD_ANSWER)


class CoordinatorState(NamedTuple):
    """What a checkpoint stores of the coordinator; in this order. Each field is what the part's `pack` returned."""

    rounds: Sequence[Any]
    refusals: list[Any]
    progress: list[Any]
    verifier: list[Any]
    snapshots: Sequence[Any]


class Coordinator:
    """The server's decisions for one run.

    proofs: what every process must show ("selftest", "x0", "losses"), or what the first one does if it is not said.
    believes: whether a process that comes back is at the versions that it says; else (simulated time) that a process
    went and came never happened. apart: clients that a process does not bring, because they are not there: they come by
    themselves, when they do. lag: what becomes of who misses much; reload: where all of the log is (`CommitWindow`);
    state:
    the algorithm's own, before the first commit. metrics: the names of what the evaluator measures.
    """

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        participation: Participation,
        *,
        seed: int,
        stop: Stop,
        evaluation: Cadence,
        verify_every: int = 0,
        proofs: Mapping[str, bytes] | None = None,
        believes: bool = True,
        apart: Container[int] = (),
        lag: Lag | None = None,
        reload: Reload | None = None,
        state: Any = None,
        metrics: Collection[str] = (),
    ) -> None:
        self.algorithm, self.participation, self.seed = algorithm, participation, seed
        self.stop, self.evaluation = stop, evaluation
        self.verifier = Verifier(verify_every, max(KEPT, participation.staleness + 1))
        self.refusals = Refusals()
        self.progress = Progress()
        self.last_digest = ""
        self._metrics = metrics
        self._fields = sorted(algorithm.replica(np.zeros(1, np.float32)).fields)
        self._places = ClientPositions(participation.clients)
        self._catch_up = CatchUp(algorithm, self._places.versions, lag, reload)
        self.history, self.snapshots = self._catch_up.history, self._catch_up.snapshots
        self._rounds = Rounds(algorithm, participation, seed, state)
        self._durable: Sequence[Any] = self._rounds.pack()
        parts = self._places, self._catch_up, self._rounds
        self._joining = Joining(*parts, participation.clients, proofs=proofs or {}, believes=believes, apart=apart)
        self._answers = ReportHandler(algorithm, *parts, self.verifier)

    @property
    def version(self) -> int:
        return self.history.version

    @property
    def versions(self) -> Mapping[int, int]:
        """Where everybody is that ever joined."""
        return self._places.versions

    @property
    def proofs(self) -> Mapping[str, bytes]:
        """What every process must show, as far as it is known."""
        return self._joining.proofs

    @property
    def round(self) -> int:
        """The round that is open, or opens next."""
        return self._rounds.number

    # -- members

    def joined(
        self, join: Join, *, round: int | None = None, is_due: bool = False, nonce: bytes = b"", decides: bool = True
    ) -> tuple[list[Outgoing], Refusal | None]:
        """A process brings clients, or a client says where it really is; returns plans for those that have one to
        answer, or a refusal.

        round: in which a client said so; is_due: whether it was told to. nonce: what a process's proofs are bound to;
        decides: whether proofs that the run does not know yet become its own.
        """
        try:
            return self._joining.joined(join, round=round, is_due=is_due, nonce=nonce, decides=decides), None
        except ReportRefused as error:
            return [], self.refused(join.sender, error.reason, str(error))

    def objected(self, join: Join, nonce: bytes) -> Refusal | None:
        """What is false of the proofs of a process that would join, counted; nothing else changes."""
        try:
            self._joining.check(join, nonce)
            return None
        except ReportRefused as error:
            return self.refused(join.sender, error.reason, str(error))

    def left(self, clients: Iterable[int]) -> None:
        """Clients are gone; nobody waits for them, and none is asked until it has joined again."""
        self._joining.left(clients)

    @property
    def members(self) -> int:
        """How many may be asked."""
        return len(self._places.members)

    @property
    def has_members(self) -> bool:
        """True when there are enough members for a commit."""
        return self.members >= self.participation.quorum

    # -- rounds

    def open_round(self, now_ns: int = 0) -> list[Outgoing]:
        """Begin the next round; returns its plans, one for each of the cohort but those who are to have a snapshot."""
        now = self._rounds.open(self._places.members, self.version, now_ns)
        now.lags = [self.version - self.versions[client] for client in now.cohort]
        self.snapshots.open(self.round, self.version)
        return [told for client in now.cohort for told in self._catch_up.told(client, now)]

    def reported(self, envelope: Envelope, now_ns: int = 0) -> Refusal | None:
        """A report, why there is none, or what serves a snapshot came in. Returns why it was refused, if it was."""
        try:
            self._answers.take(envelope, now_ns)
            return None
        except BadPayload as error:
            return self.refused(envelope.client, "bad-payload", str(error), envelope.round)
        except ReportRefused as error:
            return self.refused(envelope.client, error.reason, str(error), envelope.round)

    def refused(self, client: int, reason: str, detail: str, round: int | None = None) -> Refusal:
        """Count a refusal. Whoever answers the open round badly has answered: the round does not wait for it, nor for a
        measurement."""
        self.refusals.clients[client, reason] += 1
        if client == EVALUATOR and reason != "not-fetched":  # that is of a snapshot
            self.progress.answered()
        attempt = self._rounds.get(round)
        if attempt is not None and reason in _BAD_ANSWERS:
            attempt.waiting.discard(client)
        return Refusal(client, self.round if round is None else round, reason, detail)

    def refused_peer(self, peer: str, reason: str, detail: str) -> Refusal | None:
        """Count a refusal of what came from no member of the run; None once there are too many to tell of each."""
        if not self.refusals.of_peer(peer, reason):
            return None
        return Refusal(NOBODY, self.round, reason, f"{peer}: {detail}")

    def deadline_passed(self, round: int) -> None:
        """The open round closes without those that have not answered."""
        if self._rounds.current is not None and round == self.round:
            self._rounds.current.is_expired = True

    @property
    def deadline_ns(self) -> int | None:
        """How long the open round may take; None: as long as its cohort does."""
        return self._rounds.deadline_ns

    @property
    def is_round_over(self) -> bool:
        return self._rounds.is_over

    @property
    def missing(self) -> list[int]:
        """The clients that the open round waits for."""
        return sorted(self._rounds.current.waiting) if self._rounds.current is not None else []

    def take_outbox(self) -> list[Outgoing]:
        """What is to be sent, beside plans, because of what came in."""
        return self._catch_up.take_outbox(self._rounds.current)

    def close_round(self, now_ns: int = 0) -> ClosedRound:
        """Aggregate, if there is a quorum. The commit is to be made durable before anybody hears of it."""
        attempt, reported, commit, record = self._rounds.close(self.version, now_ns)
        for client in self.snapshots.close():
            self._rounds.dismiss(client)  # it never heard of the round
        if commit is not None:
            self._catch_up.remember(commit, self._places.slowest(self.version))
        plan, peak, cohort = attempt.plan, attempt.max_norm, tuple(attempt.cohort)
        told = () if peak is None else tuple(messages.pack_peak(client, plan, peak) for client in cohort)
        return ClosedRound(plan.round, self.version, cohort, tuple(reported), commit, record, told)

    def published(self, closed: ClosedRound, bytes_so_far: int) -> Envelope | None:
        """What the evaluator is told once the round is durable."""
        self.progress.bytes = bytes_so_far
        is_last = self.stop.reason(self.round, self.progress) is not None
        if is_last or self.round % self.evaluation.every == 0:
            return self.ask_evaluator(closed)
        if closed.commit is None:
            return None
        wants = messages.DIGEST * self.verifier.is_due(self.version)
        return messages.pack_commit(self.algorithm, closed.round, self.version, [closed.commit], wants)

    def ask_evaluator(self, closed: ClosedRound | None = None) -> Envelope:
        """Asks for metrics and digests, of x₀ if no round is given."""
        self.progress.awaited += 1
        commits = [closed.commit] if closed is not None and closed.commit is not None else []
        wants = messages.EVALUATE | messages.DIGEST
        return messages.pack_commit(self.algorithm, closed.round if closed else 0, self.version, commits, wants)

    def crashed(self) -> None:
        """The server has lost what was not durable: the round that was open, and the snapshot that was on its way."""
        self._rounds.unpack(self._durable)
        self.snapshots.crashed()

    @property
    def is_half_in(self) -> bool:
        return self._rounds.is_half_reported

    # -- measurements

    def evaluated(
        self, envelope: Envelope, now_ns: int, bytes_up: int, bytes_down: int
    ) -> tuple[dict[str, Any] | None, list[Refusal]]:
        """The evaluator answered. Returns the line of metrics, if there is one, and what is refused: the answer itself,
        or clients that turn out to have diverged."""
        try:
            evaluation = self._sound(envelope)
        except BadPayload as error:
            return None, [self.refused(EVALUATOR, "bad-payload", str(error))]
        except ReportRefused as error:
            return None, [self.refused(EVALUATOR, error.reason, str(error))]
        self.last_digest = whole_digest(evaluation.version, evaluation.digests)
        differing = self.verifier.settled(evaluation.version, evaluation.digests)
        diverged = [self.refused(client, "diverged", difference) for client, difference in differing]
        if not evaluation.metrics:
            return None, diverged
        return self.progress.measured(evaluation, self.stop, now_ns, bytes_up, bytes_down), diverged

    def _sound(self, envelope: Envelope) -> Evaluation:
        """What the evaluator says, if it was asked for that. Raises `BadPayload`, `ReportRefused`."""
        evaluation = Evaluation.unpack(envelope)
        evaluation.check(self._metrics, self._fields)
        if evaluation.version > self.version or evaluation.round > self.round:
            what = f"version {evaluation.version} after round {evaluation.round}"
            raise ReportRefused("wrong-version", f"an EVALUATION of {what}; the newest is version {self.version}")
        is_asked = self.progress.awaited > 0 if evaluation.metrics else self.verifier.is_due(evaluation.version)
        if not is_asked:
            raise ReportRefused("not-asked", f"an EVALUATION of version {evaluation.version} that nobody asked for")
        return evaluation

    def finished(self) -> str | None:
        """Why the run is over, or None if it is not."""
        return self.stop.reason(self.round, self.progress)

    @property
    def awaits_metric(self) -> bool:
        """True while the next round must wait for a metric, because a target may have been met."""
        return self.progress.awaited > 0 and (self.stop.target is not None or self.finished() is not None)

    # -- checkpoints

    def checkpoint(self) -> CoordinatorState:
        """All that the future depends on, but the log and the members' versions, which are kept a row each."""
        self._durable = self._rounds.pack()
        return CoordinatorState(
            rounds=self._durable,
            refusals=self.refusals.pack(),
            progress=self.progress.pack(),
            verifier=self.verifier.pack(),
            snapshots=self.snapshots.pack(),
        )

    def take_moved(self) -> list[tuple[int, MemberPosition]]:
        """Return the clients that joined, moved or left since the last call, ascending."""
        return self._places.take_moved()

    def restore(
        self, checkpoint: Sequence[Any], log: Iterable[Any], known: Mapping[int, MemberPosition], snapshot: bytes = b""
    ) -> None:
        """Go on from a checkpoint.

        Args:
            checkpoint: what `checkpoint` returned.
            log: all commits that it was made after, in order.
            known: the newest position of each client that `take_moved` returned.
            snapshot: the one that was held, packed; b"": none.
        """
        state = CoordinatorState(*checkpoint)
        self._durable = state.rounds
        self._rounds.unpack(self._durable)
        self.refusals.unpack(state.refusals)
        self.progress = Progress.unpack(state.progress)
        self.verifier.unpack(state.verifier)
        self.snapshots.unpack(state.snapshots, snapshot)
        self._places.restore(known, with_members=not self._joining.believes)
        for commit in log:
            self._catch_up.remember(commit, self._places.slowest(self.version))
