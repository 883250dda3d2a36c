"""A client is a person, with the samples that are theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from seedbus.models.generators import generator
from seedbus.models.partition import Divisible, Indices, Partition, too_few_owners


class Natural(Partition, frozen=True):
    """Each client holds the samples of one person, who wrote or spoke them.

    If there are more people than clients, the seed draws those who take part; clients keep the order of the data set.
    """

    by: ClassVar[Literal["owners"]] = "owners"

    kind: Literal["natural"] = "natural"

    def split(self, owners: NDArray[np.integer], clients: int, seed: int) -> list[Indices]:
        """Return for each client the sorted indices of its samples, from their owners [n]. Raises `DataError`."""
        people = np.unique(owners)
        if not 1 <= clients <= people.size:
            noun = "person" if people.size == 1 else "people"
            raise too_few_owners(self.kind, clients, people.size, f"{noun} with training samples")
        drawn = generator("partition", self.kind, seed).permutation(people)[:clients]
        by_owner = np.argsort(owners, kind="stable")
        ends = np.searchsorted(owners[by_owner], people, side="right")
        parts = dict(zip(people, np.split(by_owner, ends[:-1]), strict=True))
        return [parts[person] for person in np.sort(drawn)]

    def names_of(self, samples: Divisible, parts: Sequence[Indices]) -> list[str]:
        """Return the names of the clients' people, if people have names."""
        if samples.owners is None or not samples.people:
            return []
        return [samples.people[samples.owners[part[0]]] for part in parts]
