"""HiSo: the diagonal Hessian H by hand and on average."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from algorithm_cases import Quadratic, bits, make, seed_of, x0

from seedbus.algorithms.contract import Vector
from seedbus.algorithms.directions import directions, reference
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, Term

DIMENSION = 6
ROUND = [[1.5, -0.75], [0.3, 2.0]]  # K = 2, P = 2


def commit_of(scalars: Any, version: int = 1, rate: float = 0.5) -> ScalarCommit:
    term = Term(version - 1, seed_of(version), np.array(scalars, np.float32))
    return ScalarCommit(version, version - 1, rate, (term,))


def drawn(version: int, step: int, perturbation: int) -> Vector:
    u = np.empty(DIMENSION, np.float32)
    reference("gaussian").fill(u, seed=seed_of(version), step=step, perturbation=perturbation)
    return u


def folded(*commits: ScalarCommit, dimension: int = DIMENSION, **hyperparameters: Any) -> Any:
    algorithm = make("hiso", **hyperparameters)
    replica = algorithm.replica(x0(dimension))
    algorithm.apply(replica, commits)
    return replica


# H by hand


@pytest.mark.parametrize("hessian_step", ["every", "last"])
def test_two_rounds_of_two_steps_by_hand(hessian_step: str) -> None:
    """One H_r divides all directions of a round; then H ← 0.75 H + 0.25 (Δ² + 0.01) for both steps, or for the last."""
    real = np.float32
    x: Vector = x0(DIMENSION)
    hessian: Vector = np.ones(DIMENSION, np.float32)
    for version in (1, 2):
        root = np.sqrt(hessian)
        for k, (first, second) in enumerate(ROUND):
            delta = real(0) + real(first) * real(0.5) * drawn(version, k, 0)
            delta = (delta + real(second) * real(0.5) * drawn(version, k, 1)) / root
            x = x - real(0.5) * delta
            if hessian_step == "every" or k == 1:
                hessian = real(0.75) * hessian + real(0.25) * (delta * delta + real(0.01))
    replica = folded(commit_of(ROUND), commit_of(ROUND, 2), nu=0.25, epsilon=0.01, hessian_step=hessian_step)
    assert bits(replica.fields) == bits({"x": x, "hessian": hessian})


def test_the_mean_over_p_is_taken_first_and_squared_after() -> None:
    """Where the two directions of a step cancel, H learns only ε. An average of squares would not cancel."""
    ahead, u = folded(commit_of([[1.0, 1.0]]), nu=1.0, epsilon=1e-8), (drawn(1, 0, 0), drawn(1, 0, 1))
    np.testing.assert_allclose(ahead.fields["hessian"], ((u[0] + u[1]) / 2) ** 2, rtol=1e-5, atol=2e-8)
    assert np.abs(ahead.fields["hessian"] - (u[0] ** 2 + u[1] ** 2) / 2).max() > 0.1


def test_h_learns_from_the_step_and_not_from_the_learning_rate() -> None:
    slow, fast = (folded(commit_of(ROUND, 1, rate)) for rate in (1e-6, 10.0))
    assert bits(slow.fields["hessian"]) == bits(fast.fields["hessian"])
    assert bits(slow.x) != bits(fast.x)


def test_local_steps_all_use_the_hessian_of_the_round() -> None:
    """Coordinates with H = 4 are perturbed half as far. The step in between does not change H."""
    algorithm = make("hiso", local_steps=2, perturbations=1, learning_rate=0.5, smoothing=2.0**-10, nu=0.5)
    replica, plan = algorithm.replica(x0(DIMENSION, np.float64)), algorithm.plan(0, 0, seed_of(1))
    replica.fields["hessian"][:] = 4
    objective, x = Quadratic(DIMENSION, 0, 0, np.float64), replica.x.copy()
    report, _ = algorithm.local(replica, None, plan, objective)
    for k in range(2):
        z, losses = drawn(1, k, 0) / 2.0, []
        for point in (x + 2.0**-10 * z, x):
            objective.point[:] = point
            losses.append(objective.loss(k))
        slope = (losses[0] - losses[1]) * 2.0**10
        assert report[k, 0] == pytest.approx(slope, rel=1e-6)
        x = x - 0.5 * slope * z


# variants


def test_normalised_scalars_are_equation_7() -> None:
    """g = (uᵀH⁻¹u)⁻¹ uᵀH^(−1/2)∇f, in both local steps with the H of the round."""
    fields: dict[str, Any] = {"local_steps": 2, "perturbations": 2, "learning_rate": 0.5, "estimator": "central"}
    algorithm = make("hiso", normalise=True, clip=(0.1, 10.0), **fields)
    replica, plan = algorithm.replica(x0(DIMENSION, np.float64)), algorithm.plan(0, 0, seed_of(1))
    hessian = replica.fields["hessian"]
    hessian[:] = np.linspace(0.2, 4, DIMENSION)
    report, _ = algorithm.local(replica, None, plan, Quadratic(DIMENSION, 0, 0, np.float64))
    where, x = np.arange(DIMENSION), replica.x.copy()
    for k in range(2):
        gradient, step = (1.5 + np.sin(where)) * (x - np.cos(where + k)) / DIMENSION, np.zeros(DIMENSION)
        for p in range(2):
            u = drawn(1, k, p).astype(np.float64)
            g = (u / np.sqrt(hessian)) @ gradient / (u @ (u / hessian))
            assert report[k, p] == pytest.approx(g, rel=1e-6)
            step += g * u / np.sqrt(hessian) / 2
        x = x - 0.5 * step


def test_the_control_knows_nothing_but_the_mean_of_h() -> None:
    """H learns as ever, from directions that are divided by one number; the blocks of the mean change no bit."""
    log = [commit_of(ROUND, version) for version in range(1, 4)]
    replica = folded(*log, nu=0.5, hessian="mean", dimension=100_003)
    assert len(set(replica.fields["hessian_mean"].tolist())) == 1 < len(set(replica.fields["hessian"].tolist()))
    mean = math.fsum(replica.fields["hessian"].tolist()) / 100_003
    assert replica.fields["hessian_mean"][0] == np.float32(mean)
    warnings = make("hiso", normalise=True).facts.caveats
    assert any("falls towards ε" in each for each in warnings)


# bounds


def test_clip_bounds_every_coordinate_at_every_version() -> None:
    log = [commit_of(np.full((2, 5), 2.0), version) for version in range(1, 20)]
    free = folded(*log, dimension=999, nu=0.5).fields["hessian"]
    assert free.min() < 0.9 and free.max() > 1.25
    for version in range(len(log)):
        bounded = folded(*log[:version], dimension=999, nu=0.5, clip=(0.9, 1.25)).fields["hessian"]
        assert bounded.min() >= np.float32(0.9) and bounded.max() <= np.float32(1.25)
    assert bounded.min() == np.float32(0.9) and bounded.max() == np.float32(1.25)


@pytest.mark.parametrize(("clip", "start"), [(None, 1), ((0.5, 2), 1), ((2, 3), 2), ((0.1, 0.25), 0.25)])
def test_h_begins_at_1_or_at_the_nearest_bound(clip: Any, start: float) -> None:
    assert set(folded(clip=clip).fields["hessian"].tolist()) == {start}


def test_h_stays_positive_on_a_flat_loss() -> None:
    flat = [commit_of([[0.0]], version) for version in range(1, 1_001)]
    hessian = folded(*flat, nu=0.5, epsilon=1e-20).fields["hessian"]
    np.testing.assert_allclose(hessian, 1e-20, rtol=1e-5)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, []),
        ({"directions": "rademacher"}, ["single perturbations tell HiSo's H nothing"]),
        ({"normalise": True}, ["so it falls towards ε; clip bounds it"]),
        ({"normalise": True, "clip": [0.5, 2.0]}, []),
        ({"normalise": True, "nu": 0.0}, []),
    ],
)
def test_what_keeps_h_from_learning_is_told(fields: dict[str, Any], told: list[str]) -> None:
    found = make("hiso", **fields).facts.caveats
    assert len(found) == len(told) and all(part in each for part, each in zip(told, found, strict=True))


def test_rademacher_directions_are_accepted_with_several_perturbations() -> None:
    assert make("hiso", directions="rademacher", perturbations=2).directions.is_signs


# information in H


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("nu", "perturbations", "fields"),
    [
        (0.05, 1, {}),
        (0.05, 10, {}),
        (0.02, 100, {}),
        (0.05, 10, {"hessian": "mean"}),
        (0.05, 2, {"directions": "rademacher"}),
        (0.05, 3, {"directions": "rademacher", "hessian": "mean"}),
    ],
)
def test_h_without_information_has_the_spread_of_the_null_hypothesis(
    nu: float, perturbations: int, fields: dict[str, Any]
) -> None:
    """Scalars drawn at random carry no information about coordinates: the spread of H is the noise of its average."""
    algorithm, random = make("hiso", nu=nu, perturbations=perturbations, **fields), np.random.default_rng(0)
    log = [commit_of(random.normal(0, 5, (1, perturbations)), version) for version in range(1, 1201)]
    replica, spreads = algorithm.replica(x0(2_001)), []
    for start in range(0, len(log), 5):
        algorithm.apply(replica, log[start : start + 5])
        spreads.append(algorithm.diagnostics(replica)["hessian_cv"])
    expected = algorithm.diagnostics(replica)["hessian_cv_null"]
    assert np.mean(spreads[40:]) == pytest.approx(expected, rel=0.15)


def test_h_with_a_gradient_in_few_coordinates_spreads_beyond_the_null_hypothesis() -> None:
    """At d = 20 and P = 100 the scalars carry information: H separates coordinates with a slope from those without."""
    algorithm, dimension = make("hiso", perturbations=100), 20
    replica, slopes = algorithm.replica(x0(dimension)), np.where(np.arange(dimension) < 2, 3.0, 0.0)
    for version in range(1, 101):
        u = np.empty((100, dimension), np.float32)
        for p in range(100):
            directions("gaussian").fill(u[p], seed=seed_of(version), step=0, perturbation=p)
        scalars = (u / np.sqrt(replica.fields["hessian"])) @ slopes
        algorithm.apply(replica, [commit_of([scalars.tolist()], version)])
    figures, hessian = algorithm.diagnostics(replica), replica.fields["hessian"]
    assert figures["hessian_cv"] > 3 * figures["hessian_cv_null"]
    assert hessian[:2].min() > hessian[2:].max()


@pytest.mark.parametrize(("nu", "null"), [(0.0, 0.0), (0.05, 0.1754), (0.5, 0.6325)])
def test_the_null_spread_is_that_of_a_mean_reverting_average(nu: float, null: float) -> None:
    figures = make("hiso", nu=nu).diagnostics(folded())
    assert figures["hessian_cv_null"] == pytest.approx(null, abs=5e-5)
    assert figures["hessian_mean"] == 1 and figures["hessian_cv"] == 0
