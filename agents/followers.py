"""One process's followers of the log: the clients that it hosts and, in one process of a run, the evaluator."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.metadata import version

from seedbus.agents import messages
from seedbus.agents.downloads import unpack_notes
from seedbus.agents.errors import JoinRefused
from seedbus.agents.evaluator import Evaluator
from seedbus.agents.host import Host
from seedbus.agents.messages import AnyAlgorithm
from seedbus.agents.observer import Observer
from seedbus.agents.problem import Identified, Problem
from seedbus.agents.replicas import Replicas
from seedbus.agents.tampering import HONEST, Tampering
from seedbus.algorithms.contract import BadPayload
from seedbus.algorithms.directions import selftest
from seedbus.bus import EVALUATOR, Envelope, Kind, MalformedEnvelope, Offer, decode, encode
from seedbus.bus.transport import addresses


def prove(algorithm: AnyAlgorithm, problem: Problem) -> dict[str, bytes]:
    """What a process shows of itself: the self-test of its directions and arithmetic, and the digest of its x₀.

    Where a problem is decided by more than x₀, frozen weights say, the digest is of both.
    """
    digest = algorithm.replica(problem.x0()).digests()["x"]
    if isinstance(problem, Identified):
        digest = hashlib.blake2b(digest + problem.identity(), digest_size=len(digest)).digest()
    return {"selftest": selftest(), "x0": digest}


def build_facts(proofs: Mapping[str, bytes]) -> dict[str, str]:
    """What decides a run's bits, for its journal."""
    return {"seedbus": version("seedbus")} | {name: proof.hex() for name, proof in proofs.items()}


class Followers:
    """Answers the frames that a process is sent. It belongs to one thread, as its problem does."""

    def __init__(
        self,
        offer: Offer,
        algorithm: AnyAlgorithm,
        problem: Problem,
        *,
        split: str,
        verify_every: int,
        observer: Observer,
        tampering: Tampering = HONEST,
    ) -> None:
        x0 = problem.x0()
        self._algorithm, self._observer = algorithm, observer
        self._addresses = addresses(offer.spans, offer.evaluates)
        clients = [address for address in self._addresses if address != EVALUATOR]
        replicas = Replicas(algorithm, lambda: algorithm.replica(x0), private=verify_every > 0)
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
        )
        self.evaluator = Evaluator(algorithm, problem, x0, split, observer) if offer.evaluates else None

    def join(self, host: int) -> list[bytes]:
        return [encode(join)[0] for join in self.host.join(host, self.host.clients)]

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
            self.evaluator.stand_at(stands.pop(EVALUATOR), log)
        self.host.replicas.stand_at(stands, log)
        self.host.downloads.stand_at(notes)

    def handle(self, frame: bytes) -> list[bytes]:
        try:
            envelope = decode(frame)
        except MalformedEnvelope as error:
            self._observer.noted("malformed", detail=str(error))
            return []
        return [encode(answer)[0] for answer in self._act(envelope)]

    def _act(self, envelope: Envelope) -> list[Envelope]:
        if envelope.kind is Kind.PLAN and envelope.client in self.host.replicas:
            return self.host.planned(envelope)
        if envelope.kind is Kind.WAKE and envelope.client in self.host.replicas:
            return self.host.woken(envelope)
        if envelope.kind is Kind.REFUSE and envelope.client in self.host.replicas:
            return self.host.refused(envelope)
        if envelope.kind is Kind.SNAPSHOT and envelope.client in self.host.replicas:
            return self.host.fed(envelope)
        if envelope.kind is Kind.FETCH and envelope.client in self.host.replicas:
            return self.host.fetched(envelope)
        if envelope.kind is Kind.FETCH and envelope.client == EVALUATOR and self.evaluator is not None:
            return self.evaluator.fetched(envelope)
        if envelope.kind is Kind.COMMIT and self.evaluator is not None:
            return self.evaluator.committed(envelope)
        self._observer.noted("unexpected", kind=envelope.kind.name, client=envelope.client)
        return []
