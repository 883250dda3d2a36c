"""Each client has data of its own, which no other process reads: the scenario says what they have in common.

A scenario cannot name the owners' files. The process that hosts a client is given them by its own user (`placed`), and
tells nobody where they are and what is in them, and how many samples there are only if the algorithm weighs by it, or
by steps that are counted in epochs (FedNova).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import PrivateAttr

from seedbus.capabilities import Fact, Needs, RulesOut, Statement
from seedbus.models.data.samples import Images
from seedbus.models.errors import DataError
from seedbus.models.partition import Indices, Partition

SPECIMENS = 64
"""How many samples that are nobody's are tried and proven, at least: there is one of each class."""


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


SampleT = TypeVar("SampleT")
FoundT = TypeVar("FoundT")
ReadT = TypeVar("ReadT", covariant=True)


class ReadsOwn(Protocol[ReadT]):
    """A task of which each client may have data of its own. ReadT is the type of several samples."""

    @property
    def test_fraction(self) -> float:
        """The fraction of its samples that an owner holds out, where clients measure."""
        ...

    def read_own(self, place: Path) -> ReadT:
        """Return the samples of a file or folder, all of them. Raises `DataError` with the place of what is wrong."""
        ...

    def read_public(self) -> ReadT:
        """Return the test set that the scenario names; of none, no samples. Raises `DataError`."""
        ...

    def specimens(self) -> ReadT:
        """Return samples that are nobody's, for what is tried or proven before the run. Raises `DataError`."""
        ...

    def held_out(self, count: int) -> tuple[Indices, Indices]:
        """Return which of `count` samples in their order are for training and which for validation."""
        ...


class Owned(NamedTuple, Generic[SampleT]):
    """Samples of a split, and the number of each one's client, int64 [n]; −1: it is nobody's."""

    samples: list[SampleT]
    owners: NDArray[np.int64]


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
        for client, found, chosen in self.shares(task, specimens, _contents):
            for split, part in chosen.items():
                rows[split].append(first + part)
            stored.append(found.pixels)
            labels.append(found.labels)
            owners.append(np.full(found.labels.size, client, dtype=np.int64))
            first += found.labels.size
        together = Images(np.concatenate(stored), np.concatenate(labels), owners=np.concatenate(owners))
        splits = {name: together.take(np.concatenate([owners[0], *each])) for name, each in rows.items()}
        public = self._public(task)
        return splits | ({} if public is None else {"test": public}) | {"specimens": specimens}

    def lists(self, task: Any, content: Callable[[SampleT], bytes]) -> dict[str, Owned[SampleT]]:
        """Return what `splits` does, for a task whose samples are objects in lists.

        Args:
            task: as there.
            content: returns what a sample is, the same wherever it is read.

        Raises:
            DataError: as there.
        """
        specimens = list(task.specimens())
        samples: dict[str, list[SampleT]] = {"train": [], "validation": [], "test": []}
        owners: dict[str, list[int]] = {name: [] for name in samples}
        for client, found, chosen in self.shares(task, specimens, lambda found: map(content, found)):
            for split, part in chosen.items():
                samples[split] += [found[row] for row in part]
                owners[split] += [client] * part.size
        splits = {name: Owned(each, np.array(owners[name], dtype=np.int64)) for name, each in samples.items()}
        public = self._public(task)
        nobodys = {"specimens": specimens} if public is None else {"specimens": specimens, "test": list(public)}
        return splits | {name: Owned(each, np.full(len(each), -1)) for name, each in nobodys.items()}

    def _public(self, task: ReadsOwn[FoundT]) -> FoundT | None:
        """Return the test set that this process measures the model on; None: it does not, or clients do."""
        return task.read_public() if self._data.evaluates and not self._data.holds_out else None

    def shares(
        self, task: ReadsOwn[FoundT], specimens: FoundT, contents: Callable[[FoundT], Iterable[bytes]]
    ) -> Iterator[tuple[int, FoundT, dict[str, Indices]]]:
        """Yield each client of this process, its samples, and which of them are for training, validation and testing.

        They are ranked by a hash of what they are, so that the order of a file's rows decides nothing: a row that an
        owner measures on stays one if the file is sorted in another way. One sample at least is trained on.

        Args:
            task: reads them.
            specimens: are a client's for a trial.
            contents: yields what each sample is.

        Raises:
            DataError: an owner's data do not fit, or an owner has none.
        """
        for client, place in sorted(self._data.places.items()):
            found = specimens if place is None else task.read_own(place)
            hashes = [hashlib.blake2b(each, digest_size=16, person=b"held out").digest() for each in contents(found)]
            if not hashes:
                raise DataError(place, "no samples", "a sample at least")
            order = np.array(sorted(range(len(hashes)), key=lambda row: (hashes[row], row)), dtype=np.int64)
            tested = min(round(task.test_fraction * order.size), order.size - 1) if self._data.holds_out else 0
            rest = order[tested:]
            train, validation = task.held_out(rest.size)
            if not train.size:
                train, validation = validation[:1], validation[1:]
            chosen = {"train": rest[train], "validation": rest[validation], "test": order[:tested]}
            yield client, found, {split: np.sort(part) for split, part in chosen.items()}


def _contents(found: Images) -> Iterator[bytes]:
    for stored, label in zip(found.pixels, found.labels, strict=True):
        yield np.ascontiguousarray(stored).tobytes() + b"%d" % label


def tells_sizes(partition: Partition) -> bool:
    """Whether reports say how many samples their clients have."""
    return not isinstance(partition, Own) or partition.data.tells_sizes


def no_samples_of(client: int) -> DataError:
    """Return the error where a client is asked to learn in a process that has none of its samples."""
    return DataError(
        "partition own", f"no samples of client {client}", "its file or folder (--own), or those of all clients"
    )
