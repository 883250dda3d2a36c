"""A host of clients: one process's clients behind one address.

A client is created when it is first asked. It folds the commits that it missed, computes its report from its replica
and its own data, and answers. A client asked again for the same round and version resends the report that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seedbus.agents import messages
from seedbus.agents.errors import JoinRefused
from seedbus.agents.messages import AnyAlgorithm, Join
from seedbus.agents.observer import Observer
from seedbus.agents.problem import Problem
from seedbus.agents.replicas import Replicas
from seedbus.agents.verification import Verifier
from seedbus.algorithms.contract import BadPayload, CommitGap
from seedbus.bus import Bus, Compute, Envelope, Kind, MalformedEnvelope, Tally

SPANS = 64  # an envelope's arrays hold no more


class Host:
    """Clients first … last of a run, at one address of a bus."""

    def __init__(
        self,
        bus: Bus,
        address: int,
        clients: Sequence[int],
        algorithm: AnyAlgorithm,
        problem: Problem,
        replicas: Replicas,
        *,
        is_member: bool,
        proof: tuple[bytes, bytes],
        compute: Compute,
        seed: int,
        verify_every: int = 0,
        observer: Observer,
    ) -> None:
        self.bus, self.address, self.clients = bus, address, clients
        self.algorithm, self.problem, self.replicas = algorithm, problem, replicas
        self._is_member = is_member
        self._proof, self._compute, self._seed = proof, compute, seed
        self._verifier, self._observer = Verifier(verify_every), observer
        self._memories: dict[int, Any] = {}
        self._answers: dict[int, tuple[Envelope, Tally]] = {}
        self._mailbox = bus.open(address, f"the host of {len(clients)} clients")
        for client in clients:
            bus.forward(client, address)

    async def run(self) -> None:
        """Join, then answer plans until the server says goodbye. Raises `JoinRefused`."""
        if not self._is_member:
            self._join(self.clients)
        while True:
            letter = await self._mailbox.get()
            if isinstance(letter, MalformedEnvelope):
                self._observer.noted("malformed", detail=str(letter))
            elif letter.kind is Kind.PLAN:
                self._plan(letter)
            elif letter.kind is Kind.WELCOME:
                self._is_member = True
            elif letter.kind is Kind.REFUSE and not self._is_member:
                raise JoinRefused(*messages.unpack_refuse(letter))
            elif letter.kind is Kind.BYE:
                return
            else:
                self._observer.noted("unexpected", kind=letter.kind.name, client=letter.client)

    def _join(self, clients: Sequence[int]) -> None:
        selftest, x0 = self._proof
        spans = messages.spans([(client, self.replicas.version(client)) for client in clients])
        for start in range(0, len(spans), SPANS):
            self.bus.send(Join(self.address, tuple(spans[start : start + SPANS]), selftest, x0).pack())

    def _plan(self, envelope: Envelope) -> None:
        client = envelope.client
        try:
            plan, missed = messages.unpack_plan(self.algorithm, envelope)
            if plan.version < self.replicas.version(client):
                self._observer.noted("stale-plan", client=client, round=envelope.round)  # overtaken on its way
                return
            answer = self._answers.get(client)
            if answer is None or (answer[0].round, answer[0].base) != (envelope.round, envelope.base):
                answer = self._answers[client] = self._work(client, plan, missed)
        except BadPayload as error:
            self._observer.noted("bad-plan", client=client, detail=str(error))
            return
        except CommitGap as gap:
            # the server believes that this client holds commits that it does not hold: say where it really is
            self._observer.noted("commit-gap", client=client, detail=str(gap))
            self._join([client])
            return
        work_ns = self._compute.time_ns(self._seed, client, envelope.round, self.algorithm.evaluations(envelope.round))
        self.bus.send(*answer, after_ns=work_ns)

    def _work(self, client: int, plan: Any, missed: Sequence[Any]) -> tuple[Envelope, Tally]:
        replica = self.replicas.advance(client, missed, plan.version)
        objective = self.problem.objective(client, plan.round)
        report, memory = self.algorithm.local(replica, self._memories.get(client), plan, objective)
        self._memories[client] = memory
        digests = replica.digests() if self._verifier.is_due(plan.version) else {}
        return messages.pack_report(self.algorithm, client, plan, report, digests)
