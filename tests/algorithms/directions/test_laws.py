"""Laws of directions: the same bits from every backend, a stream for each, and a self-test of their tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from own_laws import Bent, Laplace, Renamed, Ternary

from seedbus.algorithms.directions import (
    STEP,
    TERM,
    Hessian,
    Law,
    Momentum,
    ReplaySteps,
    UpdateRule,
    directions,
    exact_directions,
    exact_reference,
    law_of,
    reference,
    selftest,
)
from seedbus.algorithms.directions.laws.law import LAWS, mirrored
from seedbus.algorithms.directions.torch_backend import TorchDirections
from seedbus.studies.check import law as conformance

SIZE = 5_003
STREAM: dict[str, Any] = {"seed": 2**63 + 5, "start": 384}
each_law = pytest.mark.parametrize("law", [Ternary(), Laplace()], ids=lambda law: law.law)


class OnTensors:
    """Torch's directions with the interface of a NumPy backend: tensors share the vectors' memory."""

    def __init__(self, law: Law) -> None:
        self._source = TorchDirections(law)

    def __getattr__(self, name: str) -> Any:
        def tensor(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: tensor(each) for key, each in value.items()}
            return torch.from_numpy(value) if isinstance(value, np.ndarray) else value

        method = getattr(self._source, name)
        return lambda *given, **named: method(*map(tensor, given), **tensor(named))


def drawn(source: Any) -> list[bytes]:
    """Return what each method of a backend writes."""
    x = np.linspace(-1, 1, SIZE, dtype=np.float32)
    divisor = np.sqrt(1 + x * x)
    z, total, moved, divided = (np.empty(SIZE, np.float32) for _ in range(4))
    source.fill(z, step=3, perturbation=1, **STREAM)
    source.accumulate(total, [0.3, -1.7, 1e-40], step=3, divisor=divisor, **STREAM)
    source.perturb(moved, x, 1e-3, step=3, perturbation=2, **STREAM)
    source.perturb(divided, x, 1e-3, step=3, perturbation=2, divisor=divisor, **STREAM)
    return [each.tobytes() for each in (z, total, moved, divided)]


@each_law
def test_every_backend_draws_the_bits_of_the_reference_zeros_and_their_signs_too(law: Law) -> None:
    expected = drawn(reference(law))
    assert drawn(directions(law)) == expected
    assert drawn(OnTensors(law)) == expected
    z = np.frombuffer(expected[0], np.float32)
    assert (set(np.signbit(z[z == 0])) == {True, False}) == (law.law == "ternary")
    assert set(z) <= set(mirrored(law.table))


@each_law
def test_a_compiled_replay_draws_the_same_stream_as_single_directions(law: Law) -> None:
    steps = np.zeros(2, STEP)
    steps["low"], steps["high"], steps["step"] = 5, 1 << 31, [3, 4]
    steps["first"], steps["count"], steps["rate"] = [0, 2], 2, 0.5
    steps["is_own"], steps["is_first"], steps["is_last"] = True, [True, False], [False, True]
    coefficients = np.array([0.3, -1.7, 0.1, 2.0], np.float32)
    replay = ReplaySteps(steps, coefficients)
    x = np.zeros(SIZE, np.float32)
    directions(law).fold(UpdateRule(), {"x": x}, replay, start=384)
    expected, delta = np.zeros_like(x), np.empty_like(x)
    for step in (3, 4):
        part = coefficients[2 * (step - 3) : 2 * (step - 3) + 2]
        reference(law).accumulate(delta, part, step=step, **STREAM)
        expected -= delta * np.float32(0.5)
    assert x.tobytes() == expected.tobytes() and (replay.steps["low"] == 5).all()
    rule = UpdateRule(Momentum(0.9, 0.1), Hessian(0.95, 0.05, 1e-8, 0.1, 10.0, False), decay=0.1)
    replicas = []
    for source in (directions(law), OnTensors(law)):
        fields = {name: np.ones(SIZE, np.float32) for name in ("x", "momentum", "hessian")}
        source.fold(rule, fields, replay, start=384)
        replicas.append({name: field.tobytes() for name, field in fields.items()})
    assert replicas[0] == replicas[1]


@each_law
def test_whole_numbers_are_added_as_the_reference_adds_them(law: Law) -> None:
    terms = np.zeros(3, TERM)
    terms["low"], terms["perturbation"], terms["number"] = 7, [0, 1, 2], [5, -(2**20), 2**40]
    sums = [np.zeros(SIZE, np.int64) for _ in range(2)]
    for source, each in zip((exact_reference(law), exact_directions(law)), sums, strict=True):
        source.add_terms(each, terms, start=384)
    assert sums[0].any() and sums[0].tobytes() == sums[1].tobytes()


def test_two_laws_share_no_stream_even_with_the_same_quantiles() -> None:
    one, other = (np.empty(60_000, np.float32) for _ in range(2))
    for law, out in ((Ternary(), one), (Renamed(), other)):
        directions(law).fill(out, step=0, perturbation=0, **STREAM)
    assert (Ternary().table == Renamed().table).all()
    assert abs(float(np.mean(one.astype(np.float64) * other))) < 5 / np.sqrt(one.size)
    assert law_of("gaussian").key == law_of("rademacher").key == 0 != Ternary().key != Renamed().key


def test_the_self_test_tells_tables_apart_that_differ_in_one_bit_and_that_of_our_laws_is_as_ever() -> None:
    ours = {selftest(law=law).hex() for law in (None, law_of("gaussian"), law_of("rademacher"), "gaussian", 7)}
    assert ours == {selftest().hex()}
    others = [selftest(law=law) for law in (Laplace(), Bent(), Ternary(), Ternary(share=4))]
    assert len({*others, selftest()}) == 5
    assert selftest(reference, law=Laplace()) == others[0]


@pytest.mark.parametrize("name", sorted(LAWS.all()))
def test_a_law_of_ours_keeps_the_promises_of_laws(name: str) -> None:
    law = law_of(name)
    for promise in conformance.CONTRACT[:-1]:  # algorithms are tested with them elsewhere
        if not (law.is_signs and promise is conformance.every_backend_draws_the_quantiles_that_the_stream_chooses):
            promise(law)


def test_no_law_needs_a_kernel_of_its_own() -> None:
    """Kernels are compiled for the type of an array, and a table of another would be compiled for anew."""
    for law in (law_of("gaussian"), law_of("rademacher"), Ternary(), Laplace()):
        flags = law.table.flags
        assert law.table.dtype == np.float32 and flags.c_contiguous and not flags.writeable
