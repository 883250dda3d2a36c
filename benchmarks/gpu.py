"""Directions and replay on a GPU, compared with torch's own generator: coordinates and bytes per second, and memory.

    python benchmarks/gpu.py [--rounds 7] [--json]
    python benchmarks/gpu.py --is-there          (exit code 3 and a sentence if there is none)
    python benchmarks/gpu.py --dry-run           (the same code on a processor, in Triton's interpreter)

Vectors are synthetic, with as many coordinates as OPT's smaller models have parameters. Contenders take turns, and the
best round of each counts. `torch` is `torch.randn` into an allocated vector, then `add_`, for every direction.
`coordinates` counts coordinates of directions drawn. `GB/s` counts the bytes that a kernel must at least read and
write; a replay must read and write each field once. `memory` is the peak of allocated memory, the vectors included.
A dry run says nothing of speed: it goes through every row with a few hundred coordinates, where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from rows import Row, Skip

from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.hiso import HiSo
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, Term

MODELS = {"OPT-125M": 125_239_296, "OPT-350M": 331_196_416, "OPT-1.3B": 1_315_758_080}
PERTURBATIONS, COMMITS = 10, 100
DRY_MODELS, DRY_COMMITS = {"dry run": 300}, 2


@dataclass(frozen=True)
class Case:
    """One kind of work on a vector.

    Attributes:
        name: what is done.
        directions: number of directions that a call draws.
        bytes: bytes per coordinate that a call must read and write.
        work: the call.
    """

    name: str
    directions: int
    bytes: int
    work: Callable[[], None]


@dataclass(frozen=True)
class Figure:
    """The figures of one case, from its best call."""

    model: str
    case: str
    milliseconds: float
    gigacoordinates_per_second: float
    gigabytes_per_second: float
    peak_gibibytes: float


def log(commits: int) -> list[ScalarCommit]:
    """Return commits of P scalars."""
    scalars = np.linspace(-1, 1, PERTURBATIONS, dtype=np.float32).reshape(1, -1)
    return [ScalarCommit(i + 1, i, 1e-4, (Term(i, i + 7, scalars),)) for i in range(commits)]


def cases(x: torch.Tensor) -> Iterator[Case]:
    """Yield the cases one by one, so that each has the memory to itself."""
    yield from torchs(x)
    yield from directions(x)
    commits = commits_on(x)
    name = f"replay L {commits} P {PERTURBATIONS}"
    for directions_of in ("gaussian", "rademacher"):
        yield replaying(f"{name} decomfl {directions_of}", DeComFL(directions=directions_of), x)
        yield adding(f"{name} decomfl integer {directions_of}", DeComFL(directions=directions_of), x)
    yield replaying(f"{name} decomfl momentum", DeComFL(momentum=0.9), x)
    yield replaying(f"{name} hiso", HiSo(), x)
    yield replaying(f"{name} decomfl bfloat16", DeComFL(), x.to(torch.bfloat16))


def torchs(x: torch.Tensor) -> Iterator[Case]:
    generator, z = torch.Generator(x.device), torch.empty_like(x)

    def add(count: int) -> Callable[[], None]:
        def work() -> None:
            for seed in range(count):
                generator.manual_seed(seed)
                torch.randn(len(x), generator=generator, out=z)
                x.add_(z, alpha=1e-4)

        return work

    yield Case("torch randn + add", 1, 20, add(1))
    yield Case(f"torch randn + add, P {PERTURBATIONS}", PERTURBATIONS, 20 * PERTURBATIONS, add(PERTURBATIONS))


def directions(x: torch.Tensor) -> Iterator[Case]:
    from seedbus.algorithms.directions import law_of
    from seedbus.algorithms.directions.triton_backend import TritonDirections

    out = torch.empty_like(x)
    coefficients = np.linspace(-1, 1, PERTURBATIONS, dtype=np.float32)
    for source in (TritonDirections(law_of("gaussian")), TritonDirections(law_of("rademacher"))):

        def perturb(source: TritonDirections = source) -> None:
            source.perturb(out, x, 1e-3, seed=7, step=0, perturbation=0)

        def accumulate(source: TritonDirections = source) -> None:
            source.accumulate(out, coefficients, seed=7, step=0)

        yield Case(f"perturb {source.law.law}", 1, 8, perturb)
        yield Case(f"accumulate P {PERTURBATIONS} {source.law.law}", PERTURBATIONS, 4, accumulate)


def replaying(name: str, algorithm: ScalarOnly, x: torch.Tensor) -> Case:
    from seedbus.algorithms.scalar_only.replay import fold_tensors as replay

    fields = {"x": x} | {field: torch.full_like(x, value) for field, value in algorithm.companions().items()}
    width = sum(2 * field.element_size() for field in fields.values())
    commits = log(commits_on(x))
    return Case(name, len(commits) * PERTURBATIONS, width, lambda: replay(fields, algorithm, commits))


def adding(name: str, algorithm: ScalarOnly, x: torch.Tensor) -> Case:
    """Return the case of the same commits in whole numbers, added to sums."""
    from seedbus.algorithms.directions.triton_exact import TritonExactDirections
    from seedbus.algorithms.scalar_only.exact import Grid, terms_of

    sums, source, grid = torch.zeros_like(x, dtype=torch.int64), TritonExactDirections(algorithm.directions), Grid(28)
    commits = log(commits_on(x))
    whole = [
        replace(commit, terms=tuple(replace(term, scalars=grid.numbers(term.scalars, 1e-4)) for term in commit.terms))
        for commit in commits
    ]
    return Case(name, len(commits) * PERTURBATIONS, 16, lambda: source.add_terms(sums, terms_of(whole)))


def commits_on(x: torch.Tensor) -> int:
    """Return how many commits a replay folds; Triton's interpreter is slow."""
    return COMMITS if x.is_cuda else DRY_COMMITS


def milliseconds(work: Callable[[], object], device: torch.device) -> float:
    if device.type != "cuda":
        started = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - started)
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    before.record()
    work()
    after.record()
    torch.cuda.synchronize()
    return float(before.elapsed_time(after))


def measure(model: str, x: torch.Tensor, rounds: int) -> Iterator[Figure]:
    """Measure every case on a vector of zeros, [d]."""
    for case in cases(x):
        case.work()  # compiles the kernel; not counted
        if x.is_cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        best = min(milliseconds(case.work, x.device) for _ in range(rounds))
        rate = len(x) / best / 1e6
        peak = torch.cuda.max_memory_allocated() / 2**30 if x.is_cuda else 0.0
        yield Figure(model, case.name, best, rate * case.directions, rate * case.bytes, peak)


def obstacle() -> str | None:
    if not torch.cuda.is_available():
        return "There is no GPU here that torch can use, so nothing was measured."
    return None if find_spec("triton") else "Triton is not installed (pip install seedbus[gpu]): nothing was measured."


AIM = 5.0  # times faster than torch


def rows(is_quick: bool) -> Iterator[Row | Skip]:
    """Measure milliseconds of a replay; torch's figure is a hundred times that of one commit."""
    reason = obstacle()
    if reason is not None:
        yield Skip(f"gpu: {reason[0].lower()}{reason[1:]}")
        return
    for model in list(MODELS)[: 1 if is_quick else 2]:
        yield from replays(model, torch.zeros(MODELS[model], device="cuda"), 3 if is_quick else 7)


def replays(model: str, x: torch.Tensor, rounds: int) -> Iterator[Row]:
    """Return a row for each kind of replay of a vector of zeros, [d]."""
    copied = copying(x)
    found = {figure.case: figure for figure in measure(model, x, rounds)}
    plain = commits_on(x) * found[f"torch randn + add, P {PERTURBATIONS}"].milliseconds
    for case in [name for name in found if name.startswith("replay")]:
        ours, gigabytes = found[case].milliseconds, found[case].gigabytes_per_second * found[case].milliseconds / 1e3
        yield Row(
            f"gpu: {model}, {case}",
            "ms",
            ours,
            plain,
            "torch.randn + add_",
            1e3 * gigabytes / copied,
            "memory bandwidth",
            "faster",
            AIM,
        )


def copying(x: torch.Tensor) -> float:
    """Return the gigabytes per second that a copy reads and writes, the best of ten."""
    y = torch.empty_like(x)
    best = min(milliseconds(lambda: y.copy_(x), x.device) for _ in range(10))
    return 2 * x.numel() * x.element_size() / best / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--is-there", action="store_true", help="only tell whether there is a GPU that can be used")
    parser.add_argument("--dry-run", action="store_true", help="go through every row on a processor, to test this file")
    arguments = parser.parse_args()
    if arguments.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"  # before anything imports a kernel
    reason = None if arguments.dry_run else obstacle()
    if arguments.is_there:
        print(f"gpu: {reason}" if reason is not None else torch.cuda.get_device_name())
        raise SystemExit(0 if reason is None else 3)
    if reason is not None:
        print(reason)
        return
    models, device = (DRY_MODELS, "cpu") if arguments.dry_run else (MODELS, "cuda")
    figures = [
        figure
        for name, size in models.items()
        for figure in measure(name, torch.zeros(size, device=device), arguments.rounds)
    ]
    name = "dry run on a processor" if arguments.dry_run else torch.cuda.get_device_name()
    if arguments.json:
        found: dict[str, Any] = {"device": name, "figures": [asdict(it) for it in figures]}
        print(json.dumps(found, indent=2))
        return
    print(f"{name:55}{'ms':>10}{'G coord/s':>11}{'GB/s':>9}{'GiB':>7}")
    for it in figures:
        rates = f"{it.gigacoordinates_per_second:11.1f}{it.gigabytes_per_second:9.0f}{it.peak_gibibytes:7.2f}"
        print(f"{it.model:12}{it.case:43}{it.milliseconds:10.2f}{rates}")


if __name__ == "__main__":
    main()
