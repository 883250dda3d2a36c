"""Problems whose clients may take classes for others, as a fault says."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seedbus.models.task import Relabelling


class Relabelled:
    """A problem with samples; implements `task.HasClasses`."""

    _relabelling: Relabelling | None = None
    _classes = 0  # counted once, as many samples take longer than a batch

    @property
    @abstractmethod
    def number_of_classes(self) -> int:
        """The number of classes; 0: the samples have none."""

    def relabel(self, relabelling: Relabelling | None) -> None:
        """See `task.HasClasses`."""
        self._relabelling = relabelling
        self._classes = 0 if relabelling is None else self.number_of_classes

    def new_classes(self, client: int, round: int) -> NDArray[np.int64] | None:
        """Return the class that a client takes each class for in a round; None: itself."""
        return None if self._relabelling is None else self._relabelling(client, round, self._classes)


def taken_for(labels: Tensor, new_classes: NDArray[np.int64] | None) -> Tensor:
    """Return labels as a client takes them, on their device."""
    return labels if new_classes is None else torch.from_numpy(new_classes).to(labels.device)[labels]
