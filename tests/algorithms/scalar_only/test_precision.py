"""The formats of scalars on the wire against exact arithmetic, and against torch over all bit patterns."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.algorithms.scalar_only.precision import FORMATS, WIRE_FORMATS, Format, Precision

PATTERNS = np.arange(2**16, dtype=np.uint16)
SHORT: list[Precision] = ["float16", "bfloat16"]


def every(name: Precision) -> tuple[np.ndarray, np.ndarray]:
    """Return all bit patterns of a two-byte format and their values."""
    stored = PATTERNS.view(FORMATS[name].dtype)
    return stored, FORMATS[name].widen(stored)


def torch_bits(values: np.ndarray) -> np.ndarray:
    return torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


def ladder(name: Precision) -> list[float]:
    """The finite values that are not negative, ascending."""
    values = every(name)[1][: 2**15]
    return [float(value) for value in values if np.isfinite(value)]


LADDERS = {name: ladder(name) for name in SHORT}


def nearest(name: Precision, value: float) -> float:
    """The value of the format nearest to a float64, ties to the even pattern, by exact arithmetic."""
    if value < 0 or (value == 0 and np.signbit(value)):
        return -nearest(name, -value)
    rungs = LADDERS[name]
    beyond = 2 * Fraction(rungs[-1]) - Fraction(
        rungs[-2]
    )  # where the next value would be; the midpoint rounds to infinity
    if Fraction(value) >= (Fraction(rungs[-1]) + beyond) / 2:
        return float("inf")
    above = int(np.searchsorted(rungs, value))
    candidates = [number for number in (above - 1, above) if 0 <= number < len(rungs)]
    return rungs[min(candidates, key=lambda number: (abs(Fraction(rungs[number]) - Fraction(value)), number % 2))]


def rounded(name: Precision, value: float) -> float:
    return float(FORMATS[name].rounded([value])[0])


def same(actual: float, expected: float) -> bool:
    return np.float64(actual).tobytes() == np.float64(expected).tobytes()


def test_every_bfloat16_has_the_value_of_torch() -> None:
    torch_values = torch.from_numpy(PATTERNS.view(np.int16).copy()).view(torch.bfloat16).to(torch.float32).numpy()
    assert every("bfloat16")[1].tobytes() == torch_values.tobytes()


def test_every_float16_has_the_value_of_torch() -> None:
    torch_values = torch.from_numpy(PATTERNS.view(np.float16).copy()).to(torch.float32).numpy()
    values = every("float16")[1]
    assert (np.isnan(values) == np.isnan(torch_values)).all()
    assert values[~np.isnan(values)].tobytes() == torch_values[~np.isnan(values)].tobytes()


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_pattern_survives_a_round_trip(name: Precision, dtype: type) -> None:
    stored, values = every(name)
    with np.errstate(invalid="ignore"):
        wide: np.ndarray = values.astype(dtype)
    narrowed = FORMATS[name].narrow(wide)
    is_number = ~np.isnan(values)
    assert narrowed[is_number].tobytes() == stored[is_number].tobytes()
    assert np.isnan(FORMATS[name].widen(narrowed)[~is_number]).all()
    if name == "bfloat16" and dtype is np.float32:
        assert narrowed.tobytes() == stored.tobytes(), "a NaN keeps its bits"


def test_float32_rounds_to_bfloat16_as_torch_does_around_every_tie() -> None:
    """Inputs are the midpoints between all neighbours and the float32 on either side of each: all 65,536 patterns."""
    half = PATTERNS.astype(np.uint32) << 16 | 0x8000
    for beside in (-1, 0, 1):
        values = (half + np.uint32(beside % 2**32)).view(np.float32)
        ours, is_number = FORMATS["bfloat16"].narrow(values), ~np.isnan(values)
        assert (ours == torch_bits(values))[is_number].all()
        assert np.isnan(FORMATS["bfloat16"].widen(ours)[~is_number]).all()


def test_two_million_float32_values_round_to_bfloat16_as_torch_does() -> None:
    values = np.random.default_rng(3).integers(0, 2**32, 2_000_000, dtype=np.uint32).view(np.float32)
    values = values[~np.isnan(values)]
    assert (FORMATS["bfloat16"].narrow(values) == torch_bits(values)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_a_double_beside_a_tie_is_not_rounded_twice(name: Precision) -> None:
    """Rounded to float32 first, each of these would become the tie itself, and half of them would round the wrong
    way."""
    rungs = LADDERS[name]
    wrong = 0
    for low, high in itertools.islice(itertools.pairwise(rungs), 0, None, 7):
        tie = (low + high) / 2
        for value, expected in ((np.nextafter(tie, 0), low), (np.nextafter(tie, np.inf), high)):
            assert same(rounded(name, float(value)), expected)
            assert same(rounded(name, -float(value)), -expected)
            wrong += FORMATS[name].rounded([float(np.float32(value))])[0] != expected
    assert wrong > 1000, "these values could not tell one rounding from two"


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
@settings(max_examples=400)
@given(data=st.data())
def test_any_double_becomes_the_nearest_value(name: Precision, data: st.DataObject) -> None:
    rungs = LADDERS[name]
    near = st.sampled_from(rungs[:-1]).flatmap(lambda low: st.floats(low, min(2 * low + 1e-7, rungs[-1])))
    value = data.draw(st.floats(allow_nan=False, allow_infinity=False) | near | near.map(lambda number: -number))
    assert same(rounded(name, value), nearest(name, value))


@pytest.mark.parametrize("form", FORMATS.values(), ids=str)
def test_the_largest_value_is_the_last_before_infinity(form: Format) -> None:
    assert same(float(form.rounded([form.largest])[0]), form.largest)
    step = form.largest * 2.0 ** {"float32": -24, "float16": -11, "bfloat16": -8}[form.name]
    assert form.rounded([form.largest + step * 0.49])[0] == form.largest
    assert form.rounded([form.largest + step * 0.51, -2 * form.largest]).tolist() == [np.inf, -np.inf]
    assert form.rounded([1e308, -1e308]).tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize("form", FORMATS.values(), ids=str)
def test_infinities_and_nans_stay_what_they_are(form: Format) -> None:
    rounded_values = form.rounded([np.inf, -np.inf, np.nan, 0.0, -0.0])
    assert rounded_values[:2].tolist() == [np.inf, -np.inf] and np.isnan(rounded_values[2])
    assert np.signbit(rounded_values[3:]).tolist() == [False, True]


def test_a_float32_is_encoded_as_in_earlier_versions() -> None:
    values = np.random.default_rng(1).integers(0, 2**32, 10_000, dtype=np.uint32).view(np.float32)
    assert FORMATS["float32"].narrow(values).tobytes() == values.tobytes()
    assert [form.width for form in FORMATS.values()] == [4, 2, 2]


def test_a_number_beside_a_midpoint_is_rounded_once_and_the_sign_of_zero_is_positive() -> None:
    below, above = 1 + 2.0**-8 - 2.0**-40, 1 + 2.0**-8 + 2.0**-40  # in float32 both are the midpoint of two bfloat16
    found = WIRE_FORMATS["bfloat16"].rounded([below, above, -below, -above])
    assert found.tolist() == [1, 1 + 2.0**-7, -1, -1 - 2.0**-7]
    assert WIRE_FORMATS["sign"].rounded([0.0, -0.0, -1e-30]).tolist() == [1, 1, -1]
