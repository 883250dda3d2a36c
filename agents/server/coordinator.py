"""The coordinator: what the server decides, without a single await.

    JOIN ─► open_round ─► REPORT … REPORT ─► close_round ─► (durable) ─► published ─► open_round ─► …
                          refused, deadline ┘

Rules
- Each event is one call: `handle` for what comes to the server, and a method of its own for what the server does. It
  returns the messages that follow, oldest first; the caller sends them, and does the waiting and the storing.
- Who takes a message of a kind stands in one table, `handlers`. What is wrong with a message is raised there, counted
  once, and told to the observer (`refused`).
- Reports are kept by client and aggregated in the order of clients: the order of arrival has no effect.
- A report counts once at most, for the round that asked for it and from its cohort only. Anything else is a `Refusal`,
  counted by reason and client, and the round goes on. A DECLINE is counted as a refusal too, and its client not waited
  for.
- Commits are made in `close_round` only, so a cohort starts at one version. A late report enters a later commit as a
  term of its own, if participation says so.
- `checkpoint` holds everything that the future depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from seedbus.agents import messages
from seedbus.agents.catch_up.commit_window import Reload
from seedbus.agents.catch_up.server import CatchUp, CatchUpState
from seedbus.agents.errors import Unfinishable
from seedbus.agents.extensions import Exchange, Spending
from seedbus.agents.journal.metrics import TOLD
from seedbus.agents.journal.records import MemberPosition
from seedbus.agents.measuring.server import Measuring, beside_means
from seedbus.agents.messages import Evaluation, Join, Measured, Outgoing, PackedReplica
from seedbus.agents.observer import NullObserver, Observer
from seedbus.agents.refusals import NOBODY, Mark, Reason, Refusal, Refusals, RefusedState
from seedbus.agents.round_record import ClosedRound
from seedbus.agents.server.joining import Joining
from seedbus.agents.server.positions import Positions
from seedbus.agents.server.report_reader import ReportReader
from seedbus.agents.server.reports import ReportHandler
from seedbus.agents.server.round import Round
from seedbus.agents.server.rounds import Rounds, RoundsState
from seedbus.agents.server.run_spec import RunSpec
from seedbus.agents.server.silent import NOT_AS_ASKED, SilentMembers
from seedbus.agents.server.stopping import TIMELESS, Progress, ProgressState, Sent
from seedbus.agents.verification import KEPT, Verifier, VerifierState
from seedbus.algorithms.contract import BadPayload, ReportRefused, whole_digest
from seedbus.bus import EVALUATOR, SERVER, Envelope, Kind, MalformedEnvelope
from seedbus.bus.envelope import NO_TALLY, PLAN, REPORT

_BAD_ANSWERS = Reason.marked(Mark.BAD_ANSWER)
_TOO_LARGE = Reason.marked(Mark.TOO_LARGE)

Handler = Callable[[Envelope, int], None]
"""Takes a message at a time (ns of the run's clock). Raises `BadPayload` or `ReportRefused` if it does not count."""


class DeadlinePassed(NamedTuple):
    """The deadline of a round has passed: it closes without the clients that have not answered, if it is open."""

    round: int


Event = Envelope | MalformedEnvelope | DeadlinePassed
"""What comes to the server."""


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
        handlers: kind of message → what takes it. The server adds JOIN's, which knows who is told to join.
        positions: the members, and where clients are.
        rounds: the open round, and those that may still be answered.
        joining: lets clients join and leave.
        silent: members that do not answer.
        catch_up: what clients that lag are given.
        history: the commits that are held.
        base: what the journal has in the place of its first commits; None: it has all.
        refusals: counts of what was refused.
        measuring: the evaluation by clients; None: the evaluator measures.
        reader: reads reports that have come together.
        progress: how far the run is, for its stopping rule.
        verifier: which reports have digests, and whether they are the evaluator's.
        unsaved_metrics: measurements that no checkpoint has yet.
        last_digest: the digest of the model that was evaluated last.
        last_digests: its field (x, …) → digest, in hexadecimal.
    """

    def __init__(
        self,
        spec: RunSpec,
        observer: Observer | None = None,
        *,
        proofs: Mapping[str, bytes] | None = None,
        apart: Container[int] = (),
        reload: Reload | None = None,
    ) -> None:
        """Begin before round 0, with no members.

        Args:
            spec: the run.
            observer: is told of refusals and measurements.
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
        self.unsaved_metrics: list[dict[str, Any]] = []
        self._observer = observer or NullObserver()
        self._outgoing: list[Outgoing] = []  # what follows from the present event, before what `catch_up` sends
        self._plans: list[Outgoing] = []
        self._are_plans_due = False
        self._timeless = 0  # how many rounds have taken no time, up to the newest
        self.positions = Positions(spec.participation.clients, lru_cache(maxsize=256)(self._count_seeds))
        self.catch_up = CatchUp(
            spec.algorithm,
            spec.lag,
            self.positions.believed,
            replica_bytes=spec.replica_bytes,
            patience=spec.participation.staleness,
            reload=reload,
            proofs=lambda: self.joining.proofs,
        )
        self.history = self.catch_up.history
        self.base: PackedReplica | None = None
        self.rounds = Rounds(spec)
        self._durable = self.rounds.pack()
        self.joining = Joining(spec, self.positions, self.catch_up, self.rounds, proofs=proofs or {}, apart=apart)
        self.silent = SilentMembers(spec.participation, self.rounds, self.positions, self.catch_up, self.refused)
        self.measuring: Measuring | None = None
        if spec.evaluation.by == "clients":
            self.measuring = Measuring(spec.measured_by_clients, in_sums=spec.measures_in_sums)
        self.reader = ReportReader(spec.algorithm, self.rounds, self.verifier)
        reports = ReportHandler(self.reader, self.positions, self.catch_up, self.rounds, self.verifier)
        self.handlers: dict[Kind, Handler] = {
            REPORT: reports.reported,
            Kind.DECLINE: reports.declined,
            Kind.TELL: reports.told,
            Kind.PULL: reports.catches_up,
            Kind.PIECE: reports.catches_up,
            Kind.EVALUATION: self._evaluated,
            Kind.MEASURED: self._measured,
        }

    def _count_seeds(self, after: int, last: int) -> int:
        """Return the seeds of the commits after version `after` up to `last`."""
        return self.algorithm.pack_commits(self.history.between(after, last), whole=True).seeds

    def _spending(self) -> Spending | None:
        return None if self.spec.noise is None else self.spec.noise.spending()

    @property
    def version(self) -> int:
        return self.history.version

    @property
    def round(self) -> int:
        """The round that is open, or opens next."""
        return self.rounds.number

    # -- what comes to the server

    def handle(self, event: Event, now_ns: int = 0) -> list[Outgoing]:
        """Act upon an event. Whatever is wrong with a message is counted as refused, and the run goes on.

        Returns:
            The messages that follow; of nearly all events none.
        """
        if isinstance(event, Envelope):
            kind, client, round, _, _ = event
            try:
                self.handlers.get(kind, _not_for_the_server)(event, now_ns)
            except BadPayload as error:
                self.refused(client, "bad-payload", str(error), round if kind.is_algorithms else None)
            except ReportRefused as error:
                self.refused(client, error.reason, str(error), round if kind.is_algorithms else None)
        elif isinstance(event, MalformedEnvelope):
            self.refused(SERVER if event.peer is None else event.peer, "malformed", str(event))
        elif self.rounds.current is not None and event.round == self.round:
            self.rounds.current.is_expired = True
        return self._messages()

    def _messages(self) -> list[Outgoing]:
        """Return what follows from the present event, oldest first."""
        if not (self._outgoing or self.catch_up.has_messages):
            return []
        outgoing, self._outgoing = self._outgoing + self.catch_up.take(), []
        now = self.rounds.current
        has_questions = now is not None and now.exchange.before_plans
        return list(self._exchanged(outgoing, now.exchange)) if now is not None and has_questions else outgoing

    def _exchanged(self, outgoing: Iterable[Outgoing], exchange: Exchange) -> Iterator[Outgoing]:
        """Yield messages with plans as the round's exchange has them; those that come before `send_plans` wait."""
        for envelope, tally in outgoing:
            if envelope.kind is not PLAN:
                yield envelope, tally
            elif not self._are_plans_due:
                self._plans.append((envelope, tally))
            elif (plan := exchange.plan(envelope)) is not None:
                yield plan, tally

    def refused(self, client: int, reason: str, detail: str, round: int | None = None) -> None:
        """Count a refusal. A bad answer is an answer: neither the round nor a measurement waits for another."""
        self.refusals.of_client(client, reason, detail)
        if client == EVALUATOR and reason != "not-fetched":  # which is about its replica
            if self.measuring is None:
                self.progress.answered()
            elif reason != "not-asked":  # which is about an evaluation that is over
                self.measuring.waiting.discard(EVALUATOR)
        answered = self.rounds.get(round)
        if answered is not None and reason in _BAD_ANSWERS:
            answered.waiting.discard(client)
            answered.exchange.waiting.discard(client)
        if self.rounds.current is not None and reason in _TOO_LARGE:
            self.rounds.current.too_large.add(client)
        self._observer.refused(Refusal(client, self.round if round is None else round, reason, detail))

    def refused_peer(self, peer: str, reason: str, detail: str) -> None:
        """Count a refusal of a peer that is no member. Observers are not told of each once there are too many."""
        if self.refusals.of_peer(peer, reason, detail):
            self._observer.refused(Refusal(NOBODY, self.round, reason, f"{peer}: {detail}"))

    # -- members

    def joined(
        self, join: Join, *, round: int | None = None, is_due: bool = False, nonce: bytes = b"", decides: bool = True
    ) -> list[Outgoing]:
        """A process brings clients, or a client states its version: plans may have to be sent again.

        Args:
            join: the message.
            round: the round in which a client sent it; None: it is a process's.
            is_due: whether the client was told to join.
            nonce: the offer that a process's proofs are bound to.
            decides: whether proofs that the run does not know yet become the run's.

        Raises:
            ReportRefused: a proof is false, or the client may not join.
        """
        self.joining.joined(join, round=round, is_due=is_due, nonce=nonce, decides=decides)
        return self._messages()

    def left(self, clients: Iterable[int]) -> list[Outgoing]:
        """Clients are gone: no round waits for them, and none is asked until it has joined again."""
        clients = list(clients)
        self.silent.left(clients)
        self.joining.left(clients)
        if self.measuring is not None:
            self.measuring.waiting.difference_update(clients)
        return self._messages()

    @property
    def has_members(self) -> bool:
        """True when there are enough members for a commit."""
        return len(self.positions.members) >= self.participation.quorum

    # -- rounds

    def open_round(self, now_ns: int = 0, computing: Container[tuple[int, int]] | None = None) -> list[Outgoing]:
        """Begin the next round: draw its cohort and make its plans, which `send_plans` returns.

        What has to come before the plans of clients that lag too far is returned now.

        Args:
            now_ns: when the round begins: now, or when it began to wait for clients at work.
            computing: (client, round) of each plan that a client has to work on, or will get; None: not known, so of
                all that are not answered.
        """
        now = self.rounds.open(self.positions.members, self.version, now_ns, computing)
        now.lags = self.positions.lags(now.cohort, self.version)
        self._are_plans_due = False
        now.exchange = self.spec.open_exchange(self.round, self.version, now.cohort)
        if self.measuring is not None:
            now.exchange.beside = self.measuring.beside(self.round, self.spec.evaluation.every)
        self.catch_up.open(now.plan, now.waiting)
        self._plans = [plan for client in now.cohort for plan in self.catch_up.plan_for(client)]
        return self._messages()

    def send_plans(self, now_ns: int) -> list[Outgoing]:
        """Return the open round's plans, in the cohort's order."""
        now = self.rounds.current
        if now is not None:
            now.asked_ns = now_ns
            now.waiting.difference_update(now.exchange.plans_due())
        self._are_plans_due = True
        self._outgoing += self._plans
        self._plans = []
        return self._messages()

    def no_answer(
        self, losing: Container[int], *, awaits_process: bool = False, may_come: bool = False
    ) -> list[Outgoing]:
        """Nothing is under way any more: all that are waited for have answered, and not what they were asked.

        Args:
            losing: clients of which a fault has lost a message in this round; these may have answered.
            awaits_process: whether clients lack a process, which may come while the round is open. If all members are
                silent, the round waits for it.
            may_come: whether clients that are away may come to a later round.

        Raises:
            Unfinishable: no member has answered since the last report that counted, and nobody else may come.
        """
        if self.measuring is not None and self.measuring.is_open:
            if EVALUATOR in self.measuring.waiting:
                self.refused(EVALUATOR, "no-answer", f"the evaluator {NOT_AS_ASKED}")
            if self.participation.deadline_s is None:
                self.measuring.waiting.clear()
            return self._messages()
        for _ in self.progress.asked[:]:
            self.refused(EVALUATOR, "no-answer", f"the evaluator {NOT_AS_ASKED}")
        self.silent.give_up(losing, awaits_process=awaits_process, may_come=may_come)
        return self._messages()

    @property
    def missing(self) -> list[int]:
        """The clients that the open round waits for."""
        return sorted(self.rounds.current.waiting) if self.rounds.current is not None else []

    # -- what a round asks beside reports

    @property
    def exchange(self) -> Exchange:
        """The open round's."""
        return Exchange() if self.rounds.current is None else self.rounds.current.exchange

    def ask(self, stage: int) -> list[Outgoing]:
        """Ask the questions of a stage. With fewer reports than the quorum, none is to enter a commit."""
        now = self.rounds.current
        if now is not None:
            is_enough = len(now.reports) >= self.participation.quorum
            for envelope in now.exchange.ask(stage, frozenset(now.reports if is_enough else ())):
                self._outgoing.append((envelope, NO_TALLY))
        return self._messages()

    def close_round(self, now_ns: int = 0) -> ClosedRound:
        """Aggregate, if there is a quorum. The caller makes the commit durable before it calls `published`."""
        closed, reported, commit, record = self.rounds.close(self.version, now_ns)
        if self.measuring is not None and closed.exchange.beside:
            self._added_up(self.measuring, closed, now_ns)
        if reported or commit is not None:
            self.silent.heard()
        for client in self.catch_up.close():
            self.rounds.dismiss(client)  # it was not sent a plan
        # as many as could have made a commit, and more than were accepted: a minority of liars cannot end a run
        is_barren = commit is None and len(closed.too_large) >= max(self.participation.quorum, len(reported) + 1)
        self.progress.barren = self.progress.barren + 1 if is_barren else 0
        if self.progress.spent is not None:
            in_commit = reported if commit is not None else None
            self.progress.spent.closed(closed.plan.round + 1, len(closed.cohort), in_commit)
        if commit is not None:
            self.catch_up.remember(commit, self.positions.slowest(self.version))
        plan, peak, cohort = closed.plan, closed.peak, tuple(closed.cohort)
        if peak is not None:
            self._outgoing += [messages.pack_peak(client, plan, peak) for client in cohort]
        for client, reason, what in closed.exchange.blamed():
            self.refused(client, reason, what, plan.round)
        return ClosedRound(plan.round, self.version, cohort, tuple(reported), commit, record, self._messages())

    def published(self, closed: ClosedRound, sent: Sent, now_ns: int) -> list[Outgoing]:
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
            return self.ask_evaluator(closed)
        if closed.commit is not None:
            self._tell_evaluator(closed.round, [closed.commit], messages.DIGEST * self.verifier.is_due(self.version))
        return self._messages()

    def waited(self, now_ns: int) -> list[Outgoing]:
        """Time has passed between two rounds: if that ends the run, the model is evaluated, unless it has been."""
        self.progress.now_ns = now_ns
        if self.finished() is not None and self.round % self.spec.evaluation.every:
            return self.ask_evaluator(ClosedRound(self.round - 1, self.version, (), (), None))
        return []

    def ask_evaluator(self, closed: ClosedRound | None = None) -> list[Outgoing]:
        """Ask for metrics and digests of the newest model, which is x₀ if no round is given."""
        round = closed.round if closed is not None else 0
        self.progress.asked.append((round, self.version, self.progress.sent))
        commits = [closed.commit] if closed is not None and closed.commit is not None else []
        self._tell_evaluator(round, commits, messages.EVALUATE | messages.DIGEST)
        if self.measuring is not None:
            self._ask_members(self.measuring, round)
        return self._messages()

    def _ask_members(self, measuring: Measuring, round: int) -> None:
        """Ask all members to measure the newest version, but those that lag too far for commits."""
        missed = {client: self.catch_up.missed_by(client) for client in self.positions.members}
        if measuring.in_sums:
            missed = {}
        may_ask = missed if self.spec.measure is None else self.spec.measure.get((round, self.version), ())
        asked = {client: commits for client, commits in missed.items() if commits is not None and client in may_ask}
        for client, commits in asked.items():
            self._outgoing.append(messages.pack_measure(self.algorithm, client, round, self.version, commits))
        measuring.begin(round, self.version, asked)

    def _tell_evaluator(self, round: int, commits: list[Any], wants: int) -> None:
        commit = messages.pack_commit(self.algorithm, round, self.version, commits, wants)
        self._outgoing.append((commit, NO_TALLY))

    def crashed(self) -> None:
        """The server has lost what was not durable: the open round, and what it had begun."""
        self._plans = []
        self.rounds.crashed(self._durable)
        self.catch_up.crashed()

    # -- measurements

    def _evaluated(self, envelope: Envelope, now_ns: int) -> None:
        """The evaluator answered. Clients whose reports were made with other digests have diverged."""
        if envelope.client != EVALUATOR:
            _not_for_the_server(envelope, now_ns)
        evaluation = self._checked(envelope)
        self.last_digest = whole_digest(evaluation.version, evaluation.digests)
        self.last_digests = {name: digest.hex() for name, digest in evaluation.digests.items()}
        for client, difference in self.verifier.settled(evaluation.version, evaluation.digests):
            self.refused(client, "diverged", difference)
        if self.measuring is not None:
            self.measuring.diagnosed(evaluation)
        elif evaluation.metrics:
            self._keep_line(evaluation, now_ns)

    def _measured(self, envelope: Envelope, now_ns: int) -> None:
        """A client has measured the model. Raises `BadPayload`, or `ReportRefused` if it was not asked."""
        measured, client = Measured.unpack(envelope), envelope.client
        if self.measuring is None or client not in self.positions.believed:
            _not_for_the_server(envelope, now_ns)
        else:
            self.measuring.told(measured)
            if measured.version >= self.positions.believed[client]:
                self.positions.move(client, measured.version)

    def end_measuring(self, now_ns: int) -> None:
        """Make a line of metrics of what clients have measured, if they were asked to."""
        if self.measuring is None or not self.measuring.is_open:
            return
        if self.measuring.in_sums:
            self.measuring.is_open = False  # the next round's reports come with what clients measure
            self.progress.answered()
            return
        evaluation = self.measuring.ended()
        if evaluation is not None:
            told = self.measuring.answered
            self._keep_line(evaluation, now_ns, told if len(told) < self.participation.clients else None)
        else:
            self.progress.answered()
            self._observer.noted("not-measured", what="no client has told of samples that it holds out")

    def _added_up(self, measuring: Measuring, closed: Round, now_ns: int) -> None:
        """Make a line of metrics of what clients have told beside their reports, as far as its sum is known."""
        numbers = closed.exchange.sums
        found = None if numbers is None else measuring.added_up(closed.plan.version, len(closed.cohort), numbers)
        if found is not None:
            self._keep_line(found, now_ns)
        else:
            self._observer.noted("not-measured", what="no sum of what clients measure is known, or it is none of means")

    def _keep_line(self, evaluation: Evaluation, now_ns: int, told: list[int] | None = None) -> None:
        """Keep what was measured; told: the clients that did, for a rehearsal, if not all of them."""
        line = self.progress.measured(evaluation, self.stop, now_ns)
        self.unsaved_metrics.append(line if told is None else line | {TOLD: told})
        self._observer.measured(line)

    def _checked(self, envelope: Envelope) -> Evaluation:
        """Decode an EVALUATION. Raises `BadPayload`; `ReportRefused` if nobody asked for it."""
        evaluation = Evaluation.unpack(envelope)
        by_clients = () if self.measuring is None else (*self.measuring.names, *beside_means(self.measuring.names))
        evaluation.check([name for name in self.spec.metrics if name not in by_clients], self._fields)
        if evaluation.version > self.version or evaluation.round > self.round:
            what = f"version {evaluation.version} after round {evaluation.round}"
            raise ReportRefused("wrong-version", f"an EVALUATION of {what}; the newest is version {self.version}")
        is_asked = self.progress.awaited > 0 if evaluation.metrics else self.verifier.is_due(evaluation.version)
        is_asked |= self.measuring is not None and self.measuring.awaits_digest(evaluation.version)
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
    def awaits_digest(self) -> bool:
        """Whether the evaluator owes the digest of an evaluation by clients; a deadline is for clients alone."""
        return self.measuring is not None and EVALUATOR in self.measuring.waiting

    @property
    def awaits_metric(self) -> bool:
        """True while the next round must wait for a metric, because it may end the run or clients measure."""
        if self.measuring is not None:
            return bool(self.measuring.waiting)
        return self.progress.awaited > 0 and (self.stop.target is not None or self.finished() is not None)

    # -- checkpoints

    def checkpoint(self) -> CoordinatorState:
        """All that the future depends on, but the log and the members' versions, which are kept a row each."""
        self._durable = self.rounds.pack()
        return CoordinatorState(
            rounds=self._durable,
            refusals=self.refusals.pack(),
            progress=self.progress.pack(),
            verifier=self.verifier.pack(),
            catch_up=self.catch_up.pack(),
        )

    def restore(
        self,
        state: CoordinatorState,
        log: Iterable[Any],
        known: Mapping[int, MemberPosition],
        held: bytes = b"",
        base: PackedReplica | None = None,
    ) -> None:
        """Go on from a checkpoint.

        Args:
            state: what `checkpoint` returned.
            log: all commits that it was made after, in order; if there is a base, those after it.
            known: the newest position of each client that `Positions.take_believed` returned.
            held: what `CatchUp.take_new` returned last; b"": nothing.
            base: what the journal has in the place of its first commits; None: it has all.
        """
        self.base = base
        self._durable = state.rounds
        self.rounds.unpack(self._durable)
        self.refusals.unpack(state.refusals)
        self.progress = Progress.unpack(state.progress, self._spending())
        self.verifier.unpack(state.verifier)
        self.catch_up.unpack(state.catch_up, held, base)
        self.positions.restore_believed(known, with_members=not self.joining.believes)
        for commit in log:
            self.catch_up.remember(commit, self.positions.slowest(self.version))


def _not_for_the_server(envelope: Envelope, now_ns: int) -> None:
    raise ReportRefused("wrong-kind", f"a {envelope.kind.name} from {envelope.client} is not for the server")
