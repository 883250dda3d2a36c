"""The data of a device: rows that lie on it if they fit, so that a batch is gathered there by its indices.

A data set is resident if it takes at most `SHARE` of the memory that is free on its device when the first batch needs
it. Any other is gathered in host memory, and copied from pinned memory while the host goes on. With several processes
on a GPU each takes its share of what the others have left, so that they can never fill it with data alone.

The invariant: a batch has the same bits and the same layout either way.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seedbus.models.device import free_memory, moved

SHARE = 0.25
"""The most that a data set may take of a device's free memory; activations, points and other data need the rest."""


class Rows:
    """Rows of tensors that belong together, such as inputs and targets, beside the network that reads them.

    Attributes:
        are_resident: whether all of them lie on the device; False on the processor, where there is no other place.
    """

    def __init__(self, tensors: Sequence[Tensor], device: torch.device | None) -> None:
        """Place the rows.

        Args:
            tensors: in host memory, [n, …] each.
            device: where batches are needed; None: in host memory.
        """
        self._device = device
        self.are_resident = device is not None and fits(sum(each.nbytes for each in tensors), device)
        with torch.inference_mode(False):  # such a tensor may be part of a graph later
            # not from pinned memory: torch would keep as much of it as all rows take until the process ends
            self._tensors = [each.to(device) for each in tensors] if self.are_resident else list(tensors)

    def at(self, indices: NDArray[np.int64]) -> list[Tensor]:
        """Return copies of some rows, [b, …] of each tensor, on the device."""
        index = torch.from_numpy(indices)
        if self.are_resident:
            index = moved(index, self._device)
        chosen = [each.index_select(0, index) for each in self._tensors]
        return chosen if self.are_resident else moved(chosen, self._device)


def fits(size: int, device: torch.device) -> bool:
    """Return whether data of so many bytes may be resident on a device."""
    free = free_memory(device)
    return free is None or size <= SHARE * free


def readable(array: NDArray[Any]) -> Tensor:
    """Return an array as a tensor of the same memory, which nobody writes to: it may be a file that is mapped."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
