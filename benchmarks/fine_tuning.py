"""One row of the comparison in docs/language-models.md: a search over three learning rates, and a run with the best.

    python benchmarks/fine_tuning.py small-opt full decomfl --model runs/small-opt
    seedbus compare runs/lm-small-opt-full-*

Settings are those of the library's lm/small-opt-sst2-… and lm/minilm-sst2-…. Each rate has a short run (pilot) with
P = 5, evaluated on validation sentences. The rate with the lowest mean loss over the last evaluations is then used for
the runs evaluated on the test sentences. These are written to OUT/lm-MODEL-TRAIN-ALGORITHM, with P = 5 to …-p5. A run
that exists already is left as it is.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load

LAST = 3  # last evaluations of a pilot, whose mean loss decides


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


def tried(kind: str, train: str, algorithm: str, settings: list[str]) -> float:
    """Return the best of the rates on the validation split."""
    work, found = WORK[kind, train], list[tuple[float, float]]()
    pilot = ["evaluation.split=validation", "verify=false", f"stop.rounds={work.pilot}"]
    fewest = ["algorithm.perturbations=5"] if algorithm in ZEROTH else []
    for rate in RATES[kind, train].get(algorithm, OTHERS[kind, train]):
        chosen = load(f"lm/{kind}-sst2-{algorithm}", [*settings, *pilot, *fewest, rated(algorithm, rate)])
        with tempfile.TemporaryDirectory() as folder:
            metrics = run(chosen, Path(folder) / "pilot").metrics
        accuracy, loss = metrics["accuracy"].iloc[-LAST:].mean(), metrics["loss"].iloc[-LAST:].mean()
        print(f"{kind} {train} {algorithm}: rate {rate}, accuracy {accuracy:.4f}, loss {loss:.4f}", flush=True)
        found.append((loss, rate))
    return min(found)[-1]


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
    options = parser.parse_args()
    kind, train, algorithm = options.kind, options.train, options.algorithm
    if (kind, train) not in WORK:
        parser.error(f"{kind} has no {train}")
    work = WORK[kind, train]
    settings = [f"evaluation.every={work.every}", *work.settings]
    if kind == "small-opt":
        settings += [f"task.model={options.model}", f"task.data={options.model}/sst2"]
    rate = tried(kind, train, algorithm, settings)
    settings += [rated(algorithm, rate), f"stop.rounds={work.rounds}"]
    for count in options.perturbations if algorithm in ZEROTH else [0]:
        name = f"lm-{kind}-{train}-{algorithm}{f'-p{count}' if count else ''}"
        perturbed = [f"algorithm.perturbations={count}"] if count else []
        chosen = load(f"lm/{kind}-sst2-{algorithm}", [*settings, *perturbed, f"name={name}"])
        if not (options.out / name).exists():
            accuracy = run(chosen, options.out / name).metrics["accuracy"]
            print(f"{options.out / name}: rate {rate}, accuracy {accuracy.iloc[0]:.4f} to {accuracy.iloc[-1]:.4f}")


if __name__ == "__main__":
    main()
