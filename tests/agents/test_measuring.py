"""The server's sum of what clients measure: exact means, and no client that can spoil them by what is no number."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from coordinator_cases import new_coordinator

from seedbus.agents.measuring.client import METRICS, OwnParts
from seedbus.agents.measuring.server import QUANTILES, Measuring
from seedbus.agents.messages import Evaluation, Measured
from seedbus.agents.policies.participation import Participation
from seedbus.agents.server.stopping import Cadence
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
    own = {"loss.p10": 0.5, "loss.p50": 0.5, "loss.p90": 2, "accuracy.p10": 2 / 3, "accuracy.p50": 2 / 3}
    means = {"loss": 6.5 / 4, "accuracy": 3 / 4, "drift": 0.5, "accuracy.p90": 1}
    assert measuring.ended() == Evaluation(4, 5, means | own | counts)


def test_quantiles_are_means_that_a_part_of_the_clients_does_not_exceed() -> None:
    measuring = Measuring(["loss"])
    measuring.begin(4, 5, range(10))
    for client in range(10):
        measuring.told(Measured(client, 4, 5, 1 + client, [(1.0 + client) * (10 - client)]))
    ended = measuring.ended()
    assert ended is not None and [ended.metrics[f"loss.{end}"] for end in QUANTILES] == [1, 5, 9]


@pytest.mark.parametrize("total", [math.nan, math.inf, -math.inf, 1e308, -4e38])
def test_a_client_whose_mean_is_no_number_is_refused_and_not_awaited(total: float) -> None:
    measuring = begun()
    for client in (1, 2):
        with pytest.raises(ReportRefused, match=f"client {client} measures means that float32 does not have"):
            measuring.told(Measured(client, 4, 5, 1, [total, 0.0]))
    assert not measuring.waiting
    means = {"loss": 2.0, "accuracy": 2 / 3}
    means |= {f"{name}.{end}": mean for name, mean in means.items() for end in QUANTILES}
    assert measuring.ended() == Evaluation(4, 5, means | {"drift": 0.5, "asked": 3, "answered": 1, "samples": 3})


def test_who_is_not_asked_or_tells_other_metrics_is_refused() -> None:
    measuring = begun()
    for measured in (Measured(0, 4, 5, 1, [1.0, 1.0]), Measured(1, 4, 6, 1, [1.0, 1.0])):
        with pytest.raises(ReportRefused, match="which nobody waits for"):
            measuring.told(measured)
    with pytest.raises(BadPayload, match="a MEASURED of 1 sums, not of 2"):
        measuring.told(Measured(1, 4, 5, 1, [1.0]))
    assert measuring.waiting == {2} and EVALUATOR not in measuring.waiting


class OneSample:
    def owned(self, split: str) -> list[np.ndarray]:
        return [np.array([0])]

    def evaluate_part(self, x: np.ndarray, split: str, part: np.ndarray) -> dict[str, float]:
        return {"loss": float(x[0])}


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ([(0, 0), (4, 5), (9, 9), (9, 9), (14, 15)], 5),  # x₀, every fifth round, once more after a crash
        ([(0, 0), (4, 5), (4, 6)], 2),  # another model after the same round
        ([(4, 5), (3, 4)], 1),
        ([(0, 0), (2, 3), (4, 5), (9, 10)], 2),  # after a round in which none is due, the run is over
        ([(4, 6)], 0),  # more commits than rounds
        ([(20, 20)], 0),  # more rounds than there are
        ([(19, 20), (24, 25)], 1),
    ],
)
def test_a_client_measures_as_often_as_the_scenario_says(asked: list[tuple[int, int]], answered: int) -> None:
    own = OwnParts(OneSample(), "test", ["loss"], every=5, rounds=20)
    told = []
    for round, version in asked:
        if own.is_due(0, round, version):
            told.append(own.measured(0, round, version, np.array([2.0])))
    assert len(told) == answered and all((each.samples, each.sums) == (1, [2.0]) for each in told)


def test_an_answer_of_the_evaluator_that_nobody_asked_for_is_not_taken_for_the_one_that_is_awaited() -> None:
    coordinator = new_coordinator(Participation(clients=2), evaluation=Cadence(by="clients"))
    measuring = coordinator.measuring
    assert measuring is not None
    measuring.begin(0, 0, [0, 1])
    coordinator.refused(EVALUATOR, "not-asked", "an EVALUATION of version 7 that nobody asked for")
    assert measuring.waiting == {EVALUATOR, 0, 1}
    coordinator.refused(EVALUATOR, "bad-payload", "no mapping")
    assert measuring.waiting == {0, 1}


def test_clients_do_not_measure_on_what_they_train_on() -> None:
    with pytest.raises(ValueError, match="split: train are the samples that clients train on"):
        Cadence(by="clients", split="train")


def test_what_an_owner_reads_has_each_line_once_however_often_its_process_is_started(tmp_path: Path) -> None:
    def measures(version: int) -> None:
        own = OwnParts(OneSample(), "test", ["loss"], every=5, rounds=20, folder=tmp_path)
        own.measured(0, 4, version, np.array([2.0]))

    measures(5)
    whole = (tmp_path / METRICS).read_text()
    (tmp_path / METRICS).write_text(whole + whole[:10])  # it was killed when it wrote
    measures(5)
    assert (tmp_path / METRICS).read_text() == whole
    measures(6)
    assert [json.loads(line)["version"] for line in (tmp_path / METRICS).read_text().splitlines()] == [5, 6]
