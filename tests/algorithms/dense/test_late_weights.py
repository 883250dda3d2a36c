"""The weights of reports, in rounds with late reports and in buffers, and their sum."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from algorithm_cases import bits, make

from seedbus.algorithms.contract import LateReports
from seedbus.algorithms.dense.payloads import DenseReport
from seedbus.algorithms.dense.server import State, weights_of

D = 100


def report_of(samples: int) -> DenseReport:
    return DenseReport(samples, np.zeros((1, 2), np.float32), [[]], np.zeros(0, np.float32))


@pytest.mark.parametrize("discount", [1.0, 0.5])
@pytest.mark.parametrize("fresh", [[1], [100, 1], []], ids=["small", "unequal", "none"])
def test_in_a_buffer_every_report_weighs_in_proportion_to_its_samples(fresh: list[int], discount: float) -> None:
    """FedBuff's mean of n reports, by samples: a client's share is the same whether its report is fresh or not."""
    late = [100, 40, 8]
    count, everyone = len(fresh + late), sum(fresh + late)
    algorithm = make("fedavg", weighting="samples")
    overdue = [LateReports(algorithm.plan(0, 0, 0), dict(enumerate(map(report_of, late))), discount / count)]
    weights = weights_of(algorithm, dict(enumerate(map(report_of, fresh))), len(fresh) / count, overdue)
    assert weights == pytest.approx([each / everyone for each in fresh] + [discount * each / everyone for each in late])


def test_fedcms_direction_is_a_mean_of_gradients_where_a_late_report_had_another_learning_rate() -> None:
    """A client reports −ηKg: with one g for all, the direction is Kg, although the rate fell to a hundredth."""
    algorithm = make("fedcm", weighting="uniform", learning_rate={0: 0.5, 1: 0.005}).sized(2)
    plans = [algorithm.plan(round, round, round) for round in range(2)]
    sums = np.array([3.0, -2.0])
    old, new = (replace(report_of(1), vectors=np.array([-plan.learning_rate * sums], np.float32)) for plan in plans)
    state = algorithm.first_state(lambda: np.zeros(2, np.float32))
    late = [LateReports(plans[0], {1: old}, 0.25)]
    commit, _ = algorithm.aggregate(state, plans[1], {0: new}, share=0.5, late=late, members=2)
    assert commit.fields[1] == pytest.approx(sums, rel=1e-5)


def drawn(client: int, samples: int) -> DenseReport:
    vectors = np.random.default_rng(client).normal(size=(1, D)).astype(np.float32)
    return replace(report_of(samples), vectors=vectors)


def test_beside_a_robust_rule_late_reports_keep_their_weights_and_methods_track_the_rules_result() -> None:
    algorithm: Any = make("feddyn", weighting="samples", aggregation="median", proximal=1.0).sized(D)
    reports, old = {client: drawn(client, 1 + client) for client in range(3)}, {3: drawn(3, 9)}
    plan, late = algorithm.plan(9, 9, 0), [LateReports(algorithm.plan(8, 8, 0), old, 0.25)]
    state = algorithm.first_state(lambda: np.zeros(D, np.float32))
    commit, state = algorithm.aggregate(state, plan, reports, share=0.75, late=late, members=8)
    middle = np.median([report.vectors[0] for report in reports.values()], axis=0)
    update = 0.75 * middle + 0.25 * 9 / (15 / 4) * old[3].vectors[0]
    tracked = -4 / 8 * update
    assert np.abs(State.unpack(state).own["feddyn.s"] - tracked).max() < 1e-6
    assert np.abs(commit.fields[0] - (update - tracked)).max() < 1e-6


def test_updates_are_summed_in_float64_and_rounded_once() -> None:
    algorithm: Any = make("fedavg").sized(D)
    reports = {client: drawn(client, 1 + client) for client in range(30)}
    state = algorithm.first_state(lambda: np.zeros(D, np.float32))
    commit, _ = algorithm.aggregate(state, algorithm.plan(9, 9, 0), reports)
    terms = [(1 + client) / 465 * each.vectors[0].astype(np.float64) for client, each in reports.items()]
    exact = [math.fsum(column) for column in zip(*terms, strict=True)]
    assert bits(commit.fields[0]) == bits(np.array(exact, np.float32))
