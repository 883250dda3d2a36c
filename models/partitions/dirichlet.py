"""Classes divided unevenly, by Dirichlet distributions.

There are two conventions, in which the same α means different things. `prior: uniform` draws one Dir(α·1) over the
classes for each client (Kim et al. 2024, FedACG). `prior: class` draws Dir(α·class share), as DeComFL (Li et al. 2025):
its α = 1 on ten equally frequent classes is α = 0.1 in the first convention. Unbalanced partitions follow Yurochkin et
al. 2019: each class draws one Dir over the clients.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.models.errors import DataError
from seedbus.models.generators import generator
from seedbus.models.partition import Indices, Partition, check_enough, deal


class Dirichlet(Partition, frozen=True):
    """Classes divided unevenly, by Dirichlet distributions.

    Balanced: sizes differ by at most one. Each client draws a mixture of classes. Every free place of a client draws a
    class from its mixture; the samples of a class with too many requests are drawn by lot, and places that got none
    draw again among the classes that have samples left.
    Unbalanced: each class draws the clients' shares of it, and each of its samples draws a client by these shares.
    """

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(gt=0, le=1e9, description="concentration: small is heterogeneous, large is nearly iid")
    balanced: bool = Field(True, description="whether all clients hold equally many samples")
    prior: Literal["uniform", "class"] = Field(
        "uniform", description="Dir(α·1) for each client (FedACG), or Dir(α·class share) (DeComFL)"
    )

    def split(self, labels: NDArray[np.integer], clients: int, seed: int) -> list[Indices]:
        """Return for each client the sorted indices of its samples, from labels [n]. Raises `DataError`."""
        check_enough(self.kind, labels.size, clients)
        rng = generator("partition", self.kind, seed)
        classes, totals = np.unique(labels, return_counts=True)
        base = np.ones(classes.size) if self.prior == "uniform" else totals / labels.size
        if self.balanced:
            counts = _balanced_counts(rng.dirichlet(self.alpha * base, size=clients), totals, rng)
        else:
            counts = _unbalanced_counts(self.alpha * base, totals, clients, rng)
        parts = deal(labels, classes, counts, rng)
        self._check_no_client_is_empty(parts)
        return parts

    def _check_no_client_is_empty(self, parts: list[Indices]) -> None:
        empty = [client for client, part in enumerate(parts) if part.size == 0]
        if empty:
            named = ", ".join(map(str, empty[:10])) + (f" and {len(empty) - 10} more" if len(empty) > 10 else "")
            raise DataError(
                "partition dirichlet",
                f"no samples for clients {named} of {len(parts)} at alpha {self.alpha:g}",
                "a sample for every client: a larger alpha, fewer clients, or balanced: true",
            )


def _draw(rng: np.random.Generator, count: int, weights: NDArray[np.float64]) -> Indices:
    """Draw `count` indices in proportion to weights, of which at least one is positive; weight 0 is never drawn."""
    edges = np.cumsum(weights)
    drawn = np.searchsorted(edges, rng.random(count) * edges[-1], side="right")
    valid: Indices = np.minimum(drawn, np.flatnonzero(weights)[-1])  # rounding may pass the last edge
    return valid


def _balanced_counts(mixtures: NDArray[np.float64], totals: Indices, rng: np.random.Generator) -> Indices:
    """Return samples by client and class, from mixtures [clients, classes] and class totals [classes].

    Every pass fills all places or exhausts a class, so there is at most one pass more than there are classes.
    """
    clients, classes = mixtures.shape
    counts = np.zeros((clients, classes), dtype=np.int64)
    left = totals.astype(np.int64)
    size, larger = divmod(int(left.sum()), clients)
    need = np.where(np.arange(clients) < larger, size + 1, size)
    while left.any():
        requested = np.zeros_like(counts)
        for client in np.flatnonzero(need):
            weights = np.where(left > 0, mixtures[client], 0.0)
            # α near 0 rounds mixtures to 0: a client whose classes are exhausted draws from all that is left
            drawn = _draw(rng, int(need[client]), weights if weights.sum() > 0 else left.astype(np.float64))
            requested[client] = np.bincount(drawn, minlength=classes)
        for label in np.flatnonzero(requested.sum(axis=0) > left):
            requested[:, label] = rng.multivariate_hypergeometric(requested[:, label], left[label])
        counts += requested
        left = left - requested.sum(axis=0)
        need = need - requested.sum(axis=1)
    return counts


def _unbalanced_counts(alphas: NDArray[np.float64], totals: Indices, clients: int, rng: np.random.Generator) -> Indices:
    """Return samples by client and class, [clients, classes], from alphas [classes] and class totals [classes]."""
    counts = np.zeros((clients, totals.size), dtype=np.int64)
    for label, total in enumerate(totals):
        shares = rng.dirichlet(np.full(clients, alphas[label]))
        counts[:, label] = np.bincount(_draw(rng, int(total), shares), minlength=clients)
    return counts
