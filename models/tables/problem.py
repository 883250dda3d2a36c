"""Regression on a table: the network's one output is the target, standardised.

The loss is the mean squared error of the standardised target, so predicting the mean of the training part gives 1 on
that part; `mae` is the mean absolute error in the target's own unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import mse_loss

from seedbus.models.data.samples import Images
from seedbus.models.images.problem import ImageProblem
from seedbus.models.partition import Partition

if TYPE_CHECKING:
    from seedbus.models.tables.settings import TableSettings


class RegressionProblem(ImageProblem):
    """Implements `task.Problem`. Not thread-safe.

    Args:
        deviation: of the target over the training part.
    """

    def __init__(self, task: TableSettings, *, deviation: float, seed: int, clients: int, partition: Partition) -> None:
        super().__init__(task, seed=seed, clients=clients, partition=partition)
        self._deviation = deviation

    @property
    def number_of_classes(self) -> int:
        """0: targets are numbers."""
        return 0

    @property
    def number_of_outputs(self) -> int:
        """1: the target."""
        return 1

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean squared error of outputs [b, 1] to standardised targets [b]."""
        return mse_loss(outputs[:, 0], labels)

    def measures(self, outputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the squared error (loss), and the absolute one in the target's unit (mae), [b]."""
        errors = outputs[:, 0] - labels
        return {"loss": errors.square(), "mae": errors.abs() * self._deviation}

    def tensors(self, samples: Images, indices: NDArray[np.int64], **key: int) -> tuple[Tensor, Tensor]:
        """Return inputs [b, f], and as labels the standardised targets [b], which are the last number of a row."""
        rows, _ = super().tensors(samples, indices, **key)
        return rows[:, :-1].contiguous(), rows[:, -1].contiguous()
