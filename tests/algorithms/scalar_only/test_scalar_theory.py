"""The scalar path against dense federated learning: models are sent, clients make dense steps, the server averages
models.

The dense recursion below is Appendix C of the HiSo paper with its last line replaced by equation 12. It shares with the
package only the directions. Losses are multiples of 2⁻²² and μ is 2⁻¹⁰, so a gradient scalar has few enough bits for
the mean over four clients to be exact in float32: the comparison covers the algebra, not the rounding of the wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from algorithm_cases import Quadratic, bits, make, rehearse, seed_of, x0
from numpy.typing import NDArray
from scalar_cases import CLIENTS, DIMENSION, GRAIN, RATE, ROUNDS, SMOOTHING, direction_of, loss_at

from seedbus.algorithms.scalar_only.decomfl import DeComFL

Array = NDArray[np.floating[Any]]


# (a) the dense recursion


def dense_federation(
    cohorts: Sequence[Sequence[int]],
    *,
    steps: int,
    perturbations: int,
    central: bool = False,
    beta: float = 0.0,
    damping: float = 1.0,
    nu: float = 0.0,
    last_only: bool = False,
    decay: float = 0.0,
    divides_by_mean: bool = False,
) -> dict[str, Array]:
    """The server sends its model, each client makes K dense steps on its own copy, the server averages the copies."""
    x, m, hessian = x0(DIMENSION, np.float64), np.zeros(DIMENSION), np.ones(DIMENSION)
    for round, cohort in enumerate(cohorts):
        root = np.sqrt(hessian.mean() if divides_by_mean else hessian)
        z = [[direction_of(seed_of(round), k, p) / root for p in range(perturbations)] for k in range(steps)]
        models, momenta, moves = [], [], []
        for client in cohort:
            own, own_m, own_moves = x.copy(), m.copy(), []
            for k in range(steps):
                here = loss_at(client, round, k, own)
                gradient = np.zeros(DIMENSION)
                for direction in z[k]:
                    ahead = loss_at(client, round, k, own + SMOOTHING * direction)
                    behind = loss_at(client, round, k, own - SMOOTHING * direction) if central else here
                    slope = (ahead - behind) / (2 * SMOOTHING if central else SMOOTHING)
                    gradient += slope * direction / perturbations
                own_m = beta * own_m + damping * (gradient + decay * own)
                own -= RATE * own_m
                own_moves.append(gradient)
            models.append(own)
            momenta.append(own_m)
            moves.append(own_moves)
        x, m = np.mean(models, axis=0), np.mean(momenta, axis=0)
        for k in range(steps):
            if k + 1 == steps or not last_only:
                move = np.mean([own_moves[k] for own_moves in moves], axis=0)
                hessian = (1 - nu) * hessian + nu * (move**2 + 1e-8)
    return {"x": x, "momentum": m, "hessian": hessian, "hessian_mean": np.full(DIMENSION, hessian.mean())}


def scalar_federation(algorithm: Any, cohorts: Sequence[Sequence[int]]) -> list[Any]:
    """The same by scalars alone: every client has its own replica and catches up only when it is selected."""
    followers = [algorithm.replica(x0(DIMENSION, np.float64)) for _ in range(CLIENTS)]
    log: list[Any] = []
    for round, cohort in enumerate(cohorts):
        plan, reports = algorithm.plan(round, len(log), seed_of(round)), {}
        for client in cohort:
            algorithm.apply(followers[client], log)
            objective = Quadratic(DIMENSION, client, round, np.float64, GRAIN)
            reports[client], _ = algorithm.local(followers[client], None, plan, objective)
        log.append(algorithm.aggregate(None, plan, reports)[0])
    for follower in followers:
        algorithm.apply(follower, log)
    return followers


def cohorts() -> list[list[int]]:
    """Four of seven clients a round; client 6 takes part in the last round alone."""
    generator = np.random.default_rng(5)
    return [sorted(generator.choice(CLIENTS - 1, 4, replace=False).tolist()) for _ in range(ROUNDS - 1)] + [
        [0, 2, 4, 6]
    ]


@pytest.mark.few(3)
@pytest.mark.parametrize(("steps", "perturbations"), [(1, 1), (3, 4)])
@pytest.mark.parametrize(
    ("name", "hyperparameters", "dense"),
    [
        ("decomfl", {}, {}),
        ("decomfl", {"estimator": "central"}, {"central": True}),
        ("decomfl", {"momentum": 0.75}, {"beta": 0.75, "damping": 0.25}),
        ("decomfl", {"momentum": 0.75, "dampening": False}, {"beta": 0.75}),
        ("decomfl", {"weight_decay": 0.25}, {"decay": 0.25}),
        ("decomfl", {"momentum": 0.75, "weight_decay": 0.25}, {"beta": 0.75, "damping": 0.25, "decay": 0.25}),
        ("hiso", {"nu": 0.3}, {"nu": 0.3}),
        ("hiso", {"nu": 0.3, "weight_decay": 0.25}, {"nu": 0.3, "decay": 0.25}),
        ("hiso", {"nu": 0.3, "momentum": 0.75}, {"nu": 0.3, "beta": 0.75, "damping": 0.25}),
        ("hiso", {"nu": 0.3, "hessian": "mean"}, {"nu": 0.3, "divides_by_mean": True}),
        ("hiso", {"nu": 0.3, "hessian_step": "last"}, {"nu": 0.3, "last_only": True}),
    ],
)
def test_scalars_update_the_model_as_averaged_dense_models_do(
    steps: int, perturbations: int, name: str, hyperparameters: dict[str, Any], dense: dict[str, Any]
) -> None:
    shape = {"local_steps": steps, "perturbations": perturbations}
    algorithm = make(name, **shape, learning_rate=RATE, smoothing=SMOOTHING, **hyperparameters)
    expected = dense_federation(cohorts(), steps=steps, perturbations=perturbations, **dense)
    assert np.abs(expected["x"] - x0(DIMENSION, np.float64)).max() > 1e-2
    for follower in scalar_federation(algorithm, cohorts()):
        assert follower.version == ROUNDS
        for field, vector in follower.fields.items():
            np.testing.assert_allclose(vector, expected[field], rtol=0, atol=1e-10, err_msg=field)


# (b) one round by hand


class Distance:
    """½‖x − centre‖², the same in every mini-batch."""

    def __init__(self, centre: Sequence[float]) -> None:
        self.point, self._centre = np.zeros(2), np.array(centre)

    def loss(self, step: int) -> float:
        return float(((self.point - self._centre) ** 2).sum()) / 2


def one_round_of_two_clients(algorithm: Any) -> tuple[Mapping[int, Any], Array]:
    """Return the reports and x after a round from x = (0, 0) with losses ½‖x − (1, 0)‖² and ½‖x − (0, −2)‖²."""
    replica, plan = algorithm.replica(np.zeros(2)), algorithm.plan(0, 0, 1)
    centres = {0: [1.0, 0.0], 1: [0.0, -2.0]}
    reports = {client: algorithm.local(replica, None, plan, Distance(c))[0] for client, c in centres.items()}
    follower = algorithm.replica(np.zeros(2))
    algorithm.apply(follower, [algorithm.aggregate(None, plan, reports)[0]])
    return reports, follower.x


TWO_STEPS = {"local_steps": 2, "perturbations": 1, "learning_rate": 0.1, "smoothing": 0.5}


def test_a_round_of_two_clients_agrees_with_the_one_computed_by_hand() -> None:
    """z₀ = (−1.9573339, 1.2279462), z₁ = (1.9128218, 0.0318087), g = ⟨x − c, z⟩ + ¼‖z‖², x ← x − 0.1·g·z.

    client 0: g₀ = 1.9573339 + 1.3347520 = 3.2920859, x = (0.6443711, −0.4042504), g₁ = 0.2218614
    client 1: g₀ = 2.4558924 + 1.3347520 = 3.7906444, x = (0.7419557, −0.4654707), g₁ = 2.3830151
    server:   ḡ = (3.5413651, 1.3024383),             x = (0.6931634, −0.4348606), x = (0.4440302, −0.4390035)
    """
    np.testing.assert_allclose(direction_of(1, 0, 0, 2), [-1.9573339, 1.2279462], atol=1e-7)
    np.testing.assert_allclose(direction_of(1, 1, 0, 2), [1.9128218, 0.0318087], atol=1e-7)
    reports, x = one_round_of_two_clients(make("decomfl", **TWO_STEPS))
    np.testing.assert_allclose(reports[0], [[3.2920859], [0.2218614]], atol=1e-6)
    np.testing.assert_allclose(reports[1], [[3.7906444], [2.3830151]], atol=1e-6)
    np.testing.assert_allclose(x, [0.4440302, -0.4390035], atol=1e-6)


class Aliasing(DeComFL):
    """The mistake that the round above detects: clients step on a shared model, one after the other."""

    def local(self, replica: Any, memory: Any, plan: Any, objective: Any) -> tuple[Any, Any]:
        report, memory = super().local(replica, memory, plan, objective)
        self.apply(replica, [self.aggregate(None, plan, {0: report})[0]])
        replica.version = 0
        return report, memory


def test_clients_that_share_one_model_are_detected() -> None:
    reports, x = one_round_of_two_clients(Aliasing(**TWO_STEPS))
    np.testing.assert_allclose(reports[0], [[3.2920859], [0.2218614]], atol=1e-6)
    assert np.abs(reports[1] - [[3.7906444], [2.3830151]]).max() > 0.5
    assert np.abs(x - [0.4440302, -0.4390035]).max() > 0.1


# (c), (d) relatives


def test_mezo_is_decomfl_with_one_client_one_step_and_central_differences() -> None:
    fields = {"perturbations": 3, "learning_rate": 0.5}
    mezo = rehearse(make("mezo", **fields), 20, clients=1)
    decomfl = rehearse(make("decomfl", **fields, local_steps=1, estimator="central"), 20, clients=1)
    assert bits(mezo.commits) == bits(decomfl.commits)
    assert mezo.replica.digest() == decomfl.replica.digest()


def test_hiso_that_learns_nothing_is_decomfl_to_the_bit() -> None:
    fields = {"local_steps": 2, "perturbations": 5, "learning_rate": 0.5}
    hiso = rehearse(make("hiso", **fields, nu=0.0), 60)
    decomfl = rehearse(make("decomfl", **fields), 60)
    assert bits(hiso.commits) == bits(decomfl.commits)
    assert hiso.replica.digests()["x"] == decomfl.replica.digests()["x"]
    learning = rehearse(make("hiso", **fields, nu=0.05), 2)
    assert learning.replica.digests()["x"] != rehearse(make("decomfl", **fields), 2).replica.digests()["x"]


# (e), (f) the estimator


@pytest.mark.slow
def test_the_estimate_is_unbiased_for_the_gradient() -> None:
    """E[g z] = ∇f. A round with η = 1 moves x by the mean of ten estimates: 600 rounds, five standard errors."""
    algorithm, dimension, rounds = make("decomfl", perturbations=10, learning_rate=1.0, estimator="central"), 5, 600
    start = algorithm.replica(x0(dimension))
    estimates, objective = np.empty((rounds, dimension)), Quadratic(dimension, 0, 0)
    for round in range(rounds):
        replica, plan = start.copy(), algorithm.plan(round, 0, seed_of(round))
        report, _ = algorithm.local(replica, None, plan, objective)
        algorithm.apply(replica, [algorithm.aggregate(None, plan, {0: report})[0]])
        estimates[round] = start.x - replica.x
    where = np.arange(dimension)
    gradient = (1.5 + np.sin(where)) * (x0(dimension) - np.cos(where)) / dimension
    errors = estimates.std(axis=0) / np.sqrt(rounds)
    assert errors.max() < 0.07 * np.linalg.norm(gradient)
    assert (np.abs(estimates.mean(axis=0) - gradient) < 5 * errors).all()


@pytest.mark.parametrize("smoothing", [2.0**-10, 0.5])
def test_central_differences_are_exact_on_a_quadratic_and_forward_ones_off_by_half_the_curvature(
    smoothing: float,
) -> None:
    """(f(x+μz) − f(x−μz))/2μ = ⟨∇f, z⟩, and (f(x+μz) − f(x))/μ = ⟨∇f, z⟩ + (μ/2) zᵀAz."""
    where, start = np.arange(DIMENSION), x0(DIMENSION, np.float64)
    curvature = (1.5 + np.sin(where)) / DIMENSION
    gradient = curvature * (start - np.cos(where))
    z = [direction_of(seed_of(0), 0, p) for p in range(4)]
    expected = {
        "central": [gradient @ direction for direction in z],
        "forward": [gradient @ direction + smoothing / 2 * curvature @ direction**2 for direction in z],
    }
    for estimator, slopes in expected.items():
        algorithm = make("decomfl", perturbations=4, smoothing=smoothing, estimator=estimator)
        replica, plan = algorithm.replica(start), algorithm.plan(0, 0, seed_of(0))
        report, _ = algorithm.local(replica, None, plan, Quadratic(DIMENSION, 0, 0, np.float64))
        np.testing.assert_allclose(report[0], slopes, rtol=1e-6)


def test_the_mean_over_the_cohort_does_not_depend_on_the_order_of_clients() -> None:
    """With fsum, scalars that would vanish in a running sum are kept, in any order."""
    algorithm = make("decomfl", perturbations=1)
    plan = algorithm.plan(0, 0, 1)
    scalars = [np.array([[value]], np.float32) for value in (1e12, 2.0**-17, -1e12, 2.0**-17)]
    for turn in range(len(scalars)):
        reports = dict(enumerate(scalars[turn:] + scalars[:turn]))
        (term,) = algorithm.aggregate(None, plan, reports)[0].terms
        assert term.scalars.tolist() == [[2.0**-18]]
