"""MEAZO against its equations in float64; its state, and what its commits take."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from algorithm_cases import Quadratic, make, over_the_wire, rehearse, seed_of, x0
from scalar_cases import DIMENSION, GRAIN, RATE, ROUNDS, SMOOTHING, direction_of, loss_at

from seedbus.algorithms.contract import BadPayload

CLIENTS, P, BETA, ZETA = 4, 3, 0.75, 1e-3
SETTINGS = {"perturbations": P, "learning_rate": RATE, "smoothing": SMOOTHING, "beta": BETA, "zeta": ZETA}


def test_meazo_is_its_equations() -> None:
    x, v = x0(DIMENSION, np.float64), 0.0
    for round in range(ROUNDS):
        z = [direction_of(seed_of(round), 0, p) for p in range(P)]
        losses = np.array(
            [[loss_at(c, round, 0, x + m * each) for each in z for m in (0, SMOOTHING)] for c in range(CLIENTS)]
        )
        g = ((losses[:, 1::2] - losses[:, ::2]) / SMOOTHING).mean(axis=0)
        v = BETA * v + (1 - BETA) * g.mean() ** 2
        root = np.sqrt(v / (1 - BETA ** (round + 1)))
        rate = float(np.float32(RATE / (root + ZETA)))  # as commits have it; nothing else is rounded here
        x = x - rate * np.mean([each * u for each, u in zip(g, z, strict=True)], axis=0)

    algorithm = make("meazo", **SETTINGS)
    replica, state = algorithm.replica(x0(DIMENSION, np.float64)), None
    for round in range(ROUNDS):
        plan, reports = algorithm.plan(round, round, seed_of(round)), {}
        for client in range(CLIENTS):
            objective = Quadratic(DIMENSION, client, round, np.float64, GRAIN)
            reports[client], _ = algorithm.local(replica, None, plan, objective)
        commit, state = algorithm.aggregate(state, plan, reports)
        algorithm.check_state(msgpack.unpackb(msgpack.packb(state)))
        algorithm.apply(replica, algorithm.unpack_commits(over_the_wire(algorithm.pack_commits([commit]).body)))
    moved = np.abs(x - x0(DIMENSION, np.float64)).max()
    error = np.abs(replica.x - x).max()
    assert error < 1e-10 * moved, f"relative error {error / moved:.1e}"


def test_a_replica_is_x_alone_and_a_commit_has_the_rate_in_four_bytes() -> None:
    mine, theirs = rehearse(make("meazo", perturbations=5)), rehearse(make("decomfl", perturbations=5))
    assert set(mine.replica.fields) == {"x"}
    sizes = [len(msgpack.packb(run.algorithm.pack_commits(run.commits).body)) for run in (mine, theirs)]
    assert sizes[0] - sizes[1] == 4 * (len(mine.commits) - 1), "those of DeComFL share one η"


@pytest.mark.parametrize("state", [[], [None, 1.0], [None, -1.0, 1.0], [None, 1, 1.0], [None, float("nan"), 1.0], 3])
def test_a_state_that_it_cannot_have_made_is_refused(state: Any) -> None:
    with pytest.raises(BadPayload, match="1 − β\\^t"):
        make("meazo").check_state(state)
