"""Rounds that are closed and may still be answered, as a checkpoint stores them."""

from __future__ import annotations

from typing import Any

import numpy as np

from seedbus.agents.policies.participation import Late, Participation
from seedbus.agents.server.overdue import overdue_rounds
from seedbus.agents.server.round import Round
from seedbus.algorithms.scalar_only.decomfl import DeComFL

ALGORITHM: Any = DeComFL(perturbations=2)
POLICY = Participation(clients=200_000, late=Late(max_staleness=9))


def test_a_checkpoint_has_clients_in_ascending_order_whatever_the_order_of_answers() -> None:
    plan = ALGORITHM.plan(4, 3, [1])
    scalars = {client: np.full(plan.shape, client, np.float32) for client in (90_000, 5)}
    closed = Round(plan, [], 7, 8, 6, waiting={100_000, 3}, reports=scalars, declined={80_000, 2})
    rounds = overdue_rounds(POLICY)
    rounds.add(closed)
    (stored,) = rounds.pack(ALGORITHM)
    assert (stored.round, stored.waiting, stored.declined) == ((4, 3, 8, 6), [3, 100_000], [2, 80_000])
    assert [client for client, _ in stored.reports] == [5, 90_000]
    again = overdue_rounds(POLICY)
    again.unpack(ALGORITHM, [stored], lambda number, version: ALGORITHM.plan(number, version, [1]))
    assert again.pack(ALGORITHM) == [stored] and again.report_count == 2
