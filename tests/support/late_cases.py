"""Rounds in which some clients answer late, played on a coordinator without an event loop."""

from __future__ import annotations

from typing import Any

import numpy as np
from coordinator_cases import ALGORITHM, DrivenCoordinator, cohort_of, joined_coordinator, report

from seedbus.agents.round_record import ClosedRound
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.payloads import ScalarCommit
from seedbus.bus import Envelope

SCHEDULED: Any = DeComFL(perturbations={0: 2, 1: 3, 2: 1}, local_steps={0: 1, 2: 2})


def lenient_coordinator(
    clients: int = 4, algorithm: Any = ALGORITHM, quorum: int = 1, cohort: int | None = None, **late: Any
) -> DrivenCoordinator:
    """Return a coordinator that counts late reports.

    Args:
        clients: how many have joined.
        algorithm: the algorithm.
        quorum: reports that a commit needs.
        cohort: how many clients a round asks of those that are not at work; None: all of them.
        late: fields of `late`.
    """
    policy = {"late": late, "deadline_s": 1}
    return joined_coordinator(clients, cohort or clients, quorum, policy=policy, algorithm=algorithm)


def answer(coordinator: DrivenCoordinator, client: int, values: list[float] | None = None) -> Envelope:
    """Return a client's report on the open round, with scalars of the plan's shape [K, P]."""
    steps, perturbations = coordinator.algorithm.plan(coordinator.round, coordinator.version, 0).shape
    flat = np.resize(np.array(values or [client + 1.0]), (steps, perturbations))
    envelope = report(coordinator, client)
    envelope.body[0] = flat.astype("<f4").tobytes()
    return envelope


def ask(coordinator: DrivenCoordinator) -> dict[int, Envelope]:
    """Open a round; return the report of each client that it asks."""
    return {client: answer(coordinator, client) for client in cohort_of(coordinator)}


def play_round(coordinator: DrivenCoordinator, *answers: int) -> dict[int, Envelope]:
    """Open a round in which `answers` report in time; return the reports of the other clients, by client."""
    reports = ask(coordinator)
    for client in answers:
        assert coordinator.reported(reports.pop(client)) is None
    return reports


def close_at_deadline(coordinator: DrivenCoordinator) -> ClosedRound:
    """Let the open round's deadline pass, and close it."""
    coordinator.deadline_passed(coordinator.round)
    assert coordinator.rounds.is_over
    return coordinator.close_round()


def terms(closed: ClosedRound) -> list[tuple[int, float, list[list[float]]]]:
    """Return (round, weight, scalars) of each term of a commit."""
    assert isinstance(closed.commit, ScalarCommit)
    return [(term.round, term.weight, term.scalars.tolist()) for term in closed.commit.terms]


def refusal_reason(coordinator: DrivenCoordinator, envelope: Envelope) -> str | None:
    """Hand in a report; return why it is refused, or None."""
    refusal = coordinator.reported(envelope)
    return None if refusal is None else refusal.reason
