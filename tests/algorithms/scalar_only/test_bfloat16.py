"""`arithmetic: bfloat16`: x takes two bytes a coordinate, and every step is computed in float32 and rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from algorithm_cases import CONFIGURATIONS, make, rehearse, x0
from devices import there
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.algorithms.directions import selection
from seedbus.algorithms.directions.bfloat16 import narrowed, widened
from seedbus.algorithms.scalar_only.block import Block
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.precision import FORMATS

CASES = [
    pytest.param(name, fields, id=f"{name}-{title}")
    for name, cases in CONFIGURATIONS.items()
    for title, fields in cases.items()
    if fields.get("arithmetic") == "bfloat16"
]
each_case = pytest.mark.parametrize(("name", "fields"), CASES)


@settings(max_examples=20)
@given(st.integers(0, 2**16 - 1), st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=40))
def test_numbers_are_rounded_as_the_wires_are_in_host_memory_and_on_a_device(upper: int, lowers: list[int]) -> None:
    """With lower halves below, at and above a tie, whatever the upper half is, infinity and NaN included."""
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, *lowers], np.uint32)
    x = (np.uint32(upper << 16) + lower).view(np.float32)
    form = FORMATS["bfloat16"]
    expected = form.widen(form.narrow(x))
    for place in (np.array, there):
        bits = narrowed(place(x))
        assert bits.dtype == np.int16 and bits.size == x.size
        values = np.asarray(widened(bits))
        np.testing.assert_array_equal(values, expected)
        is_number = ~np.isnan(expected)
        assert values[is_number].tobytes() == expected[is_number].tobytes()


@each_case
def test_numpy_and_numba_fold_to_the_same_bits(
    name: str, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = rehearse(make(name, **fields), 4)
    monkeypatch.setattr(selection, "directions", selection.reference)
    plain = rehearse(make(name, **fields), 4)
    assert plain.replica.digest() == compiled.replica.digest()


@each_case
def test_x_takes_two_bytes_and_a_step_rounds_what_float32_would_make_of_it(name: str, fields: dict[str, Any]) -> None:
    """The reference: a float32 replica that begins at the rounded x, and is rounded after every commit of one step."""
    run, form = rehearse(make(name, **fields | {"local_steps": 1}), 4), FORMATS["bfloat16"]
    wide = run.algorithm.model_copy(update={"arithmetic": "float"})
    replica = wide.replica(form.widen(form.narrow(x0())))
    for commit in run.commits:
        wide.apply(replica, [commit])
        np.copyto(replica.x, form.widen(form.narrow(replica.x)))
    assert np.asarray(widened(run.replica.x)).tobytes() == replica.x.tobytes() != wide.replica(x0()).x.tobytes()
    assert run.replica.x.nbytes == 2 * run.replica.dimension


def test_a_step_below_half_a_unit_in_the_last_place_is_lost() -> None:
    """And however many such steps there are: rounding is to nearest, and not stochastic."""
    small = make("decomfl", arithmetic="bfloat16", learning_rate=1e-5, perturbations=2)
    run = rehearse(small, 5)
    x, started = np.asarray(widened(run.replica.x)), np.asarray(widened(run.newcomer().x))
    moved = np.asarray(rehearse(make("decomfl", learning_rate=1e-5, perturbations=2), 5).replica.x) != x0()
    assert moved.mean() > 0.9 and (x != started).mean() < 0.1


class Halving(DeComFL):
    """As a plug-in may: a step that writes x itself."""

    def step(self, block: Block, learning_rate: float) -> None:
        x, real = block.fields["x"], block.delta.dtype.type
        x *= real(1 - learning_rate / 128)
        x -= real(learning_rate) * block.delta


def test_every_step_is_rounded_whoever_takes_it_so_that_grouping_changes_no_bit() -> None:
    algorithm = Halving(arithmetic="bfloat16", local_steps=2, perturbations=2, learning_rate=0.5)
    run = rehearse(algorithm, 4)
    together, alone = run.newcomer(), run.newcomer()
    algorithm.apply(together, run.commits)
    for commit in run.commits:
        algorithm.apply(alone, [commit])
    assert together.digest() == alone.digest() == run.replica.digest() != run.newcomer().digest()
