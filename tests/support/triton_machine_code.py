"""Prints, as JSON, what every Triton kernel compiles to for a GPU, which it does not need: `hopper` or `mi300`.

Of each: the instructions that work on float32 in their order, on Hopper also those that wait for other threads or read
what they wrote, and on an MI300 how float32 is rounded and whether its smallest numbers are kept.
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

TARGETS = {
    "hopper": (
        GPUTarget("cuda", 90, 32),
        "ptx",
        r"^\s+(?:@\S+\s+)?([a-z][\w.]*\.(?:f32|shared)[\w.]*|(?:bar|shfl)[\w.]*)",
    ),
    "mi300": (
        GPUTarget("hip", "gfx942", 64),
        "amdgcn",
        r"^\s+(v_\w*f32\w*|\.amdhsa_float_(?:round|denorm)_mode_32 \d)",
    ),
}
"""Name → the GPU, what Triton calls its code, and the instructions that are looked for."""

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


def instructions(
    target: str, kernel: Any, *, without: set[str], narrow: set[str], is_gaussian: bool, options: Any
) -> list[str]:
    """Return the instructions of a kernel, as above. without: arguments that are None."""
    types = {name: "constexpr" if name in without else kind(name, narrow) for name in kernel.arg_names}
    constants = {name: value for name, value in (CONSTANTS | {"IS_GAUSSIAN": is_gaussian}).items() if name in types}
    aligned = {(at,): [["tt.divisibility", 16]] for at, name in enumerate(kernel.arg_names) if types[name][0] == "*"}
    source = ASTSource(kernel, types, constants | dict.fromkeys(without), aligned)  # aligned as torch's tensors are
    gpu, code, wanted = TARGETS[target]
    return re.findall(wanted, triton.compile(source, target=gpu, options=dict(options)).asm[code], re.M)


def all_kernels(target: str) -> dict[str, list[str]]:
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
            target, kernel, without=without, narrow=narrow, is_gaussian=is_gaussian, options=kernels.EXACT
        )
        for name, (kernel, without, narrow) in cases.items()
        for is_gaussian in ((True, False) if name.startswith(("replay", "sums")) else (True,))
    }
    result["fused on purpose"] = instructions(
        target, kernels.perturb, without=set(), narrow=set(), is_gaussian=True, options={"enable_fp_fusion": True}
    )
    return result


if __name__ == "__main__":
    sys.stdout.write(json.dumps(all_kernels(sys.argv[1]), indent=1) + "\n")
