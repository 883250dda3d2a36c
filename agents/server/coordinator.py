"""The coordinator: what the server decides, without a single await.

    join ─► open_round ─► report … report ─► close_round ─► (durable) ─► published ─► open_round ─► …
                          refused, deadline ┘

Rules
- Events go in (`joined`, `reported`, `deadline_passed`, `evaluated`). Every message that follows goes to one outbox;
  the caller empties it after each event (`take_outbox`), and does the waiting and the storing. What was refused is
  returned.
- Reports are kept by client and aggregated in the order of clients: the order of arrival has no effect.
- A report counts once at most, for the round that asked for it and from its cohort only. Anything else is a `Refusal`,
  counted by reason and client, and the round goes on. A DECLINE is counted as a refusal too, and its client not waited
  for.
- Commits are made in `close_round` only, so a cohort starts at one version. A late report enters a later commit as a
  term of its own, if participation says so.
- `checkpoint` holds everything that the future depends on.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from seedbus.agents import messages
from seedbus.agents.catch_up.commit_window import Reload
from seedbus.agents.catch_up.server import CatchUp, CatchUpState
from seedbus.agents.errors import Unfinishable
from seedbus.agents.extensions import Exchange, Spending
from seedbus.agents.journal.records import MemberPosition
from seedbus.agents.messages import Evaluation, Join, Outgoing
from seedbus.agents.refusals import NOBODY, Mark, Reason, Refusal, Refusals, RefusedState
from seedbus.agents.round_record import ClosedRound
from seedbus.agents.server.joining import Joining
from seedbus.agents.server.outbox import Outbox
from seedbus.agents.server.positions import Positions
from seedbus.agents.server.report_reader import ReportReader
from seedbus.agents.server.reports import ReportHandler
from seedbus.agents.server.rounds import Rounds, RoundsState
from seedbus.agents.server.run_spec import RunSpec
from seedbus.agents.server.stopping import TIMELESS, Progress, ProgressState, Sent
from seedbus.agents.verification import KEPT, Verifier, VerifierState
from seedbus.algorithms.contract import BadPayload, ReportRefused, whole_digest
from seedbus.bus import EVALUATOR, Envelope
from seedbus.bus.envelope import PLAN
from seedbus.bus.text import counted, listed

_BAD_ANSWERS = Reason.marked(Mark.BAD_ANSWER)
_TOO_LARGE = Reason.marked(Mark.TOO_LARGE)


class CoordinatorState(NamedTuple):
    """What a checkpoint stores of the coordinator; in this order. Each field is what the part's `pack` returned."""

    rounds: RoundsState
    refusals: list[RefusedState]
    progress: ProgressState
    verifier: VerifierState
    catch_up: CatchUpState


class Coordinator:
    """The server's decisions for one run.

    Attributes:
        spec: the run.
        algorithm, participation, stop: the run's.
        positions: the members, and where clients are.
        catch_up: what clients that lag are given.
        history: the commits that are held.
        refusals: counts of what was refused.
        reader: reads reports that have come together.
        progress: how far the run is, for its stopping rule.
        last_digest: the digest of the model that was evaluated last.
        last_digests: its field (x, …) → digest, in hexadecimal.
    """

    def __init__(
        self,
        spec: RunSpec,
        *,
        proofs: Mapping[str, bytes] | None = None,
        apart: Container[int] = (),
        reload: Reload | None = None,
    ) -> None:
        """Begin before round 0, with no members.

        Args:
            spec: the run.
            proofs: what every process must prove ("selftest", "x0", "losses", "plugins", "mask"); what is not given,
                the first process that is entitled to decide it does.
            apart: clients that no process brings into the run, because they are away; they join by themselves.
            reload: reads commits back that are not held any more (`CommitWindow`).
        """
        self.spec = spec
        self.algorithm = spec.algorithm
        self.participation = spec.participation
        self.stop = spec.stop
        self.verifier = Verifier(spec.verify_every, max(KEPT, spec.participation.staleness + 1))
        self.refusals = Refusals()
        self.progress = Progress(spent=self._spending())
        self.last_digest = ""
        self.last_digests: dict[str, str] = {}
        self._fields = sorted(spec.algorithm.replica(np.zeros(1, np.float32)).fields)
        self._outbox = Outbox()
        self._plans: list[Outgoing] = []
        self._are_plans_due = False
        self._timeless = 0  # how many rounds have taken no time, up to the newest
        self._silent: set[int] = set()  # who was asked and did not answer, since a report counted
        self.positions = Positions(spec.participation.clients, lru_cache(maxsize=256)(self._count_seeds))
        self.catch_up = CatchUp(
            spec.algorithm,
            spec.lag,
            self.positions.believed,
            replica_bytes=spec.replica_bytes,
            patience=spec.participation.staleness,
            reload=reload,
            proofs=lambda: self.proofs,
        )
        self.history = self.catch_up.history
        self._rounds = Rounds(spec)
        self._durable = self._rounds.pack()
        self._joining = Joining(
            self.positions,
            self.catch_up,
            self._rounds,
            spec.participation.clients,
            proofs=proofs or {},
            believes=not spec.is_virtual,
            apart=apart,
        )
        self.reader = ReportReader(spec.algorithm, self._rounds, self.verifier)
        self._reports = ReportHandler(self.reader, self.positions, self.catch_up, self._rounds, self.verifier)

    def _count_seeds(self, after: int, last: int) -> int:
        """Return the seeds of the commits after version `after` up to `last`."""
        return self.algorithm.pack_log(self.history.between(after, last)).seeds

    def _spending(self) -> Spending | None:
        return None if self.spec.noise is None else self.spec.noise.spending()

    @property
    def version(self) -> int:
        return self.history.version

    @property
    def proofs(self) -> Mapping[str, bytes]:
        """What every process must prove, as far as the run knows it."""
        return self._joining.proofs

    @property
    def round(self) -> int:
        """The round that is open, or opens next."""
        return self._rounds.number

    # -- members

    def joined(
        self, join: Join, *, round: int | None = None, is_due: bool = False, nonce: bytes = b"", decides: bool = True
    ) -> Refusal | None:
        """A process brings clients, or a client states its version. Plans that have to be sent again go to the outbox.

        Args:
            join: the message.
            round: the round in which a client sent it; None: it is a process's.
            is_due: whether the client was told to join.
            nonce: the offer that a process's proofs are bound to.
            decides: whether proofs that the run does not know yet become the run's.

        Returns:
            The refusal, if the JOIN is not accepted.
        """
        try:
            self._joining.joined(join, round=round, is_due=is_due, nonce=nonce, decides=decides)
            return None
        except ReportRefused as error:
            return self.refused(join.sender, error.reason, str(error))

    def objected(self, join: Join, nonce: bytes) -> Refusal | None:
        """Check the proofs of a process before it joins. Returns the refusal, counted, if one is false."""
        try:
            self._joining.check(join, nonce)
            return None
        except ReportRefused as error:
            return self.refused(join.sender, error.reason, str(error))

    def left(self, clients: Iterable[int]) -> None:
        """Clients are gone: no round waits for them, and none is asked until it has joined again."""
        clients = list(clients)
        self._silent.difference_update(clients)
        self._joining.left(clients)

    @property
    def has_members(self) -> bool:
        """True when there are enough members for a commit."""
        return len(self.positions.members) >= self.participation.quorum

    # -- rounds

    def lacking(self, computing: Container[tuple[int, int]] | None = None) -> int:
        """Return how many clients at work have to be free before a round can make a commit; 0: enough are.

        Args:
            computing: as for `open_round`.
        """
        return self._rounds.lacking(self.positions.members, computing)

    def open_round(self, now_ns: int = 0, computing: Container[tuple[int, int]] | None = None) -> Sequence[int]:
        """Begin the next round: draw its cohort and make its plans, which `send_plans` sends. Returns the cohort.

        What has to come before the plans of clients that lag too far goes to the outbox now.

        Args:
            now_ns: when the round begins: now, or when it began to wait for clients at work.
            computing: (client, round) of each plan that a client has to work on, or will get; None: not known, so of
                all that are not answered.
        """
        now = self._rounds.open(self.positions.members, self.version, now_ns, computing)
        self._are_plans_due = False
        now.exchange = self.spec.open_exchange(self.round, self.version, now.cohort)
        self.catch_up.open(now.plan, now.waiting)
        self._plans = [plan for client in now.cohort for plan in self.catch_up.plan_for(client)]
        return now.cohort

    def send_plans(self, now_ns: int) -> None:
        """Put the open round's plans into the outbox, in the cohort's order."""
        now = self._rounds.current
        if now is not None:
            now.asked_ns = now_ns
            now.waiting.difference_update(now.exchange.plans_due())
        self._are_plans_due = True
        self._outbox.extend(self._plans)
        self._plans = []

    def reported(self, envelope: Envelope, now_ns: int = 0) -> Refusal | None:
        """A client sent a message. Returns the refusal, if it does not count."""
        try:
            self._reports.take(envelope, now_ns)
            return None
        except BadPayload as error:
            return self.refused(envelope.client, "bad-payload", str(error), envelope.round)
        except ReportRefused as error:
            return self.refused(envelope.client, error.reason, str(error), envelope.round)

    def refused(self, client: int, reason: str, detail: str, round: int | None = None) -> Refusal:
        """Count a refusal. A bad answer is an answer: neither the round nor a measurement waits for another."""
        self.refusals.of_client(client, reason, detail)
        if client == EVALUATOR and reason != "not-fetched":  # which is about its replica
            self.progress.answered()
        answered = self._rounds.get(round)
        if answered is not None and reason in _BAD_ANSWERS:
            answered.waiting.discard(client)
            answered.exchange.waiting.discard(client)
        if self._rounds.current is not None and reason in _TOO_LARGE:
            self._rounds.current.too_large.add(client)
        return Refusal(client, self.round if round is None else round, reason, detail)

    def refused_peer(self, peer: str, reason: str, detail: str) -> Refusal | None:
        """Count a refusal of a peer that is no member. Returns None once there were too many to report each."""
        if not self.refusals.of_peer(peer, reason, detail):
            return None
        return Refusal(NOBODY, self.round, reason, f"{peer}: {detail}")

    def no_answer(
        self, losing: Container[int], *, awaits_process: bool = False, may_come: bool = False
    ) -> list[Refusal]:
        """Nothing is under way any more: all that are waited for have answered, and not what they were asked.

        No round waits for them any more, nor for a replica of theirs, unless a deadline ends the wait.

        Args:
            losing: clients of which a fault has lost a message in this round; these may have answered.
            awaits_process: whether clients lack a process, which may come while the round is open. If all members are
                silent, the round waits for it.
            may_come: whether clients that are away may come to a later round.

        Returns:
            The refusals.

        Raises:
            Unfinishable: no member has answered since the last report that counted, and nobody else may come.
        """
        asked = "has answered without what it was asked for"
        refusals = [self.refused(EVALUATOR, "no-answer", f"the evaluator {asked}") for _ in self.progress.asked[:]]
        has_deadline = self.participation.deadline_s is not None
        if self.catch_up.awaits_evaluator or not has_deadline:
            is_next_source = self.catch_up.give_up_source()
            if not (is_next_source or has_deadline):
                silent = []
                for client, number in self._rounds.awaited:
                    if self._rounds.was_dismissed(client):  # and was asked once more, for the secrets that it had
                        self._rounds.dismiss(client, open_too=True)
                    elif client not in losing:
                        silent.append((client, number))
                self._silent.update(client for client, _ in silent)
                if silent and self.is_unheard and awaits_process:
                    return refusals
                if silent and self.is_unheard and not may_come:
                    raise Unfinishable(self.waits_in_vain())
                refusals += [
                    self.refused(client, "no-answer", f"client {client} {asked} in round {number}", number)
                    for client, number in silent
                ]
        return refusals

    @property
    def is_unheard(self) -> bool:
        """Whether all members were asked, and answered with nothing, since a report counted."""
        return bool(self._silent) and self._silent.issuperset(self.positions.members)

    def waits_in_vain(self) -> str:
        """Return a sentence about the clients that the open round waits for, which will never answer."""
        missing = sorted({client for client, _ in self._rounds.awaited})
        return (
            f"round {self.round} waits for {counted(len(missing), 'client')} ({listed(missing)}) that will "
            "never answer; set participation.deadline_s to let rounds close without them"
        )

    def deadline_passed(self, round: int) -> None:
        """The open round closes without the clients that have not answered."""
        if self._rounds.current is not None and round == self.round:
            self._rounds.current.is_expired = True

    @property
    def deadline_ns(self) -> int | None:
        """How long the open round may take; None: until its cohort has answered."""
        return self._rounds.deadline_ns

    @property
    def is_round_open(self) -> bool:
        return self._rounds.current is not None

    @property
    def is_round_over(self) -> bool:
        return self._rounds.is_over

    @property
    def missing(self) -> list[int]:
        """The clients that the open round waits for."""
        return sorted(self._rounds.current.waiting) if self._rounds.current is not None else []

    @property
    def has_messages(self) -> bool:
        """Whether `take_outbox` may return any."""
        return bool(self._outbox.messages) or self.catch_up.has_messages

    def take_outbox(self) -> list[Outgoing]:
        """Return all messages to be sent now, oldest first."""
        now = self._rounds.current
        messages = self._outbox.take() + self.catch_up.take()
        has_questions = now is not None and now.exchange.before_plans
        return list(self._exchanged(messages, now.exchange)) if now is not None and has_questions else messages

    def _exchanged(self, messages: Iterable[Outgoing], exchange: Exchange) -> Iterator[Outgoing]:
        """Yield messages with plans as the round's exchange has them; those that come before `send_plans` wait."""
        for envelope, tally in messages:
            if envelope.kind is not PLAN:
                yield envelope, tally
            elif not self._are_plans_due:
                self._plans.append((envelope, tally))
            elif (plan := exchange.plan(envelope)) is not None:
                yield plan, tally

    # -- what a round asks beside reports

    @property
    def exchange(self) -> Exchange:
        """The open round's."""
        return Exchange() if self._rounds.current is None else self._rounds.current.exchange

    def ask(self, stage: int) -> None:
        """Ask the questions of a stage. With fewer reports than the quorum, none is to enter a commit."""
        now = self._rounds.current
        if now is not None:
            is_enough = len(now.reports) >= self.participation.quorum
            for envelope in now.exchange.ask(stage, frozenset(now.reports if is_enough else ())):
                self._outbox.put(envelope)

    def close_round(self, now_ns: int = 0) -> ClosedRound:
        """Aggregate, if there is a quorum. The caller makes the commit durable before it calls `published`.

        What a channel's participants are told of the largest report goes to the outbox.
        """
        closed, reported, commit, record = self._rounds.close(self.version, now_ns)
        if reported or commit is not None:
            self._silent.clear()
        for client in self.catch_up.close():
            self._rounds.dismiss(client)  # it was not sent a plan
        # as many as could have made a commit, and more than were accepted: a minority of liars cannot end a run
        is_barren = commit is None and len(closed.too_large) >= max(self.participation.quorum, len(reported) + 1)
        self.progress.barren = self.progress.barren + 1 if is_barren else 0
        if self.progress.spent is not None:
            in_commit = reported if commit is not None else None
            self.progress.spent.closed(closed.plan.round + 1, len(closed.cohort), in_commit)
        if commit is not None:
            self.catch_up.remember(commit, self.positions.slowest(self.version))
        plan, peak, cohort = closed.plan, closed.max_norm, tuple(closed.cohort)
        if peak is not None:
            self._outbox.extend(messages.pack_peak(client, plan, peak) for client in cohort)
        blamed = closed.exchange.blamed()
        refusals = tuple(self.refused(client, reason, what, plan.round) for client, reason, what in blamed)
        return ClosedRound(plan.round, self.version, cohort, tuple(reported), commit, record, refusals)

    def published(self, closed: ClosedRound, sent: Sent, now_ns: int) -> None:
        """A round is durable: tell the evaluator of its commit, and ask it to evaluate if that is due."""
        self._timeless = self._timeless + 1 if now_ns == self.progress.now_ns else 0
        if self.stop.rounds is None and self._timeless >= TIMELESS:
            raise Unfinishable(
                f"{TIMELESS:,} rounds took no time by the run's clock, and only stop.simulated_s would end the run; "
                "set network.latency, compute.evaluation or stop.rounds"
            )
        self.progress.sent, self.progress.now_ns = sent, now_ns
        is_last = self.stop.reason(self.round, self.progress) is not None
        if is_last or self.round % self.spec.evaluation.every == 0:
            self.ask_evaluator(closed)
        elif closed.commit is not None:
            self._tell_evaluator(closed.round, [closed.commit], messages.DIGEST * self.verifier.is_due(self.version))

    def waited(self, now_ns: int) -> None:
        """Time has passed between two rounds: if that ends the run, the model is evaluated, unless it has been."""
        self.progress.now_ns = now_ns
        if self.finished() is not None and self.round % self.spec.evaluation.every:
            self.ask_evaluator(ClosedRound(self.round - 1, self.version, (), (), None))

    def ask_evaluator(self, closed: ClosedRound | None = None) -> None:
        """Ask for metrics and digests of the newest model, which is x₀ if no round is given."""
        round = closed.round if closed is not None else 0
        self.progress.asked.append((round, self.version, self.progress.sent))
        commits = [closed.commit] if closed is not None and closed.commit is not None else []
        self._tell_evaluator(round, commits, messages.EVALUATE | messages.DIGEST)

    def _tell_evaluator(self, round: int, commits: list[Any], wants: int) -> None:
        self._outbox.put(messages.pack_commit(self.algorithm, round, self.version, commits, wants))

    def crashed(self) -> None:
        """The server has lost what was not durable: the open round, and what it had begun."""
        self._plans = []
        self._rounds.crashed(self._durable)
        self.catch_up.crashed()

    @property
    def is_half_reported(self) -> bool:
        return self._rounds.is_half_reported

    # -- measurements

    def evaluated(self, envelope: Envelope, now_ns: int) -> tuple[dict[str, Any] | None, list[Refusal]]:
        """The evaluator answered.

        Returns:
            The line of metrics, if there is one; and refusals: of the answer, or of clients that have diverged.
        """
        try:
            evaluation = self._checked(envelope)
        except BadPayload as error:
            return None, [self.refused(EVALUATOR, "bad-payload", str(error))]
        except ReportRefused as error:
            return None, [self.refused(EVALUATOR, error.reason, str(error))]
        self.last_digest = whole_digest(evaluation.version, evaluation.digests)
        self.last_digests = {name: digest.hex() for name, digest in evaluation.digests.items()}
        differing = self.verifier.settled(evaluation.version, evaluation.digests)
        diverged = [self.refused(client, "diverged", difference) for client, difference in differing]
        if not evaluation.metrics:
            return None, diverged
        return self.progress.measured(evaluation, self.stop, now_ns), diverged

    def _checked(self, envelope: Envelope) -> Evaluation:
        """Decode an EVALUATION. Raises `BadPayload`; `ReportRefused` if nobody asked for it."""
        evaluation = Evaluation.unpack(envelope)
        evaluation.check(self.spec.metrics, self._fields)
        if evaluation.version > self.version or evaluation.round > self.round:
            what = f"version {evaluation.version} after round {evaluation.round}"
            raise ReportRefused("wrong-version", f"an EVALUATION of {what}; the newest is version {self.version}")
        is_asked = self.progress.awaited > 0 if evaluation.metrics else self.verifier.is_due(evaluation.version)
        if not is_asked:
            raise ReportRefused("not-asked", f"an EVALUATION of version {evaluation.version} that nobody asked for")
        return evaluation

    def finished(self) -> str | None:
        """Return why the run is over, or None if it is not."""
        return self.stop.reason(self.round, self.progress)

    @property
    def divergence(self) -> str | None:
        """How training has diverged, if that ends the run; None otherwise."""
        return self.stop.divergence(self.round, self.progress)

    @property
    def awaits_metric(self) -> bool:
        """True while the next round must wait for a metric, because it may end the run."""
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
            catch_up=self.catch_up.pack(),
        )

    def restore(
        self, state: CoordinatorState, log: Iterable[Any], known: Mapping[int, MemberPosition], held: bytes = b""
    ) -> None:
        """Go on from a checkpoint.

        Args:
            state: what `checkpoint` returned.
            log: all commits that it was made after, in order.
            known: the newest position of each client that `Positions.take_believed` returned.
            held: what `CatchUp.take_new` returned last; b"": nothing.
        """
        self._durable = state.rounds
        self._rounds.unpack(self._durable)
        self.refusals.unpack(state.refusals)
        self.progress = Progress.unpack(state.progress, self._spending())
        self.verifier.unpack(state.verifier)
        self.catch_up.unpack(state.catch_up, held)
        self.positions.restore_believed(known, with_members=not self._joining.believes)
        for commit in log:
            self.catch_up.remember(commit, self.positions.slowest(self.version))
