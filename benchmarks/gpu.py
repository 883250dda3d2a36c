"""What a GPU does for Seedbus: directions and replay, whole rounds beside plain torch, many small clients.

    python benchmarks/gpu.py [--calls 7] [--turns 3] [--json]
    python benchmarks/gpu.py --write             (puts the tables into benchmarks/README.md, with the device's name)
    python benchmarks/gpu.py --only replayed     (one part of `kernels`, `rounds`, `crowd`, `replayed`, or some)
    python benchmarks/gpu.py --is-there          (exit code 3 and a sentence if there is none)
    python benchmarks/gpu.py --dry-run           (the same code on a processor, with tiny models; writes nothing)

| part | what is measured, and beside what |
|---|---|
| kernels | directions and replay in GB/s beside a copy of the vector and torch's generator: `gpu_kernels.py` |
| rounds | whole rounds of MNIST CNN, ResNet-18 and OPT's shapes beside plain torch: `gpu_rounds.py` |
| crowd | rounds in which 10, 100 and 1,000 small clients take part, beside plain torch |
| replayed | 50 rounds of lm/opt-125m-sst2-decomfl, replayed on the processor to the same digest: `gpu_replayed.py` |

A dry run says nothing of speed: kernels run in Triton's interpreter, and rounds on torch's path in the processor's
memory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rows import Row, Skip

PARTS = ("kernels", "rounds", "crowd", "replayed")
AIM = 5.0  # times faster than torch
README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- gpu.py --write: begin -->", "<!-- gpu.py --write: end -->"


def obstacle() -> str | None:
    if not torch.cuda.is_available():
        return "There is no GPU here that torch can use, so nothing was measured."
    return None if find_spec("triton") else "Triton is not installed (pip install seedbus[gpu]): nothing was measured."


def rows(is_quick: bool) -> Iterator[Row | Skip]:
    """Measure milliseconds of a replay; torch's figure is a hundred times that of one commit."""
    reason = obstacle()
    if reason is not None:
        yield Skip(f"gpu: {reason[0].lower()}{reason[1:]}")
        return
    from gpu_kernels import MODELS

    for model in list(MODELS)[: 1 if is_quick else 2]:
        yield from replays(model, torch.zeros(MODELS[model], device="cuda"), 3 if is_quick else 7)


def replays(model: str, x: torch.Tensor, rounds: int) -> Iterator[Row]:
    """Return a row for each kind of replay of a vector of zeros, [d]."""
    from gpu_kernels import PERTURBATIONS, commits_on, measure

    found = {figure.case: figure for figure in measure(model, x, rounds)}
    plain = commits_on(x) * found[f"torch randn + add, P {PERTURBATIONS}"].milliseconds
    for case in [name for name in found if name.startswith("replay")]:
        ours, share = found[case].milliseconds, found[case].of_a_copy
        name, bound = f"gpu: {model}, {case}", "memory bandwidth"
        yield Row(name, "ms", ours, plain, "torch.randn + add_", share * ours, bound, "faster", AIM)


def measured(part: str, calls: int, turns: int, *, is_dry: bool) -> Iterator[Any]:
    """Measure a part, on the GPU or in a dry run, figure by figure.

    Args:
        part: a name in PARTS.
        calls: of each kernel.
        turns: of each contender.
        is_dry: go through the same code on a processor, with tiny models.
    """
    import gpu_kernels
    import gpu_replayed
    import gpu_rounds

    device = "torch" if is_dry else "cuda"
    if part == "kernels":
        sizes, where = (gpu_kernels.DRY_MODELS, "cpu") if is_dry else (gpu_kernels.MODELS, "cuda")
        for name, size in sizes.items():
            yield from gpu_kernels.measure(name, torch.zeros(size, device=where), calls)
        return
    if is_dry:
        os.environ.pop("TRITON_INTERPRET", None)  # interpreted, the runs below would take hours
    if part == "replayed":
        yield gpu_replayed.measure(device, is_dry=is_dry)
        return
    if part == "rounds":
        works = gpu_rounds.DRY_WORKS if is_dry else gpu_rounds.WORKS
    else:
        works = gpu_rounds.DRY_CROWDS if is_dry else gpu_rounds.CROWDS
    yield from gpu_rounds.measure(works, device, turns, is_dry=is_dry)


def named(*, is_dry: bool) -> str:
    """Return the name of the device, with all that its figures depend on."""
    from seedbus.models.device import device_text
    from seedbus.versions import processor

    return f"dry run on a processor, {processor()}" if is_dry else f"{device_text(['cuda'])}; host {processor()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=7, help="of each kernel")
    parser.add_argument("--turns", type=int, default=3, help="of Seedbus and plain torch")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--into", type=Path, help="a folder that gets the tables of parts, row by row as they are measured"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/README.md")
    parser.add_argument("--is-there", action="store_true", help="only tell whether there is a GPU that can be used")
    parser.add_argument("--dry-run", action="store_true", help="go through every row on a processor, to test this file")
    asked = parser.parse_args()
    if asked.write and (asked.dry_run or len(asked.only) < len(PARTS)):
        parser.error("--write needs all parts, measured on a GPU; expected neither --dry-run nor --only with it")
    if asked.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"  # before anything imports a kernel
    reason = None if asked.dry_run else obstacle()
    if asked.is_there:
        print(f"gpu: {reason}" if reason is not None else torch.cuda.get_device_name())
        raise SystemExit(0 if reason is None else 3)
    if reason is not None:
        print(f"gpu: {reason}")
        raise SystemExit(3)
    from gpu_tables import page, put_between

    found, name, began = dict[str, list[Any]](), named(is_dry=asked.dry_run), time.monotonic()
    for part in (each for each in PARTS if each in asked.only):
        found[part] = []
        for figure in measured(part, asked.calls, asked.turns, is_dry=asked.dry_run):
            found[part].append(figure)
            seconds = time.monotonic() - began
            print(f"gpu: {part}: {len(found[part])} after {seconds:.0f} s", file=sys.stderr, flush=True)
            if asked.into is not None:
                asked.into.mkdir(parents=True, exist_ok=True)
                (asked.into / f"{part}.md").write_text(page(name, {part: found[part]}), encoding="utf-8")
    if asked.json:
        figures = {part: [asdict(figure) for figure in figures] for part, figures in found.items()}
        print(json.dumps({"device": name} | figures, indent=2))
    else:
        print(page(name, found))
    if asked.write:
        README.write_text(put_between(README.read_text(encoding="utf-8"), BEGIN, END, page(name, found)), "utf-8")
    if not all(run.is_same for run in found.get("replayed", [])):
        raise SystemExit("gpu: the run on the device was not replayed to the same digest")


if __name__ == "__main__":
    main()
