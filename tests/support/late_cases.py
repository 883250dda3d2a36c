"""Rounds in which some answer late, for tests: played on a coordinator without a loop."""

from __future__ import annotations

from typing import Any

import numpy as np
from coordinator_cases import ALGORITHM, cohort_of, coordinator, report

from seedbus.agents.round_record import ClosedRound
from seedbus.agents.server.coordinator import Coordinator
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.payloads import ScalarCommit
from seedbus.bus import Envelope

SCHEDULED: Any = DeComFL(perturbations={0: 2, 1: 3, 2: 1}, local_steps={0: 1, 2: 2})


def lenient(clients: int = 4, algorithm: Any = ALGORITHM, quorum: int = 1, **late: Any) -> Coordinator:
    """Everybody is asked in every round, and late reports count."""
    return coordinator(clients, clients, quorum, policy={"late": late, "deadline_s": 1}, algorithm=algorithm)


def said(made: Coordinator, client: int, values: list[float] | None = None) -> Envelope:
    """What a client answers to the open round, whatever its K and P are."""
    steps, perturbations = made.algorithm.plan(made.round, made.version, 0).shape
    flat = np.resize(np.array(values or [client + 1.0]), (steps, perturbations))
    envelope = report(made, client)
    envelope.body[0] = flat.astype("<f4").tobytes()
    return envelope


def play(made: Coordinator, *answers: int) -> dict[int, Envelope]:
    """A round in which these answer in time; returns what the others would have said."""
    cohort = cohort_of(made)
    kept = {client: said(made, client) for client in cohort}
    for client in answers:
        assert made.reported(kept.pop(client)) is None
    return kept


def close(made: Coordinator) -> ClosedRound:
    made.deadline_passed(made.round)
    assert made.is_round_over
    return made.close_round()


def terms(closed: ClosedRound) -> list[tuple[int, float, list[list[float]]]]:
    """(round, weight, scalars) of each term of a commit."""
    assert isinstance(closed.commit, ScalarCommit)
    return [(term.round, term.weight, term.scalars.tolist()) for term in closed.commit.terms]


def reason(made: Coordinator, envelope: Envelope) -> str | None:
    refusal = made.reported(envelope)
    return None if refusal is None else refusal.reason
