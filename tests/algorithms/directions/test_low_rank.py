"""Directions of low rank: products in a fixed order, the same bits in any block and wherever the vector lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seedbus.algorithms.directions import law_of, reference
from seedbus.algorithms.directions import low_rank as module
from seedbus.algorithms.directions.low_rank import Layers, LowRankDirections

SHAPES = [(40, 30), (7,), (3, 2, 5), (2, 700), (1,)]
D = sum(int(np.prod(shape)) for shape in SHAPES)
R = 3
SEED, V_SEED = 2**63 + 5, 99


def source(law: str = "gaussian") -> LowRankDirections:
    return LowRankDirections(law_of(law), Layers.of(SHAPES, R), V_SEED)


def by_hand(law: str, weights: list[float], dtype: Any = np.float32) -> Any:
    """Return the sum over p of weights[p] · z(SEED, 2, p), coordinate by coordinate."""
    u_size = R * (40 + 3 + 2) + 7 + 1
    u, v = np.empty(u_size, dtype), np.empty(R * (30 + 10 + 700), dtype)
    reference(law).accumulate(u, np.array(weights, dtype), seed=SEED, step=2)
    reference(law).fill(v, seed=V_SEED, step=0, perturbation=0)
    z, at_u, at_v, factor = [], 0, 0, dtype(1 / np.sqrt(R))
    for rows, columns in ((40, 30), (7, 0), (3, 10), (2, 700), (1, 0)):
        for i in range(rows):
            for c in range(columns):
                total = u[at_u + R * i] * v[at_v + c]
                for q in range(1, R):
                    total = total + u[at_u + R * i + q] * v[at_v + q * columns + c]
                z.append(total * factor)
            if not columns:
                z.append(u[at_u + i])
        at_u, at_v = at_u + rows * (R if columns else 1), at_v + R * columns
    return np.array(z, dtype)


@pytest.mark.parametrize("law", ["gaussian", "rademacher"])
def test_every_operation_is_rounded_by_itself_in_the_order_of_the_definition(law: str) -> None:
    out = np.empty(D, np.float32)
    source(law).accumulate(out, [0.5, -1.25], seed=SEED, step=2)
    assert out.tobytes() == by_hand(law, [0.5, -1.25]).tobytes()
    source(law).fill(out, seed=SEED, step=2, perturbation=0)
    z = by_hand(law, [1.0])
    assert np.array_equal(out, z)  # 0 + 1·u is u but for the sign of a 0
    x, half = np.linspace(-1, 1, D, dtype=np.float32), np.full(D, 0.5, np.float32)
    source(law).perturb(out, x, 1e-3, seed=SEED, step=2, perturbation=0, divisor=half)
    assert np.array_equal(out, x + np.float32(1e-3) * (z / half))


def test_blocks_and_devices_have_the_bits_of_the_whole() -> None:
    torch = pytest.importorskip("torch", reason="vectors on a device are torch's")
    from seedbus.tensors import TensorVector

    whole, x = np.empty(D, np.float32), np.linspace(-1, 1, D, dtype=np.float32)
    source().accumulate(whole, [0.5, -1.25], seed=SEED, step=2)
    for start in range(0, D, 128):
        part = np.empty(min(128, D - start), np.float32)
        source().accumulate(part, [0.5, -1.25], seed=SEED, step=2, start=start)
        assert part.tobytes() == whole[start : start + 128].tobytes()
    on_device: Any = TensorVector(torch.empty(D))
    source().accumulate(on_device, [0.5, -1.25], seed=SEED, step=2)
    assert np.asarray(on_device).tobytes() == whole.tobytes()
    source().perturb(whole, x, 1e-3, seed=SEED, step=2, perturbation=1)
    source().perturb(on_device, TensorVector(torch.from_numpy(x)), 1e-3, seed=SEED, step=2, perturbation=1)  # type: ignore[arg-type]
    assert np.asarray(on_device).tobytes() == whole.tobytes()


def test_numpy_computes_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, plain = np.empty(D, np.float32), np.empty(D, np.float32)
    source().accumulate(compiled, [0.3, 0.7, -2.0], seed=8, step=1)
    module._drawn.cache_clear()
    monkeypatch.setattr(module, "directions", reference)
    monkeypatch.setattr(module, "_fastest", lambda out: module._products)
    source().accumulate(plain, [0.3, 0.7, -2.0], seed=8, step=1)
    assert compiled.tobytes() == plain.tobytes()


@pytest.mark.slow
def test_a_matrix_has_rank_r_variance_1_and_one_row_space_for_all_seeds() -> None:
    layers = Layers.of([(400, 300)], 2)
    z = np.empty((3, 400 * 300), np.float64)
    for number, row in enumerate(z):
        LowRankDirections(law_of("gaussian"), layers, V_SEED).fill(row, seed=number, step=0, perturbation=0)
    assert np.linalg.matrix_rank(z[0].reshape(400, 300)) == 2
    assert np.linalg.matrix_rank(z.reshape(1200, 300)) == 2  # V is the same
    assert z.mean() == pytest.approx(0, abs=0.02) and z.var() == pytest.approx(1, abs=0.15)
    other = np.empty(400 * 300)
    LowRankDirections(law_of("gaussian"), layers, V_SEED + 1).fill(other, seed=0, step=0, perturbation=0)
    assert np.linalg.matrix_rank(np.vstack([z.reshape(1200, 300), other.reshape(400, 300)])) == 4
