"""One process's followers of the log: the clients that it hosts and, in one process of a run, the evaluator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version

from seedbus.agents import messages
from seedbus.agents.client.client_state import ClientStateStore
from seedbus.agents.client.clients import Host
from seedbus.agents.client.downloads import unpack_notes
from seedbus.agents.client.evaluator import Evaluator
from seedbus.agents.client.replicas import Replicas
from seedbus.agents.client.tampering import HONEST, Tampering
from seedbus.agents.errors import JoinRefused
from seedbus.agents.messages import AnyAlgorithm
from seedbus.agents.observer import Observer
from seedbus.agents.problem import ClientProblem, Identified, Probed
from seedbus.algorithms.contract import BadPayload, Replica
from seedbus.algorithms.directions import selftest
from seedbus.bus import EVALUATOR, Envelope, Kind, MalformedEnvelope, Offer, decode, encode
from seedbus.bus.envelope import PLAN
from seedbus.bus.transport import addresses

TOGETHER = 64
"""Clients that work together at most: each has a batch in memory, and with more there is little left to share."""


def prove(algorithm: AnyAlgorithm, problem: ClientProblem) -> dict[str, bytes]:
    """What a process shows of itself: the self-test of its directions and arithmetic, and the digest of its x₀.

    Where a problem is decided by more than x₀, frozen weights say, the digest is of both; and where its losses were
    compiled, there is a digest of some of them.
    """
    digest = Replica(0, {"x": problem.x0()}).digests()["x"]
    if isinstance(problem, Identified):
        digest = hashlib.blake2b(digest + problem.identity(), digest_size=len(digest)).digest()
    losses = problem.probe() if isinstance(problem, Probed) else b""
    return {"selftest": selftest(), "x0": digest} | ({"losses": losses} if losses else {})


def build_facts(proofs: Mapping[str, bytes]) -> dict[str, str]:
    """What decides a run's bits, for its journal."""
    return {"seedbus": version("seedbus")} | {name: proof.hex() for name, proof in proofs.items()}


class Followers:
    """Answers the frames that a process is sent. It belongs to one thread, as its problem does.

    gathers: clients that have the same plan work together, and answer when the last of them is done: in simulated time
    that holds up nobody.
    """

    def __init__(
        self,
        offer: Offer,
        algorithm: AnyAlgorithm,
        problem: ClientProblem,
        *,
        split: str,
        verify_every: int,
        observer: Observer,
        tampering: Tampering = HONEST,
        memories: ClientStateStore | None = None,
        gathers: bool = False,
    ) -> None:
        self._algorithm, self._observer, self._most = algorithm, observer, TOGETHER if gathers else 1
        self._addresses = addresses(offer.spans, offer.evaluates)
        clients = [address for address in self._addresses if address != EVALUATOR]
        replicas = Replicas(algorithm, lambda: algorithm.replica(problem.x0()), private=verify_every > 0)
        proof = prove(algorithm, problem)
        self.host = Host(
            clients,
            algorithm,
            problem,
            replicas,
            proof=proof,
            verify_every=verify_every,
            observer=observer,
            tampering=tampering,
            memories=memories or ClientStateStore(),
        )
        self.evaluator = Evaluator(algorithm, problem, replicas, split, observer) if offer.evaluates else None

    def join(self, host: int, nonce: bytes = b"") -> list[bytes]:
        return [encode(join)[0] for join in self.host.join(host, self.host.clients, nonce)]

    def welcome(self, frame: bytes) -> None:
        """Stand where the server says. Raises `JoinRefused`."""
        try:
            envelope = decode(frame)
            if envelope.kind is Kind.REFUSE:
                raise JoinRefused(*messages.unpack_refuse(envelope))
            versions, log, packed = messages.unpack_welcome(self._algorithm, envelope, len(self._addresses))
            notes = unpack_notes(packed, decode)
        except (MalformedEnvelope, BadPayload) as error:
            raise JoinRefused("bad-welcome", str(error)) from None
        stands = dict(zip(self._addresses, versions, strict=True))
        if self.evaluator is not None:
            self.evaluator.stand_at(stands[EVALUATOR], log)
        self.host.replicas.stand_at(stands, log)
        self.host.downloads.stand_at(notes)

    def handle(self, frame: bytes) -> list[bytes]:
        (answers,) = self.handle_all([frame])
        return answers

    def handle_all(self, frames: Sequence[bytes]) -> Iterator[list[bytes]]:
        """Neighbouring PLANs of one round, to different clients at one version, are acted upon together."""
        plans: dict[int, Envelope] = {}
        for frame in frames:
            envelope = self._decoded(frame)
            plan = envelope if envelope is not None and self._is_plan(envelope) else None
            if plans and not (plan is not None and self._goes_with(plans, plan)):
                yield from map(_encoded, self.host.planned(list(plans.values())))
                plans = {}
            if plan is not None:
                plans[plan.client] = plan
            else:
                yield [] if envelope is None else _encoded(self._act(envelope))
        yield from map(_encoded, self.host.planned(list(plans.values())))

    def _decoded(self, frame: bytes) -> Envelope | None:
        try:
            return decode(frame)
        except MalformedEnvelope as error:
            self._observer.noted("malformed", detail=str(error))
            return None

    def _goes_with(self, plans: Mapping[int, Envelope], plan: Envelope) -> bool:
        """Whether it is acted upon with these. A client's second PLAN is not: it may be answered as the first was."""
        _, client, round, base, _ = plan
        if len(plans) == self._most or client in plans:
            return False
        first = next(iter(plans.values()))
        return (round, base) == (first.round, first.base)

    def _is_plan(self, envelope: Envelope) -> bool:
        kind, client, _, _, _ = envelope
        return kind is PLAN and client != EVALUATOR and client in self.host.replicas

    def _act(self, envelope: Envelope) -> list[Envelope]:
        answers = {
            Kind.WAKE: self.host.woken,
            Kind.REFUSE: self.host.refused,
            Kind.SNAPSHOT: self.host.fed,
            Kind.FETCH: self.host.fetched,
            Kind.PEAK: self.host.scaled,
        }
        if envelope.kind in answers and envelope.client != EVALUATOR and envelope.client in self.host.replicas:
            return answers[envelope.kind](envelope)
        if envelope.kind is Kind.FETCH and envelope.client == EVALUATOR and self.evaluator is not None:
            return self.evaluator.fetched(envelope)
        if envelope.kind is Kind.COMMIT and self.evaluator is not None:
            return self.evaluator.committed(envelope)
        self._observer.noted("unexpected", kind=envelope.kind.name, client=envelope.client)
        return []


def _encoded(answers: Sequence[Envelope]) -> list[bytes]:
    return [encode(answer)[0] for answer in answers]
