"""Who holds which training samples.

The invariant: every sample goes to exactly one client, every client has at least one, and the division is a function
of the labels, the number of clients and the seed alone. Nothing is dropped to make sizes equal: they differ by one.
(`natural` alone leaves samples out, those of the people whom no client is.)

Dirichlet divisions follow two conventions, which the same α does not make alike. `prior: uniform` draws one Dir(α·1)
over the classes for each client (Kim et al. 2024, FedACG); `prior: class` draws Dir(α·class share), as DeComFL
(Li et al. 2025), so that its α = 1 on ten even classes is the first's α = 0.1. Sizes that differ follow
Yurochkin et al. 2019: each class draws one Dir over the clients. Shards are McMahan et al. 2017.
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
        """labels [n] → for each client the sorted indices of its samples. Raises `DataError`."""
        _check_enough(self.kind, labels.size, clients)
        order = stream("partition", self.kind, seed).permutation(labels.size)
        return [np.sort(part) for part in np.array_split(order, clients)]


class Shards(BaseModel, frozen=True, extra="forbid"):
    """Samples sorted by label and cut into equal shards; every client is dealt the same number of them."""

    kind: Literal["shards"] = "shards"
    shards_per_client: int = Field(2, ge=1, description="shards a client holds, at most about as many labels")

    def split(self, labels: NDArray[np.integer], clients: int, seed: int) -> list[Indices]:
        """labels [n] → for each client the sorted indices of its samples. Shards differ by at most one sample."""
        _check_enough(self.kind, labels.size, clients, self.shards_per_client)
        rng = stream("partition", self.kind, seed)
        shuffled = rng.permutation(labels.size)
        by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
        shards = np.array_split(by_label, clients * self.shards_per_client)
        hands = rng.permutation(len(shards)).reshape(clients, self.shards_per_client)
        return [np.sort(np.concatenate([shards[shard] for shard in hand])) for hand in hands]


class Dirichlet(BaseModel, frozen=True, extra="forbid"):
    """Classes divided unevenly, by Dirichlet distributions.

    Balanced: sizes differ by at most one. Each client draws the mixture of classes that it wishes for, and gets it as
    far as they last: every open place asks for a class from its client's mixture, a class that is asked for too often
    goes by lot, and the places left over ask again among the classes that remain.
    Unbalanced: each class draws the clients' shares of it, and every sample goes to a client by these shares.
    """

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(gt=0, le=1e9, description="concentration: small is heterogeneous, large is nearly iid")
    balanced: bool = Field(True, description="whether all clients hold equally many samples")
    prior: Literal["uniform", "class"] = Field(
        "uniform", description="Dir(α·1) for each client (FedACG), or Dir(α·class share) (DeComFL)"
    )

    def split(self, labels: NDArray[np.integer], clients: int, seed: int) -> list[Indices]:
        """labels [n] → for each client the sorted indices of its samples. Raises `DataError`."""
        _check_enough(self.kind, labels.size, clients)
        rng = stream("partition", self.kind, seed)
        classes, totals = np.unique(labels, return_counts=True)
        base = np.ones(classes.size) if self.prior == "uniform" else totals / labels.size
        if self.balanced:
            counts = _grant(rng.dirichlet(self.alpha * base, size=clients), totals, rng)
        else:
            counts = _share_out(self.alpha * base, totals, clients, rng)
        parts = _deal(labels, classes, counts, rng)
        self._check_nobody_empty(parts)
        return parts

    def _check_nobody_empty(self, parts: list[Indices]) -> None:
        empty = [client for client, part in enumerate(parts) if part.size == 0]
        if empty:
            named = ", ".join(map(str, empty[:10])) + (f" and {len(empty) - 10} more" if len(empty) > 10 else "")
            raise DataError(
                "partition dirichlet",
                f"no samples for clients {named} of {len(parts)} at alpha {self.alpha:g}",
                "a sample for every client: a larger alpha, fewer clients, or balanced: true",
            )


class Natural(BaseModel, frozen=True, extra="forbid"):
    """A client is a person: the one who wrote, or spoke, all of its samples.

    Where there are more people than clients, the seed draws who takes part; clients keep the order of the data set.
    """

    kind: Literal["natural"] = "natural"

    def split(self, owners: NDArray[np.integer], clients: int, seed: int) -> list[Indices]:
        """owners [n], whose each sample is → for each client the sorted indices of its samples. Raises `DataError`."""
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
    """labels [n], owners [n] or None (nobody's) → for each client the sorted indices of its samples.

    Raises `DataError`.
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
    """`count` indices in proportion to the weights, of which one at least is positive; weight 0 is never drawn."""
    edges = np.cumsum(weights)
    drawn = np.searchsorted(edges, rng.random(count) * edges[-1], side="right")
    within: Indices = np.minimum(drawn, np.flatnonzero(weights)[-1])  # rounding may reach the very last edge
    return within


def _grant(wishes: NDArray[np.float64], totals: Indices, rng: np.random.Generator) -> Indices:
    """wishes [clients, classes], totals [classes] → samples by client and class.

    Every pass fills all places or exhausts a class, so there are at most as many passes as classes, and one more.
    """
    clients, classes = wishes.shape
    counts = np.zeros((clients, classes), dtype=np.int64)
    left = totals.astype(np.int64)
    each, more = divmod(int(left.sum()), clients)
    need = np.where(np.arange(clients) < more, each + 1, each)
    while left.any():
        asked = np.zeros_like(counts)
        for client in np.flatnonzero(need):
            weights = np.where(left > 0, wishes[client], 0.0)
            # α near 0 rounds wishes to 0: a client whose classes are all gone takes what there is
            drawn = _draw(rng, int(need[client]), weights if weights.sum() > 0 else left.astype(np.float64))
            asked[client] = np.bincount(drawn, minlength=classes)
        for label in np.flatnonzero(asked.sum(axis=0) > left):
            asked[:, label] = rng.multivariate_hypergeometric(asked[:, label], left[label])
        counts += asked
        left = left - asked.sum(axis=0)
        need = need - asked.sum(axis=1)
    return counts


def _share_out(alphas: NDArray[np.float64], totals: Indices, clients: int, rng: np.random.Generator) -> Indices:
    """alphas and totals [classes] → samples by client and class [clients, classes]."""
    counts = np.zeros((clients, totals.size), dtype=np.int64)
    for label, total in enumerate(totals):
        shares = rng.dirichlet(np.full(clients, alphas[label]))
        counts[:, label] = np.bincount(_draw(rng, int(total), shares), minlength=clients)
    return counts


def _deal(
    labels: NDArray[np.integer], classes: NDArray[np.integer], counts: Indices, rng: np.random.Generator
) -> list[Indices]:
    """Hand every client counts[client, class] samples of each class, by lot."""
    hands: list[list[Indices]] = [[] for _ in counts]
    for column, label in enumerate(classes):
        members = rng.permutation(np.flatnonzero(labels == label))
        for hand, part in zip(hands, np.split(members, np.cumsum(counts[:, column])[:-1]), strict=True):
            hand.append(part)
    return [np.sort(np.concatenate(hand)) for hand in hands]
