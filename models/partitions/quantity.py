"""Clients with many samples and clients with few: the quantity skew of Li et al. 2022.

"Federated Learning on Non-IID Data Silos" draws the clients' shares of all samples from Dir(β·1), and draws again until
every client has enough. **Ours**: every client first gets `minimum` samples, and the shares divide the others.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.models.errors import DataError
from seedbus.models.generators import generator
from seedbus.models.partition import Indices, Partition, check_enough


class Quantity(Partition, frozen=True):
    """Sizes drawn from a Dirichlet distribution; which samples a client holds is independent of their labels."""

    by_class: ClassVar[bool] = False

    kind: Literal["quantity"] = "quantity"
    beta: float = Field(gt=0, le=1e9, description="concentration: small is a few large clients, large is equal sizes")
    minimum: int = Field(1, ge=1, description="samples that every client holds at least")

    def split(self, labels: NDArray[np.integer], clients: int, seed: int) -> list[Indices]:
        """Return for each client the sorted indices of its samples, from labels [n]. Raises `DataError`."""
        check_enough(self.kind, labels.size, clients)
        rest = labels.size - clients * self.minimum
        if rest < 0:
            raise DataError(
                f"partition {self.kind}",
                f"minimum: {self.minimum} for {clients} clients and {labels.size} training samples",
                f"a minimum of 1 to {labels.size // clients}",
            )
        rng = generator("partition", self.kind, seed)
        shares = rng.dirichlet(np.full(clients, self.beta))
        ends = np.rint(np.cumsum(shares)[:-1] * rest).astype(np.int64) + self.minimum * np.arange(1, clients)
        return [np.sort(part) for part in np.split(rng.permutation(labels.size), ends)]
