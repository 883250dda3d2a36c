"""The contract of a partition, the division of training samples among clients, and the list of all kinds.

A kind is a file of `models/partitions`: a frozen pydantic model whose fields are those of a scenario's `partition:`,
and whose `kind` selects it there. The invariant: no sample goes to two clients, every client has at least one, and the
division depends only on the samples, the number of clients and the seed. No sample is dropped to make sizes equal, so
equal sizes may differ by one. (Only `natural`, `by-column` and `file` leave samples out, those that belong
to no client, and so do some partitioners of `flwr`. With `own` there is nothing to divide: a process has the samples of
its own clients alone.)
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.capabilities import Fact, Needs, RulesOut, Statement
from seedbus.discovery import PluginError, Variants
from seedbus.models.errors import DataError
from seedbus.models.preprocessing import as_text
from seedbus.models.spelling import spelled_alike
from seedbus.settings import Settings

Indices = NDArray[np.int64]


class Divisible(NamedTuple):
    """What training samples can be divided by.

    Attributes:
        labels: the class of each sample, [n].
        rows: the sample at each row of the data set, an index below n, int64 [rows]; −1: a row that is held out.
        owners: the owner of each sample, [n]; None: samples have no owners.
        column: returns the values of a column by its name, float64 or object (texts) [n]; None: samples have no
            columns. Raises `DataError` if there is no such column.
        people: the names of owners 0, 1, …; empty: owners have no names.
        notes: what may not be meant so, sentences.
    """

    labels: NDArray[np.integer]
    rows: Indices
    owners: NDArray[np.integer] | None = None
    column: Callable[[str], NDArray[Any]] | None = None
    people: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def places(self) -> Indices:
        """The row of each sample in the data set, [n]."""
        held = np.flatnonzero(self.rows >= 0)
        places = np.empty(held.size, dtype=np.int64)
        places[self.rows[held]] = held
        return places


class Division(NamedTuple):
    """Training samples, and the clients that hold them.

    Attributes:
        labels: the class of each sample, [n].
        parts: for each client the sorted indices of its samples.
        names: the names of classes 0, 1, …; empty: they have none but their numbers.
        clients: the names of clients 0, 1, …; empty: they have none, either.
        rows: the row of each sample in the data set, [n]; None: that is not told.
        notes: what may not be meant so, sentences.
    """

    labels: NDArray[np.integer]
    parts: list[Indices]
    names: Sequence[str] = ()
    clients: Sequence[str] = ()
    rows: Indices | None = None
    notes: Sequence[str] = ()


class Partition(Settings):
    """The schema of `partition:`; a subclass narrows `kind` to one literal and adds its own fields."""

    by: ClassVar[Literal["labels", "rows", "owners", "column"]] = "labels"
    """The attribute of `Divisible` that it divides by."""
    by_class: ClassVar[bool] = True
    """For those that divide by labels: whether it looks at the labels, and not only at their number."""
    is_proven: ClassVar[bool] = False
    """Whether processes prove their divisions to be the same, because more than samples and seed decides them."""
    is_partial: ClassVar[bool] = False
    """Whether a process has the samples of its own clients alone, and the other parts are empty."""

    whose: ClassVar[str] = "the task's, which every process reads as a whole and divides among the clients"
    """Whose samples a process with clients reads, in words for its user."""

    kind: str = Field(description="which division it is")
    seed: int | None = Field(
        None,
        ge=0,
        lt=2**63,
        repr=False,
        description="key of its draws, for one division in runs of several seeds; none: the run's seed",
    )

    def capabilities(self) -> Iterator[Statement]:
        yield Needs(Fact.COMMON, "divides samples that all processes have")
        if self.kind != "iid":
            yield Needs(Fact.SAMPLES, "divides samples")
        if self.by != "owners":
            yield RulesOut(Fact.HELD_BY_CLIENTS, "gives clients training samples alone")
        if self.by == "owners":
            yield Needs(Fact.OWNERS, "divides samples by their owners")
        if self.by == "column":
            yield Needs(Fact.COLUMNS, "divides samples by one of their columns")

    def key(self, seed: int) -> int:
        """Return the key of its draws; seed: the run's."""
        return seed if self.seed is None else self.seed

    @property
    def is_by_owner(self) -> bool:
        """Whether each client is one owner, so that those of owners without a client are not trained on."""
        return self.by in ("owners", "column")

    @abstractmethod
    def split(self, column: NDArray[Any], clients: int, seed: int) -> list[Indices]:
        """Return for each client the sorted indices of its samples, from `values_of` them. Raises `DataError`."""

    def values_of(self, samples: Divisible) -> NDArray[Any] | None:
        """Return what it divides samples by, [n] (`rows`: see `Divisible`); None if they do not have it."""
        values: NDArray[Any] | None = getattr(samples, self.by)
        return values

    def names_of(self, samples: Divisible, parts: Sequence[Indices]) -> list[str]:
        """Return the names of clients 0, 1, …, which are only shown; none if their numbers are their names.

        Args:
            samples: what was divided.
            parts: for each client the indices of its samples, as `split` returns them.
        """
        return []

    def file_digest(self, clients: int) -> str:
        """Return the digest of the file that the partition reads, or "" if it reads none.

        Args:
            clients: number of clients of the run.

        Raises:
            DataError: the file cannot be read or has an invalid line.
        """
        return ""


def too_few_owners(kind: str, clients: int, owners: int, words: str) -> DataError:
    """Return the error of a partition by owners that has fewer of them than clients.

    Args:
        kind: which division it is.
        clients: number of clients.
        owners: how many owners have training samples.
        words: what they are, as in "people with training samples".
    """
    accepted = "1 client" if owners == 1 else f"1 to {owners} clients"
    return DataError(
        f"partition {kind}",
        f"{clients} clients and {owners} {words}",
        f"{accepted}, or more data: every process of a run needs the samples of all clients, not of its own alone",
    )


PARTITIONS = Variants("partition", "kind", "seedbus.models.partitions", Partition)


def divide(partition: Partition, samples: Divisible, clients: int, seed: int) -> list[Indices]:
    """Divide samples among clients; return for each client the sorted indices of its samples.

    Args:
        partition: how to divide.
        samples: what is divided.
        clients: number of clients.
        seed: the run's seed, the key of its draws unless it has one of its own.

    Raises:
        DataError: the samples cannot be divided so.
    """
    values = partition.values_of(samples)
    if values is None:
        found = "samples that are nobody's" if partition.by == "owners" else "samples without columns"
        others = [kind for kind, each in PARTITIONS.all().items() if each.by in ("labels", "rows")]
        raise DataError(f"partition {partition.kind}", found, f"kind: {', '.join(others)}")
    parts = partition.split(values, clients, partition.key(seed))
    _check(partition, parts, clients, len(samples.labels))
    return parts


def division_of(
    partition: Partition, samples: Divisible, clients: int, seed: int, names: Sequence[str] = ()
) -> Division:
    """Return a division with all that is told of it.

    Args:
        partition: how to divide.
        samples: what is divided.
        clients: number of clients.
        seed: the run's seed.
        names: the names of classes 0, 1, …, if they have some.

    Raises:
        DataError: the samples cannot be divided so.
    """
    parts = divide(partition, samples, clients, seed)
    notes = [*samples.notes, *_of_owners(partition, samples, parts)]
    return Division(samples.labels, parts, names, client_names(partition, samples, parts), samples.places, notes)


def _of_owners(partition: Partition, samples: Divisible, parts: Sequence[Indices]) -> Iterator[str]:
    """Yield sentences about owners that may be one, and about those that are no clients, where clients are owners."""
    values = partition.values_of(samples) if partition.is_by_owner else None
    if values is None:
        return
    present, where = np.unique(values), f"partition {partition.kind}"
    if partition.by == "column":
        nouns, names = "values", list(map(as_text, present.tolist()))
    else:
        nouns, names = "owners", [samples.people[owner] for owner in present] if samples.people else []
    yield from spelled_alike(where, names, nouns)
    if "" in names:
        yield f"{where}: an empty cell is one of the values; leave its rows out if nobody owns them"
    held, total = sum(part.size for part in parts), samples.labels.size
    if held < total:
        few = f"{len(parts):,} of {present.size:,} {nouns} are clients"
        yield f"{where}: {few}, so nobody trains on {total - held:,} of {total:,} training samples"


def client_names(partition: Partition, samples: Divisible, parts: Sequence[Indices]) -> list[str]:
    """Return the names of clients 0, 1, …, or none, as `Partition.names_of`, whose result is checked."""
    names = partition.names_of(samples, parts)
    if names and (len(names) != len(parts) or not all(isinstance(name, str) for name in names)):
        who = f"the partition {partition.kind}"
        raise PluginError(
            f"{who} returned {len(names)} names; expected a text for each of {len(parts)} clients, or none"
        )
    return names


def owned(
    partition: Partition, parts: Sequence[Indices], samples: Divisible, others: Divisible
) -> list[Indices] | None:
    """Return for each client the sorted indices of other samples of the people who own its training samples.

    Args:
        partition: how the training samples were divided.
        parts: for each client the indices of its training samples.
        samples: the training samples.
        others: such as those held out for testing; their owners have the same numbers.

    Returns:
        The indices, for a client without such samples none of them; None: clients do not stand for people.
    """
    if partition.by != "owners" or samples.owners is None or others.owners is None:
        return None
    return [np.flatnonzero(np.isin(others.owners, samples.owners[part])) for part in parts]


def _check(partition: Partition, parts: Any, clients: int, count: int) -> None:
    """Raise `PluginError` unless these are arrays of indices of samples, one for each client; count: of samples."""
    who = f"the partition {partition.kind}"
    if not isinstance(parts, list | tuple) or len(parts) != clients:
        what = f"{len(parts)} parts" if isinstance(parts, list | tuple) else type(parts).__name__
        raise PluginError(f"{who} returned {what}; expected a list of {clients}, one for each client")
    for client, part in enumerate(parts):
        if not (isinstance(part, np.ndarray) and part.ndim == 1 and part.dtype.kind in "iu"):
            what = f"{part.dtype} {list(part.shape)}" if isinstance(part, np.ndarray) else type(part).__name__
            raise PluginError(f"{who} gave client {client} {what}; expected an array of indices of samples")
        if not (part.size or partition.is_partial):
            raise PluginError(f"{who} gave client {client} no samples; expected one at least")
    joined = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    outside = joined[(joined < 0) | (joined >= count)]
    if outside.size:
        raise PluginError(f"{who} gave a client the sample {outside[0]}; expected 0 to {count - 1}")


def division_identity(partition: Partition, parts: Sequence[Indices]) -> bytes:
    """Return a digest of a division that must be proven; empty if samples and seed alone decide it."""
    return digest(parts) if partition.is_proven else b""


def digest(parts: Sequence[Indices]) -> bytes:
    """Return a digest of sorted numbers by client, 16 bytes."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(b"%d:" % part.size + part.astype("<i8").tobytes())
    return state.digest()


def check_enough(kind: str, samples: int, clients: int, each: int = 1) -> None:
    """Raise `DataError` unless there is a client, and a sample for each of its shards."""
    if not 1 <= clients * each <= samples:
        shards = f" with {each} shards each" if each > 1 else ""
        raise DataError(
            f"partition {kind}",
            f"{clients} clients{shards} and {samples} training samples",
            "one client at least, and a training sample for every client" + ("'s every shard" if each > 1 else ""),
        )


def deal(
    labels: NDArray[np.integer], classes: NDArray[np.integer], counts: Indices, rng: np.random.Generator
) -> list[Indices]:
    """Draw for every client counts[client, class] samples of each class; return their sorted indices."""
    hands: list[list[Indices]] = [[] for _ in counts]
    for column, label in enumerate(classes):
        members = rng.permutation(np.flatnonzero(labels == label))
        for hand, part in zip(hands, np.split(members, np.cumsum(counts[:, column])[:-1]), strict=True):
            hand.append(part)
    return [np.sort(np.concatenate(hand)) for hand in hands]
