"""Over-the-air aggregation: which clients transmit, the channel noise, the noiseless limit, and rounds without a
commit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from algorithm_cases import bits, make, over_the_wire, seed_of
from coordinator_cases import joined_coordinator, plans_of
from dense_federation import START, Bowl, D, federate
from worlds import go, scenario

from seedbus.algorithms.contract import BadPayload, ReportRefused
from seedbus.scenarios.running.replay import replay
from seedbus.studies.check import channel as conformance
from seedbus.studies.check.promises import Promise

SILENT = {"kind": "aircomp", "snr_db": None, "threshold": 0.0}


def channel(**fields: Any) -> Any:
    return make("fedavg", channel={"kind": "aircomp"} | fields).channel


@pytest.mark.few(2)
@pytest.mark.parametrize("promise", [*conformance.CONTRACT, *conformance.WORKERS], ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("fields", [{}, SILENT], ids=str)
@pytest.mark.usefixtures("warm_workers")
def test_a_channel_keeps_its_promises(fields: Any, promise: Promise) -> None:
    promise(channel(**fields))


# fading


@pytest.mark.parametrize("threshold", [0.0, 0.8, 1.5])
@pytest.mark.slow
def test_the_fraction_of_good_channels_is_that_of_rayleigh_fading(threshold: float) -> None:
    """P(|h| ≥ h_min) = e^(−h_min²), within five standard errors of 20,000 draws."""
    fading, trials = channel(threshold=threshold, snr_db=None), 20_000
    frequency = sum(fading.reaches(seed_of(n // 100), n % 100) for n in range(trials)) / trials
    share = math.exp(-(threshold**2))
    assert abs(frequency - share) <= 5 * math.sqrt(share * (1 - share) / trials)


def test_channels_are_drawn_anew_for_every_client_and_round() -> None:
    fading = channel()
    rows = [[fading.reaches(seed_of(round), client) for client in range(64)] for round in range(64)]
    assert len({tuple(row) for row in rows}) == 64
    assert len(set(zip(*rows, strict=True))) == 64


def test_the_coordinator_asks_only_clients_of_the_cohort_with_a_good_channel() -> None:
    algorithm = make("fedavg", channel="aircomp").sized(D)
    with_channel: list[list[int]] = []
    without_channel: list[list[int]] = []
    for coordinator, cohorts in (
        (joined_coordinator(40, 40, algorithm=algorithm, x0=lambda: np.zeros(D, np.float32)), with_channel),
        (joined_coordinator(40, 10), without_channel),
    ):
        for _ in range(5):
            plans = plans_of(coordinator)
            cohorts.append([envelope.client for envelope, _ in plans])
            coordinator.close_round()
    assert [len(cohort) for cohort in without_channel] == [10] * 5
    assert all(10 < len(cohort) < 32 for cohort in with_channel) and len(set(map(tuple, with_channel))) == 5


# noise


@pytest.mark.parametrize("snr_db", [-10.0, 0.0, 20.0])
@pytest.mark.parametrize("norms", [[2.0], [0.5, 3.0, 1.0]])
def test_noise_has_half_of_the_papers_complex_variance(snr_db: float, norms: list[float]) -> None:
    """σ²Δ_max/(2·SNR·|M|²·d·h_min²): the sample variance of 100,000 normal numbers is within five standard errors."""
    d, h_min = 100_000, 0.7
    noise = channel(snr_db=snr_db, threshold=h_min).noise(5, 0, norms, d).astype(np.float64)
    variance = max(norms) ** 2 / (2 * 10 ** (snr_db / 10) * len(norms) ** 2 * d * h_min**2)
    assert abs(noise.var() / variance - 1) < 5 * math.sqrt(2 / d)
    assert abs(noise.mean()) < 5 * math.sqrt(variance / d)


def test_noise_differs_by_round_and_by_vector() -> None:
    fading = channel()
    noises = [fading.noise(seed, number, [1.0], 50) for seed, number in ((1, 0), (1, 1), (2, 0))]
    assert bits(fading.noise(1, 0, [1.0], 50)) == bits(noises[0])
    assert all(abs(np.corrcoef(a, b)[0, 1]) < 0.7 for a, b in zip(noises, [*noises[1:], noises[0]], strict=True))


@pytest.mark.parametrize("name", ["fedavg", "fedacg", "fedadam", "scaffold"])
def test_a_channel_without_noise_and_threshold_changes_no_bit(name: str) -> None:
    assert bits(federate(name, channel=SILENT).models) == bits(federate(name, weighting="uniform").models)


def test_the_server_receives_the_mean_plus_noise() -> None:
    """The server's update and SCAFFOLD's second vector have noise added whose scale follows from the largest norm."""
    cohort = [(0, 1, 2)]
    clear = federate("scaffold", cohort)
    noisy = federate("scaffold", cohort, channel={"kind": "aircomp", "snr_db": -20.0, "threshold": 0.5})
    algorithm = make("scaffold", learning_rate=0.05, local_steps=3).sized(D)
    replica = algorithm.replica(START)
    reports = [algorithm.local(replica, None, algorithm.plan(0, 0, 0), Bowl(i, 0))[0].vectors for i in range(3)]
    fading = channel(snr_db=-20.0, threshold=0.5)
    largest = [[float(np.linalg.norm(vectors[number])) for vectors in reports] for number in (0, 1)]
    noise = [fading.noise(seed_of(0), number, largest[number], D) for number in (0, 1)]
    assert np.abs(noise[0]).max() > 0.01
    assert np.abs(noisy.commits[0].fields[0] - clear.commits[0].fields[0] - noise[0]).max() < 1e-5
    assert np.abs(noisy.commits[0].fields[1] - clear.commits[0].fields[1] - noise[1] * 3 / 5).max() < 1e-4


# norms


def reported() -> tuple[Any, Any, Any]:
    algorithm = make("scaffold", channel="aircomp").sized(D)
    plan = algorithm.plan(0, 0, 0)
    return algorithm, plan, algorithm.local(algorithm.replica(START), None, plan, Bowl(0, 0))[0]


def test_a_report_carries_a_norm_of_four_bytes_for_each_vector() -> None:
    algorithm, plan, report = reported()
    packed = algorithm.pack_report(plan, report)
    assert np.allclose(np.frombuffer(packed.body[2], "<f4"), np.linalg.norm(report.vectors, axis=1), rtol=1e-6)
    assert packed.scalars == algorithm.work(0).scalars == 2 * D + 2
    assert bits(algorithm.unpack_report(over_the_wire(packed.body), plan)) == bits(report)


@pytest.mark.parametrize("norms", [None, b"", b"\0" * 4, b"\0" * 12, 3])
def test_a_report_without_its_norms_is_refused(norms: Any) -> None:
    algorithm, plan, report = reported()
    body = algorithm.pack_report(plan, report).body[:2]
    with pytest.raises(BadPayload):
        algorithm.unpack_report(body if norms is None else [*body, norms], plan)
    plain = make("scaffold").sized(D)
    with pytest.raises(BadPayload):
        plain.unpack_report([*body, b"\0" * 8], plan)


@pytest.mark.parametrize("factor", [0.0, 0.9, -1.0, 1e6, math.inf, math.nan])
def test_a_norm_that_differs_from_its_vectors_is_refused(factor: float) -> None:
    algorithm, plan, report = reported()
    algorithm.check(plan, report)
    body = algorithm.pack_report(plan, report).body
    body[2] = (report.norms * np.float32(factor)).tobytes()
    with pytest.raises(ReportRefused) as refusal:
        algorithm.check(plan, algorithm.unpack_report(body, plan))
    assert refusal.value.reason == "wrong-norm"


# whole runs


def test_a_run_over_the_air_is_repeatable_replays_and_has_rounds_that_commit_nothing(tmp_path: Path) -> None:
    what = scenario(
        algorithm={"name": "fedavg", "learning_rate": 0.05, "channel": {"kind": "aircomp", "threshold": 1.2}},
        participation={"clients": 4},
        stop={"rounds": 12},
    )
    results = go(tmp_path / "run", what)
    assert 0 < results.summary["version"] < 12
    assert results.summary["round_times"]["without_commit"] == 12 - results.summary["version"]
    assert results.summary["refusals"] == {}, "verified, bit for bit"
    assert replay(tmp_path / "run").digest == results.digest == go(tmp_path / "again", what).digest
