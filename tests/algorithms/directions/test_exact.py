"""Exact directions: the table of whole quantiles, every backend against NumPy, and sums that depend on no order.

Triton's kernel is in test_triton.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from devices import TORCH_DEVICE, there
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.algorithms.directions import TERM, Kind, Terms, exact_directions, exact_reference, law_of, merged
from seedbus.algorithms.directions.exact import MOST_Q, rounded_table, whole_table
from seedbus.algorithms.directions.kernels import PIECE
from seedbus.algorithms.directions.laws.law import mirrored
from seedbus.algorithms.directions.quantiles import quantiles
from seedbus.algorithms.directions.tensor_directions import exact_on_device

KINDS: tuple[Kind, ...] = ("gaussian", "rademacher")
each_kind = pytest.mark.parametrize("kind", KINDS)
dimensions = st.one_of(st.integers(1, 300), st.integers(PIECE - 130, PIECE + 130), st.just(9_001))
magnitudes = st.sampled_from([1, 2**18, 2**27, 2**31 - 1, 2**45, 2**62])


class OnDevice:
    """The exact directions of the tests' device, as a NumPy backend: vectors are copied there and back."""

    def __init__(self, kind: Kind) -> None:
        self.source = exact_on_device(law_of(kind), TORCH_DEVICE)

    def __getattr__(self, name: str) -> Any:
        def call(out: Any, *arguments: Any, **where: Any) -> None:
            result = there(out)
            moved = (there(each) if getattr(each, "dtype", None) == np.float32 else each for each in arguments)
            getattr(self.source, name)(result, *moved, **where)
            out[:] = result

        return call


backends = pytest.mark.parametrize("of", [exact_directions, OnDevice], ids=["numba", "tensors"])


def drawn(seed: int, count: int, magnitude: int) -> Terms:
    """Return terms of several seeds, steps and perturbations, some of the same direction."""
    generator, terms = np.random.default_rng(seed), np.zeros(count, TERM)
    for name, limit in {"low": 2**32, "high": 2**32, "step": 3, "perturbation": 2**32}.items():
        terms[name] = generator.integers(0, limit, count)
    terms["number"] = generator.integers(-magnitude, magnitude, count, endpoint=True)
    return np.concatenate([terms, terms[::3]])


def summed(kind: Kind, dimension: int, *parts: Terms, of: Any = exact_directions) -> bytes:
    sums = np.arange(dimension, dtype=np.int64) << 20
    for part in parts:
        of(kind).add_terms(sums, part, start=256)
    return sums.tobytes()


def test_whole_quantiles_have_mean_0_by_antisymmetry_and_the_variance_of_the_float_table() -> None:
    q = mirrored(whole_table(law_of("gaussian")))
    assert q.dtype == np.int16 and q.size == 2**16
    assert (q == -q[::-1]).all()
    assert int(q.astype(np.int64).sum()) == 0
    assert q.max() == MOST_Q
    z, table = q.astype(np.float64) / 4096, quantiles().astype(np.float64)
    assert np.abs(z - table).max() <= 2**-13
    assert abs((z * z).mean() - (table * table).mean()) < 1e-6
    assert abs((z**4).mean() - (table**4).mean()) < 1e-5
    assert (mirrored(rounded_table(law_of("gaussian"))) == z).all()


@pytest.mark.few(2)
@backends
@each_kind
@settings(max_examples=25)
@given(
    dimension=dimensions,
    count=st.integers(0, 40),
    magnitude=magnitudes,
    seed=st.integers(0, 99),
)
def test_every_backend_adds_terms_to_the_integers_of_the_reference(
    of: Any, kind: Kind, dimension: int, count: int, magnitude: int, seed: int
) -> None:
    terms = drawn(seed, count, magnitude)
    assert summed(kind, dimension, terms, of=of) == summed(kind, dimension, terms, of=exact_reference)


@each_kind
@settings(max_examples=25)
@given(data=st.data(), dimension=dimensions, magnitude=magnitudes)
def test_any_order_any_grouping_and_any_partial_sums_give_the_same_bits(
    kind: Kind, data: st.DataObject, dimension: int, magnitude: int
) -> None:
    terms = drawn(7, 24, magnitude)
    shuffled = terms[data.draw(st.permutations(range(terms.size)))]
    cuts = data.draw(st.sets(st.integers(1, terms.size - 1)))
    parts = np.split(shuffled, sorted(cuts))
    compact = [merged(part) if data.draw(st.booleans()) else part for part in parts]
    assert summed(kind, dimension, *compact) == summed(kind, dimension, terms)


@each_kind
def test_the_direction_that_is_measured_along_is_the_one_that_is_added(kind: Kind) -> None:
    """z = q · 2⁻¹², to the last bit, in all backends."""
    where: dict[str, Any] = {"seed": 5 << 40 | 3, "step": 2, "perturbation": 9, "start": 256}
    term = np.array([(3, 5 << 8, 2, 9, 1)], TERM)
    for of in (exact_directions, exact_reference, OnDevice):
        source, z, moved = of(kind), np.empty(1_003, np.float32), np.empty(1_003, np.float32)
        sums = np.zeros(1_003, np.int64)
        source.fill(z, **where)
        source.add_terms(sums, term, start=256)
        assert (z == sums / 4096).all()
        x = np.linspace(0.1, 1, 1_003, dtype=np.float32)
        source.perturb(moved, x, 1e-3, **where)
        assert (moved == x + np.float32(1e-3) * z).all()


def test_what_no_exact_backend_can_add_is_refused() -> None:
    terms = np.zeros(1, TERM)
    for of in (exact_directions, exact_reference, OnDevice):
        for sums, wrong in ((np.zeros(128, np.float32), terms), (np.zeros(128, np.int64), np.zeros(1))):
            with pytest.raises(ValueError, match="contiguous int64"):
                of("gaussian").add_terms(sums, wrong)
        with pytest.raises(ValueError, match="multiple of 128"):
            of("gaussian").add_terms(np.zeros(128, np.int64), terms, start=7)
