"""Equal parts at random."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from seedbus.models.generators import generator
from seedbus.models.partition import Indices, Partition, check_enough


class Iid(Partition, frozen=True):
    """A random division into equal parts; sizes differ by at most one."""

    by_class: ClassVar[bool] = False

    kind: Literal["iid"] = "iid"

    def split(self, labels: NDArray[np.integer], clients: int, seed: int) -> list[Indices]:
        """Return for each client the sorted indices of its samples, from labels [n]. Raises `DataError`."""
        check_enough(self.kind, labels.size, clients)
        order = generator("partition", self.kind, seed).permutation(labels.size)
        return [np.sort(part) for part in np.array_split(order, clients)]
