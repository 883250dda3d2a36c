"""A client whose update was refused once, as too large or not finite, and its memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from algorithm_cases import make
from dense_federation import START, Bowl, D

from seedbus.agents.client.client_state import ClientStateStore
from seedbus.algorithms.contract import ReportRefused


class Spiked(Bowl):
    """A loss that is impossibly steep along one coordinate, where there is a spike."""

    def __init__(self, round: int, spike: float | None) -> None:
        super().__init__(0, round)
        self._spike = spike

    def gradient(self, step: int, criterion: Any = None) -> Any:
        gradient = super().gradient(step, criterion)
        if self._spike is not None:
            gradient[0] = self._spike
        return gradient


@pytest.mark.parametrize("spike", [np.nan, np.inf, 1e18])
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("scaffold", {}),
        ("feddc", {}),
        ("feddyn", {}),
        ("fedavg", {"compression": "top-k", "error_feedback": True}),
        ("fedavg", {"compression": "qsgd", "error_feedback": True}),
    ],
)
def test_an_update_that_is_refused_leaves_its_clients_memory_as_it_was(
    name: str, fields: dict[str, Any], spike: float
) -> None:
    algorithm: Any = make(name, local_steps=2, learning_rate=0.05, **fields).sized(D)
    replica, memories, refused = algorithm.replica(START), [None], []
    for round in range(3):
        plan = algorithm.plan(round, 0, round)
        report, memory = algorithm.local(replica, memories[-1], plan, Spiked(round, spike if round == 1 else None))
        memories.append(memory)
        try:
            algorithm.check(plan, report)
        except ReportRefused:
            refused.append(round)
    assert refused == [1]
    assert memories[2] == memories[1] != memories[3]


def test_refused_work_of_a_client_that_remembered_nothing_is_repeated_without_what_came_after_it() -> None:
    """As when a run is resumed at round 0, after the client has worked for round 1 too."""
    algorithm: Any = make("scaffold", local_steps=2, learning_rate=0.05).sized(D)
    store, replica = ClientStateStore(), algorithm.replica(START)
    for round, spike in ((0, np.inf), (1, None)):
        before = store.before(0, round)
        assert not before
        store.keep(0, round, algorithm.local(replica, before, algorithm.plan(round, 0, 0), Spiked(round, spike))[1])
    assert store.before(0, 2)["scaffold.c"] and not store.before(0, 0)
