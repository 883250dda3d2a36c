"""The weights of reports by samples, in rounds with late reports and in buffers."""

from __future__ import annotations

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
