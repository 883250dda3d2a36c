"""One loss of a language model on a processor: Seedbus's ways beside transformers, and the products alone.

    python benchmarks/language_step.py MODEL [--dataset sst2] [--batch 32] [--blocks 2] [--turns 5] [--ways …]

MODEL is a folder. All compute the loss of the same batch: the first of client 0. `transformers` takes it as padded
rows, with the logits of every token, as a plain program does. The contenders take turns in one process, and the best
turn of each counts; times are CPU seconds. `reached` is the time of the products alone, one after the other with the
model's own weights, by oneDNN or by torch, whichever is faster, as a share of the loss's time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear

from seedbus.models import Iid
from seedbus.models.parameters.products import product
from seedbus.models.tasks.language_model import LanguageModel

WAYS: dict[str, dict[str, Any]] = {
    "full": {},
    "full, packed": {"batching": "packed"},
    "full, packed, bfloat16": {"batching": "packed", "compute_dtype": "bfloat16"},
    "last": {},
    "last, packed": {"batching": "packed"},
    "last, packed, bfloat16": {"batching": "packed", "compute_dtype": "bfloat16"},
}


class Product(NamedTuple):
    """A product of a pass: its rows, and the weight, [outputs, inputs]."""

    rows: int
    weight: torch.Tensor

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.weight.numel()


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


def products_of(problem: Any, loss: Callable[[], float]) -> list[Product]:
    """Return the products of a loss whose texts are known already, in their order."""
    loss()
    found: list[Product] = []

    def take(layer: nn.Module, _: object, out: torch.Tensor) -> None:
        weight: torch.Tensor = layer.weight  # type: ignore[assignment]
        found.append(Product(out.numel() // out.shape[-1], weight[: out.shape[-1]]))  # a head chooses columns

    layers = [layer for layer in problem.network._model.modules() if isinstance(layer, nn.Linear)]
    hooks = [layer.register_forward_hook(take) for layer in layers]
    loss()
    for hook in hooks:
        hook.remove()
    return found


def spent(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a call, and what it returns."""
    began = time.process_time()
    result = call()
    return time.process_time() - began, result


def alone(products: list[Product]) -> float:
    """Return the CPU seconds of products alone, the better of both ways.

    A pass reads each weight once, so no weight is in a cache here either, where the model's are larger than it.
    """
    inputs = {(each.rows, each.weight.shape[1]): torch.randn(each.rows, each.weight.shape[1]) for each in products}

    def all_by(way: Callable[..., torch.Tensor]) -> None:
        for each in products:
            way(inputs[each.rows, each.weight.shape[1]], each.weight)

    with torch.inference_mode():
        return min(spent(partial(all_by, way))[0] for way in (product, linear))


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
    products = {name: products_of(problems[name], losses[name]) for name in problems}
    times = dict.fromkeys(losses, float("inf"))
    limits = dict.fromkeys(products, float("inf"))
    for _ in range(options.turns):
        for name, loss in losses.items():
            seconds, values[name] = spent(loss)
            times[name] = min(times[name], seconds)
            if name in products:
                limits[name] = min(limits[name], alone(products[name]))
    print("| | loss | s | GFLOP in products | GFLOP/s | products alone, s | reached | than transformers |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, seconds in times.items():
        cells = [name, f"{values[name]:.6f}", f"{seconds:.4f}"]
        if name in products:
            flops, limit = sum(each.flops for each in products[name]) / 1e9, limits[name]
            cells += [f"{flops:.2f}", f"{flops / seconds:.0f}", f"{limit:.4f}", f"{limit / seconds:.0%}"]
        else:
            cells += [""] * 4
        print("| " + " | ".join([*cells, f"{times['transformers'] / seconds:.1f}×"]) + " |")


if __name__ == "__main__":
    main()
