"""A client whose round diverged takes part again: its refused report leaves nothing in what it remembers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from algorithm_cases import make, seed_of
from dense_federation import ETA, START, Bowl, D, K

from seedbus.algorithms.contract import ReportRefused

TOP_K = {"kind": "top-k", "fraction": 0.2}


class Cliff(Bowl):
    """A loss that has no finite gradient."""

    def gradient(self, step: int, criterion: Any = None) -> Any:
        return np.full(D, np.inf, np.float32)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("scaffold", {}),
        ("feddyn", {}),
        ("feddc", {}),
        ("fedavg", {"compression": {"kind": "top-k", "fraction": 0.2}, "error_feedback": True}),
    ],
)
def test_a_client_whose_round_diverged_takes_part_again(name: str, fields: dict[str, Any]) -> None:
    algorithm = make(name, learning_rate=ETA, local_steps=K, **fields).sized(D)
    replica = algorithm.replica(START)
    first, second = (algorithm.plan(round, 0, seed_of(round)) for round in (0, 1))
    report, memory = algorithm.local(replica, None, first, Bowl(0, 0))
    algorithm.check(first, report)
    refused, after = algorithm.local(replica, memory, second, Cliff(0, 1))
    with pytest.raises(ReportRefused):
        algorithm.check(second, refused)
    assert memory is not None and after == memory
    again, _ = algorithm.local(replica, after, second, Bowl(0, 1))
    algorithm.check(second, again)
