"""Vectors on a device: NumPy's functions give the bits there that they give on arrays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from devices import there as on_device
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor

from seedbus.tensors import TensorVector, wide

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
VECTORS = st.integers(1, 70).flatmap(lambda size: arrays.arrays(np.float32, (2, size), elements=FLOATS))
SCALARS = st.one_of(FLOATS, FLOATS.map(np.float32), st.integers(-5, 5), st.floats())
BINARY = ("add", "subtract", "multiply", "divide", "less", "greater_equal", "equal", "maximum", "minimum", "copysign")
UNARY = ("sqrt", "square", "negative", "absolute", "sign", "isfinite", "isnan", "floor", "exp")


def bits(value: Any) -> Any:
    """Return what must be equal; any NaN equals any other, for devices choose its payload."""
    array = np.asarray(value)
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
    return array.dtype, array.tobytes()


@pytest.fixture(autouse=True)
def without_warnings() -> Any:
    with np.errstate(all="ignore"):
        yield


@pytest.mark.few(5)
@pytest.mark.parametrize("name", BINARY)
@settings(max_examples=30)
@given(pair=VECTORS, scalar=SCALARS)
def test_a_function_of_two_vectors_or_of_one_and_a_number_has_numpys_bits(name: str, pair: Any, scalar: Any) -> None:
    function = getattr(np, name)
    first, second = pair
    here = [function(first, second), function(first, scalar), function(scalar, first)]
    there = [
        function(on_device(first), on_device(second)),
        function(on_device(first), scalar),
        function(scalar, on_device(first)),
    ]
    assert list(map(bits, there)) == list(map(bits, here))
    assert all(isinstance(each, TensorVector) for each in there)
    assert bits(function(on_device(first), second)) == bits(here[0]), "an array beside a vector on a device"


@pytest.mark.few(8)
@pytest.mark.parametrize("name", UNARY)
@settings(max_examples=20)
@given(pair=VECTORS)
def test_a_function_of_one_vector_has_numpys_bits_and_writes_where_it_should(name: str, pair: Any) -> None:
    function = getattr(np, name)
    here = function(pair[0])
    assert bits(function(on_device(pair[0]))) == bits(here)
    out = on_device(np.zeros_like(here))
    assert function(on_device(pair[0]), out=out) is out and bits(out) == bits(here)
    array = np.zeros_like(here)
    assert function(on_device(pair[0]), out=array) is array and bits(array) == bits(here)


@given(values=VECTORS, low=st.integers(0, 3), high=st.integers(4, 80), scalar=FLOATS)
def test_slices_are_views_and_operators_change_them_in_place(values: Any, low: int, high: int, scalar: float) -> None:
    here, there = values[0].copy(), on_device(values[0])
    for vector, other in ((here, values[1]), (there, on_device(values[1]))):
        vector[low:high] *= np.float32(scalar)
        vector[low:high] += other[low:high]
        vector[:low] = 0
        np.copyto(vector[high:], other[high:])
        np.clip(vector[low:], np.float32(-2), np.float32(3), out=vector[low:])
    assert bits(there) == bits(here)


def test_results_take_the_type_that_numpys_take() -> None:
    vector = on_device(np.ones(3, np.float32))
    assert (vector * 0.1).dtype == np.float32 and (vector * np.float64(0.1)).dtype == np.float64
    assert np.multiply(vector, vector, dtype=np.float64).dtype == np.float64
    assert (vector > 0).dtype == np.bool_ and vector.astype(np.uint16).dtype == np.uint16
    assert np.full_like(vector, 2.5).tobytes() == np.full(3, 2.5, np.float32).tobytes()
    assert np.zeros_like(vector, dtype=np.float64).dtype == np.float64 and np.empty_like(vector).size == 3


OF_ONE = ("sqrt", "square", "negative", "absolute", "sign", "rint", "isfinite")
OF_TWO = ("add", "subtract", "multiply", "divide", "less", "equal")


@pytest.mark.parametrize("name", [*OF_ONE, *OF_TWO])
@pytest.mark.parametrize("kind", ["float16", "float64", "int16", "int32", "int64", "uint8", "bool"])
def test_a_function_of_other_types_has_numpys_type_and_bits(name: str, kind: str) -> None:
    function, first = getattr(np, name), np.arange(1, 200).astype(kind)
    second = first[::-1].copy()
    for others in [()] if name in OF_ONE else [(second,), (0.1,), (np.float64(0.1),), (2,)]:
        try:
            here = function(first, *others)
        except TypeError:  # of truth values there is no difference and no sign, for example
            continue
        there = function(on_device(first), *(on_device(each) if each is second else each for each in others))
        assert bits(there) == bits(here), others


def test_what_a_function_or_method_is_told_beside_a_vector_is_never_passed_over() -> None:
    numbers, chosen = np.arange(4, dtype=np.float32), np.array([True, False, True, True])
    there = on_device(numbers)
    assert on_device(chosen).sum() == 3 and there.sum(dtype=np.float64).dtype == np.float64
    np.copyto(there, -there, where=chosen)
    there[[0, 3]] = np.array([7.0, 8.0])  # float64
    assert there.tobytes() == np.array([7, 1, -2, 8], np.float32).tobytes()
    assert np.zeros_like(there, shape=(9,)).size == 9
    assert np.clip(there, 0, 3, dtype=np.float64).dtype == np.float64 and np.size(there, 0) == 4
    here, low = np.asarray(there), np.full(4, 2, np.float32)
    for first, *limits in (
        (there, on_device(low), 3.0),
        (there, None, low),
        (low, there, None),
        (there, np.float64(0), 3),
    ):
        expected = np.clip(*(np.asarray(each) if isinstance(each, TensorVector) else each for each in (first, *limits)))
        assert bits(np.clip(first, *limits)) == bits(expected)
    assert there.tobytes() == here.tobytes()


def test_whoever_writes_to_a_copy_in_host_memory_is_told() -> None:
    """A silent write would be lost."""
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(on_device(np.ones(3, np.float32)))[0] = 2


def test_float64_is_made_where_there_is_float64() -> None:
    class Apple(SimpleNamespace):
        """A tensor of a device without float64."""

        def double(self) -> Tensor:
            raise TypeError("MPS has no float64")

    values = torch.tensor([0.1, 3.0])
    for tensor in (values, Apple(device=torch.device("mps"), cpu=lambda: values)):
        found = wide(cast("Tensor", tensor))
        assert found.dtype == torch.float64 and found.tolist() == values.tolist()
