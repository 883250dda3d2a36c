"""Coordinators for tests: made, joined and asked without a loop, a bus or a disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from seedbus.agents.journal.records import MemberPosition
from seedbus.agents.messages import Join, Outgoing, Span, pack_report
from seedbus.agents.policies.participation import Participation
from seedbus.agents.refusals import Refusal
from seedbus.agents.server.coordinator import Coordinator
from seedbus.agents.server.stopping import Cadence, Stop
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.bus import HOST, Envelope, Kind

ALGORITHM: Any = DeComFL(perturbations=2)
PROOF = {"selftest": b"s", "x0": b"x"}


def coordinator(
    clients: int = 6,
    cohort: int = 3,
    quorum: int = 1,
    *,
    policy: Mapping[str, Any] | None = None,
    algorithm: Any = ALGORITHM,
    **options: Any,
) -> Coordinator:
    """policy: what else participation says."""
    made = Coordinator(
        algorithm,
        Participation(clients=clients, cohort=cohort, quorum=quorum, **(policy or {})),
        seed=7,
        stop=Stop(rounds=100),
        evaluation=Cadence(every=10),
        **options,
    )
    made.joined(Join(HOST, (Span(0, clients - 1, 0),), **PROOF))
    return made


def after(rounds: int, **options: Any) -> Coordinator:
    """Three clients that have all taken part in so many rounds, and are asked in another one."""
    made = coordinator(clients=3, cohort=3, **options)
    for _ in range(rounds):
        for client in cohort_of(made):
            made.reported(report(made, client))
        made.close_round()
    made.open_round()
    return made


def positions(made: Coordinator) -> dict[int, MemberPosition]:
    """What a journal would hold of the members' versions."""
    return {client: MemberPosition(version) for client, version in made.versions.items()}


def plans_of(made: Coordinator, now_ns: int = 0) -> list[Outgoing]:
    """Open a round and take its plans; the outbox keeps what else there is to send."""
    made.open_round(now_ns)
    others = made.take_outbox()
    made.send_plans()
    plans = made.take_outbox()
    made._outbox.extend(others)
    return plans


def joins(made: Coordinator, join: Join, **how: Any) -> tuple[list[Outgoing], Refusal | None]:
    """The plans that a JOIN leads to, and its refusal; the outbox keeps what else there is to send."""
    refusal = made.joined(join, **how)
    sent = made._outbox.take()
    made._outbox.extend(each for each in sent if each[0].kind is not Kind.PLAN)
    return [each for each in sent if each[0].kind is Kind.PLAN], refusal


def cohort_of(made: Coordinator, now_ns: int = 0) -> list[int]:
    return [envelope.client for envelope, _ in plans_of(made, now_ns)]


def report(made: Coordinator, client: int, values: list[float] | None = None, **changes: Any) -> Envelope:
    plan = made.algorithm.plan(changes.pop("round", made.round), changes.pop("base", made.version), 0)
    scalars = np.array([values or [1.0, 2.0]], np.float32)
    return pack_report(made.algorithm, client, plan, scalars, changes.pop("digests", {}))
