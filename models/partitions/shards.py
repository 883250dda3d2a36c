"""Shards of samples sorted by label (McMahan et al. 2017)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.models.generators import generator
from seedbus.models.partition import Indices, Partition, check_enough


class Shards(Partition, frozen=True):
    """Samples sorted by label and cut into equal shards; every client gets the same number of shards."""

    kind: Literal["shards"] = "shards"
    shards_per_client: int = Field(2, ge=1, description="shards a client holds, at most about as many labels")

    def split(self, labels: NDArray[np.integer], clients: int, seed: int) -> list[Indices]:
        """Return for each client the sorted indices of its samples, from labels [n]; shards differ by at most one.

        Raises:
            DataError: there are fewer samples than shards.
        """
        check_enough(self.kind, labels.size, clients, self.shards_per_client)
        rng = generator("partition", self.kind, seed)
        shuffled = rng.permutation(labels.size)
        by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
        shards = np.array_split(by_label, clients * self.shards_per_client)
        hands = rng.permutation(len(shards)).reshape(clients, self.shards_per_client)
        return [np.sort(np.concatenate([shards[shard] for shard in hand])) for hand in hands]
