"""The Hessian of a loss: its products, its spectrum and its diagonal, against matrices that are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import nn
from torch.nn.functional import cross_entropy

from seedbus.models.mask import Mask
from seedbus.models.masked_problem import MaskedProblem
from seedbus.models.parameters.derivatives import loss_derivatives
from seedbus.models.parameters.flat import FlatModule, initial_values
from seedbus.models.partitions.iid import Iid
from seedbus.models.tasks.digits import Digits
from seedbus.models.tasks.quadratic import Quadratic
from seedbus.scenarios.reporting.meter import Meter
from seedbus.studies.analysis.curvature import Curvature, Effort, measured
from seedbus.studies.analysis.hessian import _reliability
from seedbus.studies.analysis.lanczos import lanczos

pytestmark = pytest.mark.usefixtures("one_thread")


def softmax_hessian(x: NDArray[np.float32], pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Hessian of softmax regression's cross-entropy, mean of (diag p − ppᵀ) ⊗ xxᵀ, in the order of x."""
    weights, biases = x[:640].reshape(10, 64).astype(np.float64), x[640:].astype(np.float64)
    logits = pixels @ weights.T + biases
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    inner = shares[:, :, None] * np.eye(10) - shares[:, :, None] * shares[:, None, :]
    with_one = np.hstack([pixels, np.ones((len(pixels), 1))])
    whole = np.einsum("nab,ni,nj->aibj", inner, with_one, with_one) / len(pixels)
    order = [65 * a + i for a in range(10) for i in range(64)] + [65 * a + 64 for a in range(10)]
    matrix: NDArray[np.float64] = whole.reshape(650, 650)[np.ix_(order, order)]
    return matrix


def test_lanczos_finds_the_whole_spectrum_and_functions_of_a_matrix() -> None:
    rng = np.random.Generator(np.random.Philox(1))
    orthogonal = np.linalg.qr(rng.standard_normal((40, 40)))[0]
    values = np.sort(rng.standard_normal(40))
    matrix, start = orthogonal @ np.diag(values) @ orthogonal.T, rng.standard_normal(40)
    found = lanczos(lambda v: matrix @ v, start, 40)
    assert np.allclose(found.nodes, values, atol=1e-10)
    assert np.allclose(found.applied(np.abs), orthogonal @ (np.abs(values) * (orthogonal.T @ start)), atol=1e-8)
    few = lanczos(lambda v: matrix @ v, start, 12)  # moments up to degree 23 are exact
    for power in (1, 2, 7, 23):
        exactly = float(start @ np.linalg.matrix_power(matrix, power) @ start)
        assert few.norm**2 * float(few.weights @ few.nodes**power) == pytest.approx(exactly, rel=1e-9)


@pytest.mark.parametrize("exact_up_to", [0, 9])
def test_products_that_are_not_finite_are_no_curvature(exact_up_to: int) -> None:
    class Overflowing:
        def gradient(self) -> NDArray[np.float64]:
            return np.ones(3)

        def times(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.full_like(vector, np.inf)

        def block(self, places: NDArray[np.int64], advance: Callable[[float], None]) -> NDArray[np.float64]:
            return np.full((places.size, places.size), np.inf)

    with pytest.raises(FloatingPointError):
        measured(Overflowing(), 3, Effort(exact_up_to=exact_up_to), Meter(is_quiet=True), "a model")


def test_lanczos_ends_where_its_basis_spans_an_invariant_subspace() -> None:
    values = np.repeat([3.0, -1.0, 0.0], 20)
    found = lanczos(lambda v: values * v, np.ones(60), 30)
    assert np.allclose(found.nodes, [-1, 0, 3]) and np.allclose(found.weights, 1 / 3)


def test_the_hessian_of_a_masked_network_is_rows_and_columns_of_the_whole_one() -> None:
    inside: Any = Digits(model="softmax").bind(seed=1, clients=3, partition=Iid())
    mask = Mask(rule="random", density=0.05)
    problem = MaskedProblem(inside, mask, 1)
    places = mask.choose(inside, inside.x0(), 1)
    x = problem.x0() + np.float32(0.3)
    samples = inside.splits["train"]
    with problem.derivatives(x, 100) as derivatives:
        chosen = np.linspace(0, samples.labels.size - 1, 100).astype(np.int64)
        inputs, _ = inside.tensors(samples, chosen)
        found = measured(derivatives, 32, Effort(), Meter(is_quiet=True), "test")
        rows = np.array([derivatives.times(unit) for unit in np.eye(32)])
    with inside.derivatives(problem.whole(x), 100) as derivatives:
        assert np.array_equal(found.gradient, derivatives.gradient()[places])
    matrix = softmax_hessian(problem.whole(x), inputs.flatten(1).double().numpy())[np.ix_(places, places)]
    assert np.allclose(rows, matrix, atol=1e-5 * matrix.max()) and np.abs(matrix).max() > 0.1
    assert np.allclose(found.nodes[0], np.linalg.eigvalsh(matrix), atol=1e-5 * matrix.max())


@pytest.mark.slow
def test_the_spectrum_of_a_small_network_is_that_of_its_known_hessian() -> None:
    problem: Any = Digits(model="softmax").bind(seed=1, clients=3, partition=Iid())
    samples, x = problem.splits["train"], 3 * problem.x0()
    with problem.derivatives(x, 150) as derivatives:
        chosen = np.linspace(0, samples.labels.size - 1, 150).astype(np.int64)
        inputs, _ = problem.tensors(samples, chosen)
        matrix = softmax_hessian(x, inputs.flatten(1).double().numpy())
        whole = measured(derivatives, 650, Effort(exact_up_to=650), Meter(is_quiet=True), "test")
        effort = Effort(probes=12, steps=25, diagonal_probes=40, exact_up_to=0)
        probed = measured(derivatives, 650, effort, Meter(is_quiet=True), "test")
    values = np.linalg.eigvalsh(matrix)
    assert np.allclose(whole.nodes[0], values, atol=1e-5 * values[-1])
    assert np.allclose(whole.diagonal, np.diag(matrix), atol=1e-5 * values[-1])
    assert whole.trace().value == pytest.approx(np.trace(matrix), rel=1e-5) and whole.trace().error == 0
    assert probed.highest == pytest.approx(values[-1], rel=1e-4)
    for function in (np.abs, np.square):
        estimate = probed.trace(function)
        assert estimate.error is not None and estimate.error < 0.2 * estimate.value
        assert abs(estimate.value - function(values).sum()) < 4 * estimate.error
    variance = (matrix**2).sum() - (np.diag(matrix) ** 2).sum()  # of a probe's estimates, over all coordinates
    assert 0.6 < 52 * float(((probed.diagonal - np.diag(matrix)) ** 2).sum()) / variance < 1.5
    inverse = 1 / (np.arange(650) + 100.0)
    zeta = probed.whitened(inverse)
    assert zeta.error is not None and abs(zeta.value - inverse @ np.diag(matrix)) < 4 * zeta.error


def test_the_products_of_a_convolution_are_differences_of_its_gradients() -> None:
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 4 * 5, 4))
    flat, rng = FlatModule(module), np.random.Generator(np.random.Philox(2))
    inputs = torch.from_numpy(rng.standard_normal((30, 2, 6, 7)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, 4, 30))
    parts = [slice(0, 20), slice(20, 30)]
    losses = [lambda part=part: cross_entropy(module(inputs[part]), labels[part], reduction="sum") for part in parts]
    x, v = 3 * initial_values(flat.module, rng), rng.standard_normal(flat.dimension)
    v /= np.linalg.norm(v)
    with loss_derivatives(flat, x, losses) as derivatives:
        product = derivatives.times(v)
    ends = []
    for side in (1, -1):
        with loss_derivatives(flat, (x + side * 1e-2 * v).astype(np.float32), losses) as derivatives:
            ends.append(derivatives.gradient())
    assert np.linalg.norm((ends[0] - ends[1]) / 2e-2 - product) < 0.002 * np.linalg.norm(product)


def test_rows_of_the_hessian_are_products_and_need_each_gradient_once() -> None:
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 4 * 5, 4))
    flat, rng = FlatModule(module), np.random.Generator(np.random.Philox(2))
    inputs = torch.from_numpy(rng.standard_normal((30, 2, 6, 7)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, 4, 30))
    computed, advanced = list[slice](), list[float]()

    def loss(part: slice) -> torch.Tensor:
        computed.append(part)
        return cross_entropy(module(inputs[part]), labels[part], reduction="sum")

    losses = [lambda part=part: loss(part) for part in (slice(0, 20), slice(20, 30))]
    places = np.array([300, 0, 20, 55, 56, 60, 57])  # of all four parameters, in any order
    with loss_derivatives(flat, 3 * initial_values(flat.module, rng), losses) as derivatives:
        rows = derivatives.block(places, advanced.append)
        assert len(computed) == 2 and sum(advanced) == len(places)
        for row, place in zip(rows, places, strict=True):
            assert np.array_equal(row, derivatives.times(np.eye(flat.dimension)[place])[places])
    assert np.abs(rows).max() > 0.1


def test_one_probe_does_not_tell_how_reliable_a_diagonal_is() -> None:
    problem: Any = Quadratic(dimension=50).bind(seed=1, clients=2, partition=Iid())

    def found(**effort: Any) -> float | None:
        with problem.derivatives(problem.x0(), 1) as derivatives:
            return _reliability(measured(derivatives, 50, Effort(**effort), Meter(is_quiet=True), "test"))

    assert found(exact_up_to=0, probes=1, diagonal_probes=0) is None and found(exact_up_to=50) is None
    assert found(exact_up_to=0, probes=1, diagonal_probes=1, steps=50) == pytest.approx(1)  # of a diagonal matrix


def test_the_reliability_of_a_diagonal_is_how_two_estimates_of_all_probes_go_together() -> None:
    rng = np.random.Generator(np.random.Philox(5))
    probes = rng.standard_normal(5000) + 2 * rng.standard_normal((16, 5000))
    one, nothing = probes[:8], np.zeros((0, 5000))
    found = _reliability(Curvature(probes[0], [], [], one, nothing, products=8, is_exact=False))
    expected = spearmanr(one.mean(axis=0), probes[8:].mean(axis=0)).statistic
    assert found == pytest.approx(expected, abs=0.03) and expected < 0.7


def test_the_hessian_of_a_quadratic_is_its_curvature() -> None:
    problem: Any = Quadratic(dimension=50).bind(seed=1, clients=2, partition=Iid())
    with problem.derivatives(problem.x0(), 1) as derivatives:
        found = measured(derivatives, 50, Effort(), Meter(is_quiet=True), "test")
    assert np.array_equal(found.diagonal, problem.curvature)
    assert np.allclose(found.nodes[0], problem.curvature) and found.smoothness == pytest.approx(1)
    assert found.whitened(1 / problem.curvature).value == pytest.approx(50)  # H = Σ has ζ = d
