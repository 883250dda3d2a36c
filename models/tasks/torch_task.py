"""The user's own network and data: any `torch.nn.Module` and any map-style data set.

The network is in evaluation mode throughout, so that a loss is a function of x and the batch: dropout does nothing.
"""

from __future__ import annotations

from typing import Literal

from seedbus.models.custom.settings import TorchSettings
from seedbus.models.partition import Partition
from seedbus.models.task import Problem


class TorchTask(TorchSettings, frozen=True):
    """Your own network and data."""

    name: Literal["torch"] = "torch"

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Read the data, build the network and try both on one batch. Raises `DataError`."""
        from seedbus.models.custom.problem import TorchProblem

        return TorchProblem(self, seed=seed, clients=clients, partition=partition)
