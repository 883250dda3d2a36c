"""A small task of the user's own, in Python, and the fields of a scenario without a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn
from torch.utils.data import Dataset

from seedbus import TorchTask
from seedbus.models import Iid

FIELDS: dict[str, Any] = {
    "name": "own",
    "algorithm": {"name": "decomfl", "perturbations": 3, "learning_rate": 0.01},
    "participation": {"clients": 6, "cohort": 3},
    "evaluation": {"every": 3},
    "stop": {"rounds": 6},
    "verify": True,
}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.PReLU(), nn.Linear(5, 3))


class Points(Dataset[Any]):
    """Points of four numbers, in float64 as NumPy has them, and the class of each."""

    def __init__(self, count: int = 60, target: Callable[[int], Any] = lambda row: row % 3) -> None:
        self.inputs = np.random.Generator(np.random.Philox(7)).random((count, 4))
        self.target = target

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, row: int) -> Any:
        return self.inputs[row], self.target(row)


def own(**fields: Any) -> TorchTask:
    return TorchTask(**{"network": network, "train": Points(), "test": Points(20), "batch_size": 8, **fields})


def bind(task: TorchTask, partition: Any = None, seed: int = 1) -> Any:
    return task.bind(seed=seed, clients=4, partition=partition or Iid())
