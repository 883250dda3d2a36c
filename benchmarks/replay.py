"""Time to replay 100 missed commits of 10 perturbations: plain torch and the fused replay, on one core.

    python benchmarks/replay.py [--rounds 7] [--json]

All contenders run in turn in every round, and the best round of each counts. Time is this thread's CPU time, so that
other load on the machine matters less. Of plain torch only two commits are timed and scaled to a hundred, because each
commit is the same work. The limits at the end are measured in the same turns: the rates, in coordinates, at which
the processor generates random words in cache, looks up quantiles, and reads and writes a vector in memory. After them
comes what a missed commit costs beside its coordinates: packed by the server, read and folded by a client.

NUMBA_CPU_NAME=znver2 with NUMBA_CPU_FEATURES=+avx2,+fma measures the code of processors without AVX-512 on one that has
it (without the second, Numba adds this processor's own features to the name, AVX-512 too); SEEDBUS_LOOK_UPS forces one
of the two ways to look quantiles up. The aims are those of the processor that Numba compiles for.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import loop
import numpy as np
import torch
from numba.core.registry import cpu_target
from plain import Commit, Follower, Recipe
from rows import Row

from seedbus.algorithms.contract import Replica
from seedbus.algorithms.directions.kernels import BLOCKS, ONE, Stream, kernel, philox_words
from seedbus.algorithms.directions.llvm_ops import QUANTILES, gather_quantiles
from seedbus.algorithms.directions.numba_backend import fastest_look_ups
from seedbus.algorithms.directions.philox import key_words
from seedbus.algorithms.directions.quantiles import SIZE, quantiles
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.scalar_only.block import coefficients_of
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.hiso import HiSo
from seedbus.algorithms.scalar_only.payloads import ScalarCommit, Term

COMMITS, PERTURBATIONS, PLAIN_COMMITS = 100, 10, 2
MODELS = {"MNIST CNN": 28_938, "Fashion CNN": 1_206_590}
RATE = 2.0**-10
KINDS = ("gaussian", "rademacher")
LAWS: Mapping[str, tuple[Recipe, type[ScalarOnly], dict[str, Any]]] = {
    "DeComFL": (Recipe(RATE), DeComFL, {}),
    "DeComFL, integer": (Recipe(RATE), DeComFL, {"arithmetic": "integer"}),
    "DeComFL, momentum": (Recipe(RATE, momentum=0.9), DeComFL, {"momentum": 0.9}),
    "HiSo": (Recipe(RATE, nu=0.05), HiSo, {"nu": 0.05}),
}
# Limits by name: a replay generates these words, looks them up, and reads and writes x once.
WORDS, LOOK_UPS = "gaussian: its random words, in cache", "gaussian: its look-ups, in cache"
SIGNS, MEMORY = "rademacher: its random words, in cache", "reading and writing x, in memory"
AIMS = {"gaussian": 6.0, "rademacher": 30.0}  # times faster than plain, with AVX-512
NARROW_AIMS = {"gaussian": 5.0, "rademacher": 25.0}  # without
HISO_AIM = 2.0  # times what DeComFL costs
SMALL, MANY, FEW = 1_000, 10_000, 2  # coordinates, commits and perturbations of what a commit costs by itself
LOOPS, LOOP_AIM = {kind: f"{kind}_loop" for kind in KINDS}, 1.0  # a simple loop in Numba, for DeComFL

Work = Callable[[], object]


def scalars() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return gradient scalars, [commits, P]."""
    return np.random.default_rng(7).standard_normal((COMMITS, PERTURBATIONS)).astype(np.float32)


def log_of(algorithm: ScalarOnly, commits: int) -> list[ScalarCommit]:
    drawn = scalars()[:commits]
    return commits_of(drawn if algorithm.grid is None else algorithm.grid.numbers(drawn, RATE))


def commits_of(rows: np.ndarray[Any, np.dtype[Any]]) -> list[ScalarCommit]:
    """Return a commit of one term for each row of scalars, [commits, P]."""
    return [
        ScalarCommit(version + 1, version, RATE, (Term(version, 7 << 32 | version, row[None]),))
        for version, row in enumerate(rows)
    ]


def ours(algorithm: ScalarOnly, dimension: int) -> Work:
    log, start = log_of(algorithm, COMMITS), algorithm.replica(np.zeros(dimension, np.float32))

    def work() -> None:
        algorithm.apply(Replica(0, start.fields), log)

    return work


def plain(recipe: Recipe, dimension: int) -> Work:
    log = [Commit(version, [row.tolist()]) for version, row in enumerate(scalars()[:PLAIN_COMMITS])]
    follower = Follower(torch.zeros(dimension), recipe)

    def work() -> None:
        follower.version = 0
        follower.catch_up(log)

    return work


def looped(dimension: int, kind: str) -> Work:
    """Return DeComFL's replay by `loop.py`, after a check that it has our bits."""
    padded, add = dimension + -dimension % loop.COORDINATES[kind], loop.ADD[kind]
    x, delta, table = np.zeros(padded, np.float32), np.empty(padded, np.float32), quantiles()
    coefficients = coefficients_of(scalars()[:PLAIN_COMMITS], 1.0, np.float32)

    def work() -> None:
        for version, row in enumerate(coefficients):
            delta[:] = 0
            low, high = key_words(7 << 32 | version)
            for p, scale in enumerate(row):
                add(delta, scale, table, 0, p, low, high)
            np.subtract(x, delta * np.float32(RATE), out=x)

    work()
    algorithm = DeComFL.model_validate({"directions": kind})
    replica = algorithm.replica(np.zeros(dimension, np.float32))
    algorithm.apply(replica, log_of(algorithm, PLAIN_COMMITS))
    assert replica.x.tobytes() == x[:dimension].tobytes(), "the simple loop has other bits"
    return work


def contenders(dimension: int, laws: Sequence[str]) -> dict[str, dict[str, tuple[int, Work]]]:
    """Return algorithm → contender → (number of commits, the work)."""
    return {
        law: {"plain": (PLAIN_COMMITS, plain(recipe, dimension))}
        | ({LOOPS[kind]: (PLAIN_COMMITS, looped(dimension, kind)) for kind in KINDS} if law == "DeComFL" else {})
        | {kind: (COMMITS, ours(family(directions=kind, **fields), dimension)) for kind in KINDS}
        for law, (recipe, family, fields) in ((law, LAWS[law]) for law in laws)
    }


@kernel
def _words(words, turns):  # type: ignore[no-untyped-def]
    for turn in range(turns):
        philox_words(words, turn, BLOCKS, Stream(0, 0, 7, 0), 0)


@kernel
def _look_ups(out, words, table, gathers, turns):  # type: ignore[no-untyped-def]
    halves = words.view(np.uint16)
    for _ in range(turns):
        if gathers:
            for i in range(0, out.size, QUANTILES):
                gather_quantiles(out, out, ONE, words, table, None, i, i // 2)
        else:
            for i in range(out.size):
                index = halves[i]
                out[i] += table[index - 0x8000] if index > 0x7FFF else -table[0x7FFF - index]


def limits() -> dict[str, tuple[int, Work]]:
    """Return name of a limit → (number of coordinates, the work)."""
    few, turns = np.zeros(4 * BLOCKS, np.uint32), 10_000
    out, indices = np.zeros(4096, np.float32), np.random.default_rng(7).integers(0, 1 << 32, 2048, np.uint32)
    table, long = quantiles()[SIZE // 2 :], np.zeros(1 << 25, np.float32)
    gathers = fastest_look_ups() == "gather"
    return {
        WORDS: (8 * BLOCKS * turns, lambda: _words(few, turns)),
        LOOK_UPS: (4096 * turns // 20, lambda: _look_ups(out, indices, table, gathers, turns // 20)),
        SIGNS: (128 * BLOCKS * turns, lambda: _words(few, turns)),
        MEMORY: (long.size, lambda: long.__iadd__(np.float32(1))),
    }


def by_itself() -> dict[str, tuple[int, Work]]:
    """Return what a catch-up of many commits takes where the model is small."""
    algorithm = DeComFL.model_validate({"perturbations": FEW})
    log = commits_of(np.random.default_rng(7).standard_normal((MANY, FEW)).astype(np.float32))
    body = algorithm.pack_commits(log).body
    start = algorithm.replica(np.zeros(SMALL, np.float32))
    return {
        "packing": (MANY, lambda: algorithm.pack_commits(log)),
        "reading": (MANY, lambda: algorithm.unpack_commits(body)),
        "folding": (MANY, lambda: algorithm.apply(Replica(0, start.fields), log)),
    }


def seconds(work: Work) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


def best(works: Mapping[Any, tuple[int, Work]], rounds: int) -> dict[Any, float]:
    """Run all works in turn; return the seconds per unit (commit or coordinate) of each, the best of the rounds."""
    for _, work in works.values():
        work()
    found = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, (amount, work) in works.items():
            found[name] = min(found[name], seconds(work) / amount)
    return found


def measure(rounds: int, laws: Sequence[str] = tuple(LAWS)) -> dict[str, Any]:
    works = {
        (model, law, who): (commits, work)
        for model, dimension in MODELS.items()
        for law, those in contenders(dimension, laws).items()
        for who, (commits, work) in those.items()
    }
    bounds, commit = limits(), by_itself()
    found = best({**works, **bounds, **commit}, rounds)
    replays = [
        {
            "model": model,
            "law": law,
            "plain_s": COMMITS * found[model, law, "plain"],
            **{
                f"{who}_s": COMMITS * found[model, law, who]
                for who in (*KINDS, *LOOPS.values())
                if (model, law, who) in found
            },
        }
        for model, law in dict.fromkeys((model, law) for model, law, _ in works)
    ]
    return {
        "replays": replays,
        "limits_per_s": {name: 1 / found[name] for name in bounds},
        "commit_s": {name: found[name] for name in commit},
    }


def show(figures: dict[str, Any]) -> None:
    print(f"{COMMITS} commits of {PERTURBATIONS} perturbations, one core{'plain':>26}", end="")
    print("".join(f"{kind:>14}{'ratio':>8}{'M/s':>8}{'loop':>10}" for kind in KINDS))
    for row in figures["replays"]:
        directions = MODELS[row["model"]] * COMMITS * PERTURBATIONS
        print(f"{row['model'] + ', ' + row['law']:44}{row['plain_s']:18.3f} s", end="")
        for kind in KINDS:
            took = row[f"{kind}_s"]
            simple = row.get(f"{LOOPS[kind]}_s")
            print(f"{took:12.4f} s{row['plain_s'] / took:8.1f}{directions / took / 1e6:8.0f}", end="")
            print(f"{simple:8.4f} s" if simple else f"{'':10}", end="")
        print()
    print(
        f"\nquantiles are looked up by: {fastest_look_ups()}; compiled {'with' if has_avx512() else 'without'} AVX-512"
    )
    print("limits, million coordinates per second")
    for name, rate in figures["limits_per_s"].items():
        print(f"{name:44}{rate / 1e6:20.0f}")
    steps = ", ".join(f"{name} {1e6 * took:.2f} µs" for name, took in figures["commit_s"].items())
    print(f"\na commit of {FEW} perturbations, d = {SMALL:,}, of {MANY:,} at once: {steps}")


def has_avx512() -> bool:
    """Whether Numba compiles for a processor with AVX-512: this one, or the one that NUMBA_CPU_… describe."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return "+avx512f" in features.split(",")


def rows(is_quick: bool) -> Iterator[Row]:
    """Measure seconds; the limit is the slowest of the steps that every replay needs."""
    torch.set_num_threads(1)
    laws = ("DeComFL", "HiSo")
    figures = measure(2 if is_quick else 7, laws)
    aims = AIMS if has_avx512() else NARROW_AIMS
    rates, replays = figures["limits_per_s"], {(each["model"], each["law"]): each for each in figures["replays"]}
    for (model, law), found in replays.items():
        for kind in KINDS:
            limit, bound = least(kind, MODELS[model], rates)
            yield Row(
                f"replay: {model}, {law}, {kind}",
                "s",
                found[f"{kind}_s"],
                found["plain_s"],
                "torch.randn + add_",
                limit,
                bound,
                "faster",
                aims[kind],
            )
            if f"{LOOPS[kind]}_s" in found:
                ours, simple = found[f"{kind}_s"], found[f"{LOOPS[kind]}_s"]
                name = f"replay: {model}, {law}, {kind} beside a loop"
                yield Row(name, "s", ours, simple, "simple loop", measure="faster", aim=LOOP_AIM)
    for kind in KINDS:
        decomfl, hiso = (replays["Fashion CNN", law][f"{kind}_s"] for law in laws)
        yield Row(f"replay: Fashion CNN, HiSo beside DeComFL, {kind}", "s", hiso, decomfl, "DeComFL", aim=HISO_AIM)


def least(kind: str, dimension: int, rates: Mapping[str, float]) -> tuple[float, str]:
    """Return the lowest possible seconds of a replay, and the name of the step that takes them."""
    drawn = dimension * COMMITS * PERTURBATIONS
    needs = {"gaussian": (WORDS, LOOK_UPS), "rademacher": (SIGNS,)}[kind]
    seconds = {name: drawn / rates[name] for name in needs} | {MEMORY: dimension / rates[MEMORY]}
    slowest = max(seconds, key=lambda name: seconds[name])
    names = {WORDS: "RNG rate", LOOK_UPS: "look-up rate", SIGNS: "RNG rate", MEMORY: "memory bandwidth"}
    return seconds[slowest], names[slowest]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures = measure(arguments.rounds)
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        show(figures)


if __name__ == "__main__":
    main()
