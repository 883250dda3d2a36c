"""A table of the comparison in docs/language-models.md: a search over learning rates, and runs with the best ones.

    python benchmarks/fine_tuning.py minilm head
    python benchmarks/fine_tuning.py small-opt full --model runs/small-opt

Settings are those of the library's lm/minilm-sst2-… and lm/small-opt-sst2-…, but for what `WORK` says. Each rate has a
short run (pilot) for each seed, evaluated on validation sentences. The rate with the lowest mean loss over the last
evaluations is then used for the runs, which are evaluated on the test sentences. The search begins with three rates,
and goes on beyond the best one until it has worse ones on both sides.

Runs are written to OUT/lm-MODEL-TRAIN-ALGORITHM-RATE-sSEED, and the losses of pilots to
OUT/lm-MODEL-TRAIN-pilots.json. Both are kept: the same command goes on where it was stopped, and prints only the table
once all of them are there.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seedbus.models.text.sentence_problem import SentenceProblem
from seedbus.scenarios.reporting.progress import readable
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.studies.study.comparison import Spread
from seedbus.studies.study.intervals import Difference
from seedbus.studies.study.runs import Run

MOST_RATES = 9  # of a search; a best one at the edge after so many is reported


class Work(NamedTuple):
    """What is run in one setting.

    Attributes:
        pilot: rounds of a pilot.
        rounds: rounds of a run.
        every: rounds between two evaluations.
        last: last evaluations, whose mean is a pilot's loss and a run's accuracy at its end.
        at: rounds after which the table shows the accuracy.
        perturbations: P of zeroth-order algorithms.
        settings: further settings of the scenarios.
    """

    pilot: int
    rounds: int
    every: int
    last: int
    at: int
    perturbations: int
    settings: tuple[str, ...] = ()


WORK = {
    ("minilm", "head"): Work(300, 300, 10, 3, 100, 10),
    ("small-opt", "full"): Work(20, 20, 10, 1, 10, 5, ("task.batch_size=16", "task.micro_batch=8")),
}
LABELS = {
    "decomfl": "DeComFL",
    "hiso": "HiSo",
    "fedzo": "FedZO",
    "mezo": "MeZO",
    "fedavg": "FedAvg",
    "fedadam": "FedAdam",
}
ZEROTH = ("decomfl", "hiso", "fedzo", "mezo")
RATES = {  # the first learning rates; FedAdam's are the server's, and its clients take one step of the scenario's rate
    ("minilm", "head"): {
        "decomfl": (0.1, 0.3, 1),
        "hiso": (0.03, 0.1, 0.3),
        "fedzo": (0.1, 0.3, 1),
        "mezo": (0.1, 0.3, 1),
        "fedavg": (0.3, 1, 3),
        "fedadam": (0.003, 0.01, 0.03),
    },
    ("small-opt", "full"): {
        "decomfl": (3e-4, 1e-3, 3e-3),
        "hiso": (3e-4, 1e-3, 3e-3),
        "fedavg": (3e-4, 1e-3, 3e-3),
    },
}


class Comparison:
    """All runs in one setting. Problems, and vectors of sentences, are computed once for all of them."""

    def __init__(self, kind: str, train: str, settings: Sequence[str], out: Path, seeds: Sequence[int]) -> None:
        self.kind, self.train, self.out, self.seeds = kind, train, out, seeds
        self.work = WORK[kind, train]
        self.settings = [f"evaluation.every={self.work.every}", *self.work.settings, *settings]
        self.path = out / f"lm-{kind}-{train}-pilots.json"
        self.pilots: dict[str, dict[str, dict[str, float]]] = {}  # algorithm → rate → seed → loss
        if self.path.exists():
            self.pilots = json.loads(self.path.read_text(encoding="utf-8"))
        self._problems: dict[str, Any] = {}
        self._vectors: dict[str, Tensor] = {}

    def search(self, algorithm: str) -> float:
        """Return the best rate on the validation split: one with worse rates on both sides, if there is one."""
        wanted = [float(rate) for rate in RATES[self.kind, self.train][algorithm]]
        while wanted:
            for rate in wanted:
                self._pilot(algorithm, rate)
            wanted = beyond(self.losses(algorithm))
        return self.best(algorithm)

    def losses(self, algorithm: str) -> dict[float, float]:
        """Return the mean loss over seeds of each rate that was tried; infinite if a pilot diverged."""
        tried = self.pilots[algorithm]
        return {float(rate): sum(each[str(s)] for s in self.seeds) / len(self.seeds) for rate, each in tried.items()}

    def best(self, algorithm: str) -> float:
        losses = self.losses(algorithm)
        return min(losses, key=lambda rate: losses[rate])

    def _pilot(self, algorithm: str, rate: float) -> None:
        """Run the pilots of a rate that have not been run."""
        found = self.pilots.setdefault(algorithm, {}).setdefault(f"{rate:g}", {})
        pilot = ["evaluation.split=validation", f"stop.rounds={self.work.pilot}", "stop.diverged=continue"]
        for seed in (seed for seed in self.seeds if str(seed) not in found):
            with tempfile.TemporaryDirectory() as folder:
                loss = self._run(algorithm, rate, seed, pilot, Path(folder) / "pilot").metrics["loss"]
            mean = float(loss.iloc[-self.work.last :].mean(skipna=False))
            found[str(seed)] = mean if math.isfinite(mean) else math.inf
            self.path.write_text(json.dumps(self.pilots, indent=1), encoding="utf-8")
        print(f"{algorithm}: rate {rate:g}, loss {self.losses(algorithm)[rate]:.4f}", flush=True)

    def folder(self, algorithm: str, rate: float, seed: int) -> Path:
        return self.out / f"lm-{self.kind}-{self.train}-{algorithm}-{rate:g}-s{seed}"

    def finish(self, algorithm: str, rate: float) -> None:
        """Run what is missing of the runs with the best rate."""
        for seed in self.seeds:
            folder = self.folder(algorithm, rate, seed)
            if not folder.exists():
                settings = [f"stop.rounds={self.work.rounds}", f"name={folder.name}"]
                accuracy = self._run(algorithm, rate, seed, settings, folder).metrics["accuracy"]
                print(f"{folder}: accuracy {accuracy.iloc[0]:.4f} to {accuracy.iloc[-1]:.4f}", flush=True)

    def _run(self, algorithm: str, rate: float, seed: int, settings: Sequence[str], folder: Path) -> Any:
        which = f"algorithm.{'server_' if algorithm == 'fedadam' else ''}learning_rate={rate!r}"
        count = [f"algorithm.perturbations={self.work.perturbations}"] if algorithm in ZEROTH else []
        name = f"lm/{self.kind}-sst2-{algorithm}"
        scenario = load(name, [*self.settings, *settings, *count, which, f"seed={seed}", "verify=false"])
        key = repr((scenario.task, scenario.seed, scenario.participation.clients, scenario.partition))
        if key not in self._problems:
            clients = scenario.participation.clients
            problem = scenario.task.bind(seed=seed, clients=clients, partition=scenario.partition)
            if isinstance(problem, SentenceProblem):
                problem._vectors = self._vectors
            self._problems[key] = problem
        return run(scenario, folder, problem=self._problems[key], page=False)

    def table(self, algorithms: Sequence[str]) -> str:
        """Return the runs of these algorithms as a table in Markdown.

        Ends are compared with those of DeComFL's runs with the same seeds: a difference has its interval, which
        holds together with those of the other rows with 95%, and is in bold if it is seen (`intervals.Difference`).
        """
        runs = {
            algorithm: [Run.read(self.folder(algorithm, self.best(algorithm), seed)) for seed in self.seeds]
            for algorithm in algorithms
        }
        ends = {algorithm: [self._end(run) for run in each] for algorithm, each in runs.items()}
        start = spread([run.values("accuracy")[0] for run in runs["decomfl"]])
        heads = ["", "rate", "rates tried", f"at {self.work.at}", "end", "against DeComFL"]
        heads += ["forward passes", "up, per client", "down"]
        lines = [f"before: {start}", "", f"| {' | '.join(heads)} |", f"|---|---:|---|{'---:|' * 6}"]
        for algorithm, each in runs.items():
            first = each[0]
            paired = [end - other for end, other in zip(ends[algorithm], ends["decomfl"], strict=True)]
            cells = [LABELS[algorithm], f"{self.best(algorithm):g}"]
            cells += [", ".join(f"{rate:g}" for rate in sorted(self.losses(algorithm)))]
            cells += [spread([run.at("accuracy", self.work.at) for run in each]), spread(ends[algorithm])]
            cells += ["" if algorithm == "decomfl" else difference(paired, len(runs) - 1)]
            cells += [f"{first.costs['evaluations']:,.0f}"]
            cells += [readable(first.costs[f"bytes_{way}_per_client"] or 0) for way in ("up", "down")]
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)

    def _end(self, run: Run) -> float:
        """Return the mean accuracy of a run's last evaluations."""
        return sum(run.values("accuracy")[-self.work.last :]) / self.work.last


def spread(values: Sequence[float | None]) -> str:
    """Return mean and standard deviation of shares, in per cent."""
    found = Spread.of(values)
    assert found is not None
    deviation = "" if found.deviation is None else f" ± {100 * found.deviation:.1f}"
    return f"{100 * found.mean:.1f}{deviation}"


def difference(values: Sequence[float], pairs: int) -> str:
    """Return what differences of shares say, in per cent, with an interval that holds together with other pairs'."""
    found = Difference.of(values, pairs=pairs)
    text = f"{100 * found.mean:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})".replace("-", "−")
    return f"**{text}**" if found.is_seen else text


def beyond(losses: dict[float, float]) -> list[float]:
    """Return the rate to try next, beyond a best one at the edge of those tried; nothing if it is inside."""
    rates = sorted(losses)
    best = min(rates, key=lambda rate: losses[rate])
    if best not in (rates[0], rates[-1]) or len(rates) >= MOST_RATES:
        return []
    inner = rates[1] if best == rates[0] else rates[-2]
    return [float(f"{best * best / inner:.1g}")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted({kind for kind, _ in WORK}), metavar="model")
    parser.add_argument("train", choices=sorted({train for _, train in WORK}))
    parser.add_argument("--algorithms", choices=list(LABELS), nargs="+", help="default: all that are in RATES")
    parser.add_argument("--model", default="runs/small-opt", help="what pretrain.py wrote")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of pilots and runs")
    options = parser.parse_args()
    if (options.kind, options.train) not in WORK:
        parser.error(f"{options.kind} has no {options.train}")
    algorithms = options.algorithms or list(RATES[options.kind, options.train])
    if "decomfl" not in algorithms or not set(algorithms) <= set(RATES[options.kind, options.train]):
        parser.error(f"expected algorithms of {', '.join(RATES[options.kind, options.train])}, and decomfl among them")
    torch.set_num_threads(1)
    paths = [f"task.model={options.model}", f"task.data={options.model}/sst2"] if options.kind == "small-opt" else []
    options.out.mkdir(parents=True, exist_ok=True)
    comparison = Comparison(options.kind, options.train, paths, options.out, options.seeds)
    for algorithm in algorithms:
        comparison.finish(algorithm, comparison.search(algorithm))
    print(comparison.table(algorithms))


if __name__ == "__main__":
    main()
