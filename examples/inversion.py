"""A reconstruction attack on reports of a federation, with noise and masks and without.

    python examples/inversion.py

Each of ten clients has one image and takes one step. Of a linear layer the gradient by the weights of class i is the
input times that by its bias, so their quotient is the image (Phong et al., ePrint 2017/715; Zhu et al.,
arXiv:1906.08935, invert deeper networks). A curious server keeps each report that it reads; anybody has the commit.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import seedbus
from seedbus.agents.server.report_reader import ReportReader

SEEDS = range(1, 6)
ALGORITHM = {"name": "fedavg", "local_steps": 1, "learning_rate": 0.3, "weighting": "uniform"}
READ: Any = ReportReader.read
KEPT: dict[int, Any] = {}


def curious(self: Any, envelope: Any, plan: Any, *, has_digests: bool) -> Any:
    """Read a report, and keep its values, [650]."""
    report, claim = READ(self, envelope, plan, has_digests=has_digests)
    KEPT[envelope.client] = np.asarray(self._algorithm.values(report), np.float64).ravel()
    return report, claim


def likeness(update: Any, image: Any, label: int) -> float:
    """Return how an image correlates, from 0 to 1, with what an update [650] gives away of its class."""
    weights, biases = update[:640].reshape(10, 64), update[640:]
    return abs(float(np.corrcoef(weights[label] / biases[label], image)[0, 1]))


def attack(seed: int, fields: dict[str, Any]) -> tuple[float, float]:
    """Return the mean likeness with the clients' images: of the reports that the server reads, and of the commit."""
    table, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))[:22]
    digits = TensorDataset(torch.from_numpy(table[order] / 16).float(), torch.from_numpy(labels[order]))
    train, test = (TensorDataset(*digits[part]) for part in (slice(11), slice(11, 22)))  # one of them validates
    task = seedbus.TorchTask(network=lambda: nn.Linear(64, 10), train=train, test=test, batch_size=1)
    scenario = {"name": "inverted", "algorithm": ALGORITHM | {"compression": "fixed-point"}, "stop": {"rounds": 1}}
    with tempfile.TemporaryDirectory() as folder:
        loaded = seedbus.load(scenario | {"participation": {"clients": 10, "quorum": 10}, "seed": seed} | fields)
        results = seedbus.run(loaded, Path(folder) / "run", task=task, page=False)
        before, after = (seedbus.replay(results.folder, round, task=task) for round in (0, 1))
    problem: Any = after.problem
    commit, seen = np.float64(after.point) - before.point, []
    for client, own in enumerate(problem.parts):
        (image,), (label,) = problem.tensors(problem.splits["train"], own)
        seen.append([likeness(update, image.numpy(), int(label)) for update in (KEPT[client], commit)])
    by_report, by_commit = np.mean(seen, axis=0)
    return float(by_report), float(by_commit)


def main() -> None:
    torch.set_num_threads(1)
    ReportReader.read = curious  # type: ignore[method-assign]
    noise = {"clip": 400_000, "noise_multiplier": 1, "delta": 1e-3}
    rows: dict[str, Any] = {"none": {}, "noise": {"privacy": noise}, "masks": {"secure_aggregation": {}}}
    rows["masks, noise in shares"] = rows["masks"] | {"privacy": noise | {"mechanism": "distributed"}}
    print(f"{'protection':<24}{'by its report':>16}{'by the commit':>16}")
    for name, fields in rows.items():
        found = np.array([attack(seed, fields) for seed in SEEDS])
        half = 2.776 * found.std(axis=0, ddof=1) / 5**0.5  # of the 95 % interval, by Student's t
        cells = (f"{mean:.2f} ± {each:.2f}" for mean, each in zip(found.mean(axis=0), half, strict=True))
        print(f"{name:<24}" + "".join(f"{cell:>16}" for cell in cells))


if __name__ == "__main__":
    main()
