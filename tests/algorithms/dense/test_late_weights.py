"""The weights of reports by samples, in rounds with late reports and in buffers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from algorithm_cases import make

from seedbus.algorithms.contract import LateReports
from seedbus.algorithms.dense.payloads import DenseReport
from seedbus.algorithms.dense.server import weights_of


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
