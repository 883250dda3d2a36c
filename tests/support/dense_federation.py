"""A small federation for the dense algorithms: losses with known gradients, and runs of an algorithm's rounds.

Five clients with unequal numbers of samples and losses of their own, two to five of them a round, several local steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from algorithm_cases import make, over_the_wire, seed_of
from numpy.typing import NDArray

Array = NDArray[np.float64]
N, D, K, ETA = 5, 23, 3, 0.05
COHORTS = [(0, 1, 2), (3, 4), (1, 2, 4), (0, 3), (0, 1, 2, 3, 4), (2, 4), (0, 1)]
SAMPLES = [3, 10, 1, 7, 4]
START = np.cos(np.arange(D)).astype(np.float32)


def gradient(client: int, round: int, step: int, at: Array) -> Array:
    """The gradient of ½ Σ_j a_j (x_j − c_j)². Every client has its own a, and every mini-batch its own c."""
    where = np.arange(D)
    slope: Array = (1.5 + np.sin(where + client)) * (at - np.cos(2 * where + 3 * client + 0.1 * step + 0.01 * round))
    return slope


class Bowl:
    """The same loss as an objective of the algorithm contract."""

    def __init__(self, client: int, round: int) -> None:
        self.point = np.full(D, np.nan, np.float32)
        self.samples = SAMPLES[client]
        self.key = client
        self.steps_an_epoch = 1 + SAMPLES[client] % 3
        self._client = client
        self._round = round

    def gradient(self, step: int, criterion: Any = None) -> Any:
        assert criterion is None
        return gradient(self._client, self._round, step, self.point.astype(np.float64)).astype(np.float32)


class Federation(NamedTuple):
    """The result of a run.

    Attributes:
        models: [rounds, D]; the points at which the model is evaluated.
        commits: one for each round.
        memory: client → its state.
    """

    models: Array
    commits: list[Any]
    memory: dict[int, Any]


def federate(name: str, cohorts: Any = COHORTS, members: int = N, **fields: Any) -> Federation:
    """Run an algorithm's rounds as server and clients do, with all messages packed and unpacked."""
    algorithm = make(name, **{"learning_rate": ETA, "local_steps": K} | fields).sized(D)
    replica, memory = algorithm.replica(START), dict.fromkeys(range(N))
    state, models, commits = algorithm.first_state(START.copy), [], []
    for round, cohort in enumerate(cohorts):
        plan, reports = algorithm.plan(round, replica.version, seed_of(round)), {}
        received_plan = algorithm.unpack_plan(over_the_wire(algorithm.pack_plan(plan).body), round, replica.version)
        for client in cohort:
            report, memory[client] = algorithm.local(replica, memory[client], received_plan, Bowl(client, round))
            reports[client] = algorithm.unpack_report(
                over_the_wire(algorithm.pack_report(received_plan, report).body), plan
            )
            algorithm.check(plan, reports[client])
        commit, state = algorithm.aggregate(state, plan, reports, members=members)
        algorithm.apply(replica, [commit])
        models.append(algorithm.point(replica, commit).astype(np.float64))
        commits.append(commit)
    return Federation(np.array(models), commits, memory)
