"""The server's sum of what clients measure: exact means, and no client that can spoil them by what is no number."""

from __future__ import annotations

import math

import pytest

from seedbus.agents.measuring.server import Measuring
from seedbus.agents.messages import Evaluation, Measured
from seedbus.algorithms.contract import BadPayload, ReportRefused
from seedbus.bus import EVALUATOR


def begun() -> Measuring:
    measuring = Measuring(["loss", "accuracy"])
    measuring.begin(4, 5, [0, 1, 2])
    measuring.diagnosed(Evaluation(4, 5, {"drift": 0.5}))
    measuring.told(Measured(0, 4, 5, 3, [6.0, 2.0]))
    return measuring


def test_means_are_of_all_samples() -> None:
    measuring = begun()
    measuring.told(Measured(1, 4, 5, 1, [0.5, 1.0]))
    measuring.told(Measured(2, 4, 5, 0, [0.0, 0.0]))
    assert not measuring.waiting
    counts = {"asked": 3, "answered": 3, "samples": 4}
    assert measuring.ended() == Evaluation(4, 5, {"loss": 6.5 / 4, "accuracy": 3 / 4, "drift": 0.5} | counts)


@pytest.mark.parametrize("total", [math.nan, math.inf, -math.inf, 1e308, -4e38])
def test_a_client_whose_mean_is_no_number_is_refused_and_not_awaited(total: float) -> None:
    measuring = begun()
    for client in (1, 2):
        with pytest.raises(ReportRefused, match=f"client {client} measures means that float32 does not have"):
            measuring.told(Measured(client, 4, 5, 1, [total, 0.0]))
    assert not measuring.waiting
    assert measuring.ended() == Evaluation(
        4, 5, {"loss": 2.0, "accuracy": 2 / 3, "drift": 0.5, "asked": 3, "answered": 1, "samples": 3}
    )


def test_who_is_not_asked_or_tells_other_metrics_is_refused() -> None:
    measuring = begun()
    for measured in (Measured(0, 4, 5, 1, [1.0, 1.0]), Measured(1, 4, 6, 1, [1.0, 1.0])):
        with pytest.raises(ReportRefused, match="which nobody waits for"):
            measuring.told(measured)
    with pytest.raises(BadPayload, match="a MEASURED of 1 sums, not of 2"):
        measuring.told(Measured(1, 4, 5, 1, [1.0]))
    assert measuring.waiting == {2} and EVALUATOR not in measuring.waiting
