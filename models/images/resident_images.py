"""Stored samples on a device: their bytes, and what a network reads in their place.

A task says in NumPy what inputs bytes become. On a device each byte is looked up in a table of what the task makes of
it, so there is one definition, and the same bits. A task whose inputs depend on more than the byte and its channel has
no such table: its batches are made in host memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seedbus.models.images.settings import ClassifierSettings
from seedbus.models.resident import Rows, readable

BYTES = 256
COMPARED = 16
"""Samples whose inputs are made both ways before any is looked up."""


class ResidentImages:
    """Stored samples on a device; see the module's docstring.

    Args:
        rows: the stored samples, [m, …].
        table: the inputs of each byte by channel, [channels, 256], on the device; None: samples are inputs themselves.
    """

    def __init__(self, rows: Rows, table: Tensor | None) -> None:
        self._rows = rows
        self._table = None if table is None else table.flatten()
        self._firsts = None if table is None else torch.arange(len(table), device=table.device) * BYTES

    def at(self, places: NDArray[np.int64]) -> Tensor:
        """Return stored samples, [b, …], on the device."""
        (stored,) = self._rows.at(places)
        return stored

    def inputs(self, stored: Tensor) -> Tensor:
        """Return the inputs of stored samples, of the same shape."""
        if self._table is None or self._firsts is None:
            return stored
        return self._table[stored.long() + self._firsts]


def resident_images(stored: NDArray[Any], task: ClassifierSettings, device: torch.device) -> ResidentImages | None:
    """Return stored samples [m, …] on a device.

    Args:
        stored: the samples.
        task: says what their inputs are.
        device: where they shall lie.

    Returns:
        None if they do not fit there (`models.resident`), or if the task's inputs cannot be looked up.
    """
    table = None
    if stored.dtype == np.uint8:
        images = stored.ndim == 4
        channels = stored.shape[3] if images else 1
        every = np.repeat(np.arange(BYTES, dtype=np.uint8)[:, None], channels, axis=1)
        values = task.inputs(every[:, None, None, :] if images else every)
        table = torch.from_numpy(np.ascontiguousarray(values.reshape(BYTES, channels).T)).to(device)
    first = stored[:COMPARED]
    looked_up = ResidentImages(Rows([readable(first)], device), table)
    found = looked_up.inputs(looked_up.at(np.arange(len(first)))).cpu().numpy()
    expected = task.inputs(first)
    if found.dtype != expected.dtype or found.tobytes() != expected.tobytes():
        return None
    rows = Rows([readable(stored)], device)
    return ResidentImages(rows, table) if rows.are_resident else None
