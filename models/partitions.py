"""Partitions: the division of training samples among clients.

The invariant: every sample goes to exactly one client, every client has at least one, and the division depends only on
the labels, the number of clients and the seed. No sample is dropped to make sizes equal, so equal sizes may differ by
one. (Only `natural` leaves samples out: those of people who are not clients.)

There are two conventions for Dirichlet partitions, in which the same α means different things. `prior: uniform` draws
one Dir(α·1) over the classes for each client (Kim et al. 2024, FedACG). `prior: class` draws Dir(α·class share), as
DeComFL (Li et al. 2025): its α = 1 on ten equally frequent classes is α = 0.1 in the first convention. Unbalanced
partitions follow Yurochkin et al. 2019: each class draws one Dir over the clients. Shards are those of McMahan et al.
2017.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from seedbus.models.errors import DataError
from seedbus.models.streams import stream

Indices = NDArray[np.int64]


class Iid(BaseModel, frozen=True, extra="forbid"):
    """A random division into equal parts; sizes differ by at most one."""

    kind: Literal["iid"] = "iid"

    def split(self, labels: NDArray[np.integer], clients: int, seed: int) -> list[Indices]:
        """Return for each client the sorted indices of its samples, from labels [n]. Raises `DataError`."""
        _check_enough(self.kind, labels.size, clients)
        order = stream("partition", self.kind, seed).permutation(labels.size)
        return [np.sort(part) for part in np.array_split(order, clients)]


class Shards(BaseModel, frozen=True, extra="forbid"):
    """Samples sorted by label and cut into equal shards; every client gets the same number of shards."""

    kind: Literal["shards"] = "shards"
    shards_per_client: int = Field(2, ge=1, description="shards a client holds, at most about as many labels")

    def split(self, labels: NDArray[np.integer], clients: int, seed: int) -> list[Indices]:
        """Return for each client the sorted indices of its samples, from labels [n]; shards differ by at most one.

        Raises:
            DataError: there are fewer samples than shards.
        """
        _check_enough(self.kind, labels.size, clients, self.shards_per_client)
        rng = stream("partition", self.kind, seed)
        shuffled = rng.permutation(labels.size)
        by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
        shards = np.array_split(by_label, clients * self.shards_per_client)
        hands = rng.permutation(len(shards)).reshape(clients, self.shards_per_client)
        return [np.sort(np.concatenate([shards[shard] for shard in hand])) for hand in hands]


class Dirichlet(BaseModel, frozen=True, extra="forbid"):
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
        _check_enough(self.kind, labels.size, clients)
        rng = stream("partition", self.kind, seed)
        classes, totals = np.unique(labels, return_counts=True)
        base = np.ones(classes.size) if self.prior == "uniform" else totals / labels.size
        if self.balanced:
            counts = _balanced_counts(rng.dirichlet(self.alpha * base, size=clients), totals, rng)
        else:
            counts = _unbalanced_counts(self.alpha * base, totals, clients, rng)
        parts = _deal(labels, classes, counts, rng)
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


class Natural(BaseModel, frozen=True, extra="forbid"):
    """Each client holds the samples of one person, who wrote or spoke them.

    If there are more people than clients, the seed draws those who take part; clients keep the order of the data set.
    """

    kind: Literal["natural"] = "natural"

    def split(self, owners: NDArray[np.integer], clients: int, seed: int) -> list[Indices]:
        """Return for each client the sorted indices of its samples, from their owners [n]. Raises `DataError`."""
        people = np.unique(owners)
        if not 1 <= clients <= people.size:
            raise DataError(
                "partition natural",
                f"{clients} clients and {people.size} people with training samples",
                f"1 to {people.size} clients",
            )
        drawn = stream("partition", self.kind, seed).permutation(people)[:clients]
        by_owner = np.argsort(owners, kind="stable")
        ends = np.searchsorted(owners[by_owner], people, side="right")
        parts = dict(zip(people, np.split(by_owner, ends[:-1]), strict=True))
        return [parts[person] for person in np.sort(drawn)]


Partition = Annotated[Iid | Dirichlet | Shards | Natural, Field(discriminator="kind")]


def divide(
    partition: Partition, labels: NDArray[np.integer], owners: NDArray[np.integer] | None, clients: int, seed: int
) -> list[Indices]:
    """Divide samples among clients; return for each client the sorted indices of its samples.

    Args:
        partition: how to divide.
        labels: the class of each sample, [n].
        owners: the owner of each sample, [n]; None: samples have no owners.
        clients: number of clients.
        seed: the run's seed.

    Raises:
        DataError: the samples cannot be divided so.
    """
    if not isinstance(partition, Natural):
        return partition.split(labels, clients, seed)
    if owners is None:
        raise DataError("partition natural", "samples that are nobody's", "kind: iid, dirichlet or shards")
    return partition.split(owners, clients, seed)


def _check_enough(kind: str, samples: int, clients: int, each: int = 1) -> None:
    if not 1 <= clients * each <= samples:
        shards = f" with {each} shards each" if each > 1 else ""
        raise DataError(
            f"partition {kind}",
            f"{clients} clients{shards} and {samples} training samples",
            "one client at least, and a training sample for every client" + ("'s every shard" if each > 1 else ""),
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


def _deal(
    labels: NDArray[np.integer], classes: NDArray[np.integer], counts: Indices, rng: np.random.Generator
) -> list[Indices]:
    """Draw for every client counts[client, class] samples of each class; return their sorted indices."""
    hands: list[list[Indices]] = [[] for _ in counts]
    for column, label in enumerate(classes):
        members = rng.permutation(np.flatnonzero(labels == label))
        for hand, part in zip(hands, np.split(members, np.cumsum(counts[:, column])[:-1]), strict=True):
            hand.append(part)
    return [np.sort(np.concatenate(hand)) for hand in hands]
