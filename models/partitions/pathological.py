"""Clients that hold samples of a few classes each: the "pathological non-IID" partition of McMahan et al. 2017.

They cut samples that are sorted by label into shards (`kind: shards`), so that a client holds about so many classes.
Here it holds exactly so many, as with #C = k of Li et al. 2022, "Federated Learning on Non-IID Data Silos". **Ours**:
every class has equally many clients, to within one, so no class is without a client.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.models.errors import DataError
from seedbus.models.generators import generator
from seedbus.models.partition import Indices, Partition, check_enough, deal


class Pathological(Partition, frozen=True):
    """Each client holds samples of so many classes; those of a class are divided equally among its clients."""

    kind: Literal["pathological"] = "pathological"
    classes: int = Field(2, ge=1, description="classes a client holds")

    def split(self, labels: NDArray[np.integer], clients: int, seed: int) -> list[Indices]:
        """Return for each client the sorted indices of its samples, from labels [n].

        Raises:
            DataError: there are too few classes, clients or samples.
        """
        check_enough(self.kind, labels.size, clients)
        rng = generator("partition", self.kind, seed)
        present, totals = np.unique(labels, return_counts=True)
        if self.classes > present.size:
            raise DataError(
                f"partition {self.kind}",
                f"classes: {self.classes} and {present.size} classes in the training samples",
                f"at most {present.size} classes for a client",
            )
        if clients * self.classes < present.size:
            raise DataError(
                f"partition {self.kind}",
                f"{clients} clients with {self.classes} classes each, and {present.size} classes",
                "a client for every class: more clients, or more classes for each",
            )
        is_held = _dealt_classes(clients, present.size, self.classes, rng)
        counts = np.zeros(is_held.shape, dtype=np.int64)
        for column, total in enumerate(totals):
            holders = rng.permutation(np.flatnonzero(is_held[:, column]))
            if holders.size > total:
                raise DataError(
                    f"partition {self.kind}",
                    f"class {present[column]} with {total} training samples for {holders.size} clients",
                    "a sample of each of its classes for every client: fewer clients, or fewer classes for each",
                )
            counts[holders, column] = total // holders.size
            counts[holders[: total % holders.size], column] += 1
        return deal(labels, present, counts, rng)


def _dealt_classes(clients: int, classes: int, each: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which classes each client holds, bool [clients, classes]: the rarest ones so far, ties drawn by lot."""
    is_held = np.zeros((clients, classes), dtype=bool)
    holders = np.zeros(classes, dtype=np.int64)
    for client in rng.permutation(clients):
        drawn = rng.permutation(classes)
        chosen = drawn[np.argsort(holders[drawn], kind="stable")[:each]]
        is_held[client, chosen] = True
        holders[chosen] += 1
    return is_held
