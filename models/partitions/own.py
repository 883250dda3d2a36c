"""Each client has data of its own, which no other process reads: the scenario says what they have in common.

A scenario cannot name the owners' files. The process that hosts a client is given them by its own user (`placed`), and
tells nobody where they are and what is in them, and how many samples there are only if the algorithm weighs by it, or
by steps that are counted in epochs (FedNova).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import PrivateAttr

from seedbus.capabilities import Fact, Needs, RulesOut, Statement
from seedbus.models.data.samples import Images
from seedbus.models.errors import DataError
from seedbus.models.partition import Indices, Partition


class OwnData(NamedTuple):
    """What a process has been given of the owners' data.

    Attributes:
        places: client → its file or folder, of the clients of this process; None: it has specimens, for a trial.
        evaluates: whether this process measures the model on a public test set.
        holds_out: whether clients measure it, each on a part of its samples that it does not train on.
        tells_sizes: whether reports say how many samples a client has.
    """

    places: Mapping[int, Path | None] = {}
    evaluates: bool = False
    holds_out: bool = False
    tells_sizes: bool = False


class ReadsOwn(Protocol):
    """A task of which each client may have data of its own."""

    test: float

    def read_own(self, place: Path) -> Images:
        """Return the samples of a file or folder, all of them. Raises `DataError` with the place of what is wrong."""
        ...

    def read_public(self) -> Images:
        """Return the test set that the scenario names; of none, no samples. Raises `DataError`."""
        ...

    def specimens(self) -> Images:
        """Return samples that are nobody's, for what is tried or proven before the run. Raises `DataError`."""
        ...

    def held_out(self, count: int) -> tuple[Indices, Indices]:
        """Return which of `count` samples in their order are for training and which for validation."""
        ...


class Own(Partition, frozen=True):
    """Each client brings samples of its own, by `seedbus client --own`; no other process reads them."""

    by: ClassVar[Literal["owners"]] = "owners"
    is_partial: ClassVar[bool] = True

    whose: ClassVar[str] = "yours alone, by --own: they stay in this process, and no server can name a file of yours"

    kind: Literal["own"] = "own"

    _data: OwnData = PrivateAttr(OwnData())

    def capabilities(self) -> Iterator[Statement]:
        yield Needs(Fact.SAMPLES, "has clients that bring samples")
        yield Needs(Fact.STATED, "leaves the samples with their owners")
        yield RulesOut(Fact.COMMON, "leaves the samples with their owners")
        yield RulesOut(Fact.HELD_OUT, "leaves the samples with their owners")

    @property
    def data(self) -> OwnData:
        """What this process has been given."""
        return self._data

    def placed(self, data: OwnData) -> Self:
        """Return this partition in a process that has been given these data."""
        copy = self.model_copy()
        copy.__pydantic_private__ = {"_data": data}
        return copy

    def split(self, owners: NDArray[np.integer], clients: int, seed: int) -> list[Indices]:
        """Return for each client the sorted indices of its samples; of clients of other processes none."""
        nothing = np.zeros(0, dtype=np.int64)
        parts = [nothing] * clients
        for client in np.unique(owners).tolist():
            parts[client] = np.flatnonzero(owners == client)
        return parts

    def splits(self, task: Any) -> dict[str, Images]:
        """Return the samples of this process as "train", "validation" and "test", and "specimens", which are nobody's.

        Args:
            task: one that `ReadsOwn`, as `Fact.STATED` says.

        Raises:
            DataError: an owner's data do not fit, or an owner has none.
        """
        specimens = task.specimens()
        rows: dict[str, list[Indices]] = {"train": [], "validation": [], "test": []}
        stored, labels, owners = [specimens.stored[:0]], [specimens.labels[:0]], [np.zeros(0, dtype=np.int64)]
        first = 0
        for client, place in sorted(self._data.places.items()):
            found = specimens if place is None else task.read_own(place)
            if not found.labels.size:
                raise DataError(place, "no samples", "a sample at least")
            for split, chosen in _divided(found, task, holds_out=self._data.holds_out).items():
                rows[split].append(first + chosen)
            stored.append(found.pixels)
            labels.append(found.labels)
            owners.append(np.full(found.labels.size, client, dtype=np.int64))
            first += found.labels.size
        together = Images(np.concatenate(stored), np.concatenate(labels), owners=np.concatenate(owners))
        splits = {name: together.take(np.concatenate([owners[0], *each])) for name, each in rows.items()}
        public = task.read_public() if self._data.evaluates and not self._data.holds_out else None
        return splits | ({} if public is None else {"test": public}) | {"specimens": specimens}


def _divided(found: Images, task: ReadsOwn, *, holds_out: bool) -> dict[str, Indices]:
    """Return which samples of an owner are for training, validation and testing, sorted.

    They are ranked by a hash of what they are, so that the order of a file's rows decides nothing: a row that an owner
    measures on stays one if the file is sorted in another way. One sample at least is trained on.
    """
    order = np.array(sorted(range(found.labels.size), key=lambda row: (_hash(found, row), row)), dtype=np.int64)
    tested = min(round(task.test * order.size), order.size - 1) if holds_out else 0
    rest = order[tested:]
    train, validation = task.held_out(rest.size)
    if not train.size:
        train, validation = validation[:1], validation[1:]
    return {"train": np.sort(rest[train]), "validation": np.sort(rest[validation]), "test": np.sort(order[:tested])}


def _hash(found: Images, row: int) -> bytes:
    sample = np.ascontiguousarray(found.stored[row if found.rows is None else found.rows[row]])
    return hashlib.blake2b(sample.tobytes() + b"%d" % found.labels[row], digest_size=16, person=b"held out").digest()


def tells_sizes(partition: Partition) -> bool:
    """Whether reports say how many samples their clients have."""
    return not isinstance(partition, Own) or partition.data.tells_sizes
