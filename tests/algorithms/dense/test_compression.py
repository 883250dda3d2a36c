"""Compression codecs: both sides use the decoded vector, the error has the papers' properties, and malformed bodies
are refused."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from algorithm_cases import bits, make, over_the_wire, seed_of
from dense_federation import START, Bowl, D, federate
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from promised import keep
from worlds import go, scenario

from seedbus.algorithms.contract import BadPayload
from seedbus.algorithms.dense.compression.contract import Compression
from seedbus.algorithms.dense.compression.packing import pack, packed_bytes, unpack
from seedbus.algorithms.dense.draws import uniforms
from seedbus.algorithms.numbers import ABSURD
from seedbus.scenarios.running.replay import replay
from seedbus.studies.check import codec as conformance

CODECS: dict[str, Any] = {
    "fedcom": "fedcom",
    "fedcom-3": {"kind": "fedcom", "bits": 3},
    "fixed-point": "fixed-point",
    "fixed-point-22": {"kind": "fixed-point", "unit_bits": 22},
    "qsgd": "qsgd",
    "qsgd-1": {"kind": "qsgd", "levels": 1},
    "qsgd-16": {"kind": "qsgd", "levels": 16},
    "top-k": "top-k",
    "top-k-1": {"kind": "top-k", "fraction": 0.01},
    "top-k-100": {"kind": "top-k", "fraction": 1.0},
}
each_codec = pytest.mark.parametrize("name", CODECS)
vectors = npst.arrays(
    np.float32, st.integers(1, 70), elements=st.floats(-(2.0**40), 2.0**40, width=32, allow_subnormal=False)
)
TRIALS = 2000


@cache
def codec(name: str) -> Compression:
    compression: Compression = make("fedavg", compression=CODECS[name]).compression
    return compression


def transmitted(name: str, vector: Any, key: int = 1) -> Any:
    """Return the vector that the server decodes."""
    encoded = over_the_wire(codec(name).encode(vector, key))
    return codec(name).decode(encoded, vector.size)


# the round trip


@pytest.mark.few(7)
@each_codec
@settings(max_examples=30)
@given(vector=vectors, key=st.integers(0, 2**64 - 1))
def test_a_vector_is_encoded_deterministically_within_its_size_limit(name: str, vector: Any, key: int) -> None:
    conformance.round_trip(codec(name), vector, key)


@each_codec
def test_a_codec_keeps_its_promises(name: str) -> None:
    keep(name, conformance.CONTRACT, codec(name))


@pytest.mark.parametrize("name", ["fedcom", "qsgd", "qsgd-16"])
def test_another_key_gives_another_draw(name: str) -> None:
    vector = np.cos(np.arange(200, dtype=np.float32))
    assert bits(transmitted(name, vector, 1)) != bits(transmitted(name, vector, 2))


@pytest.mark.parametrize(("name", "each"), [("fedcom", 8), ("fedcom-3", 3), ("qsgd", 8), ("qsgd-1", 2), ("qsgd-16", 6)])
def test_a_level_takes_the_fewest_whole_bits(name: str, each: int) -> None:
    body = codec(name).encode(np.cos(np.arange(803, dtype=np.float32)), 1)
    assert len(body[1]) == math.ceil(803 * each / 8)


@given(width=st.integers(1, 16), numbers=st.lists(st.integers(0, 2**16 - 1), max_size=40))
def test_packed_numbers_are_unpacked_unchanged(width: int, numbers: list[int]) -> None:
    small = np.array([number % (1 << width) for number in numbers], np.uint16)
    expected = sum(int(number) << (width * place) for place, number in enumerate(small))
    packed = pack(small, width)
    assert packed == expected.to_bytes(packed_bytes(len(numbers), width), "little")
    assert unpack(packed, len(numbers), width).tolist() == small.tolist()


def test_draws_are_those_of_earlier_versions() -> None:
    assert uniforms(7, "test", 3).tolist() == DRAWN
    assert uniforms(7, "test", 2).tolist() == DRAWN[:2]
    many = uniforms(2**64 - 1, "test", 100_000)
    assert 0 < many.min() and many.max() < 1
    assert abs(many.mean() - 0.5) < 5 / math.sqrt(12 * many.size), "five standard errors"


DRAWN = [0.5417192770401016, 0.35024614760186523, 0.08333222346846014]


# properties from the papers


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), [("fedcom", 255), ("fedcom-3", 7), ("qsgd", 127), ("qsgd-1", 1)])
def test_rounding_at_random_is_unbiased(name: str, steps: int) -> None:
    """Hoeffding's inequality: a draw is one of two neighbouring levels, so a larger deviation of the mean has a
    probability
    below one in a million."""
    vector = (np.cos(3 * np.arange(40)) * np.linspace(0, 2, 40)).astype(np.float32)
    compression = codec(name)
    decoded = np.array(
        [compression.decode(compression.encode(vector, seed_of(trial)), 40) for trial in range(TRIALS)], np.float64
    )
    length = float(np.linalg.norm(vector) if name.startswith("qsgd") else np.ptp(vector))
    bound = length / steps * math.sqrt(math.log(2 * 40 / 1e-6) / (2 * TRIALS))
    assert np.abs(decoded.mean(axis=0) - vector).max() <= bound
    assert np.ptp(decoded, axis=0).max() <= length / steps * (1 + 1e-5)
    assert np.abs(vector - decoded[0]).max() > 3 * bound, "a single draw is not"


@pytest.mark.parametrize("bits_", [1, 3, 8, 16])
def test_fedcoms_error_is_smaller_than_its_step(bits_: int) -> None:
    vector = np.cos(3 * np.arange(999)).astype(np.float32)
    compression = make("fedavg", compression={"kind": "fedcom", "bits": bits_}).compression
    decoded = compression.decode(compression.encode(vector, 5), vector.size)
    step = float(vector.max() - vector.min()) / (2**bits_ - 1)
    assert 0 < np.abs(decoded - vector).max() < step * (1 + 1e-6)
    assert len(np.unique(decoded)) <= 2**bits_


@pytest.mark.parametrize("levels", [1, 16, 300])
def test_qsgds_error_is_within_the_papers_bound(levels: int) -> None:
    vector = np.cos(3 * np.arange(400)).astype(np.float32)
    compression = make("fedavg", compression={"kind": "qsgd", "levels": levels}).compression
    decoded = [compression.decode(compression.encode(vector, key), 400).astype(np.float64) for key in range(200)]
    error = np.mean([((each - vector) ** 2).sum() for each in decoded])
    length = float(np.linalg.norm(vector.astype(np.float64)))
    assert 0 < error <= min(400 / levels**2, math.sqrt(400) / levels) * length**2
    grid = np.array(decoded) * levels / length
    assert np.abs(grid - grid.round()).max() < 1e-3, "a whole number of levels"


@given(vector=vectors, percent=st.integers(1, 100))
def test_top_k_keeps_the_largest_coordinates_exactly_and_the_first_of_equal_ones(vector: Any, percent: int) -> None:
    compression = make("fedavg", compression={"kind": "top-k", "fraction": percent / 100}).compression
    largest = sorted(range(vector.size), key=lambda j: (-abs(vector[j]), j))[: math.ceil(percent * vector.size / 100)]
    expected = np.zeros_like(vector)
    expected[largest] = vector[largest]
    assert bits(compression.decode(compression.encode(vector, 0), vector.size)) == bits(expected)
    assert compression.scalars(vector.size) == len(largest)
    assert compression.scalars(100) == percent, "0.07 × 100 is just above 7"


@given(vector=vectors, unit_bits=st.integers(0, 22))
def test_fixed_point_is_within_half_a_unit_or_no_number_if_it_is_too_large(vector: Any, unit_bits: int) -> None:
    compression = make("fedavg", compression={"kind": "fixed-point", "unit_bits": unit_bits}).compression
    decoded = compression.decode(compression.encode(vector, 0), vector.size)
    unit, exact = 2.0**-unit_bits, vector.astype(np.float64)
    if (np.abs(np.rint(exact / unit)) >= 2**31).any():
        assert (decoded > ABSURD).all(), "and so it is refused"
    else:  # half a unit, and the rounding to float32 of numbers beyond 24 bits
        assert (np.abs(decoded - exact) <= unit / 2 + np.abs(exact) * 2.0**-24).all()


# malformed bodies


BODIES = st.recursive(
    st.one_of(st.none(), st.integers(-5, 2**40), st.floats(), st.text(max_size=3), st.binary(max_size=60)),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.few(6)
@each_codec
@settings(max_examples=50)
@given(body=BODIES, dimension=st.integers(1, 20))
def test_any_body_decodes_or_is_refused(name: str, body: Any, dimension: int) -> None:
    conformance.takes(codec(name), body, dimension)


@pytest.mark.few(7)
@each_codec
@settings(max_examples=50)
@given(data=st.data())
def test_a_body_of_the_right_lengths_decodes_or_is_refused(name: str, data: st.DataObject) -> None:
    good = codec(name).encode(np.ones(9, np.float32), 0)
    body = [data.draw(st.binary(min_size=len(part), max_size=len(part))) for part in good]
    conformance.takes(codec(name), body, 9)


def float32(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


def index(*values: int) -> bytes:
    return np.array(values, "<u4").tobytes()


@pytest.mark.parametrize(
    ("compression", "body", "says"),
    [
        ("fedcom", [float32(0, 1)], "2 byte strings"),
        ("fedcom", [float32(0, 1), b"\0\0"], "2 bytes where 3"),
        ("fedcom", [float32(1, 0), b"\0\0\0"], "below its smallest"),
        ({"kind": "fedcom", "bits": 3}, [float32(0, 1), b"\0\xff"], "after the last"),
        ("fixed-point", [b"\0" * 8], "8 bytes where 12"),
        ("fixed-point", [b"", b""], "1 byte strings"),
        ("qsgd", [float32(-1), b"\0\0\0"], "negative"),
        ("qsgd", [float32(1), b"\0\xff\0"], "above 127"),
        ({"kind": "qsgd", "levels": 1}, [float32(1), b"\xc0"], "after the last"),
        ({"kind": "top-k", "fraction": 0.6}, [index(1, 1), float32(1, 1)], "ascend"),
        ({"kind": "top-k", "fraction": 0.6}, [index(2, 0), float32(1, 1)], "ascend"),
        ({"kind": "top-k", "fraction": 0.6}, [index(1, 3), float32(1, 1)], "ascend"),
        ({"kind": "top-k", "fraction": 0.6}, [index(1), float32(1)], "4 bytes where 8"),
    ],
)
def test_a_malformed_vector_is_refused_with_the_reason(compression: Any, body: Any, says: str) -> None:
    with pytest.raises(BadPayload, match=says):
        make("fedavg", compression=compression).compression.decode(body, 3)


# in training


def test_top_k_of_everything_is_fedavg_to_the_bit() -> None:
    assert bits(federate("fedavg", compression=CODECS["top-k-100"]).models) == bits(federate("fedavg").models)


@pytest.mark.parametrize(
    ("compression", "within"),
    [({"kind": "fedcom", "bits": 16}, 2e-4), ({"kind": "qsgd", "levels": 2**15 - 1}, 1e-3)],
)
def test_many_levels_approximate_fedavg_within_their_step(compression: Any, within: float) -> None:
    difference = np.abs(federate("fedavg", compression=compression).models - federate("fedavg").models).max()
    assert 0 < difference < within
    coarse = {"kind": "fedcom", "bits": 2}
    assert np.abs(federate("fedavg", compression=coarse).models - federate("fedavg").models).max() > 10 * within


def test_the_compression_error_is_added_to_the_next_update() -> None:
    algorithm = make("fedavg", compression={"kind": "top-k", "fraction": 0.1}, error_feedback=True).sized(D)
    plain = make("fedavg").sized(D)
    replica, memory, error = algorithm.replica(START), None, np.zeros(D, np.float32)
    for round in range(2):
        plan = algorithm.plan(round, 0, 0)
        update = plain.local(replica, None, plan, Bowl(0, round))[0].vectors[0]
        report, memory = algorithm.local(replica, memory, plan, Bowl(0, round))
        corrected = update + error
        assert np.flatnonzero(report.vectors[0]).tolist() == sorted(np.argsort(-np.abs(corrected))[:3].tolist())
        error = corrected - report.vectors[0]
        assert memory == {"error": error.tobytes()}
    forgetful, _ = algorithm.local(replica, None, plan, Bowl(0, 1))
    assert bits(forgetful.vectors) != bits(report.vectors), "or it would make no difference"


def test_error_feedback_brings_top_k_nearer_to_fedavg() -> None:
    """Every client takes part in every round, so the stored error is sent soon."""
    everybody = [tuple(range(5))] * 40
    slow: dict[str, Any] = {"weighting": "uniform", "learning_rate": 2e-3}
    sparse = slow | {"compression": {"kind": "top-k", "fraction": 0.05}}
    uncompressed = federate("fedavg", everybody, **slow).models[-1]
    with_feedback, without_feedback = (
        federate("fedavg", everybody, error_feedback=on, **sparse).models[-1] for on in (True, False)
    )
    assert np.abs(with_feedback - uncompressed).mean() < 0.5 * np.abs(without_feedback - uncompressed).mean()


def test_an_error_that_is_fed_back_grows_only_where_levels_are_few() -> None:
    def errors(name: str) -> list[float]:
        error, norms = np.zeros(650, np.float32), []
        for round in range(8):
            corrected = np.random.default_rng(round).standard_normal(650).astype(np.float32) + error
            error = corrected - transmitted(name, corrected, round)
            norms.append(float(np.linalg.norm(error)) / 650**0.5)
        return norms

    assert max(errors("qsgd")) < 0.1, "650 coordinates are below 127²"
    few = errors("qsgd-1")
    assert few[-1] > 20 * few[0]


def test_a_report_counts_the_scalars_that_are_sent() -> None:
    algorithm = make("scaffold", compression={"kind": "top-k", "fraction": 0.1}).sized(D)
    plan = algorithm.plan(0, 0, 0)
    report, _ = algorithm.local(algorithm.replica(START), None, plan, Bowl(0, 0))
    packed = algorithm.pack_report(plan, report)
    assert packed.scalars == algorithm.work(0).scalars == 2 * 3


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["fedcom", "qsgd", {"kind": "top-k", "fraction": 0.05}], ids=str)
def test_a_run_sends_fewer_bytes_up_and_is_repeatable(tmp_path: Path, compression: Any) -> None:
    def totals(name: str, **fields: Any) -> tuple[str, int]:
        results = go(tmp_path / name, scenario(algorithm={"name": "fedavg", "learning_rate": 0.05, **fields}))
        return results.digest, results.summary["traffic"]["by_kind"]["report"]["bytes"]

    small = totals("small", compression=compression, error_feedback=True)
    assert totals("again", compression=compression, error_feedback=True) == small
    assert replay(tmp_path / "small").digest == small[0]
    assert small[1] < 0.45 * totals("plain")[1]


def test_a_codec_may_be_given_by_name_alone() -> None:
    assert make("fedavg", compression="qsgd") == make("fedavg", compression={"kind": "qsgd"})
    with pytest.raises(ValueError, match="'fedcom', 'fixed-point', 'qsgd', 'top-k'"):
        make("fedavg", compression="zip")
    with pytest.raises(ValueError, match="error_feedback needs compression"):
        make("fedavg", error_feedback=True)
