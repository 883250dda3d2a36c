"""Coordinators whose clients have joined, for tests without an event loop, a bus or a disk."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np
from event_recorder import EventRecorder

from seedbus.agents.journal.records import MemberPosition
from seedbus.agents.messages import Join, Outgoing, Span, pack_report
from seedbus.agents.observer import NullObserver, Observer, Observers
from seedbus.agents.policies.participation import Participation
from seedbus.agents.refusals import Refusal
from seedbus.agents.server.coordinator import Coordinator, DeadlinePassed
from seedbus.agents.server.run_spec import RunSpec
from seedbus.agents.server.stopping import Cadence, Stop
from seedbus.algorithms.contract import ReportRefused
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.bus import HOST, Envelope, Kind

ALGORITHM: Any = DeComFL(perturbations=2)
NO_OBSERVER = NullObserver()
PROOF = {"selftest": b"s", "x0": b"x"}


class DrivenCoordinator(Coordinator):
    """A coordinator that keeps what it sends and tells, so that a test can look at it afterwards.

    Attributes:
        sent: the messages that it has returned, since `take_sent`.
        seen: what it has told of.
    """

    def __init__(self, spec: RunSpec, observer: Observer, **options: Any) -> None:
        self.sent: list[Outgoing] = []
        self.seen = EventRecorder()
        super().__init__(spec, Observers([self.seen, observer]), **options)

    def _messages(self) -> list[Outgoing]:
        outgoing = super()._messages()
        self.sent += outgoing
        return outgoing

    def take_sent(self) -> list[Outgoing]:
        sent, self.sent = self.sent, []
        return sent

    def reported(self, envelope: Envelope, now_ns: int = 0) -> Refusal | None:
        """Take a client's message; return why it is refused, if it is."""
        before = len(self.seen.refusals)
        self.handle(envelope, now_ns)
        return next(iter(self.seen.refusals[before:]), None)

    def evaluated(self, envelope: Envelope, now_ns: int) -> tuple[dict[str, Any] | None, list[Refusal]]:
        """Take the evaluator's answer; return its line of metrics, if it has one, and refusals."""
        refusals, lines = len(self.seen.refusals), len(self.unsaved_metrics)
        self.handle(envelope, now_ns)
        return next(iter(self.unsaved_metrics[lines:]), None), self.seen.refusals[refusals:]

    def deadline_passed(self, round: int) -> None:
        self.handle(DeadlinePassed(round))


def new_coordinator(
    participation: Participation,
    algorithm: Any = ALGORITHM,
    *,
    proofs: Mapping[str, bytes] | None = None,
    apart: Container[int] = (),
    is_virtual: bool = False,
    observer: Observer = NO_OBSERVER,
    **fields: Any,
) -> DrivenCoordinator:
    """Return a coordinator without members; fields: further ones of its `RunSpec`."""
    spec = RunSpec(algorithm, participation, 7, Stop(rounds=100), is_virtual=is_virtual, **fields)
    return DrivenCoordinator(spec, observer, proofs=proofs, apart=apart)


def joined_coordinator(
    clients: int = 6,
    cohort: int = 3,
    quorum: int = 1,
    *,
    policy: Mapping[str, Any] | None = None,
    algorithm: Any = ALGORITHM,
    **options: Any,
) -> DrivenCoordinator:
    """Return a coordinator that all clients have joined. policy: further fields of `Participation`."""
    participation = Participation(clients=clients, cohort=cohort, quorum=quorum, **(policy or {}))
    coordinator = new_coordinator(participation, algorithm, **{"evaluation": Cadence(every=10)} | options)
    coordinator.joined(Join(HOST, (Span(0, clients - 1, 0),), **PROOF))
    return coordinator


def after_rounds(rounds: int, **options: Any) -> DrivenCoordinator:
    """Return a coordinator of three clients that all reported in `rounds` rounds and are asked in the open one."""
    coordinator = joined_coordinator(clients=3, cohort=3, **options)
    for _ in range(rounds):
        for client in cohort_of(coordinator):
            coordinator.reported(report(coordinator, client))
        coordinator.close_round()
    coordinator.open_round()
    return coordinator


def positions(coordinator: DrivenCoordinator) -> dict[int, MemberPosition]:
    """Return the positions of all members as a journal stores them."""
    return {client: MemberPosition(version) for client, version in coordinator.positions.believed.items()}


def plans_of(coordinator: DrivenCoordinator, now_ns: int = 0) -> list[Outgoing]:
    """Open a round and take its plans; other messages stay among those that were sent."""
    coordinator.open_round(now_ns)
    others = coordinator.take_sent()
    plans = coordinator.send_plans(now_ns)
    coordinator.sent = others
    return plans


def joins(coordinator: DrivenCoordinator, join: Join, **how: Any) -> tuple[list[Outgoing], Refusal | None]:
    """Return the plans that a JOIN leads to, and its refusal; other messages stay among those that were sent."""
    try:
        plans = [each for each in coordinator.joined(join, **how) if each[0].kind is Kind.PLAN]
    except ReportRefused as error:
        coordinator.refused(join.sender, error.reason, str(error))
        return [], coordinator.seen.refusals[-1]
    coordinator.sent = [each for each in coordinator.sent if each[0].kind is not Kind.PLAN]
    return plans, None


def cohort_of(coordinator: DrivenCoordinator, now_ns: int = 0) -> list[int]:
    """Open a round and return the clients that it asks."""
    return [envelope.client for envelope, _ in plans_of(coordinator, now_ns)]


def report(coordinator: DrivenCoordinator, client: int, values: list[float] | None = None, **changes: Any) -> Envelope:
    """Return a client's report on the open round. changes: its `round`, `base` or `digests`."""
    plan = coordinator.algorithm.plan(
        changes.pop("round", coordinator.round), changes.pop("base", coordinator.version), 0
    )
    scalars = np.array([values or [1.0, 2.0]], np.float32)
    return pack_report(coordinator.algorithm, client, plan, scalars, changes.pop("digests", {}))
