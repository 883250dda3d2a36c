"""Directions: the format of the random stream, and every backend against the reference, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from look_ups import fetching, gathering
from scipy.special import ndtri

from seedbus.algorithms.directions import Kind, directions, reference
from seedbus.algorithms.directions.philox import key_words, philox4x32
from seedbus.algorithms.directions.quantiles import compute_quantiles, quantiles

KINDS: tuple[Kind, ...] = ("gaussian", "rademacher")

BACKENDS = (reference, gathering, fetching)

words = st.integers(0, 2**32 - 1)
streams = st.fixed_dictionaries({"seed": st.integers(0, 2**64 - 1), "step": words, "start": st.just(0)})
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
each_kind = pytest.mark.parametrize("kind", KINDS)
each_backend = pytest.mark.parametrize("backend", BACKENDS)


def drawn(source: Any, size: int, dtype: Any = np.float32, **stream: int) -> np.ndarray:
    out = np.full(size, np.nan, dtype)
    source.fill(out, **{"seed": 1, "step": 2, "perturbation": 3} | stream)
    return out


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.dtype == right.dtype and left.tobytes() == right.tobytes()


# the stream


@pytest.mark.parametrize(
    ("counter", "key", "block"),
    [
        ((0,) * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_reproduces_the_published_test_vectors(
    counter: tuple[int, ...], key: tuple[int, int], block: str
) -> None:
    assert " ".join(f"{word:08x}" for word in philox4x32(np.array(counter, np.uint32), key)) == block


def test_the_table_holds_normal_quantiles_and_is_antisymmetric_to_the_bit() -> None:
    table = quantiles()
    upper = ndtri((np.arange(32768, 65536) + 0.5) / 65536).astype(np.float32)
    assert same(table[32768:], upper)
    assert same(table[:32768], -upper[::-1])
    assert same(table, compute_quantiles())
    assert not table.flags.writeable


def test_the_table_has_the_moments_that_the_theory_requires() -> None:
    table = quantiles().astype(np.float64)
    assert table.sum() == 0
    assert np.mean(table**2) == pytest.approx(1, abs=2.1e-5)
    assert np.mean(table**4) / np.mean(table**2) ** 2 == pytest.approx(2.9992, abs=1e-4)
    assert table.max() == pytest.approx(4.3249, abs=1e-4)


def test_a_damaged_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbus.algorithms.directions.quantiles.SHA256", "0" * 64)
    with pytest.raises(RuntimeError, match="damaged"):
        quantiles.__wrapped__()


@each_backend
def test_gaussian_coordinates_are_quantiles_numbered_by_sixteen_bits(backend: Any) -> None:
    """The documented layout is computed by hand, so that a change is noticed."""
    z = drawn(backend("gaussian"), 64, seed=2**63 + 5, step=11, perturbation=13, start=128)
    for i in range(64):
        counter = np.array([(128 + i) // 8, 11, 13, 0], np.uint32)
        word = int(philox4x32(counter, key_words(2**63 + 5))[i % 8 // 2])
        assert z[i] == quantiles()[word >> 16 if i % 2 else word & 0xFFFF]


@each_backend
def test_rademacher_coordinates_are_bits(backend: Any) -> None:
    z = drawn(backend("rademacher"), 200, seed=2**63 + 5, step=11, perturbation=13, start=128)
    for i in range(200):
        counter = np.array([(128 + i) // 128, 11, 13, 1], np.uint32)
        word = int(philox4x32(counter, key_words(2**63 + 5))[i % 128 // 32])
        assert z[i] == (1 if word >> i % 32 & 1 else -1)


@each_kind
@each_backend
def test_no_two_seeds_steps_or_perturbations_share_a_stream(kind: Kind, backend: Any) -> None:
    values = (0, 1, 2, 2**31, 2**32 - 1)
    keys = [(s, k, p) for s in (*values, 2**32, 2**32 + 1, 2**64 - 1) for k in values for p in values]
    source = backend(kind)
    assert len({drawn(source, 256, seed=s, step=k, perturbation=p).tobytes() for s, k, p in keys}) == len(keys)


@each_kind
def test_coordinates_are_centred_of_unit_variance_and_uncorrelated(kind: Kind) -> None:
    z = np.stack([drawn(directions(kind), 1 << 20, perturbation=p) for p in range(4)]).astype(np.float64)
    assert np.abs(z.mean(axis=1)).max() < 5e-3
    assert np.abs((z**2).mean(axis=1) - 1).max() < 7e-3
    assert (z**4).mean() == pytest.approx(2.9992 if kind == "gaussian" else 1, abs=0.03)
    assert np.abs(z @ z.T / z.shape[1] - np.eye(4)).max() < 7e-3
    assert np.abs((z[:, 1:] * z[:, :-1]).mean(axis=1)).max() < 5e-3


@each_kind
@each_backend
def test_a_direction_does_not_depend_on_where_its_block_starts(kind: Kind, backend: Any) -> None:
    full = drawn(backend(kind), 9000)
    for start in (128, 1280, 4096, 8960):
        assert same(drawn(backend(kind), 9000 - start, start=start), full[start:])


# the arithmetic


@each_kind
@settings(max_examples=40)
@given(
    size=st.one_of(st.integers(0, 700), st.integers(4000, 9000)),
    groups=st.one_of(st.integers(0, 2**20), st.integers(2**28 - 2**20, 2**28 - 71)),  # where a gaussian direction ends
    stream=streams,
    perturbation=words,
    coefficients=st.lists(floats, max_size=5),
    is_divided=st.booleans(),
    magnitude=st.sampled_from([1e-44, 1e-38, 1e-3, 1.0, 1e20, 3e38]),
)
def test_compiled_directions_equal_the_reference_bit_for_bit(
    kind: Kind,
    size: int,
    groups: int,
    stream: dict[str, int],
    perturbation: int,
    coefficients: list[float],
    is_divided: bool,
    magnitude: float,
) -> None:
    stream = stream | {"start": 128 * groups}
    generator = np.random.default_rng(size)
    x = (generator.uniform(-1, 1, size) * magnitude).astype(np.float32)
    divisor = np.sqrt(generator.uniform(1e-8, 4, size).astype(np.float32)) if is_divided else None
    scale = coefficients[0] if coefficients else 1e-3
    results = []
    for backend in BACKENDS:
        filled, summed, moved = (np.full(size, np.nan, np.float32) for _ in range(3))
        source = backend(kind)
        source.fill(filled, perturbation=perturbation, **stream)
        source.accumulate(summed, coefficients, divisor=divisor, **stream)
        source.perturb(moved, x, scale, perturbation=perturbation, divisor=divisor, **stream)
        results.append((filled, summed, moved))
    for expected, *found in zip(*results, strict=True):
        for each in found:
            np.testing.assert_array_equal(each.view(np.uint32), expected.view(np.uint32))


@each_kind
@each_backend
def test_products_are_rounded_before_they_are_added(kind: Kind, backend: Any) -> None:
    """A fused multiply-add would keep bits that rounding the product drops; a quarter of the coordinates would
    differ."""
    generator = np.random.default_rng(5)
    x, root = (generator.uniform(0.5, 2, 6000).astype(np.float32) for _ in range(2))
    scale, moved = np.float32(0.3), np.empty(6000, np.float32)
    quotient = drawn(backend(kind), 6000) / root
    product = scale * quotient
    fused = (x.astype(np.float64) + np.float64(scale) * quotient.astype(np.float64)).astype(np.float32)
    backend(kind).perturb(moved, x, 0.3, seed=1, step=2, perturbation=3, divisor=root)
    assert same(moved, x + product)
    assert not same(moved, fused)


@each_kind
@each_backend
def test_coefficients_are_rounded_to_float32_and_never_promote(kind: Kind, backend: Any) -> None:
    coefficients = [1 / p for p in range(3, 33)]
    by_hand: Any = np.zeros(3000, np.float32)
    exact = np.zeros(3000)
    for p, coefficient in enumerate(coefficients):
        z = drawn(backend(kind), 3000, perturbation=p)
        by_hand = by_hand + np.float32(coefficient) * z
        exact += coefficient * z.astype(np.float64)
    out = np.empty(3000, np.float32)
    backend(kind).accumulate(out, coefficients, seed=1, step=2)
    assert same(out, by_hand)
    assert not same(out, exact.astype(np.float32))
    root = np.linspace(0.1, 3, 3000, dtype=np.float32)
    backend(kind).accumulate(out, coefficients, seed=1, step=2, divisor=root)
    assert same(out, by_hand / root), "a divisor divides the sum, once"


@each_kind
def test_the_float64_reference_widens_the_same_coordinates(kind: Kind) -> None:
    z = drawn(reference(kind), 1000, np.float64)
    assert same(z, drawn(reference(kind), 1000).astype(np.float64))
    x, out = np.linspace(0, 1, 1000), np.empty(1000)
    reference(kind).perturb(out, x, 0.1, seed=1, step=2, perturbation=3, divisor=x + 1)
    assert same(out, x + 0.1 * (z / (x + 1)))


@each_kind
@each_backend
def test_a_vector_may_be_perturbed_in_place(kind: Kind, backend: Any) -> None:
    x, out = np.linspace(0, 1, 5000, dtype=np.float32), np.empty(5000, np.float32)
    backend(kind).perturb(out, x, 0.1, seed=1, step=2, perturbation=3)
    backend(kind).perturb(x, x, 0.1, seed=1, step=2, perturbation=3)
    assert same(x, out)


# refusals


@each_kind
@each_backend
@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        ({"start": 64}, "multiple of 128"),
        ({"start": -128}, "multiple of 128"),
        ({"start": 2**39}, "end at"),
        ({"seed": 2**64}, "64 bits"),
        ({"seed": -1}, "64 bits"),
        ({"step": 2**32}, "32 bits"),
        ({"perturbation": -1}, "32 bits"),
    ],
)
def test_numbers_that_the_counter_cannot_hold_are_refused(
    kind: Kind, backend: Any, stream: dict[str, int], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        drawn(backend(kind), 10, **stream)


@each_backend
def test_vectors_that_do_not_match_are_refused(backend: Any) -> None:
    out, short, wide = np.empty(10, np.float32), np.ones(9, np.float32), np.ones(10)
    for other in (short, wide):
        with pytest.raises(ValueError, match="beside float32"):
            backend("gaussian").accumulate(out, [1.0], seed=1, step=2, divisor=other)
        with pytest.raises(ValueError, match="beside float32"):
            backend("gaussian").perturb(out, other, 1.0, seed=1, step=2, perturbation=0)


# machines


def test_importing_the_package_imports_no_compiler_and_no_framework() -> None:
    script = (
        "import sys, seedbus.algorithms.directions; print([m for m in ('numba', 'scipy', 'torch') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
