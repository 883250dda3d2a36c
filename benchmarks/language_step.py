"""One loss of a language model on a processor: Seedbus's ways beside transformers, and the products alone.

    python benchmarks/language_step.py MODEL [--dataset sst2] [--batch 32] [--blocks 2] [--turns 5] [--ways …]

MODEL is a folder. All compute the loss of the same batch: the first of client 0. `transformers` takes it as padded
rows, with the logits of every token, as a plain program does. The contenders take turns in one process, and the best
turn of each counts; times are CPU seconds. `reached` is the time of the products alone, each of the pass's own shapes,
by oneDNN or by torch, whichever is faster, as a share of the loss's time.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear

from seedbus.models import Iid
from seedbus.models.tasks.language_model import LanguageModel
from seedbus.models.text.packed import product

WAYS: dict[str, dict[str, Any]] = {
    "full": {},
    "full, packed": {"batching": "packed"},
    "full, packed, bfloat16": {"batching": "packed", "compute_dtype": "bfloat16"},
    "last": {},
    "last, packed": {"batching": "packed"},
    "last, packed, bfloat16": {"batching": "packed", "compute_dtype": "bfloat16"},
}
Shape = tuple[int, int, int]  # rows, inputs and outputs of a product


def problem_of(task: dict[str, Any]) -> Any:
    """Return a bound problem at its initial point."""
    problem: Any = LanguageModel.model_validate(task).bind(seed=1, clients=8, partition=Iid())
    problem.point[:] = problem.x0()
    return problem


def plain(model: str, problem: Any) -> Callable[[], float]:
    """Return the same loss by transformers alone: padded rows, the logits of all tokens."""
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    ((_, (batch, labels)),) = problem.objective(0, 0).parts(0)

    def loss() -> float:
        with torch.inference_mode():
            logits = network(input_ids=batch.ids, use_cache=False).logits[batch.rows, batch.columns]
            by_token = -cross_entropy(logits, batch.targets, reduction="none")
            scores = torch.zeros(len(batch.lengths)).index_add(0, batch.owners, by_token) / batch.lengths
            if problem.task.loss == "options":
                return float(cross_entropy(scores.view(len(labels), -1), labels))
            return -float(scores.mean())

    return loss


def shapes_of(problem: Any, loss: Callable[[], float]) -> Counter[Shape]:
    """Return the products of a loss whose texts are known already."""
    loss()
    found: Counter[Shape] = Counter()

    def count(_: nn.Module, args: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        found[out.numel() // out.shape[-1], args[0].shape[-1], out.shape[-1]] += 1  # a head chooses rows

    layers = [layer for layer in problem.network._model.modules() if isinstance(layer, nn.Linear)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    loss()
    for hook in hooks:
        hook.remove()
    return found


def spent(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a call, and what it returns."""
    began = time.process_time()
    result = call()
    return time.process_time() - began, result


def alone(shape: Shape) -> float:
    """Return the CPU seconds of a product alone, the better of both ways."""
    rows, inputs, outputs = shape
    left, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    with torch.inference_mode():
        return min(spent(partial(way, left, weight))[0] for way in (product, linear) for _ in range(3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--dataset", default="sst2")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--loss", default="answer", choices=["answer", "options"])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS], metavar="WAY", help="some of them only")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    common = {
        "model": options.model,
        "dataset": options.dataset,
        "batch_size": options.batch,
        "evaluated": 1,
        "loss": options.loss,
    }
    last = {"train": {"kind": "last-blocks", "blocks": options.blocks}}
    problems = {
        name: problem_of(common | (last if name.startswith("last") else {}) | WAYS[name]) for name in options.ways
    }
    losses: dict[str, Callable[[], float]] = {"transformers": plain(options.model, next(iter(problems.values())))}
    for name, problem in problems.items():
        losses[name] = partial(problem.objective(0, 0).loss, 0)
    values = dict.fromkeys(losses, 0.0)
    products = {name: shapes_of(problems[name], losses[name]) for name in problems}
    times = dict.fromkeys(losses, float("inf"))
    limits = dict.fromkeys({shape for each in products.values() for shape in each}, float("inf"))
    for _ in range(options.turns):
        for name, loss in losses.items():
            seconds, values[name] = spent(loss)
            times[name] = min(times[name], seconds)
        limits = {shape: min(limits[shape], alone(shape)) for shape in limits}
    print("| | loss | s | GFLOP in products | GFLOP/s | products alone, s | reached | than transformers |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, seconds in times.items():
        cells = [name, f"{values[name]:.6f}", f"{seconds:.4f}"]
        if name in products:
            flops = sum(2 * rows * k * n * count for (rows, k, n), count in products[name].items()) / 1e9
            limit = sum(limits[shape] * count for shape, count in products[name].items())
            cells += [f"{flops:.2f}", f"{flops / seconds:.0f}", f"{limit:.4f}", f"{limit / seconds:.0%}"]
        else:
            cells += [""] * 4
        print("| " + " | ".join([*cells, f"{times['transformers'] / seconds:.1f}×"]) + " |")


if __name__ == "__main__":
    main()
