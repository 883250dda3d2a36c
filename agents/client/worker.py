"""The followers of one process: the clients that it hosts and, in one process of a run, the evaluator."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from seedbus.agents import messages
from seedbus.agents.catch_up.chunks import bytes_of, shape_of, unpacked
from seedbus.agents.catch_up.client import unpack_notes
from seedbus.agents.client.client_spec import ClientSpec
from seedbus.agents.client.client_state import ClientStateStore
from seedbus.agents.client.clients import Host
from seedbus.agents.client.evaluator import Evaluator
from seedbus.agents.client.replicas import Replicas
from seedbus.agents.errors import JoinRefused
from seedbus.agents.observer import Observer
from seedbus.agents.problem import ClientProblem, Identified, Probed
from seedbus.algorithms.contract import Algorithm, BadPayload, Replica, Vector
from seedbus.algorithms.directions import selftest_once
from seedbus.bus import EVALUATOR, Envelope, Kind, MalformedEnvelope, Offer, decode
from seedbus.bus.codec import Decoder, encoded
from seedbus.bus.envelope import PLAN, SHORT
from seedbus.bus.transport import addresses
from seedbus.pieces import Frame
from seedbus.versions import version

MAX_TOGETHER = 64
"""How many clients work together at most: each has a batch in memory, and more of them would save little."""


def prove(
    algorithm: Algorithm,
    problem: ClientProblem,
    plugins: bytes = b"",
    place: Callable[[Vector], Vector] = lambda vector: vector,
) -> dict[str, bytes]:
    """Return what a process shows of itself: the self-test of its directions and arithmetic, and the digest of its x₀.

    If more than x₀ decides a problem, such as frozen weights or a partition's file, the digest "x0" covers both. If its
    losses were compiled, "losses" is a digest of some of them. "mask" says which coordinates it trains, if not all.

    Args:
        algorithm: the run's.
        problem: the task with its data.
        plugins: the digest of the plug-ins that the scenario needs; empty if it needs none.
        place: moves a vector into the memory in which the problem computes.
    """
    mask = getattr(problem, "mask_digest", b"")
    digest = Replica(0, {"x": problem.x0()}).digests()["x"]
    identity = problem.identity() if isinstance(problem, Identified) else b""
    if identity:
        digest = hashlib.blake2b(digest + identity, digest_size=len(digest)).digest()
    losses = problem.probe() if isinstance(problem, Probed) else b""
    optional = (("losses", losses), ("plugins", plugins), ("mask", mask))
    always = {"selftest": selftest_once(algorithm.facts.law, place=place), "x0": digest}
    return always | {name: proof for name, proof in optional if proof}


def build_facts(proofs: Mapping[str, bytes]) -> dict[str, str]:
    """Return the facts that decide a run's bits, for its journal."""
    return {"seedbus": version("seedbus")} | {name: proof.hex() for name, proof in proofs.items()}


class Followers:
    """Answers the frames that a process is sent. It belongs to one thread, as its problem does.

    Attributes:
        host: the clients.
        evaluator: the evaluator; None in processes that have none.
        longest: bytes of the longest message that they can use.
    """

    def __init__(
        self,
        offer: Offer,
        spec: ClientSpec,
        problem: ClientProblem,
        observer: Observer,
        memories: ClientStateStore | None = None,
    ) -> None:
        """Create the followers that an offer names.

        Args:
            offer: the server's: which clients, and whether the process evaluates.
            spec: the run's clients.
            problem: the task with its data.
            observer: is told of messages that cannot be acted upon.
            memories: where clients keep their own state; None: in this object.
        """
        self._algorithm = algorithm = spec.algorithm
        self._observer = observer
        self._decoder = Decoder()
        self._max_together = MAX_TOGETHER if spec.gathers else 1
        self._addresses = addresses(offer.spans, offer.evaluates)
        whole = bytes_of(shape_of(algorithm.replica(np.zeros(1, np.float32)))) * problem.dimension  # of a WELCOME
        self.longest = SHORT + max(algorithm.sizes(problem.dimension, 1).message, whole)
        clients = [address for address in self._addresses if address != EVALUATOR]
        replicas = Replicas(
            algorithm, lambda: algorithm.replica(problem.x0()), shares=not spec.verify_every, place=spec.place
        )
        proof = prove(algorithm, problem, spec.plugins, spec.place)
        store = memories or ClientStateStore()
        self.host = Host(clients, spec, problem, replicas, proof=proof, observer=observer, memories=store)
        self.evaluator = Evaluator(algorithm, problem, replicas, spec.split, observer) if offer.evaluates else None

    def try_first_round(self, cohort: int) -> None:
        """Compute what a first round needs, an evaluation too if it is due here, and keep nothing of it.

        Args:
            cohort: how many clients a round asks.
        """
        self.host.try_first_round(min(cohort, self._max_together))
        if self.evaluator is not None:
            self.evaluator.try_first_round()

    def join(self, host: int, nonce: bytes = b"") -> list[Frame]:
        """Return the JOINs of all clients, as frames; host: the process's address; nonce: the offer's."""
        return _encoded(self.host.join(host, nonce))

    def welcome(self, frame: Frame) -> None:
        """Go to the versions that a WELCOME states. Raises `JoinRefused`, also if the frame is a REFUSE."""
        try:
            envelope = decode(frame)
            if envelope.kind is Kind.REFUSE:
                raise JoinRefused(*messages.unpack_refuse(envelope))
            held = [self.host.replicas.version(address) for address in self._addresses]
            versions, log, packed, base = messages.unpack_welcome(self._algorithm, envelope, held)
            notes = unpack_notes(packed)
            replica = None if base is None else unpacked(base, self.host.replicas.first())
        except (MalformedEnvelope, BadPayload) as error:
            raise JoinRefused("bad-welcome", str(error)) from None
        version_of = dict(zip(self._addresses, versions, strict=True))
        if versions != held or log:
            self.host.replicas.base = replica
        if self.evaluator is not None:
            self.evaluator.reset(version_of[EVALUATOR], log)
        self.host.replicas.reset(version_of, log)
        self.host.downloads.reset(notes)

    def handle(self, frame: Frame) -> list[Frame]:
        """Return the answers to one frame."""
        (answers,) = self.handle_all([frame])
        return answers

    def handle_all(self, frames: Sequence[Frame]) -> Iterator[list[Frame]]:
        """Yield the answers to each frame.

        Adjacent PLANs of one round, to different clients at one version, are worked on together.
        """
        plans: dict[int, Envelope] = {}
        for frame in frames:
            envelope = self._decoded(frame)
            plan = envelope if envelope is not None and self._is_plan(envelope) else None
            if plans and not (plan is not None and self._shares_work(plans, plan)):
                yield from map(_encoded, self.host.on_plans(list(plans.values())))
                plans = {}
            if plan is not None:
                plans[plan.client] = plan
            else:
                yield [] if envelope is None else _encoded(self._act(envelope))
        yield from map(_encoded, self.host.on_plans(list(plans.values())))

    def _decoded(self, frame: Frame) -> Envelope | None:
        try:
            return self._decoder.decode(frame)
        except MalformedEnvelope as error:
            self._observer.noted("malformed", detail=str(error))
            return None

    def _shares_work(self, plans: Mapping[int, Envelope], plan: Envelope) -> bool:
        """Whether a PLAN is worked on together with these. A client's second one is not: one answer may serve both."""
        _, client, round, base, _ = plan
        if len(plans) == self._max_together or client in plans:
            return False
        first = next(iter(plans.values()))
        return (round, base) == (first.round, first.base)

    def _is_plan(self, envelope: Envelope) -> bool:
        kind, client, _, _, _ = envelope
        return kind is PLAN and client != EVALUATOR and client in self.host.replicas

    def _act(self, envelope: Envelope) -> list[Envelope]:
        handlers = {
            Kind.WAKE: self.host.on_wake,
            Kind.REFUSE: self.host.on_refuse,
            Kind.PEAK: self.host.on_peak,
            Kind.ASK: self.host.on_ask,
            Kind.MEASURE: self.host.on_measure,
            **self.host.downloads.handlers,
        }
        is_for_clients = envelope.client != EVALUATOR or envelope.kind is Kind.FETCH
        if envelope.kind in handlers and is_for_clients and envelope.client in self.host.replicas:
            return handlers[envelope.kind](envelope)
        if envelope.kind is Kind.COMMIT and self.evaluator is not None:
            return self.evaluator.on_commit(envelope)
        self._observer.noted("unexpected", kind=envelope.kind.name, client=envelope.client)
        return []


def _encoded(answers: Sequence[Envelope]) -> list[Frame]:
    frames = list[Frame]()
    for answer in answers:
        frame, _ = encoded(answer)
        frames.append(frame)
    return frames
