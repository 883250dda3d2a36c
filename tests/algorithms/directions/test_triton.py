"""Triton's directions against the NumPy reference, bit for bit: on a GPU, or in Triton's interpreter without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from own_laws import Ternary
from triton_device import DEVICE, HAS_GPU, OnDevice, TritonExactDirections, assert_alike, running, to_device, to_host

from seedbus.algorithms.directions import TERM, Kind, exact_reference, law_of, reference, selftest
from seedbus.algorithms.directions.triton_backend import TritonDirections
from seedbus.algorithms.scalar_only.precision import FORMATS

KINDS: tuple[Kind, ...] = ("gaussian", "rademacher")
STREAM: dict[str, Any] = {"seed": 2**63 + 5, "step": 2**32 - 1}

words = st.integers(0, 2**32 - 1)
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def _running() -> Iterator[None]:
    with running():
        yield


def both(kind: Kind, size: int, method: str, *arguments: Any, **keywords: Any) -> list[np.ndarray]:
    """Apply a method of the reference and of Triton to a vector of NaNs; return both results."""
    results = []
    for source in (reference(kind), OnDevice(law_of(kind))):
        out = np.full(size, np.nan, np.float32)
        getattr(source, method)(out, *arguments, **keywords)
        results.append(out)
    return results


@pytest.mark.slow
@each_kind
@settings(max_examples=25)
@given(
    size=st.one_of(st.integers(0, 300), st.integers(1000, 3000)),
    groups=st.one_of(st.integers(0, 2**20), st.integers(0, 2**28 - 30)),
    seed=st.integers(0, 2**64 - 1),
    step=words,
    perturbation=words,
    coefficients=st.lists(floats, max_size=5),
    is_divided=st.booleans(),
    magnitude=st.sampled_from([1e-44, 1e-38, 1e-3, 1.0, 1e20, 3e38]),
)
def test_triton_equals_the_reference_bit_for_bit(
    kind: Kind,
    size: int,
    groups: int,
    seed: int,
    step: int,
    perturbation: int,
    coefficients: list[float],
    is_divided: bool,
    magnitude: float,
) -> None:
    stream = {"seed": seed, "step": step, "start": 128 * groups}
    generator = np.random.default_rng(size)
    x = (generator.uniform(-1, 1, size) * magnitude).astype(np.float32)
    divisor = np.sqrt(generator.uniform(1e-8, 4, size).astype(np.float32)) if is_divided else None
    scale = coefficients[0] if coefficients else 1e-3
    assert_alike(*both(kind, size, "fill", perturbation=perturbation, **stream))
    assert_alike(*both(kind, size, "accumulate", coefficients, divisor=divisor, **stream))
    assert_alike(*both(kind, size, "perturb", x, scale, perturbation=perturbation, divisor=divisor, **stream))


@pytest.mark.slow
@each_kind
@settings(max_examples=8)
@given(
    size=st.one_of(st.integers(1, 300), st.integers(1000, 3000)),
    groups=st.one_of(st.integers(0, 2**20), st.integers(0, 2**28 - 30)),
    seed=st.integers(0, 2**32),
    magnitude=st.sampled_from([1, 2**18, 2**31 - 1, 2**62]),
)
def test_triton_adds_terms_to_the_integers_of_the_reference(
    kind: Kind, size: int, groups: int, seed: int, magnitude: int
) -> None:
    """And what it perturbs along is what it adds: z = q · 2⁻¹², to the last bit."""
    generator, terms = np.random.default_rng(seed), np.zeros(6, TERM)
    for name in ("low", "high", "step", "perturbation"):
        terms[name] = generator.integers(0, 2**32 - 1, terms.size)
    terms["number"] = generator.integers(-magnitude, magnitude, terms.size, endpoint=True)
    source, start, sums = TritonExactDirections(law_of(kind)), 128 * groups, np.arange(size) << 20
    ours = torch.from_numpy(sums.copy()).to(DEVICE)
    source.add_terms(ours, terms, start=start)
    exact_reference(kind).add_terms(sums, terms, start=start)
    np.testing.assert_array_equal(ours.cpu().numpy(), sums)
    z, point = np.empty(size, np.float32), to_device(np.full(size, 0.3, np.float32))
    exact_reference(kind).fill(z, perturbation=5, start=start, **STREAM)
    source.perturb(point, point, 1e-3, perturbation=5, start=start, **STREAM)
    assert_alike(to_host(point), np.float32(0.3) + np.float32(1e-3) * z)


@pytest.mark.slow
@each_kind
def test_subnormals_are_kept_and_overflow_agrees(kind: Kind) -> None:
    tiny, _ = both(kind, 3001, "perturb", np.zeros(3001, np.float32), 1e-41, perturbation=1, **STREAM)
    assert np.count_nonzero(tiny) > 2900 and np.abs(tiny).max() < np.finfo(np.float32).smallest_normal
    assert_alike(*both(kind, 3001, "perturb", np.zeros(3001, np.float32), 1e-41, perturbation=1, **STREAM))
    subnormal = np.full(3001, 1e-41, np.float32)
    assert_alike(*both(kind, 3001, "accumulate", [1e-20, 1e-41], divisor=np.full(3001, 1e20, np.float32), **STREAM))
    assert_alike(*both(kind, 3001, "accumulate", [1e-3, -1e-3], divisor=subnormal, **STREAM))
    beyond, _ = both(kind, 3001, "accumulate", [3e38] * 6, **STREAM)
    assert np.isinf(beyond).any() and (kind == "rademacher" or np.isnan(beyond).any() or np.isfinite(beyond).any())
    assert_alike(*both(kind, 3001, "accumulate", [3e38] * 6, **STREAM))
    strange = np.resize(np.array([np.inf, -np.inf, np.nan, -0.0, 3e38], np.float32), 3001)
    assert_alike(*both(kind, 3001, "perturb", strange, 3e38, perturbation=0, **STREAM))


@pytest.mark.slow
@each_kind
def test_a_vector_may_be_perturbed_in_place(kind: Kind) -> None:
    x = np.linspace(0, 1, 5001, dtype=np.float32)
    expected, _ = both(kind, 5001, "perturb", x, 0.1, perturbation=3, **STREAM)
    on_device = to_device(x)
    TritonDirections(law_of(kind)).perturb(on_device, on_device, 0.1, perturbation=3, **STREAM)
    assert_alike(to_host(on_device), expected)


@pytest.mark.slow
def test_the_self_test_has_the_digest_of_every_other_backend() -> None:
    assert selftest(OnDevice) == selftest(reference)


@pytest.mark.slow
def test_a_law_that_is_not_ours_has_the_references_bits_and_the_signs_of_its_zeros() -> None:
    for method, options in (("fill", {"perturbation": 1}), ("accumulate", {"coefficients": [0.3, -1.7]})):
        assert_alike(*both(Ternary(), 3001, method, **options, **STREAM))


# bfloat16


@pytest.mark.slow
def test_bfloat16_output_is_rounded_once_to_nearest_even() -> None:
    """The inputs have upper halves of every exponent, infinity and NaN included, and lower halves below, at and above
    a tie."""
    uppers = np.arange(0, 1 << 16, 1 if HAS_GPU else 27, dtype=np.uint32) << np.uint32(16)
    x = np.concatenate([(uppers + np.uint32(lower)).view(np.float32) for lower in (0, 1, 0x7FFF, 0x8000, 0x8001)])
    expected = np.empty_like(x)
    reference("rademacher").perturb(expected, x, 0.0, perturbation=0, **STREAM)
    out = torch.empty(x.size, dtype=torch.bfloat16, device=DEVICE)
    TritonDirections(law_of("rademacher")).perturb(out, to_device(x), 0.0, perturbation=0, **STREAM)
    narrow = FORMATS["bfloat16"]
    assert_alike(to_host(out), narrow.widen(narrow.narrow(expected)))


@pytest.mark.slow
@each_kind
def test_a_bfloat16_model_is_perturbed_in_float32(kind: Kind) -> None:
    narrow = FORMATS["bfloat16"]
    x = narrow.rounded(np.linspace(-2, 2, 3001))
    root = np.linspace(0.5, 2, 3001, dtype=np.float32)
    keywords = {"perturbation": 7, **STREAM}
    expected, _ = both(kind, 3001, "perturb", x, 1e-2, divisor=root, **keywords)
    for dtype, result in ((torch.float32, expected), (torch.bfloat16, narrow.widen(narrow.narrow(expected)))):
        out = torch.empty(3001, dtype=dtype, device=DEVICE)
        TritonDirections(law_of(kind)).perturb(
            out, to_device(x).to(torch.bfloat16), 1e-2, divisor=to_device(root), **keywords
        )
        assert_alike(to_host(out), result)


# refusals


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        ({"start": 64}, "multiple of 128"),
        ({"start": 2**39}, "end at"),
        ({"seed": 2**64}, "64 bits"),
        ({"step": 2**32}, "32 bits"),
        ({"perturbation": -1}, "32 bits"),
    ],
)
def test_numbers_that_the_counter_cannot_hold_are_refused(stream: dict[str, int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        OnDevice(law_of("gaussian")).fill(
            np.empty(10, np.float32), **{"seed": 1, "step": 2, "perturbation": 3} | stream
        )


def test_tensors_that_no_kernel_supports_are_refused() -> None:
    out, source = torch.empty(10, device=DEVICE), TritonDirections(law_of("gaussian"))
    for wrong, reason in (
        (torch.ones(9, device=DEVICE), "9 coordinates"),
        (torch.ones(10, dtype=torch.float64, device=DEVICE), "not torch.float64"),
        (torch.ones(2, 5, device=DEVICE), r"not torch.float32 of \(2, 5\)"),
        (torch.ones(20, device=DEVICE)[::2], "contiguous"),
    ):
        with pytest.raises(ValueError, match=reason):
            source.perturb(out, wrong, 1.0, seed=1, step=2, perturbation=0)
        with pytest.raises(ValueError, match=reason):
            source.accumulate(out, [1.0], seed=1, step=2, divisor=wrong)
    elsewhere = torch.empty(10, device="cpu" if HAS_GPU else "meta")
    with pytest.raises(ValueError, match="Triton's kernels run"):
        source.fill(elsewhere, seed=1, step=2, perturbation=0)


# machine code


@pytest.mark.slow
def test_no_machine_code_fuses_flushes_or_approximates_nor_waits_for_other_threads(tmp_path: Path) -> None:
    """The code that Triton compiles for a GPU is inspected without one: each float32 operation rounds to nearest
    separately, and no coordinate goes from thread to thread."""
    for kernel, instructions in _machine_code("nvidia", "hopper", tmp_path).items():
        arithmetic = {name for name in instructions if name.split(".")[0] in {"add", "sub", "mul", "div", "sqrt"}}
        if kernel.startswith("fused"):
            assert "fma.rn.f32" in instructions  # a positive control for the checks above
            continue
        assert arithmetic <= {f"{name}.rn.f32" for name in ("add", "sub", "mul", "div", "sqrt")}, kernel
        assert not {name for name in instructions if name.startswith(("fma", "mad")) or "ftz" in name}, kernel
        assert not {name for name in instructions if ".shared" in name or name.startswith(("bar", "shfl"))}, kernel
        assert ("add.rn.f32" in arithmetic) != kernel.startswith("sums"), kernel
        assert ("div.rn.f32" in arithmetic) == ("divided" in kernel or "hessian" in kernel), kernel


@pytest.mark.slow
def test_no_machine_code_for_an_amd_gpu_fuses_flushes_or_approximates_either(tmp_path: Path) -> None:
    """There a quotient, rounded correctly, is made of five fused operations and a root of two, and none may be left."""
    for kernel, instructions in _machine_code("amd", "mi300", tmp_path).items():
        count = {
            part: sum(name.startswith(part) for name in instructions)
            for part in ("v_fma", "v_div_fixup", "v_sqrt", "v_rcp", "v_add", "v_pk_add")
        }
        fused = count["v_fma"] - 5 * count["v_div_fixup"] - 2 * count["v_sqrt"]
        assert (fused > 0) == kernel.startswith("fused"), kernel
        assert count["v_rcp"] == count["v_div_fixup"], kernel
        assert bool(count["v_div_fixup"]) == (kernel.startswith("fused") or "divided" in kernel or "hessian" in kernel)
        assert bool(count["v_add"] + count["v_pk_add"]) != kernel.startswith(("fused", "sums")), kernel
        assert {".amdhsa_float_round_mode_32 0", ".amdhsa_float_denorm_mode_32 3"} <= set(instructions), kernel


def _machine_code(vendor: str, gpu: str, cache: Path) -> dict[str, list[str]]:
    pytest.importorskip(f"triton.backends.{vendor}", reason=f"this Triton compiles for no GPU of {vendor}")
    script = Path(__file__).parents[2] / "support" / "triton_machine_code.py"
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, str(script), gpu], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]
