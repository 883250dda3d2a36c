"""Directions and replay on a GPU, compared with torch's own generator: coordinates and bytes per second, and memory.

Vectors are synthetic, with as many coordinates as OPT's smaller models have parameters. Each case has the memory to
itself, one after another, and its best call counts. `torch` is `torch.randn` into an allocated vector, then `add_`, for
every direction. `coordinates` counts coordinates of directions drawn. `GB/s` counts the bytes that a kernel must at
least read and write; a replay must read and write each field once. `of a copy` is that rate beside the rate at which
the vector is copied. `memory` is the peak of allocated memory, the vectors included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.hiso import HiSo
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, Term

MODELS = {"OPT-125M": 125_239_296, "OPT-350M": 331_196_416, "OPT-1.3B": 1_315_758_080}
PERTURBATIONS, COMMITS = 10, 100
ENOUGH_MS = 1_000
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
    of_a_copy: float
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
    from seedbus.algorithms.directions.triton_fold import TritonReplay
    from seedbus.algorithms.scalar_only.replay import replay_steps, rule_of

    source, rule = TritonReplay(algorithm.directions), rule_of(algorithm)
    assert rule is not None
    fields = {"x": x} | {field: torch.full_like(x, value) for field, value in algorithm.companions().items()}
    width = sum(2 * field.element_size() for field in fields.values())
    commits = log(commits_on(x))
    return Case(name, len(commits) * PERTURBATIONS, width, lambda: source.fold(rule, fields, replay_steps(commits)))


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
    copied = copying(x)
    for case in cases(x):
        case.work()  # compiles the kernel; not counted
        if x.is_cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        best = min(timings(case.work, x.device, rounds))
        rate = len(x) / best / 1e6
        peak = torch.cuda.max_memory_allocated() / 2**30 if x.is_cuda else 0.0
        moved = rate * case.bytes
        yield Figure(model, case.name, best, rate * case.directions, moved, moved / copied, peak)


def timings(work: Callable[[], object], device: torch.device, calls: int) -> Iterator[float]:
    """Yield the milliseconds of at most so many calls; no further one begins when they took `ENOUGH_MS` together."""
    total = 0.0
    for _ in range(calls):
        if total < ENOUGH_MS:
            yield (taken := milliseconds(work, device))
            total += taken


def copying(x: torch.Tensor) -> float:
    """Return the gigabytes per second that a copy reads and writes, the best of ten."""
    y = torch.empty_like(x)
    best = min(milliseconds(lambda: y.copy_(x), x.device) for _ in range(10))
    return 2 * x.numel() * x.element_size() / best / 1e6
