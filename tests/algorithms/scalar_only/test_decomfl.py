"""DeComFL: its momentum computed by hand, and the fields that it shares with the other scalar-only algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from algorithm_cases import Quadratic, bits, make, seed_of, x0
from pydantic import ValidationError

from seedbus.algorithms.contract import Declined, ReportRefused, Vector
from seedbus.algorithms.directions import reference
from seedbus.algorithms.numbers import ABSURD
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, Term
from seedbus.algorithms.scalar_only.precision import FORMATS

DIMENSION = 301


def commit_of(scalars: Any, version: int = 1, rate: float = 0.5, *late: Term) -> ScalarCommit:
    own = Term(version - 1, seed_of(version), np.array(scalars, np.float32))
    return ScalarCommit(version, version - 1, rate, (own, *late))


def drawn(version: int, step: int, perturbation: int) -> Vector:
    z = np.empty(DIMENSION, np.float32)
    reference("gaussian").fill(z, seed=seed_of(version), step=step, perturbation=perturbation)
    return z


def folded(algorithm: Any, *commits: ScalarCommit, dtype: Any = np.float32) -> Any:
    replica = algorithm.replica(x0(DIMENSION, dtype))
    algorithm.apply(replica, commits)
    return replica


# the update


def test_two_steps_without_momentum_by_hand() -> None:
    """Scalars are divided by P. Terms are added in ascending p, each product and sum is rounded separately, then η
    applies."""
    x, scalars = x0(DIMENSION), np.array([[1.5, -0.7, 0.9], [0.3, 2.1, -1.1]], np.float32)
    for k in range(2):
        delta = np.zeros(DIMENSION, np.float32)
        for p in range(3):
            delta = delta + scalars[k, p] * (np.float32(1) / np.float32(3)) * drawn(1, k, p)
        x = x - np.float32(0.1) * delta
    assert bits(folded(make("decomfl"), commit_of(scalars, 1, float(np.float32(0.1)))).x) == bits(x)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.slow
def test_weight_decay_is_that_of_torchs_sgd(momentum: float) -> None:
    """torch adds λx to the gradient, before momentum. Its first m is the gradient, as here without dampening."""
    log = [commit_of([[1.5], [0.3]], 1, 0.5), commit_of([[-2.0], [0.7]], 2, 0.25)]
    x = torch.nn.Parameter(torch.from_numpy(x0(DIMENSION, np.float64)))
    optimizer = torch.optim.SGD([x], momentum=momentum, weight_decay=0.2)
    for commit in log:
        optimizer.param_groups[0]["lr"] = commit.learning_rate
        for k, (g,) in enumerate(commit.terms[0].scalars.astype(np.float64)):
            x.grad = torch.from_numpy(g * drawn(commit.version, k, 0).astype(np.float64))
            optimizer.step()
    algorithm = make("decomfl", momentum=momentum, dampening=False, weight_decay=0.2)
    found = folded(algorithm, *log, dtype=np.float64).x
    np.testing.assert_allclose(found, x.detach().numpy(), rtol=0, atol=1e-12)
    late = folded(algorithm, commit_of([[1.0]], 1, 0.5, Term(7, seed_of(2), np.zeros((1, 1), np.float32), 0.5))).x
    assert bits(late) == bits(folded(algorithm, commit_of([[1.0]], 1, 0.5)).x), "a late report decays nothing"


@pytest.mark.parametrize(("dampening", "share"), [(True, 0.1), (False, 1.0)])
def test_momentum_by_hand(dampening: bool, share: float) -> None:
    """m ← 0.9 m + 0.1 Δ (equation 8), or + Δ without dampening; x ← x − ηm. The next round goes on from there."""
    x, m, beta = x0(DIMENSION), np.zeros(DIMENSION, np.float32), np.float32(0.9)
    log = [commit_of([[1.5], [0.3]], 1, 0.5), commit_of([[-2.0], [0.7]], 2, 0.25)]
    for version, rate, scalars in [(1, 0.5, (1.5, 0.3)), (2, 0.25, (-2.0, 0.7))]:
        for k, g in enumerate(scalars):
            delta = np.float32(g) * drawn(version, k, 0)
            m = beta * m + (np.float32(share) * delta if dampening else delta)
            x = x - np.float32(rate) * m
    replica = folded(make("decomfl", momentum=0.9, dampening=dampening), *log)
    assert bits(replica.fields) == bits({"x": x, "momentum": m})


def test_equation_8_halves_the_first_step_at_beta_one_half() -> None:
    start, commit = x0(DIMENSION, np.float64), commit_of([[1.0]])
    step = {
        dampening: folded(make("decomfl", momentum=0.5, dampening=dampening), commit, dtype=np.float64).x - start
        for dampening in (True, False)
    }
    np.testing.assert_allclose(step[False], 2 * step[True], rtol=1e-12)


def test_local_steps_start_with_the_momentum_of_the_replica() -> None:
    algorithm = make("decomfl", momentum=0.9, local_steps=2, perturbations=1, learning_rate=0.5)
    still, moving = algorithm.replica(x0(DIMENSION)), algorithm.replica(x0(DIMENSION))
    moving.fields["momentum"] += 1
    plan = algorithm.plan(0, 0, 7)
    first, second = (algorithm.local(r, None, plan, Quadratic(DIMENSION, 0, 0))[0] for r in (still, moving))
    assert first[0] == second[0]
    assert abs(first[1] - second[1]) > 1e-2


def test_without_momentum_there_is_no_such_field() -> None:
    assert set(make("decomfl").replica(x0()).fields) == {"x"}
    assert set(make("decomfl", momentum=0.1).replica(x0()).fields) == {"x", "momentum"}


# a late report


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_late_term_moves_x_by_its_weight_and_leaves_momentum_alone(momentum: float) -> None:
    algorithm = make("decomfl", momentum=momentum)
    late = Term(3, seed_of(9), np.array([[2.0, -1.0]], np.float32), 0.25)
    on_time, both = folded(algorithm, commit_of([[1.0]])), folded(algorithm, commit_of([[1.0]], 1, 0.5, late))
    delta = (np.float32(0) + np.float32(2) * drawn(9, 0, 0) + np.float32(-1) * drawn(9, 0, 1)) / np.float32(2)
    assert bits(both.x) == bits(on_time.x - np.float32(0.125) * delta)
    assert {name for name in both.fields if bits(both.fields[name]) != bits(on_time.fields[name])} == {"x"}


# the wire


@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
def test_a_client_steps_by_the_rounded_scalars_that_it_sends(precision: str) -> None:
    """The second step starts from the model of a client that folded the first step's scalars as received."""
    sizes = {"local_steps": 2, "perturbations": 1, "learning_rate": 0.5, "smoothing": 2.0**-10}
    algorithm = make("decomfl", precision=precision, **sizes)
    plan, replica = algorithm.plan(0, 0, seed_of(1)), algorithm.replica(x0(DIMENSION))
    report, _ = algorithm.local(replica, None, plan, Quadratic(DIMENSION, 0, 0))
    received = algorithm.unpack_report(algorithm.pack_report(plan, report).body, plan)
    assert bits(received) == bits(report)
    objective, x = Quadratic(DIMENSION, 0, 0), folded(algorithm, commit_of(received[:1])).x
    np.copyto(objective.point, x)
    here = objective.loss(1)
    objective.point += np.float32(2.0**-10) * drawn(1, 1, 0)
    measured = (objective.loss(1) - here) / 2.0**-10
    assert report[1, 0] == FORMATS[algorithm.precision].rounded([measured])[0]
    assert precision == "float32" or report[1, 0] != np.float32(measured)


class Steep(Quadratic):
    """A loss whose gradient scalars are `height` times as large."""

    height = 1.0

    def loss(self, step: int) -> float:
        return self.height * super().loss(step)


@pytest.mark.parametrize("name", ["decomfl", "hiso", "mezo"])
@pytest.mark.parametrize(
    ("precision", "height", "is_sent"),
    [
        ("float16", 1e3, True),
        ("float16", 1e9, False),
        ("bfloat16", 1e9, True),
        ("bfloat16", 1e42, False),
        ("float32", 1e9, True),
        ("float32", 1e42, False),
    ],
)
def test_a_scalar_beyond_the_format_is_declined_before_it_is_sent(
    name: str, precision: str, height: float, is_sent: bool
) -> None:
    algorithm, objective = make(name, precision=precision), Steep(DIMENSION, 0, 0)
    objective.height = height
    replica, plan = algorithm.replica(x0(DIMENSION)), algorithm.plan(0, 0, 7)
    before = bits(replica)
    if is_sent:
        assert np.isfinite(algorithm.local(replica, None, plan, objective)[0]).all()
    else:
        with pytest.raises(Declined, match=f"{precision} holds no more than") as declined:
            algorithm.local(replica, None, plan, objective)
        assert declined.value.reason == "overflow"
    assert bits(replica) == before


def test_a_loss_that_is_not_a_number_is_sent_and_refused() -> None:
    algorithm, objective = make("decomfl", precision="float16"), Steep(DIMENSION, 0, 0)
    objective.height = float("inf")
    plan = algorithm.plan(0, 0, 7)
    report, _ = algorithm.local(algorithm.replica(x0(DIMENSION)), None, plan, objective)
    with pytest.raises(ReportRefused) as refused:
        algorithm.check(plan, report)
    assert refused.value.reason == "not-finite"


# fields


@pytest.mark.parametrize("schedule", [{}, {1: 5}, {5: 1, 10: 2}, {-1: 1, 0: 2}])
@pytest.mark.parametrize("field", ["perturbations", "local_steps", "learning_rate", "smoothing"])
def test_a_schedule_must_begin_at_round_0(field: str, schedule: dict[int, int]) -> None:
    with pytest.raises(ValidationError, match="begins at round 0"):
        make("decomfl", **{field: schedule})


def test_a_schedule_holds_each_value_until_the_next_begins() -> None:
    doubling = {0: 25, 500: 50, 1000: 100, 2000: 200}
    scheduled = [
        make("decomfl", perturbations=doubling).plan(round, 0, 1).perturbations for round in (0, 499, 500, 2000)
    ]
    assert scheduled == [25, 25, 50, 200]
    unsorted = make("decomfl", estimator={3: "central", 0: "forward"})
    assert [unsorted.work(round).evaluations for round in (0, 2, 3)] == [11, 11, 20]


@pytest.mark.parametrize("fields", [{"local_steps": 16_001}, {"local_steps": {0: 1, 5: 200}, "perturbations": 100}])
def test_more_scalars_than_a_report_can_hold_are_refused_before_a_run_begins(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="at most 16000 scalars"):
        make("decomfl", **fields)


def test_mezo_accepts_nothing_but_its_own_estimator_and_one_step() -> None:
    for field, value in (("local_steps", 2), ("estimator", "forward")):
        with pytest.raises(ValidationError, match=field):
            make("mezo", **{field: value})


# the gradient's projection (Algorithm 5)


@pytest.mark.parametrize("name", ["decomfl", "hiso"])
@pytest.mark.parametrize("directions", ["gaussian", "rademacher"])
def test_a_projection_is_the_gradient_times_the_direction(name: str, directions: Any) -> None:
    algorithm = make(name, estimator="projection", perturbations=3, directions=directions)
    replica = algorithm.replica(x0(DIMENSION))
    if name == "hiso":
        replica.fields["hessian"][:] = np.linspace(0.5, 4, DIMENSION)
    plan, objective = algorithm.plan(0, 0, 7), Quadratic(DIMENSION, 2, 0)
    report, _ = algorithm.local(replica, None, plan, objective)
    objective.point[:] = x0(DIMENSION)
    gradient, sqrt_hessian = objective.gradient(0).astype(np.float64), np.sqrt(replica.fields.get("hessian", 1.0))
    for p in range(3):
        z = np.empty(DIMENSION, np.float32)
        reference(directions).fill(z, seed=7, step=0, perturbation=p)
        assert report[0, p] == pytest.approx(float(gradient @ (z / sqrt_hessian)), rel=1e-5)


def test_finite_differences_approximate_a_projection() -> None:
    fields = {"perturbations": 4, "local_steps": 2, "smoothing": 1e-2}
    exact, near = (make("decomfl", estimator=estimator, **fields) for estimator in ("projection", "central"))
    replica, plan = exact.replica(x0(100)), exact.plan(0, 0, 3)
    reports = [each.local(replica, None, plan, Quadratic(100, 1, 0, grain=0.0))[0] for each in (exact, near)]
    np.testing.assert_allclose(reports[0], reports[1], rtol=1e-2, atol=1e-3)


def test_scalars_up_to_the_largest_that_is_not_absurd_are_accepted() -> None:
    algorithm = make("decomfl", perturbations=3)
    plan = algorithm.plan(0, 0, 7)
    most = np.float32(ABSURD)
    algorithm.check(plan, np.full(plan.shape, most))
    with pytest.raises(ReportRefused, match="of magnitude 1e\\+12; at most 1e\\+12") as refused:
        algorithm.check(plan, np.array([[0, 0, -np.nextafter(most, np.float32(np.inf))]], np.float32))
    assert refused.value.reason == "absurd"


def test_a_projection_is_refused_without_a_copy_of_the_model() -> None:
    with pytest.raises(ValidationError, match="projection needs revert: copy"):
        make("decomfl", estimator="projection", revert="light")
