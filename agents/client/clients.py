"""A host: the clients of one process.

A client costs nothing until it is first asked. Then it folds the commits that it missed, computes a report from its
replica and its own data, and sends it, or declines; a fault may change the report (`tampering`). A client that is asked
again for the same round and version sends the same answer again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import Any, NamedTuple

from seedbus.agents import messages
from seedbus.agents.admission import MEMBER, bound
from seedbus.agents.availability import RETURNS
from seedbus.agents.catch_up.client import Downloads
from seedbus.agents.client.client_spec import ClientSpec
from seedbus.agents.client.client_state import ClientStateStore
from seedbus.agents.client.replicas import Replicas
from seedbus.agents.client.resolution import LossWatch
from seedbus.agents.extensions import WorkResult
from seedbus.agents.messages import Join
from seedbus.agents.observer import Observer
from seedbus.agents.problem import ClientProblem
from seedbus.agents.seeds import of_directions
from seedbus.agents.verification import Verifier
from seedbus.algorithms.contract import BadPayload, CommitGap, Declined, Replica, Vector, local
from seedbus.bus import Envelope

WITHOUT_STATE, FROM_ANOTHER_RUN = (RETURNS.index(how) for how in ("without-state", "from-another-run"))
ELSEWHERE = 2**31
"""The version of a client that comes from another run: one that this run never reaches."""
MAX_JOIN_SPANS = 64
"""How many spans one JOIN holds at most: an envelope's arrays have no more elements."""


class _Asked(NamedTuple):
    """Work that a client has to do.

    Attributes:
        client: the client.
        plan: its plan.
        replica: its replica, at the plan's version; not to be written to.
        newest: the commit that it folded last; None: it missed none.
    """

    client: int
    plan: Any
    replica: Replica
    newest: Any


class _UnpackedPlan(NamedTuple):
    """A PLAN that was unpacked.

    Attributes:
        message: kind, round, version and body of the message; PLANs with the same are unpacked once.
        plan: the plan.
        missed: the commits before it.
    """

    message: tuple[Any, ...]
    plan: Any
    missed: list[Any]


class Host:
    """Some clients of a run.

    Each method that is named after a kind of message takes one and returns the answers to it.

    Attributes:
        clients: their addresses, ascending.
        algorithm: the run's.
        problem: the task with its data.
        replicas: the clients' replicas.
        downloads: what clients are downloading.
        member_proof: what a single client's JOIN shows as proofs, by name.
    """

    def __init__(
        self,
        clients: Sequence[int],
        spec: ClientSpec,
        problem: ClientProblem,
        replicas: Replicas,
        *,
        proof: Mapping[str, bytes],
        observer: Observer,
        memories: ClientStateStore,
    ) -> None:
        self.clients = clients
        self.algorithm = algorithm = spec.algorithm
        facts = algorithm.facts
        self._is_dense = facts.is_dense
        self.problem = problem
        self.replicas = replicas
        self.downloads = Downloads(replicas, observer, self._join_of_one)
        self.member_proof = proof
        self._proof = proof
        self._shares_work = facts.shares_work
        self._verifier = Verifier(spec.verify_every)
        self._observer = observer
        self._watch = LossWatch(observer)
        self._tampering = spec.tampering
        self._memories = memories
        self._parts = spec.parts()
        self._measures = spec.measures
        self._answers: dict[int, Envelope] = {}
        self._newest_round = 0
        self._latest: _UnpackedPlan | None = None

    def join(self, sender: int, nonce: bytes) -> list[Envelope]:
        """Return JOINs for all clients, at the versions that they hold.

        Args:
            sender: the address of the host.
            nonce: the offer's, to which the proofs are bound; b"": they are shown as they are.
        """
        self.member_proof = bound(self._proof, MEMBER if nonce else b"")
        proof = bound(self._proof, nonce)
        spans = messages.spans([(client, self.replicas.version(client)) for client in self.clients])
        starts = range(0, max(1, len(spans)), MAX_JOIN_SPANS)  # a process that only evaluates joins too
        parts = [tuple(spans[start : start + MAX_JOIN_SPANS]) for start in starts]
        return [Join(sender, part, **proof).pack() for part in parts]

    def on_plans(self, envelopes: Sequence[Envelope]) -> list[list[Envelope]]:
        """Take PLANs of one round, to different clients at one version. Returns the answers to each; some have none."""
        prepared = [self._prepare(envelope) for envelope in envelopes]
        for group in self._groups([each for each in prepared if isinstance(each, _Asked)]):
            self._work(group)
        return [[self._answers[each.client]] if isinstance(each, _Asked) else each for each in prepared]

    def _prepare(self, envelope: Envelope) -> _Asked | list[Envelope]:
        """Bring the client of a PLAN to its version. Returns its work, or the answers if there is no work to do."""
        client, whole = envelope.client, envelope
        try:
            for part in self._parts:
                envelope = part.bare(envelope)
            _, plan, missed = self._unpacked(envelope)
            if plan.version < self.replicas.version(client):
                self._observer.noted("stale-plan", client=client, round=envelope.round)  # a newer message overtook it
                return []
            replica = self.replicas.advance(client, missed, plan.version)
            self._reached(client, envelope.round, replica)
        except (BadPayload, CommitGap) as error:
            return self._unusable(envelope, error)
        try:
            for part in self._parts:
                part.planned(whole, replica)
        except BadPayload as error:
            return self._unusable(envelope, error)
        except Declined as why:
            return [messages.decline(client, plan, why)]
        answer = self._answers.get(client)
        if answer is not None and (answer.round, answer.base) == (envelope.round, envelope.base):
            return [answer]
        return _Asked(client, plan, replica, missed[-1] if missed else None)

    def _reached(self, client: int, rounds: int, replica: Replica) -> None:
        """A client was brought to a version, by so many rounds."""
        self.downloads.discard_up_to(client, replica.version)
        for part in self._parts:
            part.reached(client, rounds, replica)

    def _unusable(self, envelope: Envelope, error: BadPayload | CommitGap) -> list[Envelope]:
        """Note that a client cannot act upon a message. Returns the answers to it.

        The server may believe that the client has commits that it does not have: then it states its actual version.
        """
        is_gap = isinstance(error, CommitGap)
        self._observer.noted("commit-gap" if is_gap else "bad-plan", client=envelope.client, detail=str(error))
        return self._join_of_one(envelope) if is_gap else []

    def on_wake(self, envelope: Envelope) -> list[Envelope]:
        """A client is available again, with the state that it still has: it joins, and notes its download."""
        if envelope.body in ([WITHOUT_STATE], [FROM_ANOTHER_RUN]):
            self._forget(envelope)
        joins = self._join_of_one(envelope, ELSEWHERE if envelope.body == [FROM_ANOTHER_RUN] else None)
        return joins + self.downloads.note(envelope.client, envelope.round)

    def on_peak(self, envelope: Envelope) -> list[Envelope]:
        """A client is told how to scale its transmission. It does nothing: the server simulates the channel."""
        return []

    def on_ask(self, envelope: Envelope) -> list[Envelope]:
        """A client is asked what belongs to no plan. What it refuses, the observer is told too."""
        part = next((each for each in self._parts if each.is_asked), None)
        if part is None:
            self._observer.noted("unexpected", kind=envelope.kind.name, client=envelope.client)
            return []
        try:
            told = part.answer(envelope)
        except BadPayload as error:
            self._observer.noted("bad-ask", client=envelope.client, detail=str(error))
            return []
        if told is not None and len(told.body) > 2:
            _, reason, detail, *_ = told.body
            self._observer.noted(reason, client=envelope.client, round=envelope.round, detail=detail)
        return [] if told is None else [told]

    def on_measure(self, envelope: Envelope) -> list[Envelope]:
        """A client is brought to a version, and measures it on samples of its own."""
        client = envelope.client
        is_behind = envelope.base < self.replicas.version(client)
        if (
            self._measures is None
            or self._measures.in_sums
            or is_behind
            or not self._measures.is_due(client, envelope.round, envelope.base)
        ):
            self._observer.noted("unexpected", kind=envelope.kind.name, client=client)
            return []
        try:
            missed = messages.unpack_measure(self.algorithm, envelope)
            replica = self.replicas.advance(client, missed, envelope.base)
        except (BadPayload, CommitGap) as error:
            return self._unusable(envelope, error)
        self._reached(client, envelope.round + (envelope.base > 0), replica)
        x = self.algorithm.point(replica, missed[-1] if missed else None)
        return [self._measures.measured(client, envelope.round, envelope.base, x).pack()]

    def on_refuse(self, envelope: Envelope) -> list[Envelope]:
        """A client's state is of no use in this run: it starts from x₀ and joins again."""
        self._observer.noted("starts-anew", client=envelope.client)
        self._forget(envelope)
        return self._join_of_one(envelope)

    def _unpacked(self, envelope: Envelope) -> _UnpackedPlan:
        """Unpack a PLAN; many clients are sent the same."""
        kind, _, round, base, body = envelope
        message = kind, round, base, body
        if self._latest is None or self._latest.message != message:
            plan, missed = messages.unpack_plan(self.algorithm, envelope)
            self._latest = _UnpackedPlan(message, plan, missed)
        return self._latest

    def _join_of_one(self, asked: Envelope, version: int | None = None) -> list[Envelope]:
        """A client's JOIN in answer to a message, at this version; None: at the one that it holds."""
        client = asked.client
        span = messages.Span(client, client, self.replicas.version(client) if version is None else version)
        return [Join(client, (span,), **self.member_proof).pack()._replace(round=asked.round)]

    def _forget(self, asked: Envelope) -> None:
        """The client of this message has lost all of its state."""
        client = asked.client
        self.replicas.forget(client)
        self.downloads.forget(client)
        self._memories.forget(client, asked.round)
        for part in self._parts:
            part.forget(client)
        self._answers.pop(client, None)

    def _groups(self, asked: Sequence[_Asked]) -> list[list[_Asked]]:
        """Group clients that can work together: they share a replica and a plan. With verification none share one."""
        groups: list[list[_Asked]] = []
        for each in asked:
            for group in groups if self._shares_work else ():
                first = group[0]
                if first.replica is each.replica and (first.plan is each.plan or first.plan == each.plan):
                    group.append(each)
                    break
            else:
                groups.append([each])
        return groups

    def _discard_models(self, round: int) -> None:
        """Of a dense method, whose answers are whole models, keep those of the last two rounds alone.

        A client that is asked again for an older round repeats its work. Once a round: a look at all answers for each
        client would take the square of the cohort.
        """
        if self._is_dense and round > self._newest_round:
            self._newest_round = round
            self._answers = {client: answer for client, answer in self._answers.items() if answer.round >= round - 1}

    def _work(self, group: Sequence[_Asked]) -> None:
        """Compute the answers of clients that share a replica and a plan."""
        (_, plan, replica, _), *_ = group
        self._discard_models(plan.round)
        memories = [self._memories.before(each.client, plan.round) for each in group]
        objectives = [self.problem.objective(each.client, plan.round) for each in group]
        outcomes = self.algorithm.local_together(replica, memories, plan, objectives)
        for each, objective in zip(group, objectives, strict=True):
            self._watch.saw(each.client, plan.round, objective)
        for each, outcome in zip(group, outcomes, strict=True):
            self._answers[each.client] = self._answer(each, outcome)

    def try_first_round(self, most: int) -> None:
        """Compute the reports of a first round, of the `most` clients with the most samples, and answer nobody."""
        chosen = nlargest(most, self.clients, key=self.problem.samples)
        objectives = [self.problem.objective(client, 0) for client in chosen]
        if chosen:
            plan = self.algorithm.plan(0, 0, 0)
            self.algorithm.local_together(self.replicas.first(), [None] * len(chosen), plan, objectives)

    def _answer(self, asked: _Asked, outcome: WorkResult) -> Envelope:
        client, plan, replica, _ = asked
        for part in self._parts:
            outcome = part.measured(self.algorithm, client, plan, outcome)
        try:
            if not isinstance(outcome, Declined):
                report, memory = outcome
                outcome = self._tampered(client, plan.round, report), memory
        except Declined as why:
            return messages.decline(client, plan, why)
        beside = self._beside(asked)
        for part in self._parts:
            outcome = part.sent(self.algorithm, client, plan, outcome, beside)
        if isinstance(outcome, Declined):
            return messages.decline(client, plan, outcome)
        sent, memory = outcome
        self._memories.keep(client, plan.round, memory)
        digests = replica.digests() if self._verifier.is_due(plan.version) else {}
        message = messages.pack_report(self.algorithm, client, plan, sent, digests)
        for part in self._parts:
            message = part.full(message)
        return message

    def _beside(self, asked: _Asked) -> Sequence[int]:
        """Return the numbers that a client tells beside its report."""
        client, plan, replica, newest = asked
        if self._measures is None or not self._measures.rides(plan.round):
            return ()
        return self._measures.beside(client, plan.round, plan.version, self.algorithm.point(replica, newest))

    def _tampered(self, client: int, round: int, report: Any) -> Any:
        """The report, or the one that a fault puts in its place."""
        if self._tampering.is_honest:
            return report
        honest = self.algorithm.values(report)
        values = self._tampering.apply(client, round, honest, lambda: self._first_values(client))
        return report if values is honest else self.algorithm.with_values(report, values)

    def _first_values(self, client: int) -> Vector:
        """The values that the client would have reported in round 0. They are computed anew: no process stores them."""
        plan = self.algorithm.plan(0, 0, of_directions(self._tampering.seed, 0))
        report, _ = local(self.algorithm, self.replicas.first(), None, plan, self.problem.objective(client, 0))
        return self.algorithm.values(report)
