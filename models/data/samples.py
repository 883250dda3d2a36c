"""Labelled samples as they are stored: bytes, labels and owners."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbus.models.partition import Divisible


class Images(NamedTuple):
    """Labelled images: all m stored ones or a selection of n. Pixels are copied only when they are requested.

    Texts are stored in the same way, as symbols [m, length].

    Attributes:
        stored: uint8 [m, height, width, channels], often shared with other processes.
        labels: int64 [n].
        rows: int64 [n], indices of the selected images among those stored; None: all of them.
        owners: int64 [n], the number of each image's owner; None: images have no owners.
    """

    stored: NDArray[np.uint8]
    labels: NDArray[np.int64]
    rows: NDArray[np.int64] | None = None
    owners: NDArray[np.int64] | None = None

    @property
    def divisible(self) -> Divisible:
        """What these images can be divided by; a row is the index of a stored image."""
        rows = np.full(len(self.stored), -1, dtype=np.int64)
        rows[slice(None) if self.rows is None else self.rows] = np.arange(self.labels.size)
        return Divisible(self.labels, rows, self.owners)

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """The images' pixels, uint8 [n, height, width, channels]; a copy if these are a selection."""
        return self.stored if self.rows is None else self.stored[self.rows]

    def pick(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return a copy of some images' pixels, uint8 [b, height, width, channels]."""
        return self.stored[indices if self.rows is None else self.rows[indices]]

    def take(self, indices: NDArray[np.int64]) -> Images:
        """Return a selection of these images, without copying pixels."""
        rows = indices if self.rows is None else self.rows[indices]
        return Images(self.stored, self.labels[indices], rows, None if self.owners is None else self.owners[indices])
