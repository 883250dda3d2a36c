"""The cost of a round: Seedbus compared with a plain simulator, and the parts of its time.

    python benchmarks/rounds.py [mnist-cnn fashion-cnn] [--algorithms decomfl hiso] [--repeats 3] [--forward eager]
    python benchmarks/rounds.py mnist-cnn --accuracy 300
    python benchmarks/rounds.py mnist-cnn --layers

A hundred clients, ten a round, K = 1, batches of 32, forward differences, one thread, on Fashion-MNIST. The plain
simulator is `plain.py`, with tensors in torch's own memory order and ReLU before pooling. Each measurement runs in a
process of its own; contenders take turns, and the best turn of each counts. `--layers` says what the layers of a
forward pass of Seedbus take, and how near they come to the rate of a product of matrices.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from rows import Row, Skip

PERTURBATIONS = {"mnist-cnn": 10, "fashion-cnn": 5}
ROUNDS = {"mnist-cnn": 24, "fashion-cnn": 12}
CLIENTS, COHORT, RATE, SMOOTHING, NU, EPSILON = 100, 10, 2e-3, 1e-3, 0.05, 1e-8


def document(model: str, algorithm: str, rounds: int, forward: str) -> dict[str, Any]:
    """Return the scenario that both run."""
    return {
        "name": "rounds",
        "task": {"name": "fashion-mnist", "model": model, "batch_size": 32}
        | ({"forward": forward} if forward == "compiled" else {}),
        "partition": {"kind": "dirichlet", "alpha": 1.0},
        "algorithm": {
            "name": algorithm,
            "perturbations": PERTURBATIONS[model],
            "learning_rate": RATE,
            "smoothing": SMOOTHING,
        },
        "participation": {"clients": CLIENTS, "cohort": COHORT},
        "evaluation": {"every": rounds},
        "stop": {"rounds": rounds},
    }


class Meter:
    """Records the CPU seconds of this process by part of the work, and at the end of each round."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._inner = threading.local()  # blocks of a vector may be perturbed on several threads
        self._ends: list[tuple[float, dict[str, float]]] = []

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Count the time of a block for a part; parts measured inside the block are not counted twice."""
        outer, self._inner.s, began = getattr(self._inner, "s", 0.0), 0.0, time.process_time()
        try:
            yield
        finally:
            took = time.process_time() - began
            self.spent[what] = self.spent.get(what, 0.0) + took - self._inner.s
            self._inner.s = outer + took

    def watched(self, owner: Any, name: str, what: str) -> None:
        """Count the time of a method's calls from now on."""
        method: Callable[..., Any] = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            with self.on(what):
                return method(*arguments, **options)

        setattr(owner, name, timed)

    def end(self) -> None:
        self._ends.append((time.process_time(), dict(self.spent)))

    def a_round(self, warm: int) -> dict[str, float]:
        """Return milliseconds: median and mean of all rounds but the first `warm`, and the mean of each part."""
        ends = self._ends[warm:]
        totals = sorted(after - before for (before, _), (after, _) in pairwise(ends))
        parts = {
            what: 1e3 * (ends[-1][1].get(what, 0.0) - ends[0][1].get(what, 0.0)) / len(totals) for what in self.spent
        }
        return {"round": 1e3 * totals[len(totals) // 2], "mean": 1e3 * sum(totals) / len(totals)} | parts


def as_in_papers(network: Any) -> Any:
    """Return the network with ReLU before pooling and not in place, and with torch's own pooling."""
    from torch import nn

    from seedbus.models.images.networks import MaxPool2x2

    layers: list[nn.Module] = []
    for layer in network:
        if isinstance(layer, nn.ReLU):
            layers.insert(len(layers) - isinstance(layers[-1], nn.MaxPool2d), nn.ReLU())
        else:
            layers.append(nn.MaxPool2d(2) if isinstance(layer, MaxPool2x2) else layer)
    return nn.Sequential(*layers)


def plain(model: str, algorithm: str, rounds: int) -> dict[str, float]:
    """Run the plain simulator; return milliseconds of a round and its parts, and the accuracy."""
    import numpy as np
    import plain as simulator
    import torch
    from plain import Batch, Commit, Follower, Recipe, borrow, federated_round, flat

    from seedbus.models.images.problem import ImageProblem
    from seedbus.scenarios.running.prepare import bind
    from seedbus.scenarios.schema.loading import validate

    problem = bind(validate(document(model, algorithm, rounds, ""), "a benchmark"))
    assert isinstance(problem, ImageProblem)
    network, meter, rng = as_in_papers(problem.task.network()).eval(), Meter(), np.random.default_rng(1)
    network.requires_grad_(False)
    for owner, name, what in (
        (simulator, "loss", "forward"),
        (Follower, "_slope", "perturb"),
        (Follower, "catch_up", "replay"),
    ):
        meter.watched(owner, name, what)

    def batch(split: str, chosen: Any) -> Batch:
        images, labels = problem.tensors(problem.splits[split], chosen)
        return Batch(images.clone(memory_format=torch.contiguous_format), labels)

    for parameter, value in zip(network.parameters(), problem.state_dict(problem.x0()).values(), strict=True):
        parameter.copy_(torch.from_numpy(value))
    recipe = Recipe(RATE, SMOOTHING, nu=NU if algorithm == "hiso" else None, epsilon=EPSILON)
    followers, log = [Follower(flat(network), recipe) for _ in range(CLIENTS)], list[Commit]()
    for seed in range(rounds):
        cohort = {}
        for client in rng.choice(CLIENTS, COHORT, replace=False).tolist():
            own = problem.parts[client]
            cohort[client] = [batch("train", rng.choice(own, 32, replace=False) if own.size > 32 else own)]
        federated_round(network, followers, cohort, log, seed, PERTURBATIONS[model])
        meter.end()
    spent = meter.a_round(rounds // 3)
    followers[0].catch_up(log)
    borrow(network, followers[0].x)
    correct, count = 0, problem.splits["test"].labels.size
    for part in np.array_split(np.arange(count), 100):
        tested = batch("test", part)
        correct += int((network(tested.images).argmax(dim=1) == tested.labels).sum())
    return spent | {"accuracy": correct / count}


def ours(model: str, algorithm: str, rounds: int, forward: str) -> dict[str, float]:
    """Run Seedbus with journal, ledger and evaluator; return what `plain` returns."""
    from seedbus.agents.client.evaluator import Evaluator
    from seedbus.agents.client.replicas import Replicas
    from seedbus.agents.observer import NullObserver
    from seedbus.algorithms.directions.numba_backend import NumbaDirections
    from seedbus.models.images.sample_problem import SampleObjective
    from seedbus.scenarios.running.run import run
    from seedbus.scenarios.schema.loading import validate

    meter = Meter()

    class Watch(NullObserver):
        def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
            meter.end()

    for owner, name, what in (
        (SampleObjective, "measure", "forward"),
        (NumbaDirections, "perturb", "perturb"),
        (Replicas, "advance", "replay"),
        (Evaluator, "on_commit", "replay"),
    ):
        meter.watched(owner, name, what)
    with tempfile.TemporaryDirectory() as folder:
        scenario = validate(document(model, algorithm, rounds, forward), "a benchmark")
        summary = run(scenario, Path(folder) / "run", observer=Watch()).summary
    return meter.a_round(rounds // 3) | {"accuracy": summary["metrics"]["accuracy"]}


def measured(who: str, model: str, algorithm: str, rounds: int) -> dict[str, float]:
    """Measure once, in a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, __file__, model, "--algorithms", algorithm, "--rounds", str(rounds), "--child", who]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    figures: dict[str, float] = json.loads(output.splitlines()[-1])
    return figures


def turns(model: str, algorithm: str, whos: list[str], repeats: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return the best measurement of each contender."""
    runs: dict[str, list[dict[str, float]]] = {who: [] for who in whos}
    for _ in range(repeats):
        for who in whos:
            runs[who].append(measured(who, model, algorithm, rounds))
    return {who: min(found, key=lambda each: each["mean"]) for who, found in runs.items()}


def compare(model: str, algorithm: str, whos: list[str], repeats: int, rounds: int) -> None:
    best = turns(model, algorithm, whos, repeats, rounds)
    for who, spent in best.items():
        parts = {what: spent.get(what, 0.0) for what in ("forward", "perturb", "replay")}
        parts["bus and the rest"] = spent["mean"] - sum(parts.values())
        shares = "   ".join(f"{what} {ms:7.1f} ({ms / spent['mean']:4.0%})" for what, ms in parts.items())
        print(
            f"{model:11} {algorithm:7} {who:8} {spent['mean']:8.1f} ms a round"
            f" {best['plain']['mean'] / spent['mean']:6.2f} times   {shares}   accuracy {spent['accuracy']:.1%}",
            flush=True,
        )


AIMS = {  # times faster than plain
    ("mnist-cnn", "eager"): 2.5,
    ("mnist-cnn", "compiled"): 4.0,
    ("fashion-cnn", "eager"): 2.5,
    ("fashion-cnn", "compiled"): 3.5,
}


def rows(is_quick: bool) -> Iterator[Row | Skip]:
    """Measure CPU milliseconds of a round; the limit is its forward passes at the speed of a large matrix product."""
    import torch

    torch.set_num_threads(1)
    repeats, whos = 1 if is_quick else 2, ["plain", "eager", "compiled"]
    for model in PERTURBATIONS:
        rounds = ROUNDS[model] // 3 if is_quick else ROUNDS[model]
        work = COHORT * (PERTURBATIONS[model] + 1) * flops(model, 32)
        for algorithm in ("decomfl", "hiso"):
            try:
                best = turns(model, algorithm, whos, repeats, rounds)
            except subprocess.CalledProcessError as failed:
                why = (failed.stderr.strip().splitlines() or ["it ended without a word"])[-1]
                yield Skip(f"rounds: {model}, {algorithm} could not run: {why}")
                continue
            plain, limit = best["plain"]["mean"], 1e3 * work / matrix_rate()
            for who in whos[1:]:
                name = f"round: {model}, {algorithm}, {who}"
                ours = best[who]["mean"]
                yield Row(name, "ms", ours, plain, "plain.py", limit, "forward flops", "faster", AIMS[model, who])


def flops(model: str, batch: int) -> int:
    """Return the floating-point operations of a forward pass, see `flops_of`."""
    import torch

    from seedbus.models.images import networks

    network = {"mnist-cnn": networks.mnist_cnn, "fashion-cnn": networks.fashion_cnn}[model]()
    with torch.inference_mode():
        return flops_of(network, torch.zeros(batch, 1, 28, 28))


def flops_of(module: Any, inputs: Any) -> int:
    """Return the floating-point operations of a call as torch counts them: convolutions, matrix products."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        module(inputs.clone())
    return int(counter.get_total_flops())


def layers(model: str, repeats: int = 200) -> None:
    """Print the CPU milliseconds of each layer of a forward pass on a training batch, the best of repeats."""
    import numpy as np
    import torch

    from seedbus.models.images.problem import ImageProblem
    from seedbus.scenarios.running.prepare import bind
    from seedbus.scenarios.schema.loading import validate

    torch.set_num_threads(1)
    problem = bind(validate(document(model, "decomfl", 1, ""), "a benchmark"))
    assert isinstance(problem, ImageProblem)
    network, (values, _) = problem.flat.module, problem.tensors(problem.splits["train"], np.arange(32))

    def best(module: Any, inputs: Any) -> float:
        took = []
        for _ in range(repeats):
            copied = inputs.clone()  # ReLU works in place
            started = time.thread_time()
            module(copied)
            took.append(time.thread_time() - started)
        return min(took)

    def line(name: str, seconds: float, work: int) -> None:
        rate = (
            f"{work / 1e6:7.1f} Mflop {work / seconds / 1e9:6.1f} Gflop/s {work / seconds / limit:4.0%}" if work else ""
        )
        print(f"{name:8} {1e3 * seconds:7.3f} ms {seconds / whole:4.0%} {rate}".rstrip())

    limit = matrix_rate()
    print(f"a product of matrices: {limit / 1e9:.1f} Gflop/s")
    with torch.inference_mode():
        whole = best(network, values)
        line("all", whole, flops_of(network, values))
        for name, layer in network.named_children():
            line(name, best(layer, values), flops_of(layer, values))
            values = layer(values.clone())


def matrix_rate(size: int = 1024, repeats: int = 15) -> float:
    """Return this thread's floating-point operations per second in a float32 matrix product, the best of repeats."""
    import torch

    a, b = torch.ones(size, size), torch.ones(size, size)
    best = float("inf")
    for _ in range(repeats):
        started = time.thread_time()
        a @ b
        best = min(best, time.thread_time() - started)
    return 2 * size**3 / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(PERTURBATIONS), metavar="mnist-cnn|fashion-cnn")
    parser.add_argument("--algorithms", nargs="+", default=["decomfl", "hiso"], choices=["decomfl", "hiso"])
    parser.add_argument("--forward", nargs="+", default=["eager"], choices=["eager", "compiled"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="by default 24 and 12, of which the first third does not count")
    parser.add_argument("--accuracy", type=int, metavar="ROUNDS", help="one long run of each, for its accuracy")
    parser.add_argument("--layers", action="store_true", help="only what each layer of a forward pass takes")
    parser.add_argument("--child", choices=["plain", "eager", "compiled"], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    for model in asked.models:
        if asked.layers:
            layers(model)
            continue
        for algorithm in asked.algorithms:
            rounds = asked.accuracy or asked.rounds or ROUNDS[model]
            if asked.child == "plain":
                print(json.dumps(plain(model, algorithm, rounds)))
            elif asked.child:
                print(json.dumps(ours(model, algorithm, rounds, asked.child)))
            else:
                whos = ["plain", *asked.forward]
                compare(model, algorithm, whos, 1 if asked.accuracy else asked.repeats, rounds)


if __name__ == "__main__":
    main()
