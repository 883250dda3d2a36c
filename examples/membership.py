"""A membership attack on the model of a federation, with noise and masks and without.

    python examples/membership.py

Whoever has the model takes the samples with the smallest losses for those that it was trained on (Yeom et al.,
arXiv:1709.01604). AUC is the probability that a member has a smaller loss than an image that is none; 0.5 is guessing.
Members are ten digits of each of ten clients, others the 297 test images. Noise is a multiple of a clip of 400,000.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import seedbus

CLIENTS, ROUNDS, SEEDS = 10, 40, range(1, 6)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def attack(seed: int, fields: dict[str, Any]) -> tuple[float, float, float, str]:
    """Return AUC, the accuracy on images that are no members, ε (∞: not private), and the digest of the model."""
    table, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    inputs, classes = torch.from_numpy(table[order] / 16).float(), torch.from_numpy(labels[order])
    held, rest = TensorDataset(inputs[:111], classes[:111]), TensorDataset(inputs[-297:], classes[-297:])
    task = seedbus.TorchTask(network=network, train=held, test=rest, batch_size=10)
    scenario = {
        "name": "members",
        "algorithm": {"name": "fedavg", "local_steps": 5, "learning_rate": 0.3, "weighting": "uniform"}
        | {"compression": "fixed-point"},
        "participation": {"clients": CLIENTS, "quorum": CLIENTS},
        "evaluation": {"every": ROUNDS},
        "stop": {"rounds": ROUNDS},
        "seed": seed,
    }
    with tempfile.TemporaryDirectory() as folder:
        results = seedbus.run(seedbus.load(scenario | fields), Path(folder) / "run", task=task, page=False)
        replayed, model = seedbus.replay(results.folder, task=task), network()
    problem: Any = replayed.problem
    tensors = dict(problem.state_dict(replayed.point))
    model.load_state_dict({name: torch.from_numpy(np.array(each)) for name, each in tensors.items()})
    members = problem.tensors(problem.splits["train"], np.concatenate(problem.parts))  # 11 of the 111 validate
    losses = [cross_entropy(model(x), y, reduction="none").detach() for x, y in (members, rest[:])]
    auc = (losses[0][:, None] < losses[1]).double().mean() + (losses[0][:, None] == losses[1]).double().mean() / 2
    accuracy = (model(rest[:][0]).argmax(1) == rest[:][1]).double().mean()
    return float(auc), float(accuracy), results.summary["metrics"].get("epsilon", float("inf")), results.digest


def interval(values: Any) -> str:
    """Return the mean of five seeds and half of its 95 % interval, by Student's t with four degrees of freedom."""
    return f"{np.mean(values):.2f} ± {2.776 * np.std(values, ddof=1) / 5**0.5:.2f}"


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'protection':<12}{'ε':>8}{'accuracy':>14}{'AUC':>14}")
    first = {}
    for name, multiplier in (("none", 0), ("noise 1", 1), ("noise 5", 5)):
        private = {"privacy": {"clip": 400_000, "noise_multiplier": multiplier, "delta": 1e-3}} if multiplier else {}
        aucs, accuracies, epsilons, digests = zip(*(attack(seed, private) for seed in SEEDS), strict=True)
        epsilon, first[name] = f"{epsilons[0]:.3g}" if multiplier else "∞", digests[0]
        print(f"{name:<12}{epsilon:>8}{interval(accuracies):>14}{interval(aucs):>14}")
    masked = attack(SEEDS[0], {"secure_aggregation": {}})
    print(f"with masks the model of seed 1 has {'the same' if masked[3] == first['none'] else 'other'} bits")


if __name__ == "__main__":
    main()
