"""A host of clients: one process's clients.

A client is created when it is first asked. It folds the commits that it missed, computes its report from its replica
and its own data, and answers, or declines; it may lie (`tampering`). A client asked again for the same round and
version resends the answer that it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seedbus.agents import chunks, messages
from seedbus.agents.admission import MEMBER, bound
from seedbus.agents.availability import RETURNS
from seedbus.agents.chunks import Chunk
from seedbus.agents.client.client_state import ClientStateStore
from seedbus.agents.client.downloads import Downloads
from seedbus.agents.client.replicas import Replicas
from seedbus.agents.client.snapshot_source import Source
from seedbus.agents.client.tampering import Tampering
from seedbus.agents.messages import AnyAlgorithm, Join
from seedbus.agents.observer import Observer
from seedbus.agents.problem import ClientProblem
from seedbus.agents.seeds import of_directions
from seedbus.agents.verification import Verifier
from seedbus.algorithms.contract import BadPayload, CommitGap, Declined, Replica, Vector
from seedbus.algorithms.shared_work import SharedWork, one_by_one
from seedbus.bus import Envelope

WITHOUT_STATE, FROM_ANOTHER_RUN = (RETURNS.index(how) for how in ("without-state", "from-another-run"))
ELSEWHERE = 2**31  # the version that a client brings from another run: one that this run never reaches
OFFER = 3  # fields of the offer of a snapshot
SPANS = 64  # an envelope's arrays hold no more


class _Asked(NamedTuple):
    """What a client is to work out: its plan, from its replica at the plan's version."""

    client: int
    plan: Any
    replica: Replica


class Host:
    """Some clients of a run, ascending."""

    def __init__(
        self,
        clients: Sequence[int],
        algorithm: AnyAlgorithm,
        problem: ClientProblem,
        replicas: Replicas,
        *,
        proof: Mapping[str, bytes],
        verify_every: int,
        observer: Observer,
        tampering: Tampering,
        memories: ClientStateStore,
    ) -> None:
        self.clients, self.algorithm, self.problem, self.replicas = clients, algorithm, problem, replicas
        self._proof = self.member_proof = proof
        self._verifier, self._observer = Verifier(verify_every), observer
        self._tampering = tampering
        self._memories = memories
        self._answers: dict[int, Envelope] = {}
        self._latest: tuple[tuple[Any, ...], tuple[Any, list[Any]]] | None = None
        self.downloads = Downloads(replicas.at)
        self._source = Source()

    def join(self, sender: int, clients: Sequence[int], nonce: bytes = b"") -> list[Envelope]:
        """JOINs of clients, at the versions that they hold. nonce: what their process's proofs are bound to."""
        self.member_proof = bound(self._proof, MEMBER if nonce else b"")
        proof = bound(self._proof, nonce)
        spans = messages.spans([(client, self.replicas.version(client)) for client in clients])
        # a process without clients, which only evaluates, joins too
        parts = [tuple(spans[start : start + SPANS]) for start in range(0, max(1, len(spans)), SPANS)]
        return [Join(sender, part, **proof).pack() for part in parts]

    def planned(self, envelopes: Sequence[Envelope]) -> list[list[Envelope]]:
        """The answers to PLANs of one round, to different clients at one version; none to what cannot be acted upon."""
        told = [self._told(envelope) for envelope in envelopes]
        for group in self._alike([each for each in told if isinstance(each, _Asked)]):
            self._work(group)
        return [[self._answers[each.client]] if isinstance(each, _Asked) else each for each in told]

    def _told(self, envelope: Envelope) -> _Asked | list[Envelope]:
        """What a PLAN asks of its client, who then stands where it should; or the answer, where that is known."""
        client = envelope.client
        try:
            plan, missed = self._unpacked(envelope)
            if plan.version < self.replicas.version(client):
                self._observer.noted("stale-plan", client=client, round=envelope.round)  # overtaken on its way
                return []
            replica = self.replicas.advance(client, missed, plan.version)
            self.downloads.outgrow(client, plan.version)
        except BadPayload as error:
            self._observer.noted("bad-plan", client=client, detail=str(error))
            return []
        except CommitGap as gap:
            # the server believes that this client holds commits that it does not hold: say where it really is
            self._observer.noted("commit-gap", client=client, detail=str(gap))
            return self._alone(envelope)
        answer = self._answers.get(client)
        if answer is not None and (answer.round, answer.base) == (envelope.round, envelope.base):
            return [answer]
        return _Asked(client, plan, replica)

    def woken(self, envelope: Envelope) -> list[Envelope]:
        """A client is there again, with what it still has: it introduces itself."""
        if envelope.body in ([WITHOUT_STATE], [FROM_ANOTHER_RUN]):
            self._forget(envelope)
        joins = self._alone(envelope, ELSEWHERE if envelope.body == [FROM_ANOTHER_RUN] else None)
        return joins + self.downloads.note(envelope.client, envelope.round)

    def fed(self, envelope: Envelope) -> list[Envelope]:
        """A client's answer to the offer of a snapshot, or to a chunk of it."""
        client = envelope.client
        if envelope.base <= self.replicas.version(client):
            self._observer.noted("stale-snapshot", client=client, version=envelope.base)
            said = self._alone(envelope) if len(envelope.body) == OFFER else []
            return said + self.downloads.note(client, envelope.round)
        try:
            got = chunks.unpack(envelope)
            if not isinstance(got, Chunk):
                return self.downloads.offered(envelope, *got) + self.downloads.note(client, envelope.round)
        except BadPayload as error:
            self._observer.noted("bad-snapshot", client=client, detail=str(error))
            return self.downloads.note(client, envelope.round)
        try:
            told = self.downloads.came(envelope, got)
        except BadPayload as error:
            self._observer.noted("bad-snapshot", client=client, detail=str(error))
            return [chunks.pull(got.title, (), client, envelope.round)]
        if isinstance(told, list):
            return told + self.downloads.note(client, envelope.round)
        self.replicas.install(client, told)
        return self._alone(envelope)

    def fetched(self, envelope: Envelope) -> list[Envelope]:
        """Pieces of a client's replica, for the server's snapshot."""
        try:
            return self._source.pieces(envelope, self.replicas.get(envelope.client))
        except BadPayload as error:
            self._observer.noted("bad-fetch", client=envelope.client, detail=str(error))
            return []

    def scaled(self, envelope: Envelope) -> list[Envelope]:
        """By what a client is to scale what it transmits: the air is simulated at the server, so nothing follows."""
        return []

    def refused(self, envelope: Envelope) -> list[Envelope]:
        """What a client holds is of no use to this run: it starts anew."""
        self._observer.noted("starts-anew", client=envelope.client)
        self._forget(envelope)
        return self._alone(envelope)

    def _unpacked(self, envelope: Envelope) -> tuple[Any, list[Any]]:
        """A plan, and the commits before it; many clients are told the same."""
        kind, _, round, base, body = envelope
        if self._latest is None or self._latest[0] != (kind, round, base, body):
            self._latest = (kind, round, base, body), messages.unpack_plan(self.algorithm, envelope)
        return self._latest[1]

    def _alone(self, asked: Envelope, version: int | None = None) -> list[Envelope]:
        """A client's JOIN in answer to what it was sent, at the version that it holds."""
        client = asked.client
        span = messages.Span(client, client, self.replicas.version(client) if version is None else version)
        return [Join(client, (span,), **self.member_proof).pack()._replace(round=asked.round)]

    def _forget(self, told: Envelope) -> None:
        client = told.client
        self.replicas.forget(client)
        self.downloads.forget(client)
        self._memories.forget(client, told.round)
        self._answers.pop(client, None)

    def _alike(self, asked: Sequence[_Asked]) -> list[list[_Asked]]:
        """Those who can work together: they share a replica, as verification has it that nobody does, and a plan."""
        groups: list[list[_Asked]] = []
        can_share = isinstance(self.algorithm, SharedWork)  # a protocol: asked once, for it costs more than a message
        for each in asked:
            like = (group for group in groups if group[0].replica is each.replica and group[0].plan == each.plan)
            group = next(like, None) if can_share else None
            if group is None:
                groups.append([each])
            else:
                group.append(each)
        return groups

    def _work(self, group: Sequence[_Asked]) -> None:
        """Have clients that share a replica and a plan make their answers."""
        (_, plan, replica), *_ = group
        memories = [self._memories.before(each.client, plan.round) for each in group]
        objectives = [self.problem.objective(each.client, plan.round) for each in group]
        if isinstance(self.algorithm, SharedWork):
            found = self.algorithm.local_together(replica, memories, plan, objectives)
        else:
            found = one_by_one(self.algorithm, replica, memories, plan, objectives)
        for each, outcome in zip(group, found, strict=True):
            self._answers[each.client] = self._answer(each, outcome)
        if self.algorithm.is_dense:  # a model each; who is asked once more does the same work over again
            recent = {c: answer for c, answer in self._answers.items() if answer.round >= plan.round - 1}
            self._answers = recent

    def _answer(self, asked: _Asked, outcome: tuple[Any, Any] | Declined) -> Envelope:
        client, plan, replica = asked
        try:
            if isinstance(outcome, Declined):
                raise outcome
            report, memory = outcome
            said = self._said(client, plan.round, report)
        except Declined as why:
            return messages.decline(client, plan, why)
        self._memories.keep(client, plan.round, memory)
        digests = replica.digests() if self._verifier.is_due(plan.version) else {}
        return messages.pack_report(self.algorithm, client, plan, said, digests)

    def _said(self, client: int, round: int, report: Any) -> Any:
        """The report, or what the client says in its place."""
        honest = self.algorithm.values(report)
        told = self._tampering.told(client, round, honest, lambda: self._first_numbers(client))
        return report if told is honest else self.algorithm.with_values(report, told)

    def _first_numbers(self, client: int) -> Vector:
        """What the client would have reported in round 0: made anew, for a process that takes another's place too."""
        plan = self.algorithm.plan(0, 0, of_directions(self._tampering.seed, 0))
        report, _ = self.algorithm.local(self.replicas.first(), None, plan, self.problem.objective(client, 0))
        return self.algorithm.values(report)
