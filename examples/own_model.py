"""A model and a table of your own: a small network for scikit-learn's table of breast tumours, and a metric of yours.

    python examples/own_model.py

The same file is a plug-in: `task: {name: torch, network: "own_model:build", data: "own_model:load"}`.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import seedbus


def build() -> nn.Module:
    """Return the network: 30 columns of a row to two classes."""
    return nn.Sequential(nn.Linear(30, 16), nn.Tanh(), nn.Linear(16, 2))


def load() -> tuple[TensorDataset, TensorDataset]:
    """Return training and test rows, every fourth row a test row; columns have mean 0 and deviation 1 in training."""
    rows, classes = (torch.from_numpy(each) for each in load_breast_cancer(return_X_y=True))
    is_test = torch.arange(len(rows)) % 4 == 0
    mean, deviation = rows[~is_test].mean(0), rows[~is_test].std(0)
    columns = ((rows - mean) / deviation).float()
    return TensorDataset(columns[~is_test], classes[~is_test]), TensorDataset(columns[is_test], classes[is_test])


def found(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the share of samples that are not malignant tumours (class 0) taken for benign ones."""
    return ((outputs.argmax(1) == 0) | (targets == 1)).float().mean()


def main() -> None:
    train, test = load()
    task = seedbus.TorchTask(
        network=build, train=train, test=test, batch_size=16, metrics={"accuracy": "accuracy", "found": found}
    )
    print(f"{'algorithm':<10}{'accuracy':>10}{'found':>8}{'bytes up, per client and round':>32}")
    for algorithm in (
        {"name": "fedavg", "local_steps": 5},
        {"name": "decomfl", "perturbations": 20, "learning_rate": 0.02},
    ):
        scenario = seedbus.load(
            {
                "name": "tumours",
                "algorithm": algorithm,
                "partition": {"kind": "dirichlet", "alpha": 0.5},
                "participation": {"clients": 10, "cohort": 5},
                "evaluation": {"every": 50},
                "stop": {"rounds": 200},
            }
        )
        results = seedbus.run(scenario, task=task)
        last, reports = results.metrics.iloc[-1], results.summary["traffic"]["by_kind"]["report"]
        size = reports["bytes"] / reports["messages"]
        print(f"{algorithm['name']:<10}{last['accuracy']:>10.1%}{last['found']:>8.1%}{size:>32,.0f}")


if __name__ == "__main__":
    main()
