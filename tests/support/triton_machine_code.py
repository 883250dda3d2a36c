"""Prints, as JSON, what every Triton kernel compiles to for an H100; it needs no GPU.

Of each: the instructions that work on float32, and those that wait for other threads or read what they wrote.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from seedbus.algorithms.directions import triton_exact, triton_fold
from seedbus.algorithms.directions import triton_kernels as kernels

HOPPER = GPUTarget("cuda", 90, 32)
INTEGERS = {"size", "step", "p", "low", "high", "count"}
CONSTANTS = {"COUNT": kernels.COUNT, "IS_GAUSSIAN": True, "IS_CLIPPED": True, "IS_DECAYING": True}


def kind(name: str, narrow: set[str]) -> str:
    """Return the Triton type of a kernel's argument by its name; `narrow` names the vectors of 16 bits."""
    if name in CONSTANTS:
        return "constexpr"
    if name in INTEGERS:
        return "i32"
    if name in {"start", "first"}:
        return "i64"
    if name == "words":
        return "*i32"
    if name in {"sums", "numbers"}:
        return "*i64"
    if name in {"scale", "beta", "decay", "share", "nu", "keep", "epsilon", "lowest", "highest"}:
        return "fp32"
    return "*i16" if name in narrow else "*fp32"


def instructions(kernel: Any, *, without: set[str], narrow: set[str], is_gaussian: bool, options: Any) -> list[str]:
    """Return the instructions of a kernel's PTX, as above. without: arguments that are None."""
    types = {name: "constexpr" if name in without else kind(name, narrow) for name in kernel.arg_names}
    constants = {name: value for name, value in (CONSTANTS | {"IS_GAUSSIAN": is_gaussian}).items() if name in types}
    aligned = {(at,): [["tt.divisibility", 16]] for at, name in enumerate(kernel.arg_names) if types[name][0] == "*"}
    source = ASTSource(kernel, types, constants | dict.fromkeys(without), aligned)  # aligned as torch's tensors are
    text = triton.compile(source, target=HOPPER, options=dict(options)).asm["ptx"]
    found = set(re.findall(r"^\s+(?:@\S+\s+)?([a-z][\w.]*)", text, re.M))
    return sorted(name for name in found if re.search(r"\.f32|\.shared|^bar|^shfl", name))


def all_kernels() -> dict[str, list[str]]:
    replay = triton_fold._replay
    cases: dict[str, tuple[Any, set[str], set[str]]] = {
        "perturb": (kernels.perturb, {"divisor"}, set()),
        "perturb divided": (kernels.perturb, set(), {"out", "x"}),
        "accumulate": (kernels.accumulate, {"divisor"}, set()),
        "accumulate divided": (kernels.accumulate, set(), set()),
        "replay momentum": (replay, {"h_field"}, {"x_field"}),
        "replay hessian": (replay, {"m_field"}, {"x_field"}),
        "sums": (triton_exact._add, set(), {"table"}),
    }
    result = {
        f"{name}, {'gaussian' if is_gaussian else 'rademacher'}": instructions(
            kernel, without=without, narrow=narrow, is_gaussian=is_gaussian, options=kernels.EXACT
        )
        for name, (kernel, without, narrow) in cases.items()
        for is_gaussian in ((True, False) if name.startswith(("replay", "sums")) else (True,))
    }
    result["fused on purpose"] = instructions(
        kernels.perturb, without=set(), narrow=set(), is_gaussian=True, options={"enable_fp_fusion": True}
    )
    return result


if __name__ == "__main__":
    sys.stdout.write(json.dumps(all_kernels(), indent=1) + "\n")
