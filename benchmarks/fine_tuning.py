"""One row of the comparison in docs/language-models.md: a search over learning rates, and runs with the best.

    python benchmarks/fine_tuning.py small-opt full decomfl --model runs/small-opt
    seedbus compare runs/lm-small-opt-full-*

Settings are those of the library's lm/small-opt-sst2-… and lm/minilm-sst2-…. Each rate has a short run (pilot) for
each seed, with P = 5, evaluated on validation sentences. The rate with the lowest mean loss over the last evaluations
is then used for the runs evaluated on the test sentences. The search begins with three rates, and goes on beyond the
best one until it has worse ones on both sides. Runs are written to OUT/lm-MODEL-TRAIN-ALGORITHM, with P = 5 to …-p5,
and those of another seed than the first to …-s1. A run that exists already is left as it is.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from itertools import product
from pathlib import Path
from typing import NamedTuple

from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load

LAST = 3  # last evaluations of a pilot, whose mean loss decides
MOST_RATES = 9  # of a search; a best one at the edge after so many is reported


class Work(NamedTuple):
    """The length of runs.

    Attributes:
        pilot: rounds of a pilot.
        rounds: rounds of a run.
        every: rounds between two evaluations.
        settings: further settings of the scenario.
    """

    pilot: int
    rounds: int
    every: int
    settings: tuple[str, ...] = ()


WORK = {
    ("minilm", "head"): Work(300, 1000, 10),
    ("minilm", "lora"): Work(20, 60, 10, ("task.train={kind: lora, targets: [query, value]}",)),
    ("minilm", "full"): Work(20, 60, 10, ("task.train={kind: full}",)),
    ("small-opt", "full"): Work(30, 120, 10),
    ("small-opt", "lora"): Work(30, 120, 10, ("task.train={kind: lora}",)),
}
ZEROTH = ("decomfl", "hiso", "fedzo", "mezo")
RATES = {  # learning rates; FedAdam's are the server's, and its clients take one step of the scenario's rate
    ("minilm", "head"): {"hiso": (0.02, 0.05, 0.15), "fedavg": (1, 3, 10), "fedadam": (0.003, 0.01, 0.03)},
    ("minilm", "lora"): {"hiso": (0.003, 0.01, 0.03), "fedavg": (0.3, 1, 3), "fedadam": (1e-3, 3e-3, 1e-2)},
    ("minilm", "full"): {"hiso": (3e-4, 1e-3, 3e-3), "fedavg": (0.03, 0.1, 0.3), "fedadam": (1e-4, 3e-4, 1e-3)},
    ("small-opt", "full"): {"hiso": (3e-4, 1e-3, 3e-3), "fedavg": (1e-3, 3e-3, 1e-2), "fedadam": (1e-4, 3e-4, 1e-3)},
    ("small-opt", "lora"): {"hiso": (3e-3, 1e-2, 3e-2), "fedavg": (0.1, 0.3, 1), "fedadam": (1e-3, 3e-3, 1e-2)},
}
OTHERS = {  # learning rates of DeComFL, and of FedZO and MeZO, whose steps are as long
    ("minilm", "head"): (0.1, 0.3, 1),
    ("minilm", "lora"): (0.01, 0.03, 0.1),
    ("minilm", "full"): (1e-4, 3e-4, 1e-3),
    ("small-opt", "full"): (1e-4, 3e-4, 1e-3),
    ("small-opt", "lora"): (1e-2, 3e-2, 0.1),
}


def tried(kind: str, train: str, algorithm: str, settings: list[str], seeds: list[int]) -> float:
    """Return the best rate on the validation split: one with worse rates on both sides, if there is one."""
    losses: dict[float, float] = {}
    wanted = [float(rate) for rate in RATES[kind, train].get(algorithm, OTHERS[kind, train])]
    while wanted:
        for rate in wanted:
            losses[rate] = piloted(kind, train, algorithm, [*settings, rated(algorithm, rate)], seeds)
            print(f"{kind} {train} {algorithm}: rate {rate:g}, loss {losses[rate]:.4f}", flush=True)
        wanted = beyond(losses)
    best = min(losses, key=lambda rate: losses[rate])
    if best in (min(losses), max(losses)):
        print(f"{kind} {train} {algorithm}: the best of {len(losses)} rates, {best:g}, is at the edge", flush=True)
    return best


def beyond(losses: dict[float, float]) -> list[float]:
    """Return the rate to try next, beyond a best one at the edge of those tried; nothing if it is inside."""
    rates = sorted(losses)
    best = min(rates, key=lambda rate: losses[rate])
    if best not in (rates[0], rates[-1]) or len(rates) >= MOST_RATES:
        return []
    inner = rates[1] if best == rates[0] else rates[-2]
    return [float(f"{best * best / inner:.1g}")]


def piloted(kind: str, train: str, algorithm: str, settings: list[str], seeds: list[int]) -> float:
    """Return the mean loss of pilots at their end, one for each seed; infinite if one of them diverges."""
    work, found = WORK[kind, train], list[float]()
    pilot = ["evaluation.split=validation", "verify=false", f"stop.rounds={work.pilot}", "stop.diverged=continue"]
    fewest = ["algorithm.perturbations=5"] if algorithm in ZEROTH else []
    for seed in seeds:
        chosen = load(f"lm/{kind}-sst2-{algorithm}", [*settings, *pilot, *fewest, f"seed={seed}"])
        with tempfile.TemporaryDirectory() as folder:
            loss = run(chosen, Path(folder) / "pilot").metrics["loss"].iloc[-LAST:].mean()
        found.append(loss if math.isfinite(loss) else math.inf)
    return sum(found) / len(found)


def rated(algorithm: str, rate: float) -> str:
    return f"algorithm.{'server_' if algorithm == 'fedadam' else ''}learning_rate={float(rate)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted({kind for kind, _ in WORK}), metavar="model")
    parser.add_argument("train", choices=["head", "lora", "full"])
    parser.add_argument("algorithm", choices=[*ZEROTH, "fedavg", "fedadam"])
    parser.add_argument("--model", default="runs/small-opt", help="what pretrain.py wrote")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--perturbations", type=int, nargs="+", default=[5, 10], help="of a zeroth-order algorithm")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of pilots and runs")
    options = parser.parse_args()
    kind, train, algorithm = options.kind, options.train, options.algorithm
    if (kind, train) not in WORK:
        parser.error(f"{kind} has no {train}")
    work = WORK[kind, train]
    settings = [f"evaluation.every={work.every}", *work.settings]
    if kind == "small-opt":
        settings += [f"task.model={options.model}", f"task.data={options.model}/sst2"]
    rate = tried(kind, train, algorithm, settings, options.seeds)
    settings += [rated(algorithm, rate), f"stop.rounds={work.rounds}"]
    counts = options.perturbations if algorithm in ZEROTH else [0]
    for count, seed in product(counts, options.seeds):
        ending = f"{f'-p{count}' if count else ''}{f'-s{seed}' if seed != options.seeds[0] else ''}"
        name = f"lm-{kind}-{train}-{algorithm}{ending}"
        further = [f"seed={seed}", *([f"algorithm.perturbations={count}"] if count else [])]
        chosen = load(f"lm/{kind}-sst2-{algorithm}", [*settings, *further, f"name={name}"])
        if not (options.out / name).exists():
            accuracy = run(chosen, options.out / name).metrics["accuracy"]
            print(f"{options.out / name}: rate {rate}, accuracy {accuracy.iloc[0]:.4f} to {accuracy.iloc[-1]:.4f}")


if __name__ == "__main__":
    main()
