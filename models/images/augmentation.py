"""Crops of images, in NumPy or on a device, where the images lie. Where each crop lies is drawn on the host."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from seedbus.models.device import moved

PixelsT = TypeVar("PixelsT")
"""The pixels of images, [b, height, width, channels]: a NumPy array, or a torch tensor on any device."""


def cropped(stored: PixelsT, frame: int, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> PixelsT:
    """Return crops of images that are given a black frame.

    Args:
        stored: pixels of the images, [b, height, width, channels].
        frame: width of the frame, in pixels.
        rows: the rows of the framed image that each crop takes, in their order, [b, rows].
        columns: its columns, [b, columns].

    Returns:
        Pixels, [b, rows, columns, channels].
    """
    images = np.arange(len(rows))[:, None, None]
    places = images, rows[:, :, None], columns[:, None]
    pixels: Any = stored
    if isinstance(pixels, np.ndarray):
        crops: Any = np.pad(pixels, ((0, 0), (frame, frame), (frame, frame), (0, 0)))[places]
        return crops  # type: ignore[no-any-return]
    import torch
    from torch.nn.functional import pad

    framed = pad(pixels, (0, 0, frame, frame, frame, frame))
    crops = framed[moved(tuple(map(torch.from_numpy, places)), framed.device)]
    return crops  # type: ignore[no-any-return]
