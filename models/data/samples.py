"""Labelled samples as they are stored: bytes, labels, and whose each is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Images(NamedTuple):
    """Labelled images, all that are stored or some of them; none are copied until they are asked for.

    Texts are kept in the same way, as symbols [m, length].
    """

    stored: NDArray[np.uint8]  # [m, height, width, channels], often shared with other processes
    labels: NDArray[np.int64]  # [n]
    rows: NDArray[np.int64] | None = None  # [n], which of the stored images these are; None: all
    owners: NDArray[np.int64] | None = None  # [n], the number of the person whose each is; None: nobody's

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """[n, height, width, channels], copied where these are not all that are stored."""
        return self.stored if self.rows is None else self.stored[self.rows]

    def pick(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The pixels of these images alone, a copy."""
        return self.stored[indices if self.rows is None else self.rows[indices]]

    def take(self, indices: NDArray[np.int64]) -> Images:
        rows = indices if self.rows is None else self.rows[indices]
        return Images(self.stored, self.labels[indices], rows, None if self.owners is None else self.owners[indices])
